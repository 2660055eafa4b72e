//! How a simulated provider answers requests for the nodes of a pool.

use meridian_shared::time::Millis;
use serde::Serialize;

/// Shortest and longest wait where a fleet file names none: real clouds make accelerator nodes within
/// minutes, or queue for hours.
const WAIT_LEAST: Millis = Millis::secs(30);
const WAIT_MOST: Millis = Millis::mins(3);
/// Open requests per project and region: GKE's quota `active_resize_requests`.
const REQUEST_LIMIT: u32 = 100;
/// GKE removes nodes that have no pods this long after they were provisioned.
const BOOKING_EXPIRY: Millis = Millis::mins(10);
/// Longest life of a node of GKE's Flex Start.
const MAX_RUN: Millis = Millis::mins(7 * 24 * 60);

/// A time in which a pool has no nodes to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StockOut {
    /// Begin, counted from the start of the agent.
    pub from: Millis,
    /// `None`: the stock never returns.
    pub lasts: Option<Millis>,
}

/// Behaviour of a simulated pool. Every duration is simulated time: the provider divides it by its speed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SimulatedPool {
    /// Shortest time in the queue.
    pub wait_least: Millis,
    /// Longest time in the queue; not below `wait_least`.
    pub wait_most: Millis,
    pub stock_outs: Vec<StockOut>,
    /// Nodes of the pool that may exist at once in the region; `None` is without limit.
    pub quota: Option<u32>,
    /// Requests that may be open in the region before one for this pool is queued; above 0.
    pub request_limit: u32,
    /// Time from the end of the wait until the nodes are ready.
    pub boot: Millis,
    /// Nodes that no grant uses go back after this time.
    pub booking_expiry: Millis,
    /// Nodes are revoked after this time, or after the run time of their gang if that is shorter.
    pub max_run: Millis,
    /// Seed of the drawn waits; `None` draws them anew at each start.
    pub seed: Option<u64>,
}

impl Default for SimulatedPool {
    fn default() -> Self {
        Self {
            wait_least: WAIT_LEAST,
            wait_most: WAIT_MOST,
            stock_outs: Vec::new(),
            quota: None,
            request_limit: REQUEST_LIMIT,
            boot: Millis(0),
            booking_expiry: BOOKING_EXPIRY,
            max_run: MAX_RUN,
            seed: None,
        }
    }
}
