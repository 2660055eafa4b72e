//! Joins of agents: by a join token, and by the service account that their cluster gives them.

use super::operator::{name_taken, operator_audit, rejection, unreadable};
use crate::facts::actor::Actor;
use crate::facts::audit::Action;
use crate::facts::input::ClusterPlace;
use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason, Reply};
use crate::facts::record::{MemberFact, ObjectFact, Record, TokenFact};
use crate::link::session;
use crate::state::members::Token;
use crate::world::turn::Turn;
use meridian_objects::{Kind, Object};
use meridian_shared::identity::CertificateBinding;
use meridian_shared::ids::{ClusterName, Jurisdiction, Region, Uid};
use serde_json::json;

pub(super) fn use_token(turn: &mut Turn<'_>, hash: &str) {
    let joined = match joining_token(turn, hash) {
        Ok(joined) => joined,
        Err(refused) => return turn.reply(Reply::Rejected(vec![refused])),
    };
    let (token, cluster_uid) = joined;
    let cluster = token.cluster().clone();
    let by = Actor::agent(&cluster);
    turn.record(Record::Token { hash: hash.to_owned(), fact: TokenFact::Used });
    // An agent that joins by the cluster's service account is a different agent, and would get equal
    // certificates.
    let binding = void_certificates(turn, &cluster, cluster_uid, &by, Some(false), token.hosted());
    operator_audit(turn, &by, Action::Join, String::new(), Some(&cluster));
    let (region, jurisdiction) = (token.region().clone(), token.jurisdiction().clone());
    turn.reply(Reply::Joined { cluster, region, jurisdiction, binding });
}

/// The token with this hash, and the uid of its cluster's object. Fails if nobody can join with it now.
fn joining_token(turn: &Turn<'_>, hash: &str) -> Result<(Token, Uid), Rejection> {
    let invalid = || {
        let message = "the join token is unknown, was used, has expired, or was voided by a later join, \
                       `meridian cluster revoke` or the deletion of its cluster: create a new one with \
                       `meridian cluster join`";
        rejection(RejectionReason::Forbidden, message.into())
    };
    let token = turn.world.state().tokens().get(hash).filter(|token| token.expires() >= turn.now.wall);
    let token = token.ok_or_else(invalid)?.clone();
    // Since the token was created, another agent may have joined, or the cluster's declaration may have
    // changed.
    if turn.world.state().members().contains_key(token.cluster()) && !token.replace() {
        return Err(name_taken(token.cluster()));
    }
    check_declared_place(turn, token.cluster(), token.region(), token.jurisdiction())?;
    let key = Key::global(Kind::Cluster, token.cluster().as_str());
    let uid = turn.world.state().catalog().get(&key).ok_or_else(invalid)?.uid;
    Ok((token, uid))
}

/// Voids all certificates and tokens of a cluster, so that its agent is disconnected. Returns the binding of
/// certificates that are issued from now on. `account_may_join` and `hosted`: as in the record.
pub(super) fn void_certificates(
    turn: &mut Turn<'_>,
    cluster: &ClusterName,
    cluster_uid: Uid,
    by: &Actor,
    account_may_join: Option<bool>,
    hosted: bool,
) -> CertificateBinding {
    let fact = MemberFact::CertificatesVoided { cluster_uid, by: by.clone(), account_may_join, hosted };
    turn.record(Record::Member { cluster: cluster.clone(), fact });
    let generation = turn.world.state().last();
    session::disconnect(turn, cluster);
    CertificateBinding { cluster_uid, generation }
}

/// Lets an agent join that proved to be the service account of this cluster. The account may join again,
/// after it lost its store or as another replica: its certificates count as those of one agent. Fails if an
/// operator has locked the account out, or another agent has joined with a token.
pub(super) fn join_by_issuer(turn: &mut Turn<'_>, place: ClusterPlace) {
    let reply = match issuer_binding(turn, &place) {
        Ok(binding) => {
            let ClusterPlace { cluster, region, jurisdiction } = place;
            Reply::Joined { cluster, region, jurisdiction, binding }
        }
        Err(refused) => Reply::Rejected(vec![refused]),
    };
    turn.reply(reply);
}

fn issuer_binding(turn: &mut Turn<'_>, place: &ClusterPlace) -> Result<CertificateBinding, Rejection> {
    let cluster = &place.cluster;
    if turn.world.state().account_locked(cluster) {
        let message = format!(
            "the certificates of cluster `{cluster}` were revoked, or an agent has joined with a token: \
             `meridian cluster join {cluster} --replace --issuer` lets its service account join"
        );
        return Err(rejection(RejectionReason::Forbidden, message));
    }
    let by = Actor::agent(cluster);
    let uid = declare(turn, &by, cluster, &place.region, &place.jurisdiction)?;
    let valid = turn.world.state().valid_certificates(cluster).filter(|valid| valid.cluster_uid == uid);
    let binding = match valid {
        Some(valid) => valid,
        None => void_certificates(turn, cluster, uid, &by, None, false),
    };
    operator_audit(turn, &by, Action::Join, String::new(), Some(cluster));
    Ok(binding)
}

/// Lets the service account of a cluster join, after it was locked out or as the cluster's first agent. Voids
/// all earlier certificates and tokens of the cluster.
pub(super) fn let_account_join(
    turn: &mut Turn<'_>,
    by: &Actor,
    place: &ClusterPlace,
    replace: bool,
) -> Result<String, Rejection> {
    let ClusterPlace { cluster, region, jurisdiction } = place;
    if turn.world.state().members().contains_key(cluster) && !replace {
        return Err(name_taken(cluster));
    }
    let uid = declare(turn, by, cluster, region, jurisdiction)?;
    void_certificates(turn, cluster, uid, by, Some(true), false);
    let what = format!("by service account; region {region}, jurisdiction {jurisdiction}");
    operator_audit(turn, by, Action::MintToken, what, Some(cluster));
    turn.capacity_changed();
    Ok(format!(
        "the service account of cluster `{cluster}` may join, and all its other agents are locked out"
    ))
}

/// Creates the `Cluster` object of a cluster that has none. Returns its uid. Fails if the cluster is declared
/// in another region or jurisdiction.
pub(super) fn declare(
    turn: &mut Turn<'_>,
    by: &Actor,
    cluster: &ClusterName,
    region: &Region,
    jurisdiction: &Jurisdiction,
) -> Result<Uid, Rejection> {
    check_declared_place(turn, cluster, region, jurisdiction)?;
    let key = Key::global(Kind::Cluster, cluster.as_str());
    if let Some(entry) = turn.world.state().catalog().get(&key) {
        return Ok(entry.uid);
    }
    let value = json!({
        "apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": cluster.as_str()},
        "spec": {"region": region.as_str(), "jurisdiction": jurisdiction.as_str()},
    });
    let (object, _) = Object::from_value(value).map_err(|errors| unreadable(&errors))?;
    let uid = Uid(u128::from(turn.world.state().last().0) << 64
        | u128::from(meridian_shared::backoff::splitmix(turn.now.wall.0.unsigned_abs())));
    turn.record(Record::Object {
        key,
        fact: ObjectFact::Applied { object: Box::new(object), uid, at: turn.now.wall, by: by.clone() },
    });
    Ok(uid)
}

/// Fails if the cluster is declared in another region or jurisdiction.
fn check_declared_place(
    turn: &Turn<'_>,
    cluster: &ClusterName,
    region: &Region,
    jurisdiction: &Jurisdiction,
) -> Result<(), Rejection> {
    match turn.world.state().catalog().cluster(cluster) {
        Some(spec) if spec.region != *region || spec.jurisdiction != *jurisdiction => Err(rejection(
            RejectionReason::Conflict,
            format!(
                "cluster `{cluster}` is declared in region `{}`, jurisdiction `{}`, not in `{region}`, \
                 `{jurisdiction}`: correct its `Cluster` object, or join with that region and jurisdiction",
                spec.region, spec.jurisdiction
            ),
        )),
        _ => Ok(()),
    }
}
