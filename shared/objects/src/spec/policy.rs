//! Meridian's own kinds: worker clusters, residency policies, dispatch policies.
//!
//! They are read strictly: an unknown field is an error, because a mistyped `deny` or `limits` must not be
//! ignored.

pub mod cluster;
pub mod dispatch;
pub mod residency;

pub(crate) use cluster::read_cluster;
pub use cluster::{CapacityClass, ClusterSpec, Provider, ProviderKind, Provisionable};
pub(crate) use dispatch::read_dispatch;
pub use dispatch::{
    ClusterLossMode, DispatchMode, DispatchPolicySpec, OnClusterLoss, Preference, QuotaWhileWaiting, Staged,
    Supervision,
};
pub(crate) use residency::read_residency;
pub use residency::{Applies, Locations, OnChange, Refusal, ResidencyPolicySpec};

use crate::fields::Item;

/// Most entries of any list of a policy.
const MAX_ENTRIES: usize = 1_000;

/// Longest region or jurisdiction, in characters.
const MAX_PLACE_CHARS: usize = 63;

fn place(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    let sound = !text.is_empty()
        && text.chars().count() <= MAX_PLACE_CHARS
        && !text.chars().any(|c| c.is_control() || c.is_whitespace() || c == ',');
    if !sound {
        item.error(
            format!("`{}` is not a region or jurisdiction", text.escape_debug()),
            "write one word, such as `europe-west4` or `EU`",
        );
        return None;
    }
    Some(text.to_owned())
}
