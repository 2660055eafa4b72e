//! Runs one configuration and says what came of it.

use crate::model::{Meridian, Seen};
use crate::state::Budget;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::{Duration, Instant};

/// What a search came to.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The configuration.
    pub name: &'static str,
    /// What was allowed to go wrong: the bound.
    pub bound: Budget,
    /// A search that looks at fewer states proves nothing.
    pub least: usize,
    /// Different states.
    pub unique: usize,
    /// Transitions.
    pub transitions: usize,
    /// Longest path.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Whether every state within the bound was looked at.
    pub exhausted: bool,
    /// A broken promise: its name and how it came about, one line an action.
    pub broken: Option<(&'static str, Vec<String>)>,
    /// What was met, counted over transitions.
    pub seen: Vec<(Seen, u64)>,
}

impl Findings {
    /// Whether all of these were met.
    pub fn saw(&self, wanted: &[Seen]) -> bool {
        wanted.iter().all(|w| self.seen.iter().any(|(s, n)| s == w && *n > 0))
    }

    /// In one line.
    pub fn line(&self) -> String {
        let seen: Vec<String> =
            self.seen.iter().filter(|(_, n)| *n > 0).map(|(s, n)| format!("{s:?} {n}")).collect();
        let verdict = match (&self.broken, self.exhausted) {
            (Some((name, trace)), _) => format!("BROKEN after {} actions: {name}", trace.len() - 1),
            (None, _) if !self.enough() => format!("PROVES NOTHING: {} states are wanted", self.least),
            (None, true) => "holds".to_owned(),
            (None, false) => "holds so far (time ran out)".to_owned(),
        };
        format!(
            "{:<10} {verdict}; {} states, {} transitions, depth {}, {:.1} s; within {}; {}",
            self.name,
            self.unique,
            self.transitions,
            self.depth,
            self.took.as_secs_f64(),
            self.bound,
            seen.join(", ")
        )
    }

    /// Whether it looked at as many states as it must.
    pub fn enough(&self) -> bool {
        self.unique >= self.least
    }

    /// Whether it looked far enough and found no promise broken.
    pub fn sound(&self) -> bool {
        self.enough() && self.broken.is_none()
    }
}

/// How to search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Threads.
    pub threads: usize,
    /// Stop after this long.
    pub timeout: Option<Duration>,
    /// Shortest counterexample first; needs much more memory than going deep first.
    pub breadth_first: bool,
}

/// Looks at every state within the bound, or until a promise is broken.
pub fn search(model: Meridian, how: Search) -> Findings {
    let begun = Instant::now();
    let counters = model.clone();
    let mut builder = model.checker().threads(how.threads).finish_when(HasDiscoveries::AnyFailures);
    if let Some(timeout) = how.timeout {
        builder = builder.timeout(timeout);
    }
    if how.breadth_first {
        conclude(counters, begun, how, builder.spawn_bfs())
    } else {
        conclude(counters, begun, how, builder.spawn_dfs())
    }
}

fn conclude(model: Meridian, begun: Instant, how: Search, checker: impl Checker<Meridian>) -> Findings {
    let checker = checker.join();
    let took = begun.elapsed();
    let broken = checker.discoveries().into_iter().next().map(|(name, path)| {
        let last = path.last_state().clone();
        let mut lines: Vec<String> = path.into_actions().iter().map(|a| format!("{a:?}")).collect();
        lines.push(format!("→ {last:?}"));
        (name, lines)
    });
    Findings {
        name: model.name,
        bound: model.budget,
        least: model.least,
        unique: checker.unique_state_count(),
        transitions: checker.state_count(),
        depth: checker.max_depth(),
        took,
        exhausted: how.timeout.is_none_or(|t| took < t),
        broken,
        seen: Seen::ALL.iter().map(|s| (*s, model.count(*s))).collect(),
    }
}
