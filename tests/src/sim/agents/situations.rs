//! Counts situations in which one rule of the protocol decides. A rule whose situation never happens isn't
//! tested by any seed.

use crate::sim::context::counters::Counters;
use meridian_agent_core::durable::Durable;
use meridian_agent_core::{Agent, Input};
use meridian_shared::protocol::{Command, Event, SyncAnswer, SyncRequest};

/// Before an agent takes an input.
pub(super) fn count_input(agent: &Agent, input: &Input, counters: &mut Counters) {
    let Input::Answer(answer) = input else { return };
    let SyncAnswer::Ok(response) = &**answer else { return };
    if response.session != agent.session() {
        return;
    }
    let (mut done, waits) = agent.commands_done();
    if agent.durable().follows() != Some(response.leadership) {
        counters.add("leaderships that ended waiting commands", u64::from(waits));
        done = 0;
    }
    for (number, command) in (response.commands_from..).zip(&response.commands) {
        let Command::Grant(grant) = command else { continue };
        if response.commands_from > done + 1 {
            counters.one("grants ahead of their turn");
        }
        if number > done && agent.durable().fence_of(grant.uid) == Some(grant.fence) {
            counters.one("grants repeated");
        }
    }
}

/// When an agent's process starts with this store.
pub(super) fn count_start(durable: &Durable, counters: &mut Counters) {
    let acknowledged = durable.tombstones().values().any(|tombstone| tombstone.acknowledged.is_some());
    counters.add("restarts with acknowledged tombstones", u64::from(acknowledged));
}

/// When an agent's process ends.
pub(super) fn count_end(agent: &Agent, counters: &mut Counters) {
    counters.add("sessions that ended waiting commands", u64::from(agent.commands_done().1));
}

/// When an agent sends a request.
pub(super) fn count_request(agent: &Agent, request: &SyncRequest, counters: &mut Counters) {
    let expired = |event: &&Event| matches!(event, Event::Gone { expired: true, .. });
    counters.add("holds expired at their agent", request.events.iter().filter(expired).count() as u64);
    let tombstones = agent.durable().tombstones();
    let ends = request.inventory.iter().flat_map(|inventory| &inventory.ends);
    let known = ends.filter(|end| {
        tombstones.get(&(end.uid, end.fence)).is_some_and(|tombstone| tombstone.acknowledged.is_some())
    });
    counters.add("acknowledged ends reported again", known.count() as u64);
}
