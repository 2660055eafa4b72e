//! The manager's log for operators: one line per event of a cluster or job, after its commit.
//!
//! Lines about jobs have a budget. Lines beyond it are counted, so that a burst of a thousand dispatches is
//! one line and not a thousand.

mod contacts;
mod facts;

pub(super) use self::contacts::Contacts;

use self::contacts::ClusterWatch;
use meridian_manager_core::World;
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::state::workload::Workload;
use meridian_shared::ids::{ClusterName, RecordNumber, Uid};
use meridian_shared::time::{Millis, Mono, Now};
use std::collections::BTreeMap;

/// Lines about jobs per [`WINDOW`].
const LINES_MAX: usize = 20;
/// Time window for [`LINES_MAX`].
const WINDOW: Millis = Millis::secs(1);

/// Severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Info,
    Warn,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    level: Level,
    /// Fixed text for all lines of one kind, so that they can be counted and found.
    message: &'static str,
    uid: Option<Uid>,
    /// `namespace/name` of the workload's job.
    job: Option<String>,
    cluster: Option<ClusterName>,
    /// Details that the message omits, such as the reason.
    why: Option<String>,
}

impl Line {
    fn info(message: &'static str) -> Self {
        Self { level: Level::Info, message, uid: None, job: None, cluster: None, why: None }
    }

    fn warn(message: &'static str) -> Self {
        Self { level: Level::Warn, ..Self::info(message) }
    }

    fn at(self, cluster: Option<ClusterName>) -> Self {
        Self { cluster, ..self }
    }

    fn because(self, why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..self }
    }

    fn print(&self) {
        let Self { level, message, uid, job, cluster, why } = self;
        let uid = uid.map(tracing::field::display);
        let (job, why) = (job.as_deref(), why.as_deref());
        let cluster = cluster.as_ref().map(ClusterName::as_str);
        match level {
            Level::Info => tracing::info!(job, uid, cluster, why, "{message}"),
            Level::Warn => tracing::warn!(job, uid, cluster, why, "{message}"),
        }
    }
}

/// Log lines of a batch, as of its end.
#[derive(Debug, Default)]
pub(super) struct BatchLog {
    lines: Vec<Line>,
    /// Lines beyond the budget of a batch, by message.
    more: BTreeMap<&'static str, u64>,
    /// The contact with each agent; `None` if it wasn't checked.
    pub(super) contacts: Option<Contacts>,
}

impl BatchLog {
    pub(super) fn of(world: &World, records: &[(RecordNumber, Record)], deleted: &mut DeletedRuns) -> Self {
        let mut log = Self::default();
        let mut left = LINES_MAX;
        for (_, record) in records {
            deleted.note(world, record);
            let Some(message) = facts::message(record) else { continue };
            let is_of_job = matches!(record, Record::Workload { .. });
            if is_of_job && left == 0 {
                *log.more.entry(message).or_default() += 1;
                continue;
            }
            left -= usize::from(is_of_job);
            log.lines.extend(facts::line(world, record).map(|line| deleted.complete(line)));
        }
        log
    }
}

/// Jobs that were deleted while they ran, with their clusters. Kept, because the world forgets such a job
/// when its run ends.
#[derive(Debug, Default)]
pub(super) struct DeletedRuns(BTreeMap<Uid, (String, ClusterName)>);

impl DeletedRuns {
    /// The deleted jobs that still run.
    pub(super) fn of(world: &World) -> Self {
        let mut runs = Self::default();
        world.state().workloads().iter().for_each(|(uid, workload)| runs.add(*uid, workload));
        runs
    }

    fn add(&mut self, uid: Uid, workload: &Workload) {
        if let Some((_, leg)) = workload.right().filter(|_| workload.deletion().is_some()) {
            self.0.insert(uid, (job_name(workload), leg.cluster().clone()));
        }
    }

    fn note(&mut self, world: &World, record: &Record) {
        if let Record::Workload { uid, .. } = record
            && let Some(workload) = world.state().workloads().get(uid)
        {
            self.add(*uid, workload);
        }
    }

    /// Adds job and cluster to a line about a job that the world has forgotten.
    fn complete(&mut self, line: Line) -> Line {
        match line.uid.filter(|_| line.job.is_none()).and_then(|uid| self.0.remove(&uid)) {
            Some((job, cluster)) => {
                Line { job: Some(job), cluster: line.cluster.clone().or(Some(cluster)), ..line }
            }
            None => line,
        }
    }
}

/// A job as lines name it.
fn job_name(workload: &Workload) -> String {
    format!("{}/{}", workload.namespace(), workload.name())
}

/// Lines need no milliseconds.
const fn whole_seconds(span: Millis) -> Millis {
    Millis(span.0 / 1_000 * 1_000)
}

/// The log of committed batches.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    clusters: ClusterWatch,
    /// Start of the current window, and the number of lines about jobs in it.
    window: Option<(Mono, usize)>,
    more: BTreeMap<&'static str, u64>,
}

impl EventLog {
    /// Prints the lines of a committed batch.
    pub(super) fn print(&mut self, batch: BatchLog, now: Now) {
        self.take(batch, now).iter().for_each(Line::print);
    }

    /// The lines to print.
    fn take(&mut self, batch: BatchLog, now: Now) -> Vec<Line> {
        let mut lines = self.next_window(now.mono);
        for line in batch.lines {
            if line.uid.is_none() {
                lines.push(line);
                continue;
            }
            let (_, printed) = self.window.get_or_insert((now.mono, 0));
            if *printed < LINES_MAX {
                *printed += 1;
                lines.push(line);
            } else {
                *self.more.entry(line.message).or_default() += 1;
            }
        }
        for (message, count) in batch.more {
            *self.more.entry(message).or_default() += count;
        }
        if let Some(contacts) = batch.contacts {
            lines.extend(self.clusters.observe(contacts, now));
        }
        lines
    }

    /// Begins a new window if the current one is over. Returns lines that count what exceeded the old
    /// window's budget.
    fn next_window(&mut self, now: Mono) -> Vec<Line> {
        if self.window.is_none_or(|(began, _)| now.since(began) < WINDOW) {
            return Vec::new();
        }
        self.window = None;
        let more = std::mem::take(&mut self.more);
        let words: Vec<String> = more.iter().map(|(message, count)| format!("{count} × {message}")).collect();
        if words.is_empty() { Vec::new() } else { vec![Line::info("and more").because(words.join(", "))] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::time::Wall;

    fn line(number: u128) -> Line {
        Line { uid: Some(Uid(number)), ..Line::info("dispatched") }
    }

    fn at(ms: u64) -> Now {
        Now { mono: Mono(ms), wall: Wall(ms.cast_signed()) }
    }

    #[test]
    fn the_end_of_a_deleted_job_has_its_name() {
        let mut deleted = DeletedRuns::default();
        deleted.0.insert(Uid(7), ("default/train".to_owned(), ClusterName::new("eu")));
        let ended = Line { uid: Some(Uid(7)), ..Line::info("a run ended") };
        let complete = deleted.complete(ended.clone());
        assert_eq!((complete.job.as_deref(), complete.cluster), (Some("default/train"), Some("eu".into())));
        assert_eq!(deleted.complete(ended.clone()), ended, "its end is logged once");
    }

    #[test]
    fn a_burst_is_counted_and_what_is_about_clusters_is_always_printed() {
        let mut log = EventLog::default();
        let mut lines: Vec<Line> = (0..30).map(line).collect();
        lines.push(Line::info("recovery closed"));
        let more = BTreeMap::from([("dispatched", 100), ("a run ended", 3)]);
        let printed = log.take(BatchLog { lines, more, contacts: None }, at(0));
        assert_eq!((printed.len(), printed.last().unwrap().message), (LINES_MAX + 1, "recovery closed"));
        assert_eq!(log.take(BatchLog { lines: vec![line(1)], ..BatchLog::default() }, at(900)), []);
        let printed = log.take(BatchLog { lines: vec![line(2)], ..BatchLog::default() }, at(1_000));
        let counted = Line::info("and more").because("3 × a run ended, 111 × dispatched");
        assert_eq!(printed, [counted, line(2)]);
        assert_eq!(log.take(BatchLog::default(), at(5_000)), []);
    }
}
