//! What a mode measured, as text and as a document.

use super::progress::JobState;
use super::requests::Request;
use super::sources::Interval;
use super::target::TargetKind;
use crate::commands::bench::figures::quantile;
use crate::output::table::{Cell, Table};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Times from a job's creation until it was seen in a state.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StateTimes {
    pub(super) state: JobState,
    /// Milliseconds from a job's creation, shortest first.
    millis: Vec<f64>,
}

impl StateTimes {
    pub(super) fn new(state: JobState, mut millis: Vec<f64>) -> Self {
        millis.sort_by(f64::total_cmp);
        Self { state, millis }
    }

    fn json(&self) -> Value {
        json!({
            "state": self.state.name(), "p50Ms": quantile(&self.millis, 0.5),
            "p99Ms": quantile(&self.millis, 0.99), "longestMs": quantile(&self.millis, 1.0),
        })
    }
}

/// The result of one mode.
#[derive(Clone, Debug)]
pub(super) struct ModeResult {
    /// `rate` or `latency`.
    pub(super) mode: &'static str,
    pub(super) jobs: u32,
    pub(super) until: JobState,
    /// Jobs per second from the first creation until the last state; `None` for jobs one after the other.
    pub(super) per_second: Option<f64>,
    pub(super) times: Vec<StateTimes>,
    /// Requests for each job by server; empty if no server is counted.
    pub(super) requests: BTreeMap<String, BTreeMap<Request, f64>>,
    /// From before the first creation to the last write.
    pub(super) began: Timestamp,
    pub(super) ended: Timestamp,
}

impl ModeResult {
    pub(super) fn json(&self) -> Value {
        let requests: Vec<Value> = self
            .requests
            .iter()
            .flat_map(|(server, each)| each.iter().map(move |(request, number)| (server, request, number)))
            .map(|(server, request, number)| {
                json!({
                    "server": server, "verb": request.verb, "resource": request.resource,
                    "perJob": number,
                })
            })
            .collect();
        let times: Vec<Value> = self.times.iter().map(StateTimes::json).collect();
        json!({
            "mode": self.mode, "jobs": self.jobs, "until": self.until.name(),
            "perSecond": self.per_second, "times": times,
            "requests": requests, "began": seconds(self.began), "ended": seconds(self.ended),
        })
    }

    /// A title, and tables of times and requests.
    pub(super) fn text(&self, target: TargetKind, colour: bool) -> String {
        let how = if self.per_second.is_some() { "at once" } else { "one after the other" };
        let mut text = format!("{}: {} jobs {how}, until {}\n\n", self.mode, self.jobs, self.until.name());
        if let Some(rate) = self.per_second {
            text.push_str(&format!("{rate:.1} jobs per second, until the last one\n\n"));
        }
        let mut table = Table::new(["CREATED UNTIL", "P50", "P99", "LONGEST"]);
        for times in &self.times {
            let what = match times.state {
                JobState::Admitted => format!("the {} shows its admission", target.name()),
                JobState::Resumed => "it is resumed in a worker cluster".to_owned(),
                JobState::Running => format!("the {} shows it running", target.name()),
            };
            let millis = [0.5, 0.99, 1.0].map(|q| format!("{:.0} ms", quantile(&times.millis, q)));
            table.push([what].into_iter().chain(millis).map(Cell::new).collect());
        }
        text.push_str(&table.text(colour));
        if !self.requests.is_empty() {
            text.push('\n');
            text.push_str(&self.request_table().text(colour));
        }
        text
    }

    /// One row for each kind of request, the most frequent one first, and their sums.
    fn request_table(&self) -> Table {
        let headers = ["REQUESTS PER JOB".to_owned()].into_iter().chain(self.requests.keys().cloned());
        let mut table = Table::new(headers.chain(["ALL".to_owned()]));
        let kinds: BTreeSet<&Request> = self.requests.values().flat_map(BTreeMap::keys).collect();
        let of = |request: &Request| -> Vec<f64> {
            let servers = self.requests.values();
            servers.map(|each| each.get(request).copied().unwrap_or_default()).collect()
        };
        let mut rows: Vec<RequestRow> = kinds
            .into_iter()
            .map(|request| RequestRow::new(format!("{} {}", request.verb, request.resource), of(request)))
            .collect();
        rows.sort_by(|one, other| other.sum.total_cmp(&one.sum).then_with(|| one.title.cmp(&other.title)));
        let sums = self.requests.values().map(|each| each.values().sum()).collect();
        rows.push(RequestRow::new("all".to_owned(), sums));
        rows.iter().for_each(|row| table.push(row.cells()));
        table
    }
}

/// A row of the table of requests.
struct RequestRow {
    title: String,
    /// Requests per job by server.
    each: Vec<f64>,
    sum: f64,
}

impl RequestRow {
    fn new(title: String, each: Vec<f64>) -> Self {
        let sum = each.iter().sum();
        Self { title, each, sum }
    }

    fn cells(&self) -> Vec<Cell> {
        let numbers = self.each.iter().chain([&self.sum]);
        let numbers = numbers.map(|each| if *each == 0.0 { String::new() } else { format!("{each:.2}") });
        [self.title.clone()].into_iter().chain(numbers).map(Cell::new).collect()
    }
}

/// The idle time in documents.
pub(super) fn interval_json(interval: &Interval) -> Value {
    json!({"began": seconds(interval.from.clock), "ended": seconds(interval.to.clock)})
}

/// Seconds since 1970 with their fraction, so that others can compare them with their own clock.
fn seconds(at: Timestamp) -> f64 {
    at.as_microsecond() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> ModeResult {
        let request = |verb: &str, resource: &str| Request { verb: verb.into(), resource: resource.into() };
        let front = BTreeMap::from([
            (request("POST", "jobs"), 1.0),
            (request("APPLY", "jobs/status"), 1.0),
            (request("GET", "leases"), 0.25),
        ]);
        let worker = BTreeMap::from([(request("POST", "jobs"), 1.0)]);
        ModeResult {
            mode: "rate",
            jobs: 100,
            until: JobState::Admitted,
            per_second: Some(58.6),
            times: vec![StateTimes::new(JobState::Admitted, (1..=100).rev().map(f64::from).collect())],
            requests: BTreeMap::from([("asia".to_owned(), worker), ("front".to_owned(), front)]),
            began: Timestamp::UNIX_EPOCH,
            ended: Timestamp::from_millisecond(1_500).unwrap(),
        }
    }

    #[test]
    fn a_result_is_shown_with_rate_times_and_requests() {
        let text = result().text(TargetKind::ManagementCluster, false);
        let text = text.split_whitespace().collect::<Vec<&str>>().join(" ");
        for line in [
            "rate: 100 jobs at once, until admitted",
            "58.6 jobs per second, until the last one",
            "the management cluster shows its admission 50 ms 99 ms 100 ms",
            "POST jobs 1.00 1.00 2.00",
            "APPLY jobs/status - 1.00 1.00",
            "all 1.00 2.25 3.25",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let (posts, applies) = (text.find("POST jobs").unwrap(), text.find("APPLY jobs").unwrap());
        assert!(posts < applies, "{text}");
    }

    #[test]
    fn a_document_has_percentiles_and_requests_by_server() {
        let document = result().json();
        let times = json!([{"state": "admitted", "p50Ms": 50.0, "p99Ms": 99.0, "longestMs": 100.0}]);
        assert_eq!(document["times"], times);
        let first = json!({"server": "asia", "verb": "POST", "resource": "jobs", "perJob": 1.0});
        assert_eq!(document["requests"][0], first);
        assert_eq!(document["requests"].as_array().unwrap().len(), 4);
        assert_eq!((&document["began"], &document["ended"]), (&json!(0.0), &json!(1.5)));
    }
}
