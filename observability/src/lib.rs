//! Dashboards, alert rules and reference pages, generated from the program's own definitions.
//!
//! Owns what is shown to operators outside of Meridian. It takes every metric's name from the code that
//! registers it, so a renamed metric renames its panels and rules, and a removed one doesn't compile.
//! [`files`] is everything that is generated; the tests fail when a checked-in file differs from it.
//!
//! | module | owns |
//! |---|---|
//! | `dashboards` | the panels |
//! | `alerts` | the alerts, each with a case in which it fires and one in which it doesn't |
//! | `objectives` | service level objectives and their burn rates |
//! | `query` | pieces of PromQL |
//! | `regions` | where regions are, for maps |
//! | `dialect` | labels as Prometheus and as Managed Prometheus store them |
//! | `grafana`, `rules` | JSON of Grafana, YAML of Prometheus, of its operator and of Managed Prometheus |
//! | `reference` | pages about metrics, settings and reasons |

pub mod alerts;
pub mod dashboards;
mod dialect;
mod grafana;
mod objectives;
mod query;
pub mod reference;
mod regions;
mod rules;

use dialect::Dialect;
use meridian_manager::metrics::Metrics;
use std::collections::BTreeMap;

/// Where operators find `docs/`, for links. Replace it where the pages are served from elsewhere.
pub const DOCS: &str = "https://meridian.example/docs";

/// Every generated file, by its path from the root of the tree.
pub fn files() -> BTreeMap<String, String> {
    let metrics = Metrics::new("");
    let (alerts, dashboards) = (alerts::all(&metrics), dashboards::all(&metrics));
    let mut files = BTreeMap::new();
    for (folder, dialect) in [("", Dialect::Prometheus), ("managed/", Dialect::Managed)] {
        for dashboard in &dashboards {
            let path = format!("manifests/observability/{folder}dashboards/{}.json", dashboard.uid);
            files.insert(path, grafana::json(dashboard, dialect));
        }
    }
    let mut add = |path: &str, text: String| files.insert(path.to_owned(), text);
    add("manifests/observability/rules/meridian.rules.yaml", rules::plain(&alerts, Dialect::Prometheus));
    add("manifests/observability/rules/meridian.tests.yaml", rules::tests(&alerts, Dialect::Prometheus));
    add("manifests/observability/operator/prometheusrule.yaml", rules::operator(&alerts));
    add("manifests/observability/managed/rules.yaml", rules::managed(&alerts));
    add("manifests/observability/managed/meridian.rules.yaml", rules::plain(&alerts, Dialect::Managed));
    add("manifests/observability/managed/meridian.tests.yaml", rules::tests(&alerts, Dialect::Managed));
    add("docs/reference/metrics.md", reference::metrics::page(&metrics));
    add("docs/reference/settings.md", reference::settings::page());
    add("docs/reference/reasons.md", reference::reasons::page());
    files
}
