//! Why a gang does not fit.

use crate::counted::{counted, counted_with};
use crate::quantity;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The first obstacle to placing a gang, for users.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "reason")]
pub enum Misfit {
    /// No node has labels and taints that the pod set accepts.
    NoSuchNode {
        pod_set: String,
        /// A label that the pod set selects but no node has, as `label=value`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
    },
    /// Even an empty node is too small for one pod.
    PodTooLarge {
        pod_set: String,
        resource: String,
        /// Request of one pod.
        asks: i64,
        /// The largest amount on a matching node.
        largest: i64,
    },
    /// The nodes are suitable, but their free capacity isn't enough.
    NotEnoughCapacity {
        pod_set: String,
        /// Pods that fit now.
        fit: u32,
        /// Pods of the set.
        count: u32,
        /// Whether the whole gang would fit if the nodes were empty.
        fits_empty: bool,
    },
    /// The pod set must be in one topology domain, and no domain has the capacity.
    NoDomain {
        pod_set: String,
        /// Node label of the level.
        level: String,
        /// Pods of a slice, if only each slice must be in one domain, and not the whole pod set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slice: Option<u32>,
        /// Pods that fit into the largest domain (or, with slices, into all domains). Counted on empty nodes
        /// if the pod set could never fit.
        fit: u32,
        /// Pods of the set.
        count: u32,
        /// Whether it would fit if the nodes were empty.
        #[serde(default)]
        fits_empty: bool,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchNode { pod_set, label: Some(label) } => {
                write!(f, "no node has the label `{label}`, which pod set `{pod_set}` needs")
            }
            Self::NoSuchNode { pod_set, label: None } => {
                write!(f, "no node matches the selectors and tolerations of pod set `{pod_set}`")
            }
            Self::PodTooLarge { pod_set, resource, asks, largest } => {
                let (asks, largest) =
                    (quantity::format(resource, *asks), quantity::format(resource, *largest));
                write!(
                    f,
                    "one pod of `{pod_set}` needs {asks} {resource}, the largest matching node has \
                        {largest}"
                )
            }
            Self::NotEnoughCapacity { pod_set, fit, count, fits_empty } => {
                let verb = if *count == 1 { "fits" } else { "fit" };
                write!(f, "{fit} of {} of `{pod_set}` {verb} now", counted(count, "pod"))?;
                if *fits_empty {
                    return Ok(());
                }
                f.write_str(", and not all even with nothing else running")
            }
            Self::NoDomain { pod_set, level, slice: None, fit, count, fits_empty } => {
                write!(f, "pod set `{pod_set}` must be in one `{level}`: ")?;
                let pods = counted(count, "pod");
                match fits_empty {
                    true => write!(f, "the domain with the most free capacity fits {fit} of {pods}"),
                    false => write!(f, "the largest domain fits {fit} of {pods} even when empty"),
                }
            }
            Self::NoDomain { pod_set, level, slice: Some(size), fit, count, fits_empty } => {
                let size = counted(size, "pod");
                write!(f, "each slice of {size} of pod set `{pod_set}` must be in one `{level}`: ")?;
                let pods = counted_with(count, "pod", "fits", "fit");
                match fits_empty {
                    true => write!(f, "{fit} of {pods} now"),
                    false => write!(f, "{fit} of {pods} even with nothing else running"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_as_users_write_them() {
        let too_large = |resource: &str, asks: i64, largest: i64| {
            Misfit::PodTooLarge { pod_set: "main".into(), resource: resource.into(), asks, largest }
                .to_string()
        };
        assert_eq!(
            too_large("cpu", 16_000, 7_500),
            "one pod of `main` needs 16 cpu, the largest matching node has 7500m"
        );
        assert_eq!(
            too_large("memory", 512 << 20, 1 << 28),
            "one pod of `main` needs 512Mi memory, the largest matching node has 256Mi"
        );
    }
}
