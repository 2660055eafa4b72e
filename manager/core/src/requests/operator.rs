//! Operator actions: cordon, drain, join, and the confirmations that no program can give.

use crate::dispatch::{grants, offers, stops};
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry};
use crate::facts::input::Operator;
use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason, Reply};
use crate::facts::record::{LeadershipFact, MemberFact, OrphanFact, Record, TokenFact, WorkloadFact};
use crate::leadership::{orphans, recovery};
use crate::requests::{adopted_orphans, cordons, jobs, joins, user_tokens};
use crate::state::members::Orphan;
use crate::world::turn::Turn;
use meridian_objects::{FieldError, Kind, Object};
use meridian_shared::counted::{counted, counted_with};
use meridian_shared::identity::CertificateBinding;
use meridian_shared::ids::{ClusterName, Fence, Jurisdiction, LedgerId, Region, Uid};
use meridian_shared::protocol::StopReason;

pub(crate) fn operate(turn: &mut Turn<'_>, by: Actor, action: Operator) {
    let done = match action {
        Operator::Cordon(cluster) => cordons::cordon(turn, &by, &cluster, true),
        Operator::Uncordon(cluster) => cordons::cordon(turn, &by, &cluster, false),
        Operator::Drain(cluster) => drain(turn, &by, &cluster),
        Operator::Admit(cluster) => admit_cluster(turn, &by, &cluster),
        Operator::DeclareLost { cluster, ledger } => declare_lost(turn, &by, &cluster, ledger),
        Operator::MintToken { hash, cluster, region, jurisdiction, ttl, replace } => {
            mint(turn, &by, hash, cluster, region, jurisdiction, ttl, replace)
        }
        Operator::CreateUserToken { name, user, groups } => {
            Ok(user_tokens::created(turn, &by, &name, &user, &groups))
        }
        Operator::RevokeUserToken { name } => Ok(user_tokens::revoked(turn, &by, name)),
        Operator::UseToken { hash } => return joins::use_token(turn, &hash),
        Operator::JoinByIssuer(place) => return joins::join_by_issuer(turn, place),
        Operator::LetAccountJoin { place, replace } => joins::let_account_join(turn, &by, &place, replace),
        Operator::Revoke(cluster) => revoke(turn, &by, &cluster),
        Operator::AdoptCertificate { cluster, binding } => adopt_certificate(turn, &cluster, binding),
        Operator::ConfirmRecovery => confirm_recovery(turn, &by),
        Operator::ConfirmRules => {
            turn.record(Record::Leadership(LeadershipFact::RulesConfirmed { by: by.clone() }));
            operator_audit(turn, &by, Action::ConfirmRules, String::new(), None);
            turn.capacity_changed();
            Ok("policies and quotas are confirmed".into())
        }
        Operator::DoubtRules => Ok(recovery::stop_dispatching(turn)),
        Operator::StopOrphan { uid, fence } => stop_orphan(turn, &by, uid, fence),
        Operator::AdoptOrphan { uid, fence, job } => adopt_orphan(turn, &by, uid, fence, &job),
    };
    match done {
        Ok(message) => turn.reply(Reply::Done(message)),
        Err(rejection) => turn.reply(Reply::Rejected(vec![rejection])),
    }
}

pub(super) fn operator_audit(
    turn: &mut Turn<'_>,
    by: &Actor,
    action: Action,
    subject: String,
    cluster: Option<&ClusterName>,
) {
    let entry = Entry { cluster: cluster.map(ToString::to_string), ..Entry::new(action, subject) };
    turn.audit(by.clone(), entry);
}

fn drain(turn: &mut Turn<'_>, by: &Actor, cluster: &ClusterName) -> Result<String, Rejection> {
    cordons::cordon(turn, by, cluster, true)?;
    let attempts = stops::granted_attempts(turn, cluster);
    for (uid, fence, _) in &attempts {
        stops::order_stop(turn, *uid, *fence, StopReason::Drained, by);
    }
    operator_audit(turn, by, Action::Drain, counted(attempts.len(), "workload"), Some(cluster));
    let stopped = counted_with(attempts.len(), "workload", "is", "are");
    Ok(format!("cluster `{cluster}` is cordoned; {stopped} being stopped there"))
}

fn member<'a>(
    turn: &'a Turn<'_>,
    cluster: &ClusterName,
) -> Result<&'a crate::state::members::Member, Rejection> {
    let missing = || {
        if turn.world.state().catalog().cluster(cluster).is_some() {
            never_joined(cluster)
        } else {
            unknown(cluster)
        }
    };
    turn.world.state().members().get(cluster).ok_or_else(missing)
}

fn admit_cluster(turn: &mut Turn<'_>, by: &Actor, cluster: &ClusterName) -> Result<String, Rejection> {
    member(turn, cluster)?;
    turn.record(Record::Member { cluster: cluster.clone(), fact: MemberFact::Admitted { by: by.clone() } });
    operator_audit(turn, by, Action::Admit, String::new(), Some(cluster));
    turn.capacity_changed();
    Ok(format!("cluster `{cluster}` is admitted and may get workloads"))
}

/// Declares a cluster lost that this journal doesn't know: recovery awaits it because an agent's member list
/// names it. Fails if it isn't awaited.
fn stop_awaiting_unknown(
    turn: &mut Turn<'_>,
    by: &Actor,
    cluster: &ClusterName,
) -> Result<String, Rejection> {
    if !recovery::no_longer_awaits(turn, cluster) {
        return Err(never_joined(cluster));
    }
    operator_audit(turn, by, Action::DeclareLost, String::new(), Some(cluster));
    recovery::maybe_close(turn);
    turn.capacity_changed();
    Ok(format!("cluster `{cluster}`, which this journal doesn't know, is declared lost"))
}

fn declare_lost(
    turn: &mut Turn<'_>,
    by: &Actor,
    cluster: &ClusterName,
    ledger: Option<LedgerId>,
) -> Result<String, Rejection> {
    if ledger.is_none() && !turn.world.state().members().contains_key(cluster) {
        return stop_awaiting_unknown(turn, by, cluster);
    }
    let member = member(turn, cluster)?;
    let newest = member.ledger();
    let ledger = ledger.unwrap_or(newest);
    let orphaned = || {
        turn.world
            .state()
            .orphans()
            .values()
            .any(|orphan| *orphan.cluster() == *cluster && orphan.ledger() == ledger)
    };
    let has_legs = || {
        turn.world
            .state()
            .workloads()
            .values()
            .any(|w| w.legs().values().any(|leg| *leg.cluster() == *cluster && leg.ledger() == ledger))
    };
    if ledger != newest && !member.lost().contains(&ledger) && !orphaned() && !has_legs() {
        let message =
            format!("cluster `{cluster}` never had a ledger `{ledger}`; its present ledger is `{newest}`");
        return Err(rejection(RejectionReason::NotFound, message));
    }
    turn.record(Record::Member {
        cluster: cluster.clone(),
        fact: MemberFact::DeclaredLost { ledger, by: by.clone() },
    });
    operator_audit(turn, by, Action::DeclareLost, ledger.to_string(), Some(cluster));
    let attempts: Vec<(Uid, Fence)> = stops::granted_attempts(turn, cluster)
        .into_iter()
        .filter(|(uid, fence, _)| {
            turn.workload(*uid).and_then(|w| w.leg_of(*fence)).is_some_and(|(_, l)| l.ledger() == ledger)
        })
        .map(|(uid, fence, _)| (uid, fence))
        .collect();
    for (uid, fence) in &attempts {
        turn.record_workload(
            *uid,
            WorkloadFact::LeaseLapsed {
                fence: *fence,
                at: turn.now.wall,
                declared: true,
                by: Some(by.clone()),
            },
        );
        grants::settle_ended_attempt(turn, *uid, *fence);
    }
    orphans::orphans_declared_lost(turn, cluster, ledger, by);
    // If the cluster has a newer ledger, its inventory is still needed.
    if ledger == newest {
        offers::withdraw_all(turn, cluster);
        turn.world.live_mut().close_session(cluster);
        if recovery::no_longer_awaits(turn, cluster) {
            recovery::maybe_close(turn);
        }
    } else if turn.world.live().recovery().awaited().contains(cluster) {
        recovery::stop_awaiting(turn);
    }
    let released = counted(attempts.len(), "workload");
    Ok(format!("ledger `{ledger}` of cluster `{cluster}` is declared lost; {released} may start elsewhere"))
}

#[expect(clippy::too_many_arguments, reason = "a token is bound to all of these, and each has its own type")]
fn mint(
    turn: &mut Turn<'_>,
    by: &Actor,
    hash: String,
    cluster: ClusterName,
    region: Region,
    jurisdiction: Jurisdiction,
    ttl: meridian_shared::time::Millis,
    replace: bool,
) -> Result<String, Rejection> {
    // An earlier agent in the manager's own process ended with that process. An agent that joined from
    // elsewhere may still run.
    let replace = replace || (*by == Actor::System && turn.world.state().hosts(&cluster));
    let has_joined = turn.world.state().members().contains_key(&cluster);
    if has_joined && !replace {
        return Err(name_taken(&cluster));
    }
    joins::declare(turn, by, &cluster, &region, &jurisdiction)?;
    let expires = turn.now.wall + ttl;
    operator_audit(
        turn,
        by,
        Action::MintToken,
        format!("region {region}, jurisdiction {jurisdiction}"),
        Some(&cluster),
    );
    turn.record(Record::Token {
        hash,
        fact: TokenFact::Minted {
            cluster: cluster.clone(),
            region,
            jurisdiction,
            expires,
            replace,
            by: by.clone(),
        },
    });
    turn.capacity_changed();
    Ok(format!("a join token for cluster `{cluster}` was created"))
}

fn revoke(turn: &mut Turn<'_>, by: &Actor, cluster: &ClusterName) -> Result<String, Rejection> {
    let key = Key::global(Kind::Cluster, cluster.as_str());
    let uid = turn.world.state().catalog().get(&key).ok_or_else(|| unknown(cluster))?.uid;
    joins::void_certificates(turn, cluster, uid, by, Some(false), false);
    operator_audit(turn, by, Action::Revoke, String::new(), Some(cluster));
    Ok(format!(
        "the certificates and join tokens of cluster `{cluster}` are void, and the leases of {} \
         there are not renewed; to let an agent join again, use `meridian cluster join {cluster} --replace`, \
         with `--issuer` for one that joins by its service account",
        counted(stops::granted_attempts(turn, cluster).len(), "workload")
    ))
}

fn adopt_certificate(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    binding: CertificateBinding,
) -> Result<String, Rejection> {
    let state = turn.world.state();
    if state.catalog().cluster(cluster).is_none() {
        return Err(unknown(cluster));
    }
    if state.adopts_certificates_above(cluster).is_none_or(|above| binding.generation <= above) {
        let message = format!(
            "this certificate of cluster `{cluster}` is unknown to this journal, and only a journal \
             restored from a backup accepts unknown certificates: join again with `meridian cluster join \
             {cluster} --replace`"
        );
        return Err(rejection(RejectionReason::Forbidden, message));
    }
    let fact = MemberFact::CertificatesAdopted { binding };
    turn.record(Record::Member { cluster: cluster.clone(), fact });
    operator_audit(turn, &Actor::agent(cluster), Action::AdoptCertificate, String::new(), Some(cluster));
    Ok(format!("the certificate of cluster `{cluster}` is adopted"))
}

/// Confirms that no other copy of this journal leads. Recovery still waits for the inventories of clusters.
fn confirm_recovery(turn: &mut Turn<'_>, by: &Actor) -> Result<String, Rejection> {
    let Some(recovery) = turn.world.state().recovery() else {
        let message = "recovery is not open: there is nothing to confirm";
        return Err(rejection(RejectionReason::Conflict, message.into()));
    };
    if !recovery.restored && !recovery.members_unknown {
        let message = format!(
            "nothing to confirm: {}. If a cluster will not come back, use \
             `meridian cluster declare-lost NAME`",
            awaited(turn)
        );
        return Err(rejection(RejectionReason::Conflict, message));
    }
    operator_audit(turn, by, Action::ConfirmRecovery, String::new(), None);
    recovery::rule_out_copies(turn, by);
    if turn.world.state().recovery().is_none() {
        return Ok("other copies are ruled out, and recovery is closed".into());
    }
    Ok(format!("other copies are ruled out; recovery stays open: {}", awaited(turn)))
}

/// Describes what open recovery waits for.
fn awaited(turn: &Turn<'_>) -> String {
    let names: Vec<String> =
        turn.world.live().recovery().awaited().iter().map(|cluster| awaited_name(turn, cluster)).collect();
    if names.is_empty() {
        return "the leases of earlier leaderships must lapse first".to_owned();
    }
    format!("waiting for the inventory of {}", names.join(", "))
}

/// Name of an awaited cluster, with the ledger that it has lost since recovery began, if any.
fn awaited_name(turn: &Turn<'_>, cluster: &ClusterName) -> String {
    match turn.world.state().members().get(cluster).and_then(|member| member.unheard()) {
        Some(ledger) => format!("{cluster} (its agent lost its store: ledger `{ledger}`)"),
        None => cluster.to_string(),
    }
}

/// Makes an orphan an attempt of the given job. Fails while recovery is open and while a newer attempt of the
/// same uid is known, because only the run with the highest fence may continue.
fn adopt_orphan(
    turn: &mut Turn<'_>,
    by: &Actor,
    uid: Uid,
    fence: Fence,
    job: &Object,
) -> Result<String, Rejection> {
    let orphan = orphan(turn, uid, fence)?;
    adopted_orphans::check(turn, uid, fence, &orphan)?;
    jobs::submit_adopted(turn, job, orphan.run(), by)?;
    let cluster = orphan.cluster().clone();
    adopted_orphans::adopt(turn, by, uid, fence, &orphan);
    Ok(format!(
        "orphan `{uid}` in cluster `{cluster}` is adopted as job `{}/{}`",
        job.namespace_or_default().unwrap_or_default(),
        job.name
    ))
}

fn orphan(turn: &Turn<'_>, uid: Uid, fence: Fence) -> Result<Orphan, Rejection> {
    let missing =
        || rejection(RejectionReason::NotFound, format!("there is no orphan `{uid}` with fence `{fence}`"));
    turn.world.state().orphans().get(&(uid, fence)).cloned().ok_or_else(missing)
}

fn stop_orphan(turn: &mut Turn<'_>, by: &Actor, uid: Uid, fence: Fence) -> Result<String, Rejection> {
    let orphan = orphan(turn, uid, fence)?;
    let cluster = orphan.cluster();
    operator_audit(turn, by, Action::StopOrphan, uid.to_string(), Some(cluster));
    turn.record(Record::Orphan { uid, fence, fact: OrphanFact::StopOrdered { by: by.clone() } });
    orphans::stop_orphans(turn, cluster, orphan.ledger());
    Ok(format!("orphan `{uid}` is being stopped at `{cluster}`"))
}

pub(super) fn unreadable(errors: &[FieldError]) -> Rejection {
    let all = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    rejection(RejectionReason::Invalid, all)
}

pub(super) fn name_taken(cluster: &ClusterName) -> Rejection {
    let remedy = "pass `--replace` to let another agent take its name";
    rejection(RejectionReason::AlreadyExists, format!("cluster `{cluster}` has joined before: {remedy}"))
}

fn never_joined(cluster: &ClusterName) -> Rejection {
    let why = "it has no agent to admit or to declare lost";
    rejection(RejectionReason::Conflict, format!("cluster `{cluster}` never joined: {why}"))
}

pub(super) fn unknown(cluster: &ClusterName) -> Rejection {
    rejection(RejectionReason::NotFound, format!("there is no cluster `{cluster}`"))
}

pub(super) fn rejection(reason: RejectionReason, message: String) -> Rejection {
    Rejection { index: 0, reason, field: None, message, in_use: None }
}
