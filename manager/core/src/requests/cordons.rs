//! Cordons by operators. If the management cluster owns the `Cluster` object, a cordon changes only the copy
//! here.

use super::cordon_marks::{cordoned_in, is_managed, is_marked, with_cordon, without_cordon};
use super::file_objects;
use super::operator::{operator_audit, rejection, unknown, unreadable};
use crate::dispatch::residency;
use crate::facts::actor::Actor;
use crate::facts::audit::Action;
use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason};
use crate::facts::record::{ObjectFact, Record};
use crate::state::catalog::Stored;
use crate::world::turn::Turn;
use meridian_objects::{Kind, Object};
use meridian_shared::ids::ClusterName;
use serde_json::{Value, json};

pub(super) fn cordon(
    turn: &mut Turn<'_>,
    by: &Actor,
    cluster: &ClusterName,
    cordoned: bool,
) -> Result<String, Rejection> {
    let key = Key::global(Kind::Cluster, cluster.as_str());
    let stored = turn.world.state().catalog().get(&key).ok_or_else(|| unknown(cluster))?.clone();
    let (value, owner) = if is_managed(&stored) {
        (managed(&stored, cluster, cordoned)?, stored.by.clone())
    } else {
        let mut value = file_objects::without_cordon(&stored.object);
        value["spec"]["cordoned"] = json!(cordoned);
        (value, by.clone())
    };
    let object = Object::from_stored(value).map_err(|errors| unreadable(&errors))?;
    turn.record(Record::Object {
        key,
        fact: ObjectFact::Applied { object: Box::new(object), uid: stored.uid, at: turn.now.wall, by: owner },
    });
    let action = if cordoned { Action::Cordon } else { Action::Uncordon };
    operator_audit(turn, by, action, String::new(), Some(cluster));
    residency::recheck_residency(turn);
    turn.capacity_changed();
    let said_there = cordoned && is_managed(&stored) && cordoned_in(&stored.object) == Some(true);
    let until = if said_there && !is_marked(&stored.object) {
        "; its object in the management cluster has `spec.cordoned: true`: change that field to end it"
    } else {
        ""
    };
    Ok(format!("cluster `{cluster}` is {}{until}", if cordoned { "cordoned" } else { "uncordoned" }))
}

/// The copy of a management cluster's object, with or without an operator's cordon. Fails if the object
/// itself sets the opposite, because that cluster would send it again and undo the change.
fn managed(stored: &Stored, cluster: &ClusterName, cordoned: bool) -> Result<Value, Rejection> {
    let object = &stored.object;
    match cordoned_in(object) {
        Some(set) if set != cordoned && !is_marked(object) => {
            let message = format!(
                "the `Cluster` object `{cluster}` of the management cluster has `spec.cordoned: {set}`: \
                 change or remove that field there, with `kubectl`"
            );
            Err(rejection(RejectionReason::Forbidden, message))
        }
        Some(set) if set == cordoned => Ok(object.stored.clone()),
        _ if cordoned => Ok(with_cordon(object)),
        _ => Ok(without_cordon(object)),
    }
}
