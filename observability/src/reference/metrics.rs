//! The page about metrics: their labels, and the bounds of the labels' values.

use super::{HEAD, cell};
use meridian_agent::metrics::names;
use meridian_manager::metrics::{LABELS, Metrics};
use std::fmt::Write as _;

const INTRODUCTION: &str = "\
# Metrics

Every metric of the manager and of the agents, as `/metrics` describes it.
[Operations](../operations.md#watch) says how to collect them;
[`manifests/observability`](../../manifests/observability) has dashboards and alerts on them.

Counters start at 0 with the process. A histogram has the series `_bucket`, `_sum` and `_count`. A metric with
the meaning of one of Kueue's has Kueue's name, labels and units.

";

pub(crate) fn page(metrics: &Metrics) -> String {
    let mut text = format!("{HEAD}{INTRODUCTION}## Manager: Meridian's own\n\n");
    let rows = |of: &dyn Fn(&str) -> bool| -> Vec<MetricRow> {
        let chosen = metrics.catalog().iter().filter(|entry| of(entry.name));
        chosen.map(|entry| (entry.name, entry.kind, entry.labels, entry.help)).collect()
    };
    let is_kueue = |name: &str| name.starts_with("kueue_");
    table(&mut text, rows(&|name| !is_kueue(name)));
    text.push_str(
        "\n## Manager: with Kueue's names\n\nEach also has the label `replica_role=\"leader\"`.\n\n",
    );
    table(&mut text, rows(&is_kueue));
    let constant = names::CONSTANT_LABELS.map(|label| format!("`{label}`")).join(" and ");
    let _ = writeln!(text, "\n## Agent\n\nEach also has the labels {constant}.\n");
    table(
        &mut text,
        names::ALL.iter().map(|entry| (entry.name, entry.kind, entry.labels, entry.help)).collect(),
    );
    text.push_str(
        "\n## Labels and their bounds\n\nThe number of series of a metric is at most the product of its \
         labels' bounds. No label has the name of a\nworkload, of a user, or text from outside. The series \
         of a deleted object are removed.\n\n| label | values | how many |\n|---|---|---|\n",
    );
    for label in LABELS {
        let _ = writeln!(text, "| `{}` | {} | {} |", label.name, cell(label.values), cell(label.bound));
    }
    text.push_str(
        "\nOf agents: `cluster` and `runner` have one value each, `state` at most 3, `reason` 7, `lane` 2, \
         `outcome` 3. `gpu`, `UUID` and\n`modelName` name a GPU of the agent's machine, so a metric of GPUs \
         has one series for each: usually 8, at most 16. They have\nthe names and units of NVIDIA's DCGM \
         exporter, and exist with `--runner process` where the driver's library is. With\n\
         `--runner simulated` there is a utilisation for each GPU of a running gang, of at most 512.\n",
    );
    text
}

/// Name, kind, labels and help.
type MetricRow = (&'static str, &'static str, &'static [&'static str], &'static str);

fn table(text: &mut String, mut rows: Vec<MetricRow>) {
    rows.sort_unstable();
    text.push_str("| metric | kind | labels | meaning |\n|---|---|---|---|\n");
    for (name, kind, labels, help) in rows {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(text, "| `{name}` | {kind} | {} | {} |", labels.join(", "), cell(help));
    }
}
