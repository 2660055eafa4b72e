//! Pools that grow from zero after a wait, with nodes that don't exist. Every message says that it is
//! simulated.
//!
//! A pool has the troubles of a real one: waits, stock-outs, quota, a limit on requests, nodes that start,
//! bookings that expire, and revocation ([`SimulatedPool`](meridian_agent_core::runtime::SimulatedPool)). The
//! waits are drawn from a seed and the offer, so that the same run always waits equally long, and every
//! length is divided by the speed. A restart forgets the nodes that were made: their gangs keep their
//! allocations in the core, and all nodes of the pools can be requested again.
//!
//! [`requests`] decides (pure), and a task lets its time pass.

mod clock;
mod pool;
mod reason;
mod requests;
mod stock;
#[cfg(test)]
mod tests;

use clock::SimulatedClock;
use meridian_agent_core::runtime::{NodePool, NodeRequest, Provider, ProviderEvent};
use meridian_shared::ids::OfferId;
use meridian_shared::packing::Block;
use requests::Requests;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

#[derive(Debug)]
struct Shared {
    requests: Mutex<Requests>,
    /// A command changed the requests, and with them the moment of the next change.
    changed: Notify,
    clock: SimulatedClock,
    events: mpsc::UnboundedSender<ProviderEvent>,
}

impl Shared {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends events in real time. A send fails only when the agent ends; its successor requests anew. A
    /// request has an event per change of its reason, and the core keeps at most `OFFERS_MAX` requests open.
    fn report(&self, events: Vec<ProviderEvent>) {
        for mut event in events {
            if let ProviderEvent::Waiting { estimate: Some(estimate), .. } = &mut event {
                *estimate = self.clock.real(*estimate);
            }
            let _ = self.events.send(event);
        }
    }

    /// Lets time pass, and sends what happens.
    async fn keep_time(&self) {
        loop {
            let next = {
                let mut requests = self.requests();
                let now = self.clock.now();
                // Sent under the lock: after a cancel nothing more of an offer is reported.
                self.report(requests.advance(now));
                requests.next_change(now)
            };
            let changed = self.changed.notified();
            match next.and_then(|at| self.clock.moment(at)) {
                Some(moment) => tokio::select! {
                    () = tokio::time::sleep_until(moment) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }
}

/// Pretends to make nodes.
#[derive(Debug)]
pub struct SimulatedProvider {
    shared: Arc<Shared>,
    timer: AbortHandle,
}

impl SimulatedProvider {
    /// A provider of `pools`. Lengths are divided by `speed`, which is above 0. Time passes on `runtime`.
    pub fn new(
        pools: Vec<NodePool>,
        speed: f64,
        seed: u64,
        runtime: Handle,
        events: mpsc::UnboundedSender<ProviderEvent>,
    ) -> Self {
        let shared = Arc::new(Shared {
            requests: Mutex::new(Requests::new(pools, seed)),
            changed: Notify::new(),
            clock: SimulatedClock::start(speed),
            events,
        });
        let timed = Arc::clone(&shared);
        let timer = runtime.spawn(async move { timed.keep_time().await }).abort_handle();
        Self { shared, timer }
    }
}

impl Drop for SimulatedProvider {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

impl Provider for SimulatedProvider {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn pools(&self) -> Vec<Block> {
        self.shared.requests().blocks()
    }

    fn request(&mut self, NodeRequest { offer, gang, .. }: NodeRequest) {
        let mut requests = self.shared.requests();
        self.shared.report(requests.add(self.shared.clock.now(), offer, &gang));
        self.shared.changed.notify_one();
    }

    fn cancel(&mut self, offer: OfferId) {
        let mut requests = self.shared.requests();
        self.shared.report(requests.cancel(self.shared.clock.now(), offer));
        self.shared.changed.notify_one();
    }
}
