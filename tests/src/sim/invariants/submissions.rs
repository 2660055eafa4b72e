//! P1: every acknowledged request is remembered.

use crate::sim::invariants::violation::{Verdict, violation};
use meridian_manager_core::World;
use meridian_manager_core::facts::key::Key;
use meridian_objects::{Kind, last_applied};
use meridian_shared::ids::Uid;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One acknowledged job.
#[derive(Clone, Copy, Debug, Default)]
struct Acknowledged {
    deletion_sent: bool,
    deletion_acknowledged: bool,
}

/// Acknowledged jobs and deletions.
#[derive(Debug, Default)]
pub(crate) struct Submissions {
    acknowledged: BTreeMap<Uid, Acknowledged>,
    /// Jobs with a deletion that was ever sent. Such a job may exist or not.
    deletions: BTreeSet<Uid>,
}

impl Submissions {
    /// A submission was acknowledged.
    pub(crate) fn acknowledge(&mut self, uid: Uid) {
        self.acknowledged.entry(uid).or_default();
    }

    /// A deletion is sent.
    pub(crate) fn send_deletion(&mut self, uid: Uid) {
        self.acknowledged.entry(uid).or_default().deletion_sent = true;
        self.deletions.insert(uid);
    }

    /// A deletion was acknowledged.
    pub(crate) fn acknowledge_deletion(&mut self, uid: Uid) {
        self.acknowledged.entry(uid).or_default().deletion_acknowledged = true;
    }

    /// Whether a deletion was ever sent.
    pub(crate) fn has_deletion(&self, uid: Uid) -> bool {
        self.deletions.contains(&uid)
    }

    /// Acknowledged jobs without a deletion.
    pub(crate) fn without_deletion(&self) -> Vec<Uid> {
        self.acknowledged.iter().filter(|(_, known)| !known.deletion_sent).map(|(uid, _)| *uid).collect()
    }

    /// An older copy of the journal is in use: forgets what it doesn't contain.
    pub(crate) fn history_lost(&mut self, world: &World) {
        self.acknowledged.retain(|uid, known| {
            known.deletion_acknowledged = false;
            world.state().workloads().contains_key(uid)
        });
    }

    /// P1: the world knows every acknowledged job, deletion and object.
    pub(crate) fn check_durability(&self, world: &World, objects: &BTreeMap<Key, Option<Value>>) -> Verdict {
        for (uid, known) in &self.acknowledged {
            match world.state().workloads().get(uid) {
                None if !self.deletions.contains(uid) => {
                    return violation("P1", format!("{uid} was acknowledged and is gone"));
                }
                Some(w) if known.deletion_acknowledged && w.deletion().is_none() => {
                    let details = format!("the deletion of {uid} was acknowledged and is forgotten");
                    return violation("P1", details);
                }
                _ => {}
            }
        }
        for (key, expected) in objects {
            let Some(expected) = expected else { continue };
            // The last applied configuration isn't part of what users wrote.
            let stored = world.state().catalog().get(key).map(|stored| {
                let mut object = (*stored.object).clone();
                last_applied::remove(&mut object);
                object.stored
            });
            if stored.as_ref() != Some(expected) && key.kind != Kind::Cluster {
                return violation("P1", format!("{key} was acknowledged and is something else now"));
            }
        }
        Ok(())
    }
}
