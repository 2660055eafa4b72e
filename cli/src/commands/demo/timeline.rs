//! A row of marks over time for each job and region: for 80 columns, and for the report.

use super::history::{Answer, Ask, History, JobHistory, RunEnd};
use crate::output::printable;
use crate::output::wrap::PAGE_COLUMNS;

/// Columns in front of the marks.
const LABEL_COLUMNS: usize = 18;
const MARK_COLUMNS: usize = PAGE_COLUMNS - LABEL_COLUMNS;
/// Seconds between two numbers of the axis, as long as they have room.
const AXIS_SECONDS: u32 = 10;

/// A job's activity in a region for a time, the least important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Nothing,
    Queued,
    RequestLimit,
    Quota,
    OutOfStock,
    Starting,
    Running,
    Lost,
}

impl Mark {
    /// The marks that a legend explains.
    pub(super) const SHOWN: [Self; 7] = [
        Self::Queued,
        Self::OutOfStock,
        Self::Quota,
        Self::RequestLimit,
        Self::Starting,
        Self::Running,
        Self::Lost,
    ];

    fn of(ask: &Ask) -> Self {
        match ask.answer {
            Answer::None | Answer::Queued | Answer::Other => Self::Queued,
            Answer::OutOfStock => Self::OutOfStock,
            Answer::Quota => Self::Quota,
            Answer::RequestLimit => Self::RequestLimit,
            Answer::Starting | Answer::Held => Self::Starting,
        }
    }

    fn symbol(self) -> char {
        match self {
            Self::Nothing => ' ',
            Self::Queued => '.',
            Self::OutOfStock => 'o',
            Self::Quota => 'q',
            Self::RequestLimit => 'l',
            Self::Starting => '+',
            Self::Running => '#',
            Self::Lost => 'x',
        }
    }

    /// Meaning of the mark. With dashes it is also the mark's class in the report.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Queued => "queued",
            Self::OutOfStock => "out of stock",
            Self::Quota => "quota",
            Self::RequestLimit => "limit",
            Self::Starting => "nodes start",
            Self::Running => "runs",
            Self::Lost => "lost",
        }
    }

    /// The code of its colour on a terminal.
    fn colour(self) -> &'static str {
        match self {
            Self::Running => "32",
            Self::OutOfStock | Self::Lost => "31",
            Self::Quota | Self::RequestLimit => "33",
            Self::Starting => "36",
            Self::Nothing | Self::Queued => "0",
        }
    }
}

/// A time in which a job did one thing in a region.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) mark: Mark,
    pub(super) from: f64,
    pub(super) until: f64,
    /// The provider's reason, or what ran.
    pub(super) note: String,
}

/// What a job did in a region, until `end` where it continues.
pub(super) fn spans(job: &JobHistory, region: &str, end: f64) -> Vec<Span> {
    let asks = job.asks.iter().filter(|ask| ask.region == region).map(|ask| Span {
        mark: Mark::of(ask),
        from: ask.from,
        until: ask.until.unwrap_or(end),
        note: ask.reason.clone(),
    });
    let runs = job.runs.iter().filter(|run| run.region == region).map(|run| Span {
        mark: if run.end == RunEnd::Lost { Mark::Lost } else { Mark::Running },
        from: run.from,
        until: run.until.unwrap_or(end),
        note: if run.end == RunEnd::Lost { "its agent was killed" } else { "runs" }.to_owned(),
    });
    asks.chain(runs).collect()
}

/// The rows of all regions for a page of 80 columns, ending in a line feed.
pub(super) fn text(history: &History, colour: bool) -> String {
    let columns = u32::try_from(MARK_COLUMNS).unwrap_or(u32::MAX);
    // At least a second per column, so that equal lengths look equal in short and in long demos.
    let scale = (history.ended / f64::from(columns)).max(1.0);
    let mut text = format!("{:LABEL_COLUMNS$}{}\n", "TIMELINE", axis(scale));
    for (region, pool) in &history.pools {
        text.push_str(&format!("{}\n", printable::line(region)));
        for job in history.jobs_in(region) {
            let spans = spans(job, region, history.ended);
            let marks: Vec<Mark> = (0..columns).map(|column| mark_at(&spans, column, scale)).collect();
            text.push_str(&row(&job.title, &painted(&marks, colour)));
        }
        let begins = || (0..columns).map(|column| f64::from(column) * scale).filter(|at| *at < history.ended);
        let used = begins().map(|from| digit(history.used_between(region, from, from + scale).into()));
        let requested = begins().map(|from| digit(pool.peak_between(from, from + scale)));
        text.push_str(&row("GPUs in use", &used.collect::<String>()));
        text.push_str(&row("T4 nodes", &requested.collect::<String>()));
    }
    let legend = Mark::SHOWN.map(|mark| format!("{} {}", mark.symbol(), mark.words()));
    text.push_str(&format!("{}\n", legend.join("   ")));
    text.push_str("T4 nodes: requested or existing; * is ten or more\n");
    text
}

fn digit(number: i64) -> char {
    u32::try_from(number).ok().and_then(|number| char::from_digit(number, 10)).unwrap_or('*')
}

fn row(label: &str, marks: &str) -> String {
    let label = printable::fit(label, LABEL_COLUMNS - 3);
    let blanks = (LABEL_COLUMNS - 2).saturating_sub(printable::width(&label));
    format!("  {}\n", format!("{label}{:blanks$}{marks}", "").trim_end())
}

/// `0s        10s       20s`
fn axis(scale: f64) -> String {
    let mut axis = String::new();
    // A number needs six columns with its gap.
    let step = AXIS_SECONDS * (scale / 1.5).ceil() as u32;
    for number in (0..).map(|n| n * step) {
        let column = (f64::from(number) / scale).round() as usize;
        let label = format!("{number}s");
        if column + label.len() > MARK_COLUMNS {
            break;
        }
        axis.push_str(&" ".repeat(column - axis.len()));
        axis.push_str(&label);
    }
    axis
}

/// The most important thing in one column.
fn mark_at(spans: &[Span], column: u32, scale: f64) -> Mark {
    let from = f64::from(column) * scale;
    let within = spans.iter().filter(|span| span.from < from + scale && span.until > from);
    within.map(|span| span.mark).max().unwrap_or(Mark::Nothing)
}

fn painted(marks: &[Mark], colour: bool) -> String {
    let mut text = String::new();
    for same in marks.chunk_by(|one, next| one == next) {
        let symbols: String = same.iter().map(|mark| mark.symbol()).collect();
        if colour && same[0] != Mark::Nothing {
            text.push_str(&format!("\u{1b}[{}m{symbols}\u{1b}[0m", same[0].colour()));
        } else {
            text.push_str(&symbols);
        }
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::commands::demo::history::{AskEnd, PoolHistory, Run};
    use std::collections::BTreeMap;

    /// A gang that waits for stock in Asia, and runs in the EU.
    pub(in crate::commands::demo) fn history() -> History {
        let ask = |region: &str, answer, from, until, end| Ask {
            region: region.into(),
            answer,
            reason: format!("<{answer:?}>"),
            estimate: Some(4.0),
            from,
            until: Some(until),
            end,
        };
        let job = JobHistory {
            name: "dws-job-x".into(),
            title: "gang 1".into(),
            accelerators: 3,
            asks: vec![
                ask("asia", Answer::OutOfStock, 1.0, 6.0, AskEnd::Withdrawn),
                ask("eu", Answer::Queued, 1.0, 4.0, AskEnd::Changed),
                ask("eu", Answer::Starting, 4.0, 6.0, AskEnd::Won),
            ],
            runs: vec![Run { region: "eu".into(), from: 6.0, until: Some(12.0), end: RunEnd::Finished }],
            ..JobHistory::default()
        };
        let (mut eu, mut asia) = (PoolHistory::default(), PoolHistory::default());
        for (pool, until) in [(&mut eu, 12.0), (&mut asia, 6.0)] {
            for (at, left) in [(0.0, 24), (1.0, 21), (until, 24)] {
                pool.observe(at, left);
            }
        }
        let pools = BTreeMap::from([("asia".to_owned(), asia), ("eu".to_owned(), eu)]);
        History { jobs: vec![job], pools, ended: 15.0 }
    }

    #[test]
    fn each_region_has_a_row_per_job_and_its_accelerators() {
        assert_eq!(
            text(&history(), false).lines().collect::<Vec<_>>(),
            [
                "TIMELINE          0s        10s       20s       30s       40s       50s",
                "asia",
                "  gang 1           ooooo",
                "  GPUs in use     000000000000000",
                "  T4 nodes        033333000000000",
                "eu",
                "  gang 1           ...++######",
                "  GPUs in use     000000333333000",
                "  T4 nodes        033333333333000",
                ". queued   o out of stock   q quota   l limit   + nodes start   # runs   x lost",
                "T4 nodes: requested or existing; * is ten or more",
            ]
        );
    }

    #[test]
    fn a_long_demo_fits_the_page_and_only_a_terminal_has_colour() {
        let history = History { ended: 300.0, ..history() };
        let plain = text(&history, false);
        assert!(plain.lines().all(|line| line.len() <= PAGE_COLUMNS) && !plain.contains('\u{1b}'), "{plain}");
        assert!(plain.contains("40s") && plain.contains("240s"), "{plain}");
        assert!(text(&history, true).contains("\u{1b}[32m"), "what runs is green");
    }
}
