// Checks dashboards against Grafana's published types: node check.mjs FOLDER DASHBOARD..
// FOLDER has types.ts and the installed packages of package.json. Prints a line per dashboard; exits with 1 if one is wrong.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import path from 'node:path';

const [folder, ...files] = process.argv.slice(2);
const require = createRequire(path.resolve(folder, 'types.ts'));
const { createGenerator } = require('ts-json-schema-generator');
const Ajv = require('ajv').default;

const generator = createGenerator({ path: path.resolve(folder, 'types.ts'), type: '*', skipTypeCheck: true });
const schema = generator.createSchema('*');
const ajv = new Ajv({ strict: false, allErrors: true });
ajv.addSchema(schema, 'grafana');
const against = (name) => ajv.getSchema(`grafana#/definitions/${name}`);
const whole = against('Classic');
const parts = {
  stat: [['StatOptions', (panel) => panel.options]],
  timeseries: [
    ['TimeSeriesOptions', (panel) => panel.options],
    ['TimeSeriesCustom', (panel) => panel.fieldConfig.defaults.custom],
  ],
};

let wrong = 0;
for (const file of files) {
  const dashboard = JSON.parse(readFileSync(file, 'utf8'));
  const problems = [];
  const check = (place, name, validate, value) => {
    if (!validate(value)) problems.push(`${place}: ${name}: ${ajv.errorsText(validate.errors.slice(0, 5))}`);
  };
  check('dashboard', 'Dashboard', whole, dashboard);
  for (const panel of dashboard.panels.filter((panel) => panel.type !== 'row')) {
    for (const [name, part] of parts[panel.type]) check(panel.title, name, against(name), part(panel));
  }
  wrong += problems.length > 0 ? 1 : 0;
  console.log(problems.length > 0 ? `${file}:\n  ${problems.slice(0, 20).join('\n  ')}` : `${file}: ok`);
}
process.exit(wrong > 0 ? 1 : 0);
