//! Answers to agents: commands, lease renewals and acknowledgements.

use crate::dispatch::{grants, manifests, priority, starts, stops};
use crate::facts::actor::Actor;
use crate::facts::outcome::Reply;
use crate::link::scale_up;
use crate::live::counts::Count;
use crate::sessions::outbox::CommandRef;
use crate::state::legs::leg::LegState;
use crate::state::workload::phase::Phase;
use crate::world::Parts;
use crate::world::gangs;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, OfferId, Session, Uid};
use meridian_shared::lease;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{
    COMMANDS_BYTES_MAX, COMMANDS_MAX, Command, Grant, Offer, OnLoss, RENEWALS_MAX, Receipt, Size, StopReason,
    SyncAnswer, SyncResponse, grant_message,
};
use meridian_shared::time::{Millis, Mono};

/// Most record ranges in one answer; the newest are sent.
const RANGES_MAX: usize = 64;

/// Composes one answer. The leases in it count from now, whether or not the answer arrives.
pub(crate) fn answer(turn: &mut Turn<'_>, cluster: &ClusterName, session: Session, transmission: u64) {
    let now = turn.now.mono;
    let renewals = renewals(turn, cluster);
    let (commands_from, commands) = commands(turn, cluster);
    let Parts { state, config, live, .. } = turn.world.parts();
    let live = live.cluster_mut(cluster).expect("only live sessions are answered");
    live.outbox_mut().sent(now, commands_from, commands.len());
    let ends = live.answers().next_ends();
    let (events_through, want_inventory, capacity) =
        (live.events_through(), live.inventory().is_wanted(), live.capacity().version());
    let members: Vec<ClusterName> = state.members().keys().cloned().collect();
    let version = live.version();
    let mut receipt = Receipt {
        journal: state.journal(),
        leadership: state.leadership(),
        record: state.last(),
        rules: state.rules(),
        audit_head: Some(format!("{}:{}", state.audit().lines, state.audit().hash)),
        mac: None,
    };
    receipt.mac = Some(config.receipt_key.sign(&receipt.message(&members)));
    live.answers_mut().note(transmission, state.last(), ends.clone());
    let skip = state.ranges().len().saturating_sub(RANGES_MAX);
    let response = SyncResponse {
        version,
        leadership: state.leadership(),
        session,
        transmission,
        receipt,
        members,
        events_through,
        ends_acknowledged: ends,
        commands,
        commands_from,
        renewals,
        want_inventory,
        capacity_acknowledged: capacity,
        ranges: state.ranges()[skip..].to_vec(),
        poll: lease::poll(turn.world.config().term_min),
    };
    turn.reply(Reply::Sync(Box::new(SyncAnswer::Ok(Box::new(response)))));
}

/// The next commands for an agent, as many as one answer may carry, with the number of the first.
fn commands(turn: &mut Turn<'_>, cluster: &ClusterName) -> (u64, Vec<Command>) {
    let (from, references) = turn
        .world
        .live()
        .cluster(cluster)
        .map(|l| l.outbox().next(turn.now.mono, COMMANDS_MAX))
        .unwrap_or((1, Vec::new()));
    let (mut commands, mut bytes) = (Vec::with_capacity(references.len()), 0);
    for reference in references {
        let command = render(turn, cluster, reference);
        bytes += command.weight();
        if bytes > COMMANDS_BYTES_MAX && !commands.is_empty() {
            // The command goes with the next answer. If it grants a lease, `render` has noted the lease
            // already, which is safe: counting a lease that wasn't sent only makes the manager wait longer.
            break;
        }
        commands.push(command);
    }
    (from, commands)
}

fn renewals(turn: &mut Turn<'_>, cluster: &ClusterName) -> Vec<(Uid, Fence)> {
    let now = turn.now.mono;
    let step = Millis(turn.world.config().term_min.0 / 16);
    let Some(live) = turn.world.live_mut().cluster_mut(cluster) else { return Vec::new() };
    if !live.is_renewal_due(now) {
        return Vec::new();
    }
    live.check_renewals_at(now + step);
    let unacknowledged_for = now.since(live.answers().acknowledged_at());
    let ledger = turn.world.state().members()[cluster].ledger();
    let mut due: Vec<(Option<Mono>, Uid, Fence)> = stops::granted_attempts(turn, cluster)
        .into_iter()
        .filter_map(|(uid, fence, _)| {
            let workload = turn.workload(uid)?;
            let (_, leg) = workload.right()?;
            let lease = turn.world.live().leases().get(fence)?;
            let renewable = workload.on_loss() == OnLoss::Fence
                && leg.accepted()
                && leg.ledger() == ledger
                && workload.phase() != Phase::Stopping
                // If this journal is a copy, clusters that follow this manager no longer report to the
                // manager with the original. That manager ends their leases as lapsed and may start the
                // workloads elsewhere.
                && !turn.world.disputed(workload)
                && !lease.lapsed(now)
                && unacknowledged_for < lease::disconnect_after(workload.term())
                && lease.composed().is_none_or(|at| now.since(at) >= Millis(workload.term().0 / 32));
            renewable.then_some((lease.composed(), uid, fence))
        })
        .collect();
    // The leases that wait the longest, in the order of workloads.
    due.sort_unstable();
    due.truncate(RENEWALS_MAX);
    due.sort_unstable_by_key(|(_, uid, _)| *uid);
    let due: Vec<(Uid, Fence)> = due.into_iter().map(|(_, uid, fence)| (uid, fence)).collect();
    turn.world.live_mut().counts_mut().add(Count::Renewals, due.len() as u64);
    for (_, fence) in &due {
        grants::note_lease_composed(turn.world, *fence, now);
    }
    due
}

/// Builds the command to send. Every send builds it again, so that it follows the residency rules of that
/// moment.
fn render(turn: &mut Turn<'_>, cluster: &ClusterName, reference: CommandRef) -> Command {
    match reference {
        CommandRef::Withdraw(uid, offer) => Command::Withdraw { offer, uid },
        CommandRef::Stop(uid, fence, reason) => Command::Stop { uid, fence, reason },
        CommandRef::ScaleDown(uid, fence, size) => render_scale_down(turn, cluster, uid, fence, size),
        CommandRef::ScaleUp(uid, fence, number) => {
            scale_up::render_scale_up(turn, cluster, uid, fence, number)
        }
        CommandRef::SetPriority(uid, fence, _) => priority::render_priority(turn, cluster, uid, fence),
        CommandRef::Offer(uid, offer) => {
            let open =
                turn.workload(uid).and_then(|w| w.legs().get(&offer)).is_some_and(|l| l.state().open());
            match gangs::asked_gang(turn.world, uid) {
                Some(gang) if open && grants::may_disclose(turn, uid, cluster) => {
                    let workload = turn.workload(uid).expect("its gang was found");
                    let class = turn.world.queues().class(workload.class());
                    let policy = turn
                        .world
                        .queues()
                        .charged_to(uid)
                        .and_then(|q| turn.world.state().catalog().dispatch_policy(q));
                    let requires_guarded = policy.is_some_and(|p| {
                        p.on_cluster_loss.requires == meridian_objects::spec::Supervision::Guarded
                    });
                    // A manager that hosts agents requires guards for `Fence` jobs, including jobs that were
                    // submitted before it hosted agents.
                    let hosts_agents = turn.world.config().hosts_agents;
                    let requires_guarded =
                        requires_guarded || (hosts_agents && workload.on_loss() == OnLoss::Fence);
                    let (container_needs, without_image) =
                        (class.container_needs.clone(), class.without_image.clone());
                    let references = class.references.clone();
                    let (namespace, kind, hold) =
                        (workload.namespace().clone(), class.kind.name().into(), turn.world.config().hold);
                    Command::Offer(Box::new(Offer {
                        offer,
                        uid,
                        namespace,
                        kind,
                        gang,
                        hold,
                        requires_guarded,
                        container_needs,
                        without_image,
                        references,
                    }))
                }
                _ => Command::Withdraw { offer, uid },
            }
        }
        CommandRef::Grant(uid, offer, fence) => render_grant(turn, cluster, uid, offer, fence),
    }
}

/// If the command is outdated, or rules forbid that the cluster knows the workload, builds a command without
/// effect under its number.
fn render_scale_down(turn: &Turn<'_>, cluster: &ClusterName, uid: Uid, fence: Fence, size: Size) -> Command {
    let leg = turn.workload(uid).and_then(|w| w.leg_of(fence));
    match leg {
        Some(_) if grants::may_disclose(turn, uid, cluster) => Command::ScaleDown { uid, fence, size },
        // Agents ignore the withdrawal of an offer that was granted.
        Some((offer, _)) => Command::Withdraw { offer, uid },
        None => Command::Stop { uid, fence, reason: StopReason::Superseded },
    }
}

fn render_grant(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    uid: Uid,
    offer: OfferId,
    fence: Fence,
) -> Command {
    let now = turn.now.mono;
    let stop = Command::Stop { uid, fence, reason: StopReason::Superseded };
    let Some(workload) = turn.workload(uid) else { return stop };
    let is_current = workload.phase() != Phase::Stopping
        && workload.leg_of(fence).is_some_and(|(_, l)| l.state() == LegState::Granted);
    // A grant may be sent for one term after it was first composed.
    let fresh =
        turn.world.live().leases().get(fence).is_some_and(|lease| lease.may_be_sent(workload.term(), now));
    let resends = turn.world.config().planted.has(Bug::RecoveryResends);
    let held_back = turn.world.held_back(workload, now);
    if !is_current || !(fresh || resends) || (held_back && !resends) {
        return stop;
    }
    if !grants::may_disclose(turn, uid, cluster) {
        turn.world.live_mut().counts_mut().add_one(Count::ResidencyStops);
        stops::order_stop(turn, uid, fence, StopReason::Residency, &Actor::System);
        return Command::Stop { uid, fence, reason: StopReason::Residency };
    }
    let workload = turn.workload(uid).expect("found above");
    let Some(spec) = turn.body(workload.body()) else {
        manifests::note_damaged(turn, uid);
        starts::note_undelivered_start(turn, uid, cluster);
        stops::order_stop(turn, uid, fence, StopReason::Superseded, &Actor::System);
        return stop;
    };
    let ledger = workload.leg_of(fence).expect("a current grant has a leg").1.ledger();
    let class = turn.world.queues().class(workload.class());
    let grant = Grant {
        offer,
        uid,
        fence,
        attempt: workload.attempts(),
        namespace: workload.namespace().clone(),
        name: workload.name().clone(),
        spec,
        term: workload.term(),
        on_loss: workload.on_loss(),
        start_within: gangs::start_timeout(turn.world, class),
        run_left: class.gang.run_left(workload.ran()),
        pod_failures: workload.pod_failures(),
        completed: workload.completed().clone(),
        priority: workload.priority(),
        mac: Some(turn.world.config().receipt_key.sign(&grant_message(
            cluster,
            ledger,
            uid,
            fence,
            offer,
            workload.attempts(),
            workload.term(),
            workload.on_loss(),
        ))),
    };
    grants::note_lease_composed(turn.world, fence, now);
    Command::Grant(Box::new(grant))
}
