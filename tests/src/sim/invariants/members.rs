//! Names of members that agents have stored. Recovery needs them if the journal is lost.

use crate::sim::invariants::violation::{Verdict, violation};
use meridian_manager_core::facts::actor::Actor;
use meridian_shared::ids::ClusterName;
use meridian_shared::protocol::Receipt;
use std::collections::BTreeSet;

/// The member names that agents of each cluster ever stored, as pairs of the agent's cluster and the name.
#[derive(Debug, Default)]
pub(crate) struct MemberNames(BTreeSet<(ClusterName, ClusterName)>);

impl MemberNames {
    /// An agent of this cluster stored a receipt with a list of members.
    pub(crate) fn remembered(&mut self, cluster: &ClusterName, stored: &str) {
        let (_, members): (Receipt, Vec<ClusterName>) =
            serde_json::from_str(stored).expect("the agent's own types");
        self.0.extend(members.into_iter().map(|member| (cluster.clone(), member)));
    }

    /// A joining cluster gets work only after another member has stored its name.
    pub(super) fn check_admission(&self, cluster: &ClusterName, by: &Actor) -> Verdict {
        match by {
            Actor::Agent(other) if !self.0.contains(&(other.clone(), cluster.clone())) => violation(
                "members",
                format!("`{cluster}` is admitted by `{other}`, which never stored its name"),
            ),
            _ => Ok(()),
        }
    }
}
