//! How large an attempt is, and what it is given when it grows. Only elastic jobs ever have another size than at first.

use crate::ids::{ClusterName, Fence, LedgerId, RecordNumber, Uid};
use crate::mac::Mac;
use serde::{Deserialize, Serialize};

/// How many pods a job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Size {
    /// Pods that run at once, at most.
    pub parallelism: u32,
    /// Pods that have to succeed, where that changes with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<u32>,
}

/// What an attempt is given besides what it has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Growth {
    /// The record by which quota was charged for it: a later growth has a larger one.
    pub number: RecordNumber,
    /// Places of each pod set that were given in this attempt, with these.
    pub places: Vec<u32>,
    /// How large it is from then on.
    pub size: Size,
    /// The manager's code over all of it: without it a growth that is shown later counts for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
}

impl Growth {
    /// The bytes that its code covers.
    pub fn message(&self, cluster: &ClusterName, ledger: LedgerId, uid: Uid, fence: Fence) -> Vec<u8> {
        let Self { number, places, size: Size { parallelism, completions }, mac: _ } = self;
        format!("growth 1\n{cluster}\n{ledger}\n{uid}\n{fence}\n{number}\n{places:?}\n{parallelism} {completions:?}\n").into_bytes()
    }
}
