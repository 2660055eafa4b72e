//! Grafana's JSON of dashboards, one panel per line.

use crate::DOCS;
use crate::dashboards::{Dashboard, Panel, PanelKind, Variable};
use crate::dialect::Dialect;
use serde_json::{Value, json};

/// Version of Grafana's classic schema.
const SCHEMA: u32 = 41;
/// Columns of Grafana's grid.
const COLUMNS: u64 = 24;

/// The JSON of a dashboard.
pub(crate) fn json(dashboard: &Dashboard, dialect: Dialect) -> String {
    let panels: Vec<String> = panels(dashboard, dialect).iter().map(|panel| format!("    {panel}")).collect();
    let variables: Vec<String> =
        variables(dashboard, dialect).iter().map(|variable| format!("      {variable}")).collect();
    let text = |text: &str| json!(text).to_string();
    format!(
        r#"{{
  "uid": {uid},
  "title": {title},
  "description": {description},
  "tags": ["meridian"],
  "schemaVersion": {SCHEMA},
  "editable": false,
  "graphTooltip": 1,
  "refresh": "30s",
  "time": {{"from": "now-3h", "to": "now"}},
  "timezone": "browser",
  "links": [{links}],
  "annotations": {{"list": []}},
  "templating": {{
    "list": [
{variables}
    ]
  }},
  "panels": [
{panels}
  ]
}}
"#,
        uid = text(dashboard.uid),
        title = text(dashboard.title),
        description = text(dashboard.description),
        links = other_dashboards(),
        variables = variables.join(",\n"),
        panels = panels.join(",\n"),
    )
}

fn other_dashboards() -> Value {
    json!({
        "title": "Meridian", "type": "dashboards", "tags": ["meridian"], "asDropdown": true,
        "includeVars": true, "keepTime": true, "icon": "external link", "targetBlank": false, "tooltip": "",
        "url": "",
    })
}

fn runbook_link(page: &str) -> Value {
    json!({
        "title": "Runbook", "type": "link", "url": format!("${{runbooks}}/{page}.md"), "targetBlank": true,
        "asDropdown": false, "includeVars": false, "keepTime": false, "icon": "doc", "tags": [],
        "tooltip": "",
    })
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn variables(dashboard: &Dashboard, dialect: Dialect) -> Vec<Value> {
    let datasource = json!({
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
        "hide": 0, "multi": false, "includeAll": false, "options": [], "refresh": 1,
    });
    let runbooks = json!({
        "name": "runbooks", "label": "Runbooks", "type": "constant", "query": format!("{DOCS}/runbooks"),
        "current": {"text": format!("{DOCS}/runbooks"), "value": format!("{DOCS}/runbooks")}, "hide": 2,
    });
    let choices = dashboard.variables.iter().map(|variable| choice(variable, dialect));
    [datasource, runbooks].into_iter().chain(choices).collect()
}

fn choice(variable: &Variable, dialect: Dialect) -> Value {
    let query = dialect.text(&format!("label_values({}, {})", variable.metric, variable.value));
    let mut choice = json!({
        "name": variable.name, "label": variable.label, "type": "query", "datasource": source(),
        "query": {"query": query, "refId": variable.name}, "hide": 0, "multi": variable.many,
        "includeAll": variable.many, "options": [],
        "refresh": 2, "sort": 1, "regex": "",
    });
    if variable.many {
        choice["allValue"] = json!(".+");
        choice["current"] = json!({"text": ["All"], "value": ["$__all"]});
    }
    choice
}

/// Rows and their panels, from left to right and from the top down.
fn panels(dashboard: &Dashboard, dialect: Dialect) -> Vec<Value> {
    let mut panels = Vec::new();
    let mut y = 0;
    for row in &dashboard.rows {
        panels.push(json!({
            "id": panels.len() + 1, "type": "row", "title": row.title, "collapsed": false, "panels": [],
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        }));
        y += 1;
        let (mut x, mut line) = (0, 0);
        for panel in &row.panels {
            let (width, height) = size(panel.kind);
            if x + width > COLUMNS {
                (x, y, line) = (0, y + line, 0);
            }
            let place = json!({"x": x, "y": y, "w": width, "h": height});
            panels.push(panel_json(panel, panels.len() + 1, &place, dialect));
            (x, line) = (x + width, line.max(height));
        }
        y += line;
    }
    panels
}

const fn size(kind: PanelKind) -> (u64, u64) {
    match kind {
        PanelKind::Number => (4, 4),
        PanelKind::Lines | PanelKind::Stack => (8, 8),
    }
}

fn panel_json(panel: &Panel, id: usize, place: &Value, dialect: Dialect) -> Value {
    let targets: Vec<Value> = panel
        .queries
        .iter()
        .zip('A'..='Z')
        .map(|(query, id)| {
            json!({
                "refId": id.to_string(), "datasource": source(), "editorMode": "code", "range": true,
                "expr": dialect.text(&query.expression), "legendFormat": dialect.text(query.legend),
            })
        })
        .collect();
    let links = panel.runbook.map(runbook_link);
    json!({
        "id": id, "type": if panel.kind == PanelKind::Number { "stat" } else { "timeseries" },
        "title": panel.title, "description": panel.description, "datasource": source(), "gridPos": place,
        "fieldConfig": {"defaults": defaults(panel), "overrides": []}, "options": options(panel.kind),
        "targets": targets, "links": links.into_iter().collect::<Vec<_>>(),
    })
}

fn defaults(panel: &Panel) -> Value {
    let mut steps = vec![json!({"color": "green", "value": null})];
    if let Some((yellow, red)) = panel.thresholds {
        if yellow < red {
            steps.push(json!({"color": "yellow", "value": yellow}));
        }
        steps.push(json!({"color": "red", "value": red}));
    }
    let mode = if panel.kind == PanelKind::Number { "thresholds" } else { "palette-classic" };
    let mut defaults = json!({
        "unit": panel.unit, "color": {"mode": mode}, "thresholds": {"mode": "absolute", "steps": steps},
    });
    if panel.kind != PanelKind::Number {
        let stacking = if panel.kind == PanelKind::Stack { "normal" } else { "none" };
        let fill = if panel.kind == PanelKind::Stack { 30 } else { 0 };
        let shown = if panel.thresholds.is_some() { "dashed" } else { "off" };
        defaults["custom"] = json!({
            "drawStyle": "line", "fillOpacity": fill, "lineWidth": 1, "showPoints": "never",
            "stacking": {"mode": stacking, "group": "A"}, "thresholdsStyle": {"mode": shown},
        });
    }
    defaults
}

fn options(kind: PanelKind) -> Value {
    if kind == PanelKind::Number {
        json!({
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
            "colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto",
            "textMode": "auto",
        })
    } else {
        json!({
            "legend": {
                "displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": ["lastNotNull"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        })
    }
}
