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
// One schema per type: Grafana has several definitions of one name. A type that isn't found would allow anything.
const against = (name) => {
  const schema = generator.createSchema(name);
  if (Object.keys(schema.definitions[name].properties ?? schema.definitions[name]).length === 0) {
    throw new Error(`${name} of types.ts is not found in Grafana's package`);
  }
  return new Ajv({ strict: false, allErrors: true }).compile(schema);
};
const whole = against('Classic');
const parts = {
  geomap: [
    [against('GeomapOptions'), ({ options: { basemap, layers, ...others } }) => others],
    [against('GeomapLayer'), (panel) => panel.options.basemap],
    [against('GeomapLayer'), (panel) => panel.options.layers[0]],
  ],
  stat: [[against('StatOptions'), (panel) => panel.options]],
  timeseries: [
    [against('TimeSeriesOptions'), (panel) => panel.options],
    [against('TimeSeriesCustom'), (panel) => panel.fieldConfig.defaults.custom],
  ],
};

let wrong = 0;
for (const file of files) {
  const dashboard = JSON.parse(readFileSync(file, 'utf8'));
  const problems = [];
  const check = (place, validate, value) => {
    if (validate(value)) return;
    const errors = validate.errors.slice(0, 5).map((error) => `${error.instancePath} ${error.message}`);
    problems.push(`${place}: ${errors.join(', ')}`);
  };
  check('dashboard', whole, dashboard);
  for (const panel of dashboard.panels.filter((panel) => panel.type !== 'row')) {
    for (const [validate, part] of parts[panel.type]) check(panel.title, validate, part(panel));
  }
  wrong += problems.length > 0 ? 1 : 0;
  console.log(problems.length > 0 ? `${file}:\n  ${problems.slice(0, 20).join('\n  ')}` : `${file}: ok`);
}
process.exit(wrong > 0 ? 1 : 0);
