//! The API's reports about each job and each region over time (pure).
//!
//! A job *asks* in a region while its offer there is open, and each change of the region's answer is an ask
//! of its own. Times are seconds since the begin of the demo.

use crate::objects::fields::text;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What a region answered to an open offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "&'static str")]
pub(super) enum Answer {
    /// The agent or its provider hasn't answered yet.
    None,
    Queued,
    OutOfStock,
    Quota,
    RequestLimit,
    /// Another answer, in the provider's own words.
    Other,
    Starting,
    Held,
}

impl Answer {
    fn read(verdict: &str, reason: &str) -> Option<Self> {
        let named = [
            ("SuccessfullyQueued", Self::Queued),
            ("ResourcePoolExhausted", Self::OutOfStock),
            ("QuotaExceeded", Self::Quota),
            ("LimitExceeded", Self::RequestLimit),
            ("provisioned", Self::Starting),
            ("asked the provider", Self::None),
        ];
        match verdict {
            "offered" => Some(Self::None),
            "held" => Some(Self::Held),
            "waiting" => {
                let found = named.iter().find(|(name, _)| reason.contains(name));
                Some(found.map_or(Self::Other, |(_, answer)| *answer))
            }
            _ => None,
        }
    }

    /// The answer's name in a table.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::None => "asked",
            Self::Queued => "queued",
            Self::OutOfStock => "out of stock",
            Self::Quota => "quota used up",
            Self::RequestLimit => "request limit",
            Self::Other => "waiting",
            Self::Starting => "nodes start",
            Self::Held => "held",
        }
    }
}

impl From<Answer> for &'static str {
    fn from(answer: Answer) -> Self {
        answer.words()
    }
}

/// How a region's answer to an offer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
pub(super) enum AskEnd {
    Open,
    /// The region answered differently.
    Changed,
    Won,
    /// The offer was withdrawn because another region won.
    Withdrawn,
    /// The offer ended without a winner.
    Closed,
}

impl From<AskEnd> for &'static str {
    fn from(end: AskEnd) -> Self {
        match end {
            AskEnd::Open => "open",
            AskEnd::Changed => "answered anew",
            AskEnd::Won => "won",
            AskEnd::Withdrawn => "withdrawn",
            AskEnd::Closed => "ended",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ask {
    pub(super) region: String,
    pub(super) answer: Answer,
    pub(super) reason: String,
    /// The region's estimate in seconds, at the begin of the ask.
    pub(super) estimate: Option<f64>,
    pub(super) from: f64,
    pub(super) until: Option<f64>,
    pub(super) end: AskEnd,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
pub(super) enum RunEnd {
    Open,
    Finished,
    /// The gang was restarted elsewhere.
    Lost,
}

impl From<RunEnd> for &'static str {
    fn from(end: RunEnd) -> Self {
        match end {
            RunEnd::Open => "running",
            RunEnd::Finished => "finished",
            RunEnd::Lost => "lost",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Run {
    pub(super) region: String,
    pub(super) from: f64,
    pub(super) until: Option<f64>,
    pub(super) end: RunEnd,
}

/// A race that a region has won.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Race {
    pub(super) winner: String,
    /// Seconds from the first offer.
    pub(super) took: f64,
    /// The regions that lost, and what each of them answered last.
    pub(super) losers: Vec<(String, Answer)>,
    /// Regions whose offer was still open when the winner had the right to run.
    pub(super) open_after: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobHistory {
    pub(super) name: String,
    /// The job's title in the demo, such as `gang 1`.
    pub(super) title: String,
    /// Accelerators of all its pods.
    pub(super) accelerators: u32,
    pub(super) asks: Vec<Ask>,
    pub(super) races: Vec<Race>,
    pub(super) runs: Vec<Run>,
}

impl JobHistory {
    fn open_asks(&mut self) -> impl Iterator<Item = &mut Ask> {
        self.asks.iter_mut().filter(|ask| ask.end == AskEnd::Open)
    }

    fn close(&mut self, region: &str, at: f64, end: AskEnd) {
        for ask in self.open_asks().filter(|ask| ask.region == region) {
            (ask.until, ask.end) = (Some(at), end);
        }
    }

    /// Takes the manager's explanation of the job at a time.
    pub(super) fn observe(&mut self, at: f64, why: &Value) {
        let none = Vec::new();
        let clusters = why["clusters"].as_array().unwrap_or(&none);
        match text(why, "/state") {
            "Dispatching" => {
                for cluster in clusters {
                    self.observe_offer(at, cluster);
                }
            }
            "Granted" | "Running" | "Finished" => self.observe_winner(at, clusters),
            _ => self.open_asks().for_each(|ask| (ask.until, ask.end) = (Some(at), AskEnd::Closed)),
        }
    }

    fn observe_offer(&mut self, at: f64, cluster: &Value) {
        let (region, reason) = (text(cluster, "/region"), text(cluster, "/reason"));
        let Some(answer) = Answer::read(text(cluster, "/verdict"), reason) else {
            return self.close(region, at, AskEnd::Closed);
        };
        if self.open_asks().any(|ask| ask.region == region && ask.reason == reason) {
            return;
        }
        self.close(region, at, AskEnd::Changed);
        self.asks.push(Ask {
            region: region.to_owned(),
            answer,
            reason: reason.to_owned(),
            estimate: cluster["estimate"].as_f64().map(|millis| millis / 1_000.0),
            from: at,
            until: None,
            end: AskEnd::Open,
        });
    }

    fn observe_winner(&mut self, at: f64, clusters: &[Value]) {
        let is_open =
            |cluster: &&Value| Answer::read(text(cluster, "/verdict"), text(cluster, "/reason")).is_some();
        if self.open_asks().next().is_none() {
            return;
        }
        let won = clusters.iter().find(|one| matches!(text(one, "/verdict"), "starting" | "running"));
        let Some(winner) = won.map(|cluster| text(cluster, "/region").to_owned()) else { return };
        let open_after = clusters.iter().filter(is_open).map(|one| text(one, "/region").to_owned()).collect();
        let losers: Vec<(String, Answer)> = self
            .open_asks()
            .filter(|ask| ask.region != winner)
            .map(|ask| (ask.region.clone(), ask.answer))
            .collect();
        for ask in self.open_asks() {
            let end = if ask.region == winner { AskEnd::Won } else { AskEnd::Withdrawn };
            (ask.until, ask.end) = (Some(at), end);
        }
        let last_race_end = self.runs.last().map_or(f64::MIN, |run| run.from);
        let asked = self.asks.iter().map(|ask| ask.from).filter(|from| *from > last_race_end);
        let took = at - asked.fold(at, f64::min);
        self.races.push(Race { winner, took, losers, open_after });
    }

    /// The job runs in a region now.
    pub(super) fn start_run(&mut self, at: f64, region: &str) {
        self.end_run(at, RunEnd::Lost);
        self.runs.push(Run { region: region.to_owned(), from: at, until: None, end: RunEnd::Open });
    }

    /// Ends the open run, if there is one.
    pub(super) fn end_run(&mut self, at: f64, end: RunEnd) {
        if let Some(run) = self.runs.iter_mut().find(|run| run.end == RunEnd::Open) {
            (run.until, run.end) = (Some(at), end);
        }
    }

    /// Regions in which the job has asked.
    pub(super) fn asked_regions(&self) -> BTreeSet<&str> {
        self.asks.iter().map(|ask| ask.region.as_str()).collect()
    }

    /// Regions whose provider has answered, with every answer.
    pub(super) fn answers(&self) -> BTreeMap<&str, BTreeSet<Answer>> {
        let mut answers: BTreeMap<&str, BTreeSet<Answer>> = BTreeMap::new();
        for ask in self.asks.iter().filter(|ask| ask.answer != Answer::None) {
            answers.entry(&ask.region).or_default().insert(ask.answer);
        }
        answers
    }

    /// The current answer of each region with an open offer.
    pub(super) fn open_answers(&self) -> BTreeMap<&str, Answer> {
        let open = self.asks.iter().filter(|ask| ask.end == AskEnd::Open);
        open.map(|ask| (ask.region.as_str(), ask.answer)).collect()
    }

    /// Accelerators times seconds of nodes that started in regions that lost.
    pub(super) fn started_in_vain(&self) -> f64 {
        let lost =
            self.asks.iter().filter(|ask| ask.answer == Answer::Starting && ask.end == AskEnd::Withdrawn);
        let seconds: f64 = lost.filter_map(|ask| Some(ask.until? - ask.from)).sum();
        seconds * f64::from(self.accelerators)
    }
}

/// Number of nodes of a region's pool that are requested or exist, over time: each change with its time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct PoolHistory {
    /// The most nodes that the pool could still make at any time: its size while nothing is requested.
    most_left: i64,
    changes: Vec<(f64, i64)>,
}

impl PoolHistory {
    /// Notes how many nodes the pool can still make. Returns whether the number of requested nodes changed.
    pub(super) fn observe(&mut self, at: f64, left: i64) -> bool {
        self.most_left = self.most_left.max(left);
        let requested = self.most_left - left;
        let is_new = self.now() != requested;
        if is_new {
            self.changes.push((at, requested));
        }
        is_new
    }

    pub(super) fn now(&self) -> i64 {
        self.changes.last().map_or(0, |(_, number)| *number)
    }

    pub(super) fn peak(&self) -> i64 {
        self.changes.iter().map(|(_, number)| *number).max().unwrap_or(0)
    }

    /// The largest number of nodes between two times.
    pub(super) fn peak_between(&self, from: f64, until: f64) -> i64 {
        let before = self.changes.iter().rev().find(|(at, _)| *at <= from);
        let within = self.changes.iter().filter(|(at, _)| *at > from && *at < until);
        within.chain(before).map(|(_, number)| *number).max().unwrap_or(0)
    }

    /// The changes, each with its time.
    pub(super) fn changes(&self) -> &[(f64, i64)] {
        &self.changes
    }
}

/// Everything that the demo saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct History {
    /// In the order of their submission.
    pub(super) jobs: Vec<JobHistory>,
    /// The T4 pool of each region.
    pub(super) pools: BTreeMap<String, PoolHistory>,
    /// Seconds from the begin of the demo to its end.
    pub(super) ended: f64,
}

impl History {
    pub(super) fn job(&self, name: &str) -> Option<&JobHistory> {
        self.jobs.iter().find(|job| job.name == name)
    }

    pub(super) fn job_mut(&mut self, name: &str) -> Option<&mut JobHistory> {
        self.jobs.iter_mut().find(|job| job.name == name)
    }

    /// Jobs that asked or ran in a region, in the order of their submission.
    pub(super) fn jobs_in<'h>(&'h self, region: &'h str) -> impl Iterator<Item = &'h JobHistory> {
        self.jobs.iter().filter(move |job| {
            job.asks.iter().any(|ask| ask.region == region) || job.runs.iter().any(|run| run.region == region)
        })
    }

    /// The most accelerators that jobs used at once in a region between two times.
    pub(super) fn used_between(&self, region: &str, from: f64, until: f64) -> u32 {
        let runs = || {
            let of_job = |job: &'_ JobHistory| job.accelerators;
            self.jobs.iter().flat_map(move |job| job.runs.iter().map(move |run| (of_job(job), run)))
        };
        let is_at = |run: &Run, at: f64| {
            run.region == region && run.from <= at && run.until.is_none_or(|until| until > at)
        };
        let begins = runs().map(|(_, run)| run.from).filter(|at| *at > from && *at < until).chain([from]);
        let used = |at: f64| runs().filter(|(_, run)| is_at(run, at)).map(|(gpus, _)| gpus).sum();
        begins.map(used).max().unwrap_or(0)
    }

    /// Accelerators times seconds of nodes that started in regions that lost.
    pub(super) fn started_in_vain(&self) -> f64 {
        self.jobs.iter().map(JobHistory::started_in_vain).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn why(state: &str, verdicts: [(&str, &str, &str); 3]) -> Value {
        let clusters = verdicts.map(|(region, verdict, reason)| {
            let estimate = (verdict == "waiting").then_some(4_500);
            json!({"region": region, "verdict": verdict, "reason": reason, "estimate": estimate})
        });
        json!({"state": state, "clusters": clusters})
    }

    const QUEUED: &str = "simulated Flex Start: queued (SuccessfullyQueued): 3 nodes of pool `t4` requested";
    const EXHAUSTED: &str = "simulated Flex Start: out of stock (ResourcePoolExhausted): pool `t4`";
    const STARTING: &str = "simulated Flex Start: provisioned (Provisioned): 3 nodes of pool `t4` starting";

    #[test]
    fn a_race_has_a_winner_and_the_last_answers_of_the_others() {
        let mut job = JobHistory { accelerators: 3, ..JobHistory::default() };
        job.observe(
            1.0,
            &why("Dispatching", [("eu", "offered", ""), ("us", "offered", ""), ("asia", "offered", "")]),
        );
        let waits = [("eu", "waiting", QUEUED), ("us", "waiting", QUEUED), ("asia", "waiting", EXHAUSTED)];
        job.observe(2.0, &why("Dispatching", waits));
        job.observe(2.1, &why("Dispatching", waits));
        let start =
            [("eu", "waiting", STARTING), ("us", "waiting", STARTING), ("asia", "waiting", EXHAUSTED)];
        job.observe(4.0, &why("Dispatching", start));
        assert_eq!(job.open_answers()["eu"], Answer::Starting);
        let won = [("eu", "starting", "pods starting"), ("us", "not-chosen", ""), ("asia", "not-chosen", "")];
        job.observe(6.0, &why("Granted", won));
        job.observe(6.1, &why("Running", won));
        assert_eq!(
            job.races,
            [Race {
                winner: "eu".into(),
                took: 5.0,
                losers: vec![("asia".into(), Answer::OutOfStock), ("us".into(), Answer::Starting)],
                open_after: Vec::new(),
            }]
        );
        assert_eq!(job.started_in_vain(), 6.0, "three nodes started for two seconds in the US");
        assert_eq!(job.asked_regions(), BTreeSet::from(["asia", "eu", "us"]));
        assert_eq!(job.answers()["eu"], BTreeSet::from([Answer::Queued, Answer::Starting]));
        let queued = job.asks.iter().find(|ask| ask.answer == Answer::Queued).unwrap();
        assert_eq!((queued.from, queued.until, queued.estimate), (2.0, Some(4.0), Some(4.5)));
    }

    #[test]
    fn documents_have_the_words_of_tables() {
        let (history, mut job) = (super::super::timeline::tests::history(), JobHistory::default());
        job.start_run(1.0, "eu");
        let seen = serde_json::to_value(History { jobs: vec![history.jobs[0].clone(), job], ..history });
        let seen = seen.unwrap();
        let at = |pointer: &str| seen.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        assert_eq!(
            ["/jobs/0/asks/0/answer", "/jobs/0/asks/1/end", "/jobs/0/runs/0/end", "/jobs/1/runs/0/end"]
                .map(at),
            ["out of stock", "answered anew", "finished", "running"]
        );
    }

    #[test]
    fn a_request_that_is_open_after_the_race_is_noted() {
        let mut job = JobHistory::default();
        let waits = [("eu", "waiting", QUEUED), ("us", "waiting", QUEUED), ("asia", "forbidden", "policy")];
        job.observe(1.0, &why("Dispatching", waits));
        assert_eq!(job.asked_regions(), BTreeSet::from(["eu", "us"]));
        let won = [("eu", "running", ""), ("us", "waiting", QUEUED), ("asia", "not-chosen", "")];
        job.observe(2.0, &why("Running", won));
        assert_eq!(job.races[0].open_after, ["us"]);
    }

    #[test]
    fn a_lost_run_ends_when_the_next_one_starts() {
        let mut job = JobHistory::default();
        job.start_run(1.0, "eu");
        job.start_run(11.0, "us");
        job.end_run(12.0, RunEnd::Finished);
        job.end_run(13.0, RunEnd::Finished);
        let ends: Vec<_> = job.runs.iter().map(|run| (run.region.as_str(), run.until, run.end)).collect();
        assert_eq!(ends, [("eu", Some(11.0), RunEnd::Lost), ("us", Some(12.0), RunEnd::Finished)]);
    }

    #[test]
    fn a_pool_counts_what_it_lacks_of_its_largest_report() {
        let mut pool = PoolHistory::default();
        let news = [(1.0, 24), (2.0, 21), (3.0, 21), (5.0, 24)].map(|(at, left)| pool.observe(at, left));
        assert_eq!(news, [false, true, false, true]);
        assert_eq!((pool.now(), pool.peak()), (0, 3));
        assert_eq!([0.0, 1.5, 3.0, 5.0].map(|from| pool.peak_between(from, from + 1.0)), [0, 3, 3, 0]);
    }

    #[test]
    fn jobs_that_run_at_once_use_accelerators_together() {
        let job = |accelerators, from, until| {
            let mut job = JobHistory { accelerators, ..JobHistory::default() };
            job.start_run(from, "eu");
            job.end_run(until, RunEnd::Finished);
            job
        };
        let history = History { jobs: vec![job(3, 1.0, 4.0), job(1, 3.5, 6.0)], ..History::default() };
        let used = [0.0, 1.0, 3.0, 4.0, 6.0].map(|from| history.used_between("eu", from, from + 1.0));
        assert_eq!(used, [0, 3, 4, 1, 0]);
        assert_eq!(history.used_between("us", 0.0, 9.0), 0);
    }
}
