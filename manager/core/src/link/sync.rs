//! The sync request of an agent: what it reports is taken, and answered at once or when there is something to
//! send.

use crate::dispatch::{grants, priority};
use crate::facts::outcome::Reply;
use crate::link::{answers, budget, events, inventory, pods, session};
use crate::live::counts::Count;
use crate::sessions::features::Features;
use crate::world::turn::Turn;
use crate::world::{Parts, World};
use meridian_shared::ids::{ClusterName, Session};
use meridian_shared::lease;
use meridian_shared::protocol::{Digest, SyncAnswer, SyncRefusal, SyncRequest};
use meridian_shared::time::Mono;

impl World {
    /// Whether a parked poll of the cluster's agent must be answered now.
    pub fn owes(&self, cluster: &ClusterName, now: Mono) -> bool {
        let Some(live) = self.live().cluster(cluster) else { return true };
        live.inventory().is_wanted()
            || live.answers().ends_waiting() > 0
            // A joined cluster is admitted once another member has acknowledged its name, which may take two
            // answers. Don't let it wait for the end of a poll.
            || self.state().members().iter().any(|(name, member)| {
                name != cluster && !member.admitted() && member.since() > live.answers().known_record()
            })
            || live.outbox().due(now)
            || (live.is_renewal_due(now) && self.loads().get(cluster).is_some_and(|l| !l.is_empty()))
    }
}

pub(crate) fn sync(turn: &mut Turn<'_>, cluster: ClusterName, request: SyncRequest, may_park: bool) {
    if let Err(refusal) = session::admit(turn, &cluster, &request) {
        return turn.reply(Reply::Sync(Box::new(SyncAnswer::Refused(refusal))));
    }
    let now = turn.now.mono;
    let mut request = request;
    let follows_us = request.follows == Some(turn.world.state().leadership());
    if !follows_us {
        // Commands and answers are numbered per leadership; these acknowledgements are for an earlier one.
        (request.answered, request.commands_through) = (0, 0);
        if let Some(capacity) = &mut request.capacity {
            capacity.after_command = 0;
        }
    }
    let Parts { config, live, .. } = turn.world.parts();
    let live = live.cluster_mut(&cluster).expect("admitted sessions are live");
    let reconnected = now.since(live.heard()) >= lease::disconnect_after(config.term_min);
    live.hear(now);
    live.set_features(Features::of(&request));
    live.answers_mut().acknowledge(request.answered, now);
    live.outbox_mut().acknowledge(request.commands_through, now);
    let stale = request.commands_through < live.outbox().acknowledged()
        || request.events_last < live.events_through();
    if reconnected {
        turn.capacity_changed();
    }
    session::admit_members(turn, &cluster);
    events::take_events(turn, &cluster, request.events_from, request.events.clone());
    pods::take_reclaimable(turn, &cluster, std::mem::take(&mut request.spare));
    // An inventory that is older than acknowledged commands or events is ignored: it could contain a run that
    // has ended since. If its workload was also forgotten, the run would be recorded as an orphan.
    if let Some(inventory) = request.inventory.clone().filter(|_| !stale && !budget::is_spent(turn, &cluster))
    {
        inventory::take_inventory(turn, &cluster, request.ledger, inventory);
        if !turn.world.live().clusters().contains_key(&cluster) {
            // A foreign receipt in the inventory started a new leadership, so every session must be opened
            // again.
            return turn.reply(Reply::Sync(Box::new(SyncAnswer::Refused(SyncRefusal::NotLeading))));
        }
    }
    if let Some(capacity) = request.capacity.clone() {
        take_capacity(turn, &cluster, capacity);
    }
    if follows_us {
        compare_digest(turn, &cluster, &request);
    }
    if may_park {
        return turn.reply(Reply::Park);
    }
    answers::answer(turn, &cluster, request.session, request.transmission);
}

pub(crate) fn unpark(turn: &mut Turn<'_>, cluster: ClusterName, session: Session, transmission: u64) {
    if !grants::holds_leader_claim(turn) {
        return turn.reply(Reply::Sync(Box::new(SyncAnswer::Refused(SyncRefusal::NotLeading))));
    }
    match turn.world.live().cluster(&cluster) {
        Some(live) if live.session() == session => answers::answer(turn, &cluster, session, transmission),
        Some(live) => {
            let by = live.session();
            turn.reply(Reply::Sync(Box::new(SyncAnswer::Refused(SyncRefusal::Superseded { by }))));
        }
        None => turn.reply(Reply::Sync(Box::new(SyncAnswer::Refused(SyncRefusal::NotLeading)))),
    }
}

fn take_capacity(turn: &mut Turn<'_>, cluster: &ClusterName, capacity: meridian_shared::protocol::Capacity) {
    let has_never_fits = turn.world.live().refusals().has_never_fits(cluster);
    let live = turn.world.live_mut().cluster_mut(cluster).expect("admitted sessions are live");
    let region_changed = live.locate(capacity.located.as_ref());
    let nodes_before = has_never_fits.then(|| live.capacity().machines());
    if live.capacity_mut().report(capacity) {
        // Workloads that never fit on the previous nodes may fit on others.
        if nodes_before.is_some_and(|before| live.capacity().machines() != before) {
            turn.world.live_mut().refusals_mut().nodes_changed(cluster);
        }
        turn.capacity_changed();
    }
    if region_changed {
        priority::resend_priorities(turn);
    }
}

/// Compares the agent's digest of its legs with the manager's, and asks for an inventory if they differ.
/// Digests are compared only while no command and no event is in transit.
fn compare_digest(turn: &mut Turn<'_>, cluster: &ClusterName, request: &SyncRequest) {
    let now = turn.now.mono;
    let every = lease::poll(turn.world.config().term_min);
    let live = turn.world.live_mut().cluster_mut(cluster).expect("admitted sessions are live");
    let quiet = live.inventory().is_taken()
        && live.outbox().quiet()
        && request.events_last == live.events_through()
        && request.commands_through >= live.outbox().last();
    if !quiet || !live.inventory_mut().take_due_comparison(now, every) {
        return;
    }
    let ledger = turn.world.state().members()[cluster].ledger();
    let mut digest = Digest::default();
    for uid in turn.world.loads().get(cluster).into_iter().flatten().map(|(uid, _)| uid) {
        for (offer, leg) in turn.world.state().workloads()[uid]
            .legs()
            .iter()
            .filter(|(_, l)| *l.cluster() == *cluster && l.ledger() == ledger)
        {
            digest = match leg.fence() {
                Some(fence) => digest.with_grant(*uid, fence),
                None => digest.with_offer(*offer),
            };
        }
    }
    if digest != request.digest {
        turn.world.live_mut().counts_mut().add_one(Count::DigestMismatches);
        let live = turn.world.live_mut().cluster_mut(cluster).expect("admitted sessions are live");
        live.inventory_mut().want();
    }
}
