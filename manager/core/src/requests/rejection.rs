//! Rejections, and keys of submitted objects.

use crate::facts::key::Key;
use crate::facts::outcome::{InUse, Rejection, RejectionReason, Users};
use crate::world::turn::Turn;
use meridian_objects::Object;
use meridian_shared::ids::{ClusterName, Uid};
use std::sync::Arc;

pub(crate) fn reject<T>(
    reason: RejectionReason,
    field: Option<&str>,
    message: String,
) -> Result<T, Rejection> {
    Err(Rejection { index: 0, reason, field: field.map(str::to_owned), message, in_use: None })
}

/// Rejects the deletion of an object that is in use. The message only counts the users.
pub(crate) fn reject_in_use(in_use: InUse) -> Result<(), Rejection> {
    let counts: Vec<String> = in_use.users.iter().map(Users::counted).collect();
    let message = in_use.message(&counts);
    let in_use = Some(Box::new(in_use));
    Err(Rejection { index: 0, reason: RejectionReason::Conflict, field: None, message, in_use })
}

/// The key of an object as it will be stored.
pub(crate) fn key_of(object: &Object, scope: Option<&ClusterName>) -> Key {
    Key {
        scope: scope.cloned(),
        kind: object.kind,
        namespace: object.namespace_or_default().map(Arc::from),
        name: Arc::from(object.name.as_str()),
    }
}

/// The workload of the job with this key; `None` if the key is of a kind that isn't a job.
pub(crate) fn job_at(turn: &Turn<'_>, key: &Key) -> Option<Uid> {
    turn.world.uid_of(key.kind, key.namespace.as_deref().unwrap_or("default"), &key.name)
}
