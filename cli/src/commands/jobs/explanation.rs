//! The layout of the manager's explanation of a workload: why it is pending, or why it runs where it does.
//!
//! ```text
//! train  Pending  no cluster has 3 free nvidia.com/gpu
//! for 3m, position 2 of 14 in queue gpus
//!
//! CLUSTER   REGION         VERDICT   REASON
//! eu        europe-west4   no-room   1 of 4 free
//!                                    next: a workload there ends
//! ```
//!
//! The words come from the manager and from agents, so everything is escaped. Unknown verdicts are shown as
//! they are.

use crate::output::printable;
use crate::output::table::{Cell, Table};
use crate::output::wrap::{PAGE_COLUMNS, hang, wrap_indented};
use jiff::Timestamp;
use meridian_objects::age;
use serde::Deserialize;
use serde_json::Value;

/// Indent of a long headline's further lines.
const HEADLINE_INDENT: usize = 2;
/// From this number on, clusters with equal verdicts share one line.
const MERGED_CLUSTERS_MIN: usize = 4;
/// Clusters that a shared line names.
const NAMED_CLUSTERS_MAX: usize = 3;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::commands) struct Explanation {
    name: String,
    state: String,
    /// A time that [`moment`] reads.
    since: Value,
    position: Option<QueuePosition>,
    clusters: Vec<ClusterVerdict>,
    history: Vec<AttemptRecord>,
    /// Places of the attempt's pods, one text per pod set.
    placement: Option<Vec<String>>,
    summary: String,
    would_help: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct QueuePosition {
    queue: String,
    place: u64,
    of: u64,
    /// The numbers are estimates: the queue is too long to count.
    about: bool,
    /// Present if several local queues share the cluster queue.
    cluster_queue: Option<ClusterQueuePosition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClusterQueuePosition {
    name: String,
    place: u64,
    of: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct AttemptRecord {
    cluster: String,
    /// A time that [`moment`] reads.
    granted: Value,
    /// How it ended; `None` while it continues.
    end: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClusterVerdict {
    cluster: String,
    region: Option<String>,
    verdict: String,
    reason: String,
    would_help: String,
    /// How long until the workload may start there: milliseconds, or the provider's own words.
    estimate: Value,
}

impl ClusterVerdict {
    fn says_the_same(&self, other: &Self) -> bool {
        (&self.verdict, &self.reason, &self.would_help, &self.estimate)
            == (&other.verdict, &other.reason, &other.would_help, &other.estimate)
    }
}

impl Explanation {
    /// Fails if `answer` isn't the manager's explanation.
    pub(in crate::commands) fn parse(answer: Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(answer)
    }

    /// The whole text for a page of 80 columns, ending in a line feed.
    pub(in crate::commands) fn text(&self, now: Timestamp, colour: bool) -> String {
        let mut text = self.headline(PAGE_COLUMNS);
        text.push('\n');
        let facts = self.queue_facts(now);
        if !facts.is_empty() {
            text.push_str(&facts);
            text.push('\n');
        }
        for pod_set in self.placement.iter().flatten() {
            text.push_str(&format!("pods of {}\n", printable::line(pod_set)));
        }
        for table in [self.clusters_table(colour), self.history_table(now)] {
            if !table.is_empty() {
                text.push('\n');
                text.push_str(&table);
            }
        }
        if !self.would_help.is_empty() {
            text.push('\n');
            text.push_str(&hang("next: ", &printable::line(&self.would_help), PAGE_COLUMNS));
            text.push('\n');
        }
        text
    }

    /// `train  Pending  no cluster has 3 free nvidia.com/gpu`
    pub(in crate::commands) fn headline(&self, columns: usize) -> String {
        let first = printable::line(&format!("{}  {}", self.name, self.state)).into_owned();
        // The manager's summary may repeat the state: `pending: no cluster …`, `running in cluster …`.
        let after_state = self.summary.strip_prefix(&self.state.to_lowercase());
        let summary = after_state
            .and_then(|rest| rest.strip_prefix(": ").or_else(|| rest.strip_prefix(' ')))
            .unwrap_or(&self.summary);
        if summary.is_empty() {
            return first;
        }
        wrap_indented(&format!("{first}  {}", printable::line(summary)), columns, HEADLINE_INDENT)
    }

    /// One aligned line per cluster, and what comes next: the short form below a headline.
    ///
    /// ```text
    ///   europe-west4   1 of 4 free
    ///   us-east4       nodes are starting; its estimate was about 4s
    /// ```
    pub(in crate::commands) fn region_lines(&self, columns: usize) -> Vec<String> {
        let names = self.clusters.iter().map(|cluster| cluster.region.as_deref().unwrap_or(&cluster.cluster));
        let places: Vec<String> = names.map(|name| printable::line(name).into_owned()).collect();
        let width = places.iter().map(|place| printable::width(place)).max().unwrap_or(0);
        let line = |(place, cluster): (&String, &ClusterVerdict)| {
            let blanks = width.saturating_sub(printable::width(place));
            // The manager doesn't count the estimate down, so it is as old as its report.
            let reported = match estimate(&cluster.estimate) {
                estimate if estimate.is_empty() => String::new(),
                estimate => format!("; its estimate was {estimate}"),
            };
            let text = format!("{}{reported}", cluster.reason);
            hang(&format!("  {place}{:blanks$}   ", ""), &printable::line(&text), columns)
        };
        let mut lines: Vec<String> = places.iter().zip(&self.clusters).map(line).collect();
        if !self.would_help.is_empty() {
            lines.push(hang("  next: ", &printable::line(&self.would_help), columns));
        }
        lines
    }

    /// The clusters with this verdict that also have a reason.
    pub(in crate::commands) fn count_reasons(&self, verdict: &str) -> usize {
        self.clusters.iter().filter(|one| one.verdict == verdict && !one.reason.is_empty()).count()
    }

    /// The manager's reason for a cluster; empty if there is none.
    pub(in crate::commands) fn reason_of(&self, cluster: &str) -> &str {
        self.clusters.iter().find(|one| one.cluster == cluster).map_or("", |one| &one.reason)
    }

    /// How the attempt of this index ended; empty while it continues.
    pub(in crate::commands) fn end_of_attempt(&self, index: usize) -> &str {
        self.history.get(index).and_then(|attempt| attempt.end.as_deref()).unwrap_or_default()
    }

    /// `for 3m, position 2 of 14 in queue gpus`
    fn queue_facts(&self, now: Timestamp) -> String {
        let since = moment(&self.since)
            .map(|since| format!("for {}", age::format(now.duration_since(since).as_secs())));
        let position = self.position.as_ref().map(|position| {
            let QueuePosition { queue, place, of, about, cluster_queue } = position;
            let about = if *about { "about " } else { "" };
            let within = cluster_queue.as_ref().map(|ClusterQueuePosition { name, place, of }| {
                format!(" ({place} of {of} in cluster queue {name})")
            });
            format!("{about}position {place} of {of} in queue {queue}{}", within.unwrap_or_default())
        });
        let facts: Vec<String> = since.into_iter().chain(position).collect();
        printable::line(&facts.join(", ")).into_owned()
    }

    /// A line per cluster, or one for many with equal verdicts; empty if no cluster is known.
    fn clusters_table(&self, colour: bool) -> String {
        let mut table = Table::new(["CLUSTER", "REGION", "VERDICT", "REASON"]);
        let mut shown: Vec<&ClusterVerdict> = Vec::new();
        for cluster in &self.clusters {
            if shown.iter().any(|merged| merged.says_the_same(cluster)) {
                continue;
            }
            let equal: Vec<&ClusterVerdict> =
                self.clusters.iter().filter(|other| other.says_the_same(cluster)).collect();
            if equal.len() >= MERGED_CLUSTERS_MIN {
                let regions = || equal.iter().map(|one| one.region.as_deref().unwrap_or("-"));
                let names: Vec<&str> = equal.iter().map(|one| one.cluster.as_str()).collect();
                let same_region = regions().all(|region| Some(region) == regions().next());
                let region = if same_region { regions().next().unwrap_or("-") } else { "(several)" };
                table.push(row(&some_of(&names), region, cluster));
                shown.push(cluster);
            } else {
                table.push(row(&cluster.cluster, cluster.region.as_deref().unwrap_or_default(), cluster));
            }
        }
        if table.is_empty() { String::new() } else { table.page(colour, PAGE_COLUMNS) }
    }

    /// The attempts. Empty if there is only one and the job's state already says how it ended.
    fn history_table(&self, now: Timestamp) -> String {
        match self.history.as_slice() {
            [] => return String::new(),
            [one] if one.end.is_none() || self.state == "Finished" => return String::new(),
            _ => {}
        }
        let mut table = Table::new(["ATTEMPT", "CLUSTER", "GRANTED", "END"]);
        for (index, attempt) in self.history.iter().enumerate() {
            let granted = moment(&attempt.granted)
                .map(|at| format!("{} ago", age::format(now.duration_since(at).as_secs())))
                .unwrap_or_default();
            let end = attempt.end.as_deref().unwrap_or("-");
            table.push([&(index + 1).to_string(), &attempt.cluster, &granted, end].map(Cell::new).into());
        }
        table.page(false, PAGE_COLUMNS)
    }
}

fn row(name: &str, region: &str, cluster: &ClusterVerdict) -> Vec<Cell> {
    let estimate = estimate(&cluster.estimate);
    let labelled = |label: &str, text: &str| match text {
        "" => String::new(),
        text => format!("{label}: {text}"),
    };
    let reason = [
        cluster.reason.clone(),
        labelled("estimated wait", &estimate),
        labelled("next", &cluster.would_help),
    ];
    vec![Cell::new(name), Cell::new(region), Cell::state(&cluster.verdict), Cell::paragraphs(reason)]
}

/// `eu-1, eu-2, eu-3 and 37 more`
fn some_of(names: &[&str]) -> String {
    let named = names[..names.len().min(NAMED_CLUSTERS_MAX)].join(", ");
    match names.len().saturating_sub(NAMED_CLUSTERS_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// A time in the manager's answer: milliseconds since the Unix epoch, or RFC 3339.
fn moment(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Number(millis) => Timestamp::from_millisecond(millis.as_i64()?).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// How long the provider takes, by its own estimate: milliseconds, or its own words.
fn estimate(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Number(millis) => {
            millis.as_i64().map(|millis| format!("about {}", age::format(millis / 1_000))).unwrap_or_default()
        }
        Value::String(words) => words.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
