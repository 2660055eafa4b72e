//! Time left until a workload reaches the limits of its run time.

use meridian_manager_core::state::workload::Workload;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_manager_core::world::World;
use meridian_objects::job::{MAX_EXEC_LABEL, MAX_RUN_ANNOTATION};
use meridian_shared::time::{Millis, Wall};

/// Time left of each limit, as the end of a sentence. Empty if the job has none, or if none has begun.
pub(crate) fn run_time_message(world: &World, workload: &Workload, now: Wall) -> String {
    let gang = &world.queues().class(workload.class()).gang;
    let granted = workload.history().last().map(|attempt| attempt.granted);
    let runs = granted.filter(|_| matches!(workload.phase(), Phase::Granted | Phase::Running));
    let this_run = runs.map_or(Millis(0), |granted| now.since(granted));
    let per_attempt = |limit: Option<Millis>| limit.filter(|_| runs.is_some());
    let limits = [
        ("activeDeadlineSeconds", per_attempt(gang.active_deadline), this_run, "of this attempt"),
        (short(MAX_RUN_ANNOTATION), per_attempt(gang.max_run), this_run, "of this attempt"),
        (
            short(MAX_EXEC_LABEL),
            gang.max_exec.filter(|_| runs.is_some() || workload.ran() > Millis(0)),
            workload.ran() + this_run,
            "of all attempts",
        ),
    ];
    let text = |(name, limit, used, over): (&str, Option<Millis>, Millis, &str)| {
        let limit = limit?;
        let left = whole_seconds(limit.saturating_sub(used));
        Some(format!("; {left} of {limit} left {over} (`{name}`)"))
    };
    limits.into_iter().filter_map(text).collect()
}

/// A label or annotation key without its domain.
fn short(key: &'static str) -> &'static str {
    key.rsplit_once('/').map_or(key, |(_, name)| name)
}

/// Rounded up, so that a limit that isn't reached never shows as 0.
fn whole_seconds(time: Millis) -> Millis {
    Millis::secs(time.0.div_ceil(1_000))
}
