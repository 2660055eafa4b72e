//! Why a workload is where it is, or waits: the manager's explanation as text.
//!
//! One line first, then a table with a line per cluster, then what would help. Words come from the manager and from
//! agents, so everything is escaped. Verdicts and fields that this program does not know are shown as they are.

use crate::age;
use crate::printable;
use crate::table::{Cell, Table};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write;

/// The manager's explanation of one workload.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Explanation {
    name: String,
    state: String,
    /// Milliseconds since the Unix epoch, or RFC 3339.
    since: Value,
    position: Option<Position>,
    clusters: Vec<ClusterVerdict>,
    history: Vec<Stay>,
    /// Where its pods are, a line per pod set.
    placement: Option<Vec<String>>,
    summary: String,
    would_help: String,
}

/// Its place in its queue.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Position {
    queue: String,
    place: u64,
    of: u64,
    /// There are too many to count.
    about: bool,
    /// Its place among all whom the cluster queue serves, where that is another one.
    cluster_queue: Option<ClusterQueuePlace>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClusterQueuePlace {
    name: String,
    place: u64,
    of: u64,
}

/// One attempt that it was given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Stay {
    cluster: String,
    /// When, as in `since`.
    granted: Value,
    /// How it ended; none while it goes on.
    end: Option<String>,
}

/// What one cluster has to do with it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClusterVerdict {
    cluster: String,
    region: Option<String>,
    verdict: String,
    reason: String,
    would_help: String,
    /// When it may start there: a moment as in `since`, or the provider's own words.
    estimate: Value,
}

impl Explanation {
    /// The explanation in `answer`.
    pub(crate) fn read(answer: Value) -> Result<Self, String> {
        serde_json::from_value(answer).map_err(|error| error.to_string())
    }

    /// The whole text, ending in a line feed.
    pub(crate) fn text(&self, now: Timestamp, colour: bool) -> String {
        let mut text = self.headline(now);
        text.push('\n');
        for pod_set in self.placement.iter().flatten() {
            writeln!(text, "pods of {}", printable::line(pod_set)).expect("writing to a string can't fail");
        }
        let clusters = self.clusters_text(now, colour);
        if !clusters.is_empty() {
            text.push('\n');
            text.push_str(&clusters);
        }
        text.push_str(&self.history_text(now));
        if !self.would_help.is_empty() {
            write!(text, "\nwhat would help: {}\n", printable::line(&self.would_help))
                .expect("writing to a string can't fail");
        }
        text
    }

    /// Its attempts, where there was more than one, or the one is over and it isn't.
    fn history_text(&self, now: Timestamp) -> String {
        match self.history.as_slice() {
            [] => return String::new(),
            [one] if one.end.is_none() || self.state == "Finished" => return String::new(),
            _ => {}
        }
        let mut table = Table::new(["ATTEMPT", "CLUSTER", "GRANTED", "END"]);
        for (index, stay) in self.history.iter().enumerate() {
            let granted = moment(&stay.granted)
                .map(|at| format!("{} ago", age::short(now.duration_since(at))))
                .unwrap_or_default();
            let end = stay.end.as_deref().unwrap_or("goes on");
            table.push([&(index + 1).to_string(), &stay.cluster, &granted, end].map(Cell::new).into());
        }
        format!("\n{}", table.text(false))
    }

    /// The table with a line per cluster; empty when no cluster is known.
    pub(crate) fn clusters_text(&self, now: Timestamp, colour: bool) -> String {
        let any = |has: fn(&ClusterVerdict) -> bool| self.clusters.iter().any(has);
        let (estimates, helps) =
            (any(|cluster| !cluster.estimate.is_null()), any(|cluster| !cluster.would_help.is_empty()));
        let optional = [estimates.then_some("ESTIMATE"), helps.then_some("WOULD HELP")];
        let mut table = Table::new(
            ["CLUSTER", "REGION", "VERDICT", "REASON"].into_iter().chain(optional.into_iter().flatten()),
        );
        for cluster in &self.clusters {
            let fixed = [
                Cell::new(&cluster.cluster),
                Cell::new(cluster.region.as_deref().unwrap_or_default()),
                Cell::state(&cluster.verdict),
                Cell::new(&cluster.reason),
            ];
            let estimate = estimates.then(|| Cell::new(estimate(&cluster.estimate, now)));
            let help = helps.then(|| Cell::new(&cluster.would_help));
            table.push(fixed.into_iter().chain(estimate).chain(help).collect());
        }
        if table.is_empty() { String::new() } else { table.text(colour) }
    }

    fn headline(&self, now: Timestamp) -> String {
        let mut line = format!("{} is {}", self.name, self.state);
        if let Some(since) = moment(&self.since) {
            line.push_str(&format!(" ({})", age::short(now.duration_since(since))));
        }
        if let Some(Position { queue, place, of, about, cluster_queue }) = &self.position {
            let about = if *about { "about " } else { "" };
            line.push_str(&format!(", {about}place {place} of {of} in queue {queue}"));
            if let Some(ClusterQueuePlace { name, place, of }) = cluster_queue {
                line.push_str(&format!(" ({place} of {of} in cluster queue {name})"));
            }
        }
        if !self.summary.is_empty() {
            line.push_str(&format!(": {}", self.summary));
        }
        printable::line(&line).into_owned()
    }
}

fn moment(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Number(millis) => Timestamp::from_millisecond(millis.as_i64()?).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn estimate(value: &Value, now: Timestamp) -> String {
    match (moment(value), value) {
        (Some(at), _) if at <= now => "now".to_owned(),
        (Some(at), _) => format!("in {}", age::short(at.duration_since(now))),
        (None, Value::Null) => String::new(),
        (None, Value::String(words)) => words.clone(),
        (None, other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn show(answer: Value) -> String {
        Explanation::read(answer).unwrap().text("2026-11-21T10:00:00Z".parse().unwrap(), false)
    }

    #[test]
    fn a_waiting_workload() {
        let answer = json!({
            "namespace": "default", "name": "train", "uid": "u", "state": "Pending", "since": "2026-11-21T09:57:00Z", "attempts": 0, "history": [],
            "position": {"queue": "gpus", "place": 2, "of": 14},
            "clusters": [
                {"cluster": "eu", "region": "europe-west4", "verdict": "no-room", "reason": "1 of 4 `nvidia.com/gpu` free, 3 asked for", "wouldHelp": "the end of a workload there", "estimate": null},
                {"cluster": "us", "region": null, "verdict": "waiting", "reason": "said \u{1b}[31m\"soon\"", "wouldHelp": "", "estimate": 1_795_255_500_000_i64},
                {"cluster": "asia", "region": "asia-southeast1", "verdict": "forbidden", "reason": "policy `eu-only`", "wouldHelp": "", "estimate": "after 18:00"},
            ],
            "summary": "waits: none of 3 clusters can start it now", "wouldHelp": "at `eu`: the end of a workload there",
        });
        assert_eq!(
            show(answer),
            "train is Pending (3m), place 2 of 14 in queue gpus: waits: none of 3 clusters can start it now\n\
             \n\
             CLUSTER   REGION            VERDICT     REASON                                      ESTIMATE      WOULD HELP\n\
             eu        europe-west4      no-room     1 of 4 `nvidia.com/gpu` free, 3 asked for   -             the end of a workload there\n\
             us        -                 waiting     said \\x1b[31m\"soon\"                         in 5m         -\n\
             asia      asia-southeast1   forbidden   policy `eu-only`                            after 18:00   -\n\
             \n\
             what would help: at `eu`: the end of a workload there\n"
        );
    }

    #[test]
    fn a_workload_that_was_moved_tells_its_attempts() {
        let answer = json!({
            "name": "train", "state": "Running", "since": "2026-11-21T09:59:00Z", "summary": "runs",
            "history": [
                {"cluster": "asia", "fence": "1-2-3", "granted": "2026-11-21T09:50:00Z", "over": "2026-11-21T09:58:00Z", "end": "the lease lapsed"},
                {"cluster": "us", "fence": "1-2-4", "granted": "2026-11-21T09:58:00Z", "over": null, "end": null},
            ],
        });
        assert_eq!(
            show(answer),
            "train is Running (60s): runs\n\
             \n\
             ATTEMPT   CLUSTER   GRANTED   END\n\
             1         asia      10m ago   the lease lapsed\n\
             2         us        2m ago    goes on\n"
        );
    }

    #[test]
    fn a_workload_that_waits_again_tells_its_attempt() {
        let stay = json!({"cluster": "eu", "fence": "1-2-3", "granted": "2026-11-21T09:50:00Z", "over": "2026-11-21T09:58:00Z", "end": "stopped as asked"});
        let answer =
            |state: &str| json!({"name": "train", "state": state, "summary": "waits", "history": [stay]});
        let table = "\n\nATTEMPT   CLUSTER   GRANTED   END\n1         eu        10m ago   stopped as asked\n";
        assert_eq!(show(answer("Pending")), format!("train is Pending: waits{table}"));
        assert_eq!(show(answer("Finished")), "train is Finished: waits\n", "which says how it ended");
    }

    #[test]
    fn a_running_workload() {
        let answer = json!({
            "name": "train", "state": "Running", "since": 1_795_255_140_000_i64, "position": null, "summary": "running in cluster `eu`: all its pods run there", "wouldHelp": "",
            "clusters": [{"cluster": "eu", "region": "europe-west4", "verdict": "running", "reason": "all its pods run there"}],
        });
        assert_eq!(
            show(answer),
            "train is Running (60s): running in cluster `eu`: all its pods run there\n\
             \n\
             CLUSTER   REGION         VERDICT   REASON\n\
             eu        europe-west4   running   all its pods run there\n"
        );
    }

    #[test]
    fn a_place_among_several_local_queues() {
        let answer = json!({"name": "train", "state": "Pending", "position": {
            "queue": "gpus", "place": 1, "of": 3, "clusterQueue": {"name": "team", "place": 4, "of": 9}}});
        assert_eq!(
            show(answer),
            "train is Pending, place 1 of 3 in queue gpus (4 of 9 in cluster queue team)\n"
        );
    }

    #[test]
    fn little_is_enough() {
        assert_eq!(show(json!({"name": "x", "state": "Pending"})), "x is Pending\n");
    }
}
