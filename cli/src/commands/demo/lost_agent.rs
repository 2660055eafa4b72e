//! The third act: an agent is killed while a gang runs in its region.

use super::acts::Demo;
use super::tracker::JobTracker;
use super::{TERM, TERM_FLAG};
use crate::client::JobName;
use crate::commands::jobs::explanation::Explanation;
use crate::error::Error;
use meridian_shared::counted::counted;
use serde_json::json;

impl Demo<'_> {
    /// A killed agent's gang is restarted elsewhere, once, and only after its lease has lapsed.
    pub(super) async fn lose_an_agent(&mut self) -> Result<(), Error> {
        let job = self.submit_gang("default", "survivor", "100s").await?;
        let only = vec![job.clone()];
        self.narrator.tell_with("submitted", "1 gang submitted, to lose its agent", json!({"jobs": only}))?;
        self.wait_until("it runs", &only, |tracker| tracker.job(&job).is_running()).await?;
        let before = self.tracker.job(&job).clone();
        self.fleet.kill_agent(&before.cluster).await?;
        let killed = self.tracker.now();
        let message = format!("killed the agent in {} while {job} runs there", before.region);
        self.narrator.tell_with("killed", &message, json!({"cluster": before.cluster}))?;
        let has_moved = |tracker: &JobTracker| {
            let now = tracker.job(&job);
            now.is_running() && now.cluster != before.cluster
        };
        self.wait_until("it runs elsewhere", &only, has_moved).await?;
        let seen = self.tracker.seen(&job);
        let asked =
            seen.asks.iter().map(|ask| ask.from).filter(|from| *from > killed).fold(f64::MAX, f64::min);
        let (asked, ran) = (asked - killed, seen.runs.last().map_or(0.0, |run| run.from) - killed);
        // The last renewal was at most two polls before the kill: an earlier request would break the lease.
        let earliest = (TERM - TERM / 4).as_secs_f64();
        let kept = asked >= earliest && ran >= asked;
        let observed =
            format!("asks again {asked:.1}s after the kill, runs after {ran:.1}s; term {TERM_FLAG}");
        self.narrator.check("a lost gang restarts after its lease", kept, observed);
        self.fleet.start_agent(&before.cluster)?;
        self.wait_until_finished(&only).await?;
        let (attempts, runs) = (self.tracker.job(&job).attempts, self.tracker.regions_of(&job).len());
        let observed = counted(attempts, "attempt");
        self.narrator.check("a lost gang restarts exactly once", attempts == 2 && runs == 2, observed);
        let answer = self.tracker.client().why("default", &JobName::new(None, &job)).await?;
        let explanation = Explanation::parse(answer).map_err(|why| Error::render("text", why))?;
        let end = explanation.end_of_attempt(0);
        self.narrator.check("its history shows the lapsed lease", end.contains("lease"), end);
        self.check_held_twice().await
    }
}
