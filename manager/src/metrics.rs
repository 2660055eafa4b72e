//! Every metric of the manager: names, help and labels, and the only use of the `prometheus` crate.
//!
//! Conventions: the prefix `meridian_`; seconds and bytes, never their parts; counters end in `_total` and nothing else
//! does. Where a meaning is that of a Kueue metric, it is served under Kueue's own name and labels, by [`kueue`], so that
//! dashboards keep working. Labels hold names of clusters, queues, policies and words from closed lists; never workloads,
//! users or text from outside, so that the number of series stays bounded.

pub mod kueue;

use kueue::Kueue;
use prometheus::core::{Atomic, AtomicF64, AtomicI64, Collector, Desc, GenericGauge, GenericGaugeVec};
use prometheus::proto::MetricFamily;
use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

const PREFIX: &str = "meridian_";
/// Durations of requests and commits: 0.1 ms doubling to 13 s.
const FINE_SECONDS: Buckets = Buckets { first: 0.000_1, factor: 2.0, count: 18 };
/// Records in one commit: 1 to 32768.
const BATCH: Buckets = Buckets { first: 1.0, factor: 2.0, count: 16 };

#[derive(Clone, Copy)]
struct Buckets {
    first: f64,
    factor: f64,
    count: usize,
}

impl Buckets {
    fn bounds(self) -> Vec<f64> {
        prometheus::exponential_buckets(self.first, self.factor, self.count).expect("the bounds are sound")
    }
}

/// The client library's own buckets, which Kueue has where it names none: 5 ms to 10 s.
fn usual_buckets() -> Vec<f64> {
    prometheus::DEFAULT_BUCKETS.to_vec()
}

/// Kueue's buckets: 1 s, then 2.5 s and on doubling, `count` in all.
fn kueue_buckets(count: usize) -> Vec<f64> {
    let doubling = prometheus::exponential_buckets(2.5, 2.0, count - 1).expect("the bounds are sound");
    [1.0].into_iter().chain(doubling).collect()
}

/// Label values of every series whose labels match all of `wanted`, in the order of the labels.
fn series_of(made: &impl Collector, wanted: &[(&str, &str)]) -> Vec<Vec<String>> {
    let names: Vec<String> =
        made.desc().into_iter().next().map(|desc: &Desc| desc.variable_labels.clone()).unwrap_or_default();
    let families = made.collect();
    let series = families.iter().flat_map(prometheus::proto::MetricFamily::get_metric).filter_map(|metric| {
        let value = |name: &str| {
            metric.get_label().iter().find(|pair| pair.name() == name).map(|pair| pair.value().to_owned())
        };
        let matches = wanted.iter().all(|(name, is)| value(name).as_deref() == Some(is));
        matches.then(|| names.iter().map(|name| value(name).unwrap_or_default()).collect())
    });
    series.collect()
}

/// Counters that differ in `N` labels; the labels' order is that of the field's documentation.
#[derive(Clone, Debug)]
pub struct Counters<const N: usize>(IntCounterVec);

impl<const N: usize> Counters<N> {
    /// One more.
    pub fn inc(&self, labels: [&str; N]) {
        self.add(labels, 1);
    }

    /// `by` more.
    pub fn add(&self, labels: [&str; N], by: u64) {
        self.0.with_label_values(&labels).inc_by(by);
    }

    /// Forgets the series of what is gone.
    pub fn forget(&self, wanted: &[(&str, &str)]) {
        for series in series_of(&self.0, wanted) {
            // It was there a moment ago; who else forgets it is welcome to.
            let _ = self.0.remove_label_values(&series);
        }
    }
}

/// Gauges that differ in `N` labels.
pub type Gauges<const N: usize> = Series<AtomicI64, N>;
/// Gauges of amounts, shares and limits, which need not be whole.
pub type Amounts<const N: usize> = Series<AtomicF64, N>;

/// One gauge for each combination of labels.
#[derive(Debug)]
pub struct Series<P: Atomic, const N: usize> {
    made: GenericGaugeVec<P>,
    /// What [`Self::replace`] took last, in its order.
    shown: Arc<Mutex<Vec<One<P, N>>>>,
}

/// One gauge, and its labels.
type One<P, const N: usize> = ([Box<str>; N], GenericGauge<P>);

impl<P: Atomic, const N: usize> Clone for Series<P, N> {
    fn clone(&self) -> Self {
        Self { made: self.made.clone(), shown: Arc::clone(&self.shown) }
    }
}

impl<P: Atomic, const N: usize> Series<P, N> {
    fn new(made: GenericGaugeVec<P>) -> Self {
        Self { made, shown: Arc::default() }
    }

    /// Becomes `value`.
    pub fn set(&self, labels: [&str; N], value: P::T) {
        self.made.with_label_values(&labels).set(value);
    }

    /// Takes these in place of what it took last: what is gone is not shown for ever, and who looks meanwhile sees everything
    /// that stays. Nearly always the same series come in the same order.
    pub fn replace<'a>(&self, values: impl IntoIterator<Item = ([&'a str; N], P::T)>) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut same = 0;
        let mut others = Vec::new();
        for (labels, value) in values {
            match shown
                .get(same)
                .filter(|(known, _)| others.is_empty() && known.iter().map(|label| &**label).eq(labels))
            {
                Some((_, gauge)) => {
                    gauge.set(value);
                    same += 1;
                }
                None => others.push((labels, value)),
            }
        }
        let stay: BTreeSet<[&str; N]> = others.iter().map(|(labels, _)| *labels).collect();
        for (labels, _) in shown.drain(same..) {
            if !stay.contains(&labels.each_ref().map(|label| &**label)) {
                // It was there a moment ago; who else forgets it is welcome to.
                let _ = self.made.remove_label_values(&labels.each_ref().map(|label| &**label));
            }
        }
        for (labels, value) in others {
            let gauge = self.made.with_label_values(&labels);
            gauge.set(value);
            shown.push((labels.map(Box::from), gauge));
        }
    }
}

/// A gauge without labels that goes up and down with something's life.
#[derive(Clone, Debug)]
pub struct Level(IntGauge);

impl Level {
    /// Becomes `value`.
    pub fn set(&self, value: i64) {
        self.0.set(value);
    }

    /// One more, until the guard is dropped.
    pub fn enter(&self) -> Entered {
        self.0.inc();
        Entered(self.0.clone())
    }
}

/// Counts as one in a [`Level`] while it lives.
#[derive(Debug)]
pub struct Entered(IntGauge);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Histograms that differ in `N` labels.
#[derive(Clone, Debug)]
pub struct Histograms<const N: usize>(HistogramVec);

impl<const N: usize> Histograms<N> {
    /// One observation.
    pub fn observe(&self, labels: [&str; N], value: f64) {
        self.0.with_label_values(&labels).observe(value);
    }

    /// One observation of a duration, in seconds.
    pub fn took(&self, labels: [&str; N], duration: Duration) {
        self.observe(labels, duration.as_secs_f64());
    }

    /// Forgets the series of what is gone.
    pub fn forget(&self, wanted: &[(&str, &str)]) {
        for series in series_of(&self.0, wanted) {
            let _ = self.0.remove_label_values(&series);
        }
    }
}

/// Handles of all metrics. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    families: Arc<Families>,
    /// Held while gauges are replaced and while all are gathered, so that nobody sees half of them.
    together: Arc<Mutex<()>>,
    catalog: Arc<[Entry]>,
    /// Time of one journal commit, flush included.
    pub journal_commit_seconds: Histograms<0>,
    /// Records in one commit.
    pub journal_commit_records: Histograms<0>,
    /// Records committed.
    pub journal_records: Counters<0>,
    /// Submissions by `result`: `accepted`, `duplicate`, `refused`, `failed`.
    pub submissions: Counters<1>,
    /// Workloads by `state`.
    pub workloads: Gauges<1>,
    /// Legs by `state`, `cluster`.
    pub legs: Gauges<2>,
    /// Offers won, by `cluster_queue`, `cluster`.
    pub workloads_dispatched: Counters<2>,
    /// Grants journaled.
    pub grants: Counters<0>,
    /// Leases renewed.
    pub lease_renewals: Counters<0>,
    /// Leases that provably lapsed.
    pub lapses: Counters<0>,
    /// Refusals by agents, by `reason`.
    pub refusals: Counters<1>,
    /// Sync requests by `cluster`, `lane`.
    pub sync_requests: Counters<2>,
    /// Time of one sync by `lane`; that of a poll is mostly waiting.
    pub sync_seconds: Histograms<1>,
    /// Agents with a live session by `cluster`, `region`: 1 or 0.
    pub agents_connected: Gauges<2>,
    /// Times that an event of an agent had to wait, as its cluster had had too much written of what was known.
    pub events_put_off: Counters<0>,
    /// What agents and manager found to differ, by `kind`.
    pub link_events: Counters<1>,
    /// Requests of agents that were more than one may send, by `cluster`.
    pub agent_requests_refused: Counters<1>,
    /// Seconds since the last sync by `cluster`, as of the last scrape.
    pub agent_last_sync_age_seconds: Gauges<1>,
    /// Agents' certificates issued, by `kind`: `join`, `renew`.
    pub certificates_issued: Counters<1>,
    /// Recoveries opened.
    pub recoveries: Counters<0>,
    /// Runs of unknown workloads that wait for an operator.
    pub orphans: Level,
    /// Denials by residency `policy`.
    pub residency_denials: Counters<1>,
    /// Lines of the audit log.
    pub audit_lines: Counters<0>,
    /// API requests by `verb`, `resource`, `code`.
    pub api_requests: Counters<3>,
    /// Time of one API request by `verb`; watches are not observed.
    pub api_request_seconds: Histograms<1>,
    /// Open watches.
    pub watchers: Level,
    /// Cross-references that the periodic check found broken.
    pub invariant_violations: Counters<0>,
    /// What Kueue has too.
    pub kueue: Kueue,
}

/// One metric, as it is documented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// With the prefix.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of the labels.
    pub labels: &'static [&'static str],
}

impl Metrics {
    /// All metrics at nothing, and `build_info`.
    pub fn new(version: &str) -> Self {
        let mut m = Maker { registry: Registry::new(), families: Families::default(), catalog: Vec::new() };
        let build: Gauges<1> =
            m.gauges("meridian_build_info", "constant 1, labelled with the version", &["version"]);
        build.set([version], 1);
        Self {
            journal_commit_seconds: m.histograms(
                "meridian_journal_commit_seconds",
                "time of one journal commit, flush included",
                &[],
                FINE_SECONDS.bounds(),
            ),
            journal_commit_records: m.histograms(
                "meridian_journal_commit_records",
                "records in one journal commit",
                &[],
                BATCH.bounds(),
            ),
            journal_records: m.counters(
                "meridian_journal_records_total",
                "records committed to the journal",
                &[],
            ),
            submissions: m.counters("meridian_submissions_total", "submissions by result", &["result"]),
            workloads: m.gauges("meridian_workloads", "workloads by state", &["state"]),
            legs: m.gauges("meridian_legs", "workloads on clusters by state", &["state", "cluster"]),
            workloads_dispatched: m.counters(
                "meridian_workloads_dispatched_total",
                "workloads granted to a cluster",
                &["cluster_queue", "cluster"],
            ),
            grants: m.counters("meridian_grants_total", "grants journaled", &[]),
            lease_renewals: m.counters("meridian_lease_renewals_total", "leases renewed in an answer", &[]),
            lapses: m.counters("meridian_lapses_total", "leases that provably lapsed", &[]),
            refusals: m.counters(
                "meridian_refusals_total",
                "offers and grants that an agent refused",
                &["reason"],
            ),
            sync_requests: m.counters(
                "meridian_sync_requests_total",
                "sync requests of agents",
                &["cluster", "lane"],
            ),
            sync_seconds: m.histograms(
                "meridian_sync_seconds",
                "time of one sync; a poll's is mostly waiting",
                &["lane"],
                FINE_SECONDS.bounds(),
            ),
            events_put_off: m.counters(
                "meridian_events_put_off_total",
                "times that an agent's event waited, as its cluster repeats itself too much",
                &[],
            ),
            link_events: m.counters(
                "meridian_link_events_total",
                "what came late, differed, was refused by a rule, or was never to be said by an agent",
                &["kind"],
            ),
            agent_requests_refused: m.counters(
                "meridian_agent_requests_refused_total",
                "requests beyond what one agent may send",
                &["cluster"],
            ),
            agents_connected: m.gauges(
                "meridian_agents_connected",
                "1 while the agent has a live session",
                &["cluster", "region"],
            ),
            agent_last_sync_age_seconds: m.gauges(
                "meridian_agent_last_sync_age_seconds",
                "seconds since the agent's last sync",
                &["cluster"],
            ),
            certificates_issued: m.counters(
                "meridian_certificates_issued_total",
                "agents' certificates issued",
                &["kind"],
            ),
            recoveries: m.counters("meridian_recoveries_total", "recoveries opened", &[]),
            orphans: m.level("meridian_orphans", "runs of unknown workloads that wait for an operator"),
            residency_denials: m.counters(
                "meridian_residency_denials_total",
                "verdicts that kept a workload from a cluster",
                &["policy"],
            ),
            audit_lines: m.counters("meridian_audit_lines_total", "lines written to the audit log", &[]),
            api_requests: m.counters(
                "meridian_api_requests_total",
                "requests to the API",
                &["verb", "resource", "code"],
            ),
            api_request_seconds: m.histograms(
                "meridian_api_request_seconds",
                "time of one request to the API, watches aside",
                &["verb"],
                FINE_SECONDS.bounds(),
            ),
            watchers: m.level("meridian_watchers", "open watches"),
            invariant_violations: m.counters(
                "meridian_invariant_violations_total",
                "broken cross-references that the periodic check found",
                &[],
            ),
            kueue: Kueue::new(&mut m),
            catalog: m.catalog.into(),
            registry: m.registry,
            families: Arc::new(m.families),
            together: Arc::default(),
        }
    }

    /// Until the guard is dropped nothing is rendered.
    pub fn together(&self) -> MutexGuard<'_, ()> {
        self.together.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, unless it has to be waited for.
    pub fn together_now(&self) -> Option<MutexGuard<'_, ()>> {
        match self.together.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The text format of Prometheus, for `/metrics`: of the metrics of these names, or of all where there are none.
    pub fn render(&self, only: &[String]) -> String {
        let gathered = {
            let _whole = self.together();
            if only.is_empty() { self.registry.gather() } else { self.families.collect(only) }
        };
        let text = TextEncoder::new()
            .encode_to_string(&gathered)
            .expect("families gathered from a registry have names and samples");
        // The format knows infinity by this name only, and the encoder another; a line ends nowhere else.
        text.replace(" inf\n", " +Inf\n")
    }

    /// Every metric, in the order in which it is made; for documentation and tests.
    pub fn catalog(&self) -> &[Entry] {
        &self.catalog
    }
}

/// Makes and registers metrics; what fails here fails on the first start with fixed names, so it is our own bug.
struct Maker {
    registry: Registry,
    families: Families,
    catalog: Vec<Entry>,
}

/// Metrics by name, so that one of them costs no more than itself.
#[derive(Default)]
struct Families(BTreeMap<&'static str, Box<dyn Collector>>);

impl Families {
    fn collect(&self, only: &[String]) -> Vec<MetricFamily> {
        let named: BTreeSet<&str> = only.iter().map(String::as_str).collect();
        named
            .into_iter()
            .filter_map(|name| self.0.get(name))
            .flat_map(|of| of.collect())
            .filter(|family| !family.get_metric().is_empty())
            .collect()
    }
}

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Maker {
    fn counters<const N: usize>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str; N],
    ) -> Counters<N> {
        let made = IntCounterVec::new(opts(name, help), labels).expect("the name and the labels are sound");
        if N == 0 {
            made.with_label_values::<&str>(&[]); // so that it shows as 0 before the first event
        }
        Counters(self.registered(Entry { name, help, kind: "counter", labels }, made))
    }

    fn gauges<const N: usize>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str; N],
    ) -> Gauges<N> {
        let made = IntGaugeVec::new(opts(name, help), labels).expect("the name and the labels are sound");
        Series::new(self.registered(Entry { name, help, kind: "gauge", labels }, made))
    }

    fn amounts<const N: usize>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str; N],
    ) -> Amounts<N> {
        let made = GaugeVec::new(opts(name, help), labels).expect("the name and the labels are sound");
        Series::new(self.registered(Entry { name, help, kind: "gauge", labels }, made))
    }

    fn level(&mut self, name: &'static str, help: &'static str) -> Level {
        let made = IntGauge::new(name, help).expect("the name is sound");
        Level(self.registered(Entry { name, help, kind: "gauge", labels: &[] }, made))
    }

    fn histograms<const N: usize>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str; N],
        bounds: Vec<f64>,
    ) -> Histograms<N> {
        let opts = HistogramOpts { common_opts: opts(name, help), buckets: bounds };
        let made = HistogramVec::new(opts, labels).expect("the name and the labels are sound");
        if N == 0 {
            made.with_label_values::<&str>(&[]);
        }
        Histograms(self.registered(Entry { name, help, kind: "histogram", labels }, made))
    }

    fn registered<C: Collector + Clone + 'static>(&mut self, entry: Entry, made: C) -> C {
        assert!(
            entry.name.starts_with(PREFIX) || entry.name.starts_with(kueue::PREFIX),
            "`{}` lacks the prefix",
            entry.name
        );
        self.registry.register(Box::new(made.clone())).expect("no two metrics have one name");
        self.families.0.insert(entry.name, Box::new(made.clone()));
        self.catalog.push(entry);
        made
    }
}

/// Every metric of Kueue's says which replica speaks. Only a manager that leads counts.
fn opts(name: &str, help: &str) -> Opts {
    let opts = Opts::new(name, help);
    if name.starts_with(kueue::PREFIX) { opts.const_label("replica_role", "leader") } else { opts }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_snake(name: &str) -> bool {
        name.split('_').all(|part| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        })
    }

    #[test]
    fn names_follow_the_conventions() {
        let metrics = Metrics::new("1");
        for entry in metrics.catalog() {
            let Entry { name, help, kind, labels } = *entry;
            assert!(
                (name.starts_with(PREFIX) || name.starts_with(kueue::PREFIX)) && is_snake(name),
                "{name}"
            );
            assert!(
                help.len() > 10
                    && !help.ends_with('.')
                    && help.starts_with(|c: char| c.is_lowercase() || c.is_ascii_digit()),
                "{name}: {help}"
            );
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
            for other in ["_milliseconds", "_ms", "_minutes", "_kib", "_mb", "_count", "_sum", "_bucket"] {
                assert!(!name.ends_with(other), "{name}");
            }
            assert!(
                labels.iter().all(|l| is_snake(l) && !["le", "quantile", "job", "instance"].contains(l)),
                "{name}: {labels:?}"
            );
        }
    }

    #[test]
    fn what_is_counted_is_rendered() {
        let metrics = Metrics::new("1.2.3");
        metrics.submissions.inc(["accepted"]);
        metrics.api_requests.add(["create", "jobs", "201"], 2);
        metrics.journal_commit_seconds.took([], Duration::from_millis(3));
        metrics.kueue.pending_workloads.replace([(["team-a", "active"], 4)]);
        metrics.kueue.pending_workloads.replace([(["team-b", "active"], 5)]);
        let watching = metrics.clone().watchers.enter();
        let text = metrics.render(&[]);
        for line in [
            r#"meridian_build_info{version="1.2.3"} 1"#,
            r#"meridian_submissions_total{result="accepted"} 1"#,
            r#"meridian_api_requests_total{code="201",resource="jobs",verb="create"} 2"#,
            "meridian_journal_commit_seconds_count 1",
            r#"kueue_pending_workloads{cluster_queue="team-b",replica_role="leader",status="active"} 5"#,
            "meridian_grants_total 0",
            "meridian_watchers 1",
            "# TYPE meridian_grants_total counter",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("team-a"));
        drop(watching);
        assert!(metrics.render(&[]).contains("meridian_watchers 0"));
        let some = metrics.render(
            &["meridian_watchers", "kueue_pending_workloads", "no_such", "meridian_watchers"]
                .map(str::to_owned),
        );
        let samples: Vec<&str> = some.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                r#"kueue_pending_workloads{cluster_queue="team-b",replica_role="leader",status="active"} 5"#,
                "meridian_watchers 0"
            ]
        );
    }

    #[test]
    fn series_come_go_and_change_places() {
        let metrics = Metrics::new("1");
        let shown = |rows: &[(&str, i64)]| {
            metrics.kueue.reserving_active.replace(rows.iter().map(|(queue, n)| ([*queue], *n)));
            let text = metrics.render(&["kueue_reserving_active_workloads".to_owned()]);
            let samples = text.lines().filter(|line| !line.starts_with('#'));
            samples
                .map(|line| {
                    (
                        line.split('"').nth(1).unwrap().to_owned(),
                        line.rsplit(' ').next().unwrap().parse().unwrap(),
                    )
                })
                .collect::<Vec<(String, i64)>>()
        };
        for rows in [
            &[("a", 1), ("b", 2), ("c", 3)][..],
            &[("a", 4), ("b", 5), ("c", 6)],
            &[("a", 7), ("c", 8), ("d", 9)],
            &[("d", 1), ("a", 2)],
            &[],
            &[("c", 1)],
        ] {
            let mut expected: Vec<(String, i64)> =
                rows.iter().map(|(queue, n)| ((*queue).to_owned(), *n)).collect();
            expected.sort();
            assert_eq!(shown(rows), expected);
        }
    }
}
