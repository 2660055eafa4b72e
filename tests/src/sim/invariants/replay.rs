//! A replayed state is the state that was committed.

use crate::sim::invariants::violation::{Verdict, violation};
use meridian_manager_core::state::State;

/// Lines of context around the first difference.
const CONTEXT_LINES: usize = 6;

/// The two states are equal; the message shows their first difference.
pub(crate) fn same_state(what: &str, one: &State, two: &State) -> Verdict {
    if one == two {
        return Ok(());
    }
    let (a, b) = (format!("{one:#?}"), format!("{two:#?}"));
    let (a, b): (Vec<&str>, Vec<&str>) = (a.lines().collect(), b.lines().collect());
    let at = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let around = |lines: &[&str]| {
        let shown = lines.iter().skip(at.saturating_sub(4)).take(CONTEXT_LINES);
        shown.map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    };
    violation("replay", format!("{what}: `{}` against `{}`", around(&a), around(&b)))
}
