//! The provider's messages about a request, with GKE's reasons. Every text says that it is simulated.

use super::pool::{NodeCounts, Pools};
use meridian_agent_core::runtime::NodePool;
use meridian_shared::time::Millis;

/// Why a request waits, or why it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Queued,
    /// `returns`: whether it is known when the stock returns.
    OutOfStock {
        returns: bool,
    },
    /// The pool with this name, and its quota in nodes.
    Quota {
        pool: String,
        quota: u32,
    },
    /// Most requests that may be open.
    RequestLimit(u32),
    Starting,
    BookingExpired(Millis),
    CapacityRevoked(Millis),
}

impl Reason {
    pub(super) fn text(&self, pools: &Pools, nodes: &NodeCounts) -> String {
        let counted = |number: u32| if number == 1 { "1 node".to_owned() } else { format!("{number} nodes") };
        let names = || pools.of(nodes).map(|pool| format!("`{}`", pool.name)).collect::<Vec<_>>().join(", ");
        let all = || counted(nodes.values().sum());
        let said = match self {
            Self::Queued => {
                format!("queued (SuccessfullyQueued): {} of pool {} requested", all(), names())
            }
            Self::OutOfStock { returns } => {
                let expected = if *returns { "" } else { "; expected time is indefinite" };
                format!("out of stock (ResourcePoolExhausted): pool {} has no nodes now{expected}", names())
            }
            Self::Quota { pool, quota } => {
                let may = counted(*quota);
                format!("quota (QuotaExceeded): pool `{pool}` may have {may} at once in this region")
            }
            Self::RequestLimit(limit) => {
                format!(
                    "request limit (LimitExceeded): the maximum of {limit} requests are open in this region"
                )
            }
            Self::Starting => format!("provisioned (Provisioned): {} of pool {} starting", all(), names()),
            Self::BookingExpired(expiry) => {
                format!("booking expired (BookingExpired): no grant used {} within {expiry}", all())
            }
            Self::CapacityRevoked(after) => {
                format!(
                    "revoked (CapacityRevoked): maxRunDuration reached: {} had a run time of {after}",
                    all()
                )
            }
        };
        format!("simulated {}: {said}", provider_name(pools.of(nodes)))
    }
}

/// The name of the product that is simulated.
fn provider_name<'p>(mut pools: impl Iterator<Item = &'p NodePool>) -> &'static str {
    if pools.all(|pool| pool.capacity_class.as_deref() == Some("flex-start")) {
        "Flex Start"
    } else {
        "provider"
    }
}
