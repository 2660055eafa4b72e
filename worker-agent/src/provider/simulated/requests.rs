//! The requests of a region, from the queue to ready nodes and back, in simulated time (pure).
//!
//! `Limited → Queued → Starting → Booked → InUse → Revoked`. A queued request says what it waits for: its
//! turn, stock or quota. Requests are served in the order of their offers; a request that waits for quota
//! delays no other request.
//!
//! The provider doesn't know which nodes a grant uses. When a booking expires, it reports that and keeps the
//! nodes: the core gives them back if nothing was granted, and ignores the report if a gang runs on them.
//! When the nodes reach their pool's maximum run time they are revoked, and the core ends the attempt.

use super::pool::{NodeCounts, Pools};
use super::reason::Reason;
use super::stock::Stock;
use meridian_agent_core::runtime::{NodePool, ProviderEvent};
use meridian_shared::gang::Gang;
use meridian_shared::ids::OfferId;
use meridian_shared::packing::Block;
use meridian_shared::time::Millis;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPhase {
    /// The request waits because too many requests are open.
    Limited,
    /// The nodes can be provisioned at `from` at the earliest.
    Queued {
        from: Millis,
    },
    Starting {
        ready: Millis,
    },
    /// Nodes are ready, perhaps in use.
    Booked {
        since: Millis,
    },
    /// Nodes are in use: the core didn't give them back when their booking expired.
    InUse {
        since: Millis,
    },
    Revoked,
}

impl RequestPhase {
    /// Whether it counts against the request limit.
    fn is_open(self) -> bool {
        matches!(self, Self::Queued { .. } | Self::Starting { .. })
    }

    fn has_nodes(self) -> bool {
        !matches!(self, Self::Limited | Self::Queued { .. })
    }
}

#[derive(Debug)]
struct Request {
    nodes: NodeCounts,
    /// Time in the queue.
    wait: Millis,
    /// Longest run of the gang, where it is limited.
    run_time: Option<Millis>,
    phase: RequestPhase,
    /// The last report.
    reported: Option<Reason>,
}

#[derive(Debug)]
pub(super) struct Requests {
    pools: Pools,
    seed: u64,
    requests: BTreeMap<OfferId, Request>,
}

impl Requests {
    pub(super) fn new(pools: Vec<NodePool>, seed: u64) -> Self {
        Self { pools: Pools::new(pools), seed, requests: BTreeMap::new() }
    }

    /// The nodes that may still be requested.
    pub(super) fn blocks(&self) -> Vec<Block> {
        self.pools.blocks()
    }

    /// Takes a request, and ignores a repeated one.
    pub(super) fn add(&mut self, now: Millis, offer: OfferId, gang: &Gang) -> Vec<ProviderEvent> {
        if self.requests.contains_key(&offer) {
            return Vec::new();
        }
        let nodes = match self.pools.plan(gang) {
            Ok(nodes) => nodes,
            Err(reason) => return vec![ProviderEvent::Failed { offer, reason }],
        };
        self.pools.add_requested(&nodes);
        let wait = self.pools.wait(&nodes, self.seed, offer, gang.max_run);
        let request =
            Request { nodes, wait, run_time: gang.max_run, phase: RequestPhase::Limited, reported: None };
        self.requests.insert(offer, request);
        self.advance(now)
    }

    /// Takes the nodes of an offer back, or drops its request.
    pub(super) fn cancel(&mut self, now: Millis, offer: OfferId) -> Vec<ProviderEvent> {
        let Some(request) = self.requests.remove(&offer) else { return Vec::new() };
        self.pools.remove_requested(&request.nodes);
        if request.phase.has_nodes() {
            self.pools.remove_existing(&request.nodes);
        }
        self.advance(now)
    }

    /// Lets time pass until `now`. Estimates in the events are simulated lengths.
    pub(super) fn advance(&mut self, now: Millis) -> Vec<ProviderEvent> {
        let mut events = Vec::new();
        for (offer, request) in &mut self.requests {
            if request.phase.has_nodes() {
                events.extend(request.advance_nodes(now, *offer, &self.pools));
            }
        }
        let mut open = self.requests.values().filter(|request| request.phase.is_open()).count();
        for (offer, request) in &mut self.requests {
            if request.phase == RequestPhase::Limited {
                let limit = request.limit(&self.pools);
                if open < limit as usize {
                    open += 1;
                    request.phase = RequestPhase::Queued { from: now + request.wait };
                } else {
                    events.extend(request.report(Reason::RequestLimit(limit), None, *offer, &self.pools));
                }
            }
            if let RequestPhase::Queued { from } = request.phase {
                let (obstacle, estimate) = request.obstacle(now, from, &self.pools);
                if obstacle.is_none() && now >= from {
                    self.pools.add_existing(&request.nodes);
                    let boot = request.boot(&self.pools);
                    request.phase = RequestPhase::Starting { ready: now + boot };
                    events.extend(request.report(Reason::Starting, Some(boot), *offer, &self.pools));
                } else {
                    let reason = obstacle.unwrap_or(Reason::Queued);
                    events.extend(request.report(reason, estimate, *offer, &self.pools));
                }
            }
        }
        events
    }

    /// When time must pass next, if nothing else happens.
    pub(super) fn next_change(&self, now: Millis) -> Option<Millis> {
        let of_request = |request: &Request| match request.phase {
            RequestPhase::Limited | RequestPhase::Revoked => None,
            RequestPhase::Queued { from } => {
                let turn = (from > now).then_some(from);
                turn.into_iter().chain(request.stock_change(now, &self.pools)).min()
            }
            RequestPhase::Starting { ready } => Some(ready),
            RequestPhase::Booked { since } => Some(since + request.booking_expiry(&self.pools)),
            RequestPhase::InUse { since } => Some(since + request.lifetime(&self.pools)),
        };
        self.requests.values().filter_map(of_request).min()
    }
}

impl Request {
    /// Lets time pass for a request with nodes.
    fn advance_nodes(&mut self, now: Millis, offer: OfferId, pools: &Pools) -> Option<ProviderEvent> {
        match self.phase {
            RequestPhase::Starting { ready } if now >= ready => {
                self.phase = RequestPhase::Booked { since: now };
                Some(ProviderEvent::Ready { offer, nodes: pools.make(&self.nodes, offer), keeps: None })
            }
            RequestPhase::Booked { since } if now >= since + self.booking_expiry(pools) => {
                self.phase = RequestPhase::InUse { since };
                Some(self.failure(Reason::BookingExpired(self.booking_expiry(pools)), offer, pools))
            }
            RequestPhase::InUse { since } if now >= since + self.lifetime(pools) => {
                self.phase = RequestPhase::Revoked;
                let reason = Reason::CapacityRevoked(self.lifetime(pools)).text(pools, &self.nodes);
                // A gang with a shorter limit ends at that limit: its job fails, and doesn't run again.
                Some(match self.run_time.is_some_and(|own| own <= self.lifetime(pools)) {
                    true => ProviderEvent::Failed { offer, reason },
                    false => ProviderEvent::Revoked { offer, reason },
                })
            }
            _ => None,
        }
    }

    /// What keeps a queued request from its nodes besides its turn, and the estimated time until they are
    /// ready.
    fn obstacle(&self, now: Millis, from: Millis, pools: &Pools) -> (Option<Reason>, Option<Millis>) {
        let ready_after = |at: Millis| Some(at.saturating_sub(now) + self.boot(pools));
        match pools.of(&self.nodes).map(|pool| Stock::at(&pool.simulated.stock_outs, now)).max() {
            Some(Stock::Out) => return (Some(Reason::OutOfStock { returns: false }), None),
            Some(Stock::OutUntil(end)) => {
                return (Some(Reason::OutOfStock { returns: true }), ready_after(end.max(from)));
            }
            Some(Stock::Available) | None => {}
        }
        match pools.lacking_quota(&self.nodes) {
            Some(pool) => {
                let quota = pool.simulated.quota.unwrap_or(u32::MAX);
                (Some(Reason::Quota { pool: pool.name.clone(), quota }), None)
            }
            None => (None, ready_after(from)),
        }
    }

    /// Reports a reason, unless it was the last report: a waiting request is reported once per reason.
    fn report(
        &mut self,
        reason: Reason,
        estimate: Option<Millis>,
        offer: OfferId,
        pools: &Pools,
    ) -> Option<ProviderEvent> {
        if self.reported.as_ref() == Some(&reason) {
            return None;
        }
        let text = reason.text(pools, &self.nodes);
        self.reported = Some(reason);
        Some(ProviderEvent::Waiting { offer, reason: text, estimate })
    }

    fn failure(&self, reason: Reason, offer: OfferId, pools: &Pools) -> ProviderEvent {
        ProviderEvent::Failed { offer, reason: reason.text(pools, &self.nodes) }
    }

    fn stock_change(&self, now: Millis, pools: &Pools) -> Option<Millis> {
        pools.of(&self.nodes).filter_map(|pool| Stock::next_change(&pool.simulated.stock_outs, now)).min()
    }

    fn limit(&self, pools: &Pools) -> u32 {
        pools.of(&self.nodes).map(|pool| pool.simulated.request_limit).min().unwrap_or(u32::MAX)
    }

    fn boot(&self, pools: &Pools) -> Millis {
        pools.of(&self.nodes).map(|pool| pool.simulated.boot).max().unwrap_or_default()
    }

    fn booking_expiry(&self, pools: &Pools) -> Millis {
        let expiry = pools.of(&self.nodes).map(|pool| pool.simulated.booking_expiry).min();
        expiry.unwrap_or_default().min(self.lifetime(pools))
    }

    /// How long the nodes exist at most.
    fn lifetime(&self, pools: &Pools) -> Millis {
        let of_pools = pools.of(&self.nodes).map(|pool| pool.simulated.max_run);
        of_pools.chain(self.run_time).min().unwrap_or_default()
    }
}
