//! The dashboards: what each panel shows, in the order in which an operator looks.

mod fleet;
mod manager;
mod queues;
mod region;
mod slo;

use meridian_manager::metrics::Metrics;

/// A page of panels.
#[derive(Clone, Debug)]
pub struct Dashboard {
    pub uid: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub variables: Vec<Variable>,
    pub rows: Vec<Row>,
}

/// A choice above the panels.
#[derive(Clone, Debug)]
pub struct Variable {
    pub name: &'static str,
    pub label: &'static str,
    /// The metric and the label with the choices.
    pub metric: String,
    pub value: &'static str,
    /// Whether several values may be chosen, or all.
    pub many: bool,
}

/// Panels under one heading.
#[derive(Clone, Debug)]
pub struct Row {
    pub title: &'static str,
    pub panels: Vec<Panel>,
}

#[derive(Clone, Debug)]
pub struct Panel {
    pub title: &'static str,
    pub description: String,
    pub kind: PanelKind,
    /// Grafana's name of the unit.
    pub unit: &'static str,
    pub queries: Vec<Query>,
    /// The value from which the panel is yellow, and the one from which it is red.
    pub thresholds: Option<(f64, f64)>,
    /// Page in `docs/runbooks/`, without its extension.
    pub runbook: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanelKind {
    /// The newest value, large.
    Number,
    /// Lines over time.
    Lines,
    /// Lines that add up.
    Stack,
    /// A map of the newest values from 0 (red) to 1 (green), of series with a place.
    Map,
}

#[derive(Clone, Debug)]
pub struct Query {
    pub expression: String,
    pub legend: &'static str,
}

/// In the order in which they are listed for operators.
pub fn all(metrics: &Metrics) -> Vec<Dashboard> {
    vec![
        fleet::dashboard(metrics),
        region::dashboard(metrics),
        queues::tenant(metrics),
        queues::cluster_queue(metrics),
        manager::dashboard(metrics),
        slo::dashboard(metrics),
    ]
}

impl Panel {
    fn new(kind: PanelKind, title: &'static str, unit: &'static str, description: &str) -> Self {
        Self {
            title,
            description: description.to_owned(),
            kind,
            unit,
            queries: Vec::new(),
            thresholds: None,
            runbook: None,
        }
    }

    fn number(title: &'static str, unit: &'static str, description: &str) -> Self {
        Self::new(PanelKind::Number, title, unit, description)
    }

    fn lines(title: &'static str, unit: &'static str, description: &str) -> Self {
        Self::new(PanelKind::Lines, title, unit, description)
    }

    fn stack(title: &'static str, unit: &'static str, description: &str) -> Self {
        Self::new(PanelKind::Stack, title, unit, description)
    }

    fn query(mut self, legend: &'static str, expression: String) -> Self {
        self.queries.push(Query { expression, legend });
        self
    }

    fn warn(mut self, yellow: f64, red: f64) -> Self {
        self.thresholds = Some((yellow, red));
        self
    }

    fn runbook(mut self, page: &'static str) -> Self {
        self.runbook = Some(page);
        self
    }
}

/// Regions of clusters.
fn regions(m: &Metrics, many: bool) -> Variable {
    let metric = meridian_manager::metrics::Named::name(&m.fleet.cluster_info);
    Variable { name: "region", label: "Region", metric, value: "region", many }
}
