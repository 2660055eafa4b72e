//! Labels that a collector renames because its own labels have the same names, and series that it collects
//! from others.

use meridian_agent::metrics::names::{self, Definition};

/// How a collector stores labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// As Meridian serves them. Prometheus' operator does so with `honorLabels`.
    Prometheus,
    /// Managed Prometheus keeps `cluster` and `namespace` for the scraped pod, and puts `exported_` before
    /// Meridian's.
    Managed,
}

const RENAMED: [&str; 2] = ["cluster", "namespace"];
/// Placeholder before the name of a GPU metric, in parentheses, until the dialect is known.
const GPUS: &str = "gpus(";
/// Labels of a cluster as Managed Prometheus stores them.
const PLACE: &str = "project_id, location, cluster";

/// A metric of GPUs in a query: an agent's, or that of DCGM's exporter.
pub(crate) fn of_gpus(metric: Definition) -> String {
    format!("{GPUS}{})", metric.name)
}

impl Dialect {
    /// A sentence in this dialect: only the labels that it names are renamed.
    pub(crate) fn sentence(self, text: &str) -> String {
        RENAMED.iter().fold(text.to_owned(), |text, label| match self {
            Self::Prometheus => text,
            Self::Managed => {
                text.replace(&format!("$labels.{label} "), &format!("$labels.exported_{label} "))
            }
        })
    }

    /// A query or a legend in this dialect.
    pub(crate) fn text(self, text: &str) -> String {
        match self {
            Self::Prometheus => replace_gpus(text, str::to_owned),
            Self::Managed => replace_gpus(&rename_words(text), managed_gpus),
        }
    }
}

/// Replaces each placeholder that [`of_gpus`] wrote by the series of its metric.
fn replace_gpus(text: &str, series: fn(&str) -> String) -> String {
    let mut parts = text.split(GPUS);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |replaced, part| {
        let (name, rest) = part.split_once(')').unwrap_or((part, ""));
        replaced + &series(name) + rest
    })
}

/// The series of agents, and those of GKE's exporter. The latter get the cluster's name in Meridian from an
/// agent in the same cluster; if there are several agents, from one of them.
fn managed_gpus(name: &str) -> String {
    let agents = format!("max by ({PLACE}, exported_cluster) ({} >= bool 0)", names::HOLDS.name);
    let named = format!("group_left (exported_cluster) topk by ({PLACE}) (1, {agents})");
    let of_exporter = format!("{name}{{exported_cluster=\"\"}} * on ({PLACE}) {named}");
    format!("({name}{{exported_cluster!=\"\"}} or {of_exporter})")
}

/// Renames whole words; `cluster_queue` and `$cluster` stay.
fn rename_words(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let mut renamed = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        let end = rest[start..].find(|c| !is_part(c)).map_or(rest.len(), |length| start + length);
        let word = &rest[start..end];
        renamed.push_str(&rest[..start]);
        if RENAMED.contains(&word) {
            renamed.push_str("exported_");
        }
        renamed.push_str(word);
        rest = &rest[end..];
    }
    renamed + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_with_names_of_the_collector_are_renamed() {
        let query = r#"sum by (cluster, cluster_queue) (x_cluster{cluster=~"$cluster",namespace="a"})"#;
        let managed = concat!(
            "sum by (exported_cluster, cluster_queue) ",
            r#"(x_cluster{exported_cluster=~"$cluster",exported_namespace="a"})"#
        );
        assert_eq!(Dialect::Managed.text(query), managed);
        assert_eq!(Dialect::Prometheus.text(query), query);
        let sentence = "No cluster like {{ $labels.cluster }} of {{ $labels.cluster_queue }}.";
        let managed = "No cluster like {{ $labels.exported_cluster }} of {{ $labels.cluster_queue }}.";
        assert_eq!(Dialect::Managed.sentence(sentence), managed);
        assert_eq!(Dialect::Prometheus.sentence(sentence), sentence);
    }

    #[test]
    fn managed_prometheus_finds_the_exporters_series_through_the_agent_of_their_cluster() {
        let query = format!("sum by (cluster) ({}) > 1", of_gpus(names::GPU_POWER));
        let plain = "sum by (cluster) (DCGM_FI_DEV_POWER_USAGE) > 1";
        assert_eq!(Dialect::Prometheus.text(&query), plain);
        let managed = concat!(
            r#"sum by (exported_cluster) ((DCGM_FI_DEV_POWER_USAGE{exported_cluster!=""} or "#,
            r#"DCGM_FI_DEV_POWER_USAGE{exported_cluster=""} * on (project_id, location, cluster) "#,
            "group_left (exported_cluster) topk by (project_id, location, cluster) ",
            "(1, max by (project_id, location, cluster, exported_cluster) (AGENT >= bool 0)))) > 1"
        );
        assert_eq!(Dialect::Managed.text(&query), managed.replace("AGENT", names::HOLDS.name));
    }
}
