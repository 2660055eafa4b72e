//! Grafana's JSON of dashboards, one panel per line.

use crate::DOCS;
use crate::dashboards::{Dashboard, Panel, PanelKind, Variable};
use crate::dialect::Dialect;
use crate::regions::PLACE;
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
        PanelKind::Lines | PanelKind::Stack | PanelKind::Map => (8, 8),
    }
}

fn panel_json(panel: &Panel, id: usize, place: &Value, dialect: Dialect) -> Value {
    let is_map = panel.kind == PanelKind::Map;
    let targets: Vec<Value> = panel
        .queries
        .iter()
        .zip('A'..='Z')
        .map(|(query, id)| {
            json!({
                "refId": id.to_string(), "datasource": source(), "editorMode": "code",
                "range": !is_map, "instant": is_map, "format": if is_map { "table" } else { "time_series" },
                "expr": dialect.text(&query.expression), "legendFormat": dialect.text(query.legend),
                "exemplar": query.expression.contains("histogram_quantile"),
            })
        })
        .collect();
    let links = panel.runbook.map(runbook_link);
    let mut json = json!({
        "id": id, "type": grafanas_type(panel.kind),
        "title": panel.title, "description": panel.description, "datasource": source(), "gridPos": place,
        "fieldConfig": {"defaults": defaults(panel), "overrides": []}, "options": options(panel.kind),
        "targets": targets, "links": links.into_iter().collect::<Vec<_>>(),
    });
    if is_map {
        let numbers = PLACE.map(|field| json!({"targetField": field, "destinationType": "number"}));
        json["transformations"] =
            json!([{"id": "convertFieldType", "options": {"fields": {}, "conversions": numbers}}]);
    }
    json
}

const fn grafanas_type(kind: PanelKind) -> &'static str {
    match kind {
        PanelKind::Number => "stat",
        PanelKind::Lines | PanelKind::Stack => "timeseries",
        PanelKind::Map => "geomap",
    }
}

fn defaults(panel: &Panel) -> Value {
    if panel.kind == PanelKind::Map {
        let steps = json!([
            {"color": "red", "value": null},
            {"color": "yellow", "value": 0.01},
            {"color": "green", "value": 1},
        ]);
        return json!({
            "unit": panel.unit, "color": {"mode": "thresholds"},
            "thresholds": {"mode": "absolute", "steps": steps},
        });
    }
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
    match kind {
        PanelKind::Number => json!({
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
            "colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto",
            "textMode": "auto", "percentChangeColorMode": "standard", "showPercentChange": false,
            "wideLayout": true,
        }),
        PanelKind::Lines | PanelKind::Stack => json!({
            "legend": {
                "displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": ["lastNotNull"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }),
        PanelKind::Map => map_options(),
    }
}

/// A layer of map markers, coloured by their values.
fn map_options() -> Value {
    let [latitude, longitude] = PLACE;
    json!({
        "view": {"id": "zero", "lat": 20, "lon": 0, "zoom": 1.2},
        "controls": {"showZoom": true, "mouseWheelZoom": false, "showAttribution": true},
        "basemap": {"type": "default", "name": "Base"},
        "layers": [{
            "type": "markers", "name": "Regions", "tooltip": true,
            "location": {"mode": "coords", "latitude": latitude, "longitude": longitude},
            "config": {
                "showLegend": false,
                "style": {
                    "color": {"field": "Value", "fixed": "green"}, "opacity": 0.8,
                    "size": {"fixed": 9, "min": 5, "max": 15},
                    "text": {"field": "region", "fixed": "", "mode": "field"},
                    "textConfig": {
                        "fontSize": 11, "offsetX": 0, "offsetY": 14, "textAlign": "center",
                        "textBaseline": "middle",
                    },
                },
            },
        }],
        "tooltip": {"mode": "details"},
    })
}
