//! Rejections, and keys of submitted objects.

use crate::facts::key::Key;
use crate::facts::outcome::{Rejection, RejectionReason};
use crate::world::turn::Turn;
use meridian_objects::Object;
use meridian_shared::ids::{ClusterName, Uid};
use std::sync::Arc;

pub(crate) fn reject<T>(
    reason: RejectionReason,
    field: Option<&str>,
    message: String,
) -> Result<T, Rejection> {
    Err(Rejection { index: 0, reason, field: field.map(str::to_owned), message })
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

/// The workload of the job with this key, whatever kind the key has.
pub(crate) fn job_at(turn: &Turn<'_>, key: &Key) -> Option<Uid> {
    turn.world.uid_of(key.namespace.as_deref().unwrap_or("default"), &key.name)
}
