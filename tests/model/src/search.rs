//! Runs one configuration, and sums up its result.

use crate::action::Covered;
use crate::model::ProtocolModel;
use crate::state::Budget;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::{Duration, Instant};

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Name of the configuration.
    pub name: &'static str,
    /// The bound: what was allowed to go wrong.
    pub bound: Budget,
    /// A search of fewer states proves nothing.
    pub least: usize,
    /// Number of different states.
    pub unique: usize,
    /// Number of transitions.
    pub transitions: usize,
    /// Length of the longest path.
    pub depth: usize,
    /// Time that the search took.
    pub took: Duration,
    /// Whether every state within the bound was searched.
    pub exhausted: bool,
    /// A broken promise: its name, and its path with one line per action.
    pub broken: Option<(&'static str, Vec<String>)>,
    /// Number of transitions that covered each event.
    pub covered: Vec<(Covered, u64)>,
}

impl Findings {
    /// Whether all of these were covered.
    pub fn covers(&self, required: &[Covered]) -> bool {
        required.iter().all(|w| self.covered.iter().any(|(s, n)| s == w && *n > 0))
    }

    /// The result in one line.
    pub fn line(&self) -> String {
        let covered: Vec<String> =
            self.covered.iter().filter(|(_, n)| *n > 0).map(|(s, n)| format!("{s:?} {n}")).collect();
        let verdict = match (&self.broken, self.exhausted) {
            (Some((name, trace)), _) => format!("BROKEN after {} actions: {name}", trace.len() - 1),
            (None, _) if !self.enough() => {
                format!("PROVES NOTHING: at least {} states are needed", self.least)
            }
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
            covered.join(", ")
        )
    }

    /// Whether enough states were searched.
    pub fn enough(&self) -> bool {
        self.unique >= self.least
    }

    /// Whether enough states were searched and no promise is broken.
    pub fn sound(&self) -> bool {
        self.enough() && self.broken.is_none()
    }
}

/// Options of a search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Number of threads.
    pub threads: usize,
    /// Stop the search after this time.
    pub timeout: Option<Duration>,
    /// Shortest counterexample first; needs much more memory than going deep first.
    pub breadth_first: bool,
}

/// Searches every state within the bound, or until a promise is broken.
pub fn search(model: ProtocolModel, how: Search) -> Findings {
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

fn conclude(
    model: ProtocolModel,
    begun: Instant,
    how: Search,
    checker: impl Checker<ProtocolModel>,
) -> Findings {
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
        covered: Covered::ALL.iter().map(|s| (*s, model.count(*s))).collect(),
    }
}
