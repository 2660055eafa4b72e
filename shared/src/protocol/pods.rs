//! Reports about single pods while their gang runs.

use crate::ids::{Fence, Uid};
use crate::indexes::Indexes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Pods of a running gang that use no resources any more, and pods that failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodReport {
    pub uid: Uid,
    pub fence: Fence,
    /// Succeeded pods of each pod set, whose capacity is permanently free. Never fewer than before.
    pub pods: BTreeMap<String, u32>,
    /// Failed pods so far, over all attempts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// Completion indexes that succeeded so far, over all attempts.
    #[serde(default, skip_serializing_if = "Indexes::is_empty")]
    pub completed: Indexes,
}

const fn is_zero(n: &u32) -> bool {
    *n == 0
}
