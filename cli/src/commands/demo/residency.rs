//! The second act: personal data stays in the EU.

use super::acts::{Demo, joined};
use super::tracker::JobTracker;
use crate::commands::example;
use crate::error::Error;
use crate::examples::RESIDENCY;
use serde_json::json;
use std::collections::BTreeSet;

/// The only region that the residency policy allows.
const HOME: &str = "europe-west4";
const NAMESPACE: &str = "research";

impl Demo<'_> {
    /// Under a policy that allows only the EU, the second of two gangs waits for the EU's quota although
    /// other regions could make nodes.
    pub(super) async fn keep_personal_data_in_the_eu(&mut self) -> Result<(), Error> {
        example::apply(self.tracker.client(), &RESIDENCY, None).await?;
        let mut both = Vec::new();
        for number in 1..=2 {
            both.push(self.submit_gang(NAMESPACE, &format!("research {number}"), "60s").await?);
        }
        let message = "2 gangs submitted in namespace research, which a policy binds to the EU";
        self.narrator.tell_with("submitted", message, json!({"jobs": both}))?;
        let one_runs = |tracker: &JobTracker| both.iter().any(|name| tracker.job(name).is_running());
        self.wait_until("one runs in the EU", &both, one_runs).await?;
        let is_waiting = |name: &&String| !self.tracker.job(name).is_running();
        let pending = both.iter().find(is_waiting).unwrap_or(&both[1]);
        let explanation = self.explain_pending(NAMESPACE, pending).await?;
        let forbidden = explanation.count_reasons("forbidden");
        self.wait_until_finished(&both).await?;
        let seen = || both.iter().map(|name| self.tracker.seen(name));
        let ran: BTreeSet<&str> = both.iter().flat_map(|name| self.tracker.regions_of(name)).collect();
        let asked: BTreeSet<&str> = seen().flat_map(|job| job.asked_regions()).collect();
        let home = BTreeSet::from([HOME]);
        let kept = ran == home && asked == home && forbidden == 2;
        let observed =
            format!("asked and ran in {}; {forbidden} regions forbidden", joined(asked.union(&ran).copied()));
        self.narrator.check("personal data stays in the EU", kept, observed);
        Ok(())
    }
}
