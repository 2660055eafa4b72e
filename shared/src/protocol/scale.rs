//! The size of an attempt, and scale-ups. Only elastic jobs change their size.

use crate::ids::{ClusterName, Fence, LedgerId, RecordNumber, Uid};
use crate::mac::Mac;
use serde::{Deserialize, Serialize};

/// Number of pods of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Size {
    /// Most pods that run at the same time.
    pub parallelism: u32,
    /// Pods that must succeed, if that changes with the number of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<u32>,
}

/// A larger size of an attempt, with the capacity granted for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ScaleUp {
    /// The record that charged quota for it. A later scale-up has a larger number.
    pub number: RecordNumber,
    /// Pods granted per pod set in this attempt, these included.
    pub places: Vec<u32>,
    /// Size of the job after the scale-up.
    pub size: Size,
    /// The manager's authentication code over the scale-up. A reported scale-up without it is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
}

impl ScaleUp {
    /// The bytes that the authentication code covers.
    pub fn message(&self, cluster: &ClusterName, ledger: LedgerId, uid: Uid, fence: Fence) -> Vec<u8> {
        let Self { number, places, size: Size { parallelism, completions }, mac: _ } = self;
        format!(
            "scale-up 1\n{cluster}\n{ledger}\n{uid}\n{fence}\n{number}\n{places:?}\n{parallelism} \
            {completions:?}\n"
        )
        .into_bytes()
    }
}
