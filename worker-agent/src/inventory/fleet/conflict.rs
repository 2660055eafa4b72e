//! Values of a fleet file that contradict another one or a bound, and amounts that are too large.

use super::super::quantity::Quantity;
use super::super::this_machine::DISK;
use meridian_shared::gang::Amounts;
use serde_saphyr::Location;
use std::collections::BTreeMap;

/// Disk of a node where the file names none, in bytes: 100 GiB, the usual boot disk of a cloud's nodes.
const USUAL_DISK_BYTES: i64 = 100 << 30;

/// A value that contradicts another one, or a bound.
pub(super) struct Conflict {
    pub(super) at: Option<Location>,
    pub(super) what: String,
}

pub(super) fn conflict(at: Option<Location>, what: impl Into<String>) -> Conflict {
    Conflict { at, what: what.into() }
}

/// The capacity of a node, with the usual disk if the file names none: jobs may request disk, and every real
/// node has some.
pub(super) fn with_disk(mut capacity: Amounts) -> Amounts {
    capacity.entry(DISK.to_owned()).or_insert(USUAL_DISK_BYTES);
    capacity
}

/// Amounts in base units. Fails if one is too large.
pub(super) fn amounts(raw: BTreeMap<String, Quantity>, at: Location) -> Result<Amounts, Conflict> {
    let amount = |(name, quantity): (String, Quantity)| {
        let base = if name == "cpu" { quantity.thousandths() } else { quantity.ones() };
        base.map(|n| (name.clone(), n))
            .ok_or_else(|| conflict(Some(at), format!("the amount of `{name}` is too large")))
    };
    raw.into_iter().map(amount).collect()
}
