//! The objects that every manager has, and the file `ready`.

use super::{NAMESPACE, SUBMITTER, VIEWER};
use crate::api::shipped;
use crate::auth::TokenStore;
use crate::engine::Handle;
use crate::random;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Change, Input, PutMode, Write};
use meridian_manager_core::facts::outcome::{RejectionReason, Reply};
use meridian_objects::{Object, last_applied};
use meridian_private_files as files;
use meridian_shared::ids::Uid;
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;

/// Writes the file `ready` once the manager leads and has its first objects.
pub(super) async fn announce(
    engine: Handle,
    users: TokenStore,
    is_new: bool,
    ready: PathBuf,
    url: String,
    stop: CancellationToken,
) {
    tokio::select! {
        () = engine.led() => {}
        () = stop.cancelled() => return,
    }
    let namespace = serde_json::json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
    });
    // clients expect this namespace, because every Kubernetes server has it
    ensure(&engine, vec![namespace], PutMode::Create).await;
    ensure(&engine, shipped::roles(), PutMode::Apply).await;
    if is_new || !users.has_bound() {
        let bindings = shipped::bindings(NAMESPACE, SUBMITTER, VIEWER);
        let mut all_bound = true;
        for binding in bindings {
            all_bound &= ensure(&engine, vec![binding], PutMode::Create).await;
        }
        if all_bound {
            bound(users).await;
        }
    }
    match files::replace(&ready, &format!("{url}\n")) {
        Ok(()) => tracing::info!(%url, "ready"),
        Err(error) => tracing::warn!(%error, %url, "ready, but the file `ready` can't be written"),
    }
}

/// Writes objects that every manager has. Objects to be created that exist stay as they are. Returns whether
/// all of them exist now.
pub(super) async fn ensure(engine: &Handle, manifests: Vec<serde_json::Value>, mode: PutMode) -> bool {
    let mut changes = Vec::new();
    for manifest in manifests {
        let (Ok((mut object, _)), Ok(bytes)) = (Object::from_value(manifest), random::bytes()) else {
            return false;
        };
        last_applied::record(&mut object);
        changes.push(Change::Put {
            object: Box::new(object),
            scope: None,
            uid: Uid(u128::from_be_bytes(bytes)),
            mode,
        });
    }
    let write = Write::new(Actor::System, changes, false);
    match engine.ask(Input::Write(Box::new(write))).await {
        Ok(Reply::Written(_)) => true,
        // It exists already.
        Ok(Reply::Rejected(why)) if why.iter().all(|why| why.reason == RejectionReason::AlreadyExists) => {
            true
        }
        other => {
            tracing::warn!(?other, "an object that every manager has can't be written now");
            false
        }
    }
}

/// Records that the first users' bindings were written.
async fn bound(users: TokenStore) {
    let binding = move || {
        users.change(|tokens| {
            tokens.set_bound();
            Ok(())
        })
    };
    if let Ok(Err(error)) = tokio::task::spawn_blocking(binding).await {
        tracing::warn!(%error, "the next start will write the first users' bindings again");
    }
}
