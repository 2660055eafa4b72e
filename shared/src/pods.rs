//! What agents say of single pods while their gang goes on.

use crate::ids::{Fence, Uid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What has become of pods of a gang that goes on: those that have succeeded and won't be needed again, whose places are free, and
/// how many have failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Spare {
    /// The workload.
    pub uid: Uid,
    /// The attempt.
    pub fence: Fence,
    /// So many of each pod set have succeeded, never fewer than before.
    pub pods: BTreeMap<String, u32>,
    /// Failed pods so far, over all attempts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
}

const fn is_zero(n: &u32) -> bool {
    *n == 0
}
