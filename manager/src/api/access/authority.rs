//! Current permissions of all users: valid tokens, roles and bindings.

use super::{ObjectAccess, User};
use crate::api::response::error::Error;
use crate::auth::{self, TokenChanges, TokenStore};
use crate::engine::Reads;
use crate::engine::clock::{BootClock, Clock};
use crate::locks;
use axum::http::HeaderMap;
use meridian_manager_core::facts::actor::Actor;
use meridian_objects::rbac::{Caller, MASTERS, Permissions, Policy};
use meridian_objects::{Kind, Object};
use meridian_shared::time::Wall;
use meridian_views::asker::Asker;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Name of the management cluster as a user.
const MANAGEMENT_CLUSTER: &str = "system:meridian:management-cluster";
/// Longest wait for the expiry of a token. Afterwards the remaining time is computed again, by the wall
/// clock.
const EXPIRY_WAIT_MAX: Duration = Duration::from_secs(3_600);

/// Valid tokens, and the committed roles and bindings.
#[derive(Debug)]
pub(crate) struct Authority {
    tokens: TokenStore,
    reads: Reads,
    known: Mutex<Known>,
}

/// The policy of the newest roles and bindings.
#[derive(Debug)]
struct Known {
    changes: watch::Receiver<u64>,
    policy: Arc<Policy>,
    permissions: HashMap<Caller, Arc<Permissions>>,
}

impl Known {
    /// Reads the roles and bindings again if they have changed.
    fn refresh(&mut self, reads: &Reads) {
        // mark the change as seen before reading, so that a change during the read causes another read
        if self.changes.has_changed().unwrap_or(false) {
            self.changes.borrow_and_update();
            self.policy = Arc::new(policy(reads));
            self.permissions.clear();
        }
    }
}

fn policy(reads: &Reads) -> Policy {
    let everything = Asker::unlimited();
    let kinds = Kind::ALL.into_iter().filter(|kind| kind.grants());
    let views = kinds.flat_map(|kind| reads.list(kind, None, None, &everything).0);
    let objects: Vec<Object> =
        views.filter_map(|view| Object::from_stored(view.value.as_ref().clone()).ok()).collect();
    Policy::new(&objects)
}

impl Authority {
    pub(crate) fn new(tokens: TokenStore, reads: Reads) -> Self {
        let mut changes = reads.role_changes();
        changes.mark_changed();
        let known = Mutex::new(Known { changes, policy: Arc::default(), permissions: HashMap::new() });
        Self { tokens, reads, known }
    }

    pub(crate) fn tokens(&self) -> &TokenStore {
        &self.tokens
    }

    /// The newest roles and bindings.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        let mut known = locks::lock(&self.known);
        known.refresh(&self.reads);
        Arc::clone(&known.policy)
    }

    /// The user behind a request. Fails without a valid token, and if the request asks for impersonation.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<User, Error> {
        let found = auth::bearer(headers).and_then(|token| self.tokens.find(token, now()));
        let user = found.ok_or(Error::Unauthorized)?;
        match auth::refuses_impersonation(headers) {
            Some(words) => Err(Error::Forbidden(words.to_owned())),
            None => {
                let actor = Actor::user(&user.name);
                Ok(self.user(user, actor))
            }
        }
    }

    /// The management cluster as a user. It may do everything, and no request over the network is
    /// authenticated as it.
    pub(crate) fn management_cluster(&self) -> User {
        self.user(auth::User::internal(MANAGEMENT_CLUSTER, &[MASTERS]), Actor::ManagementCluster)
    }

    fn user(&self, identity: auth::User, actor: Actor) -> User {
        let caller = identity.caller();
        let mut known = locks::lock(&self.known);
        known.refresh(&self.reads);
        let permissions = match known.permissions.get(&caller) {
            Some(permissions) => Arc::clone(permissions),
            None => {
                let permissions = Arc::new(known.policy.permissions(caller.clone()));
                known.permissions.insert(caller, Arc::clone(&permissions));
                permissions
            }
        };
        User { name: identity.name.clone(), identity, permissions, actor }
    }

    /// The right to keep a stream open.
    pub(crate) fn open(self: &Arc<Self>, user: &User, access: ObjectAccess) -> OpenStream {
        OpenStream {
            authority: Arc::clone(self),
            user: user.clone(),
            access,
            tokens: self.tokens.changes(),
            roles: self.reads.role_changes(),
            is_first: true,
        }
    }
}

fn now() -> Wall {
    BootClock.now().wall
}

/// The right to keep a stream open. It ends when the token expires or no role permits the access any more.
#[derive(Debug)]
pub(crate) struct OpenStream {
    authority: Arc<Authority>,
    user: User,
    access: ObjectAccess,
    tokens: TokenChanges,
    roles: watch::Receiver<u64>,
    /// Whether the access hasn't been checked since the request's own check.
    is_first: bool,
}

impl OpenStream {
    /// Waits for the next change of the user's permissions. Fails once the stream is no longer permitted.
    /// Cancelling the call loses nothing.
    pub(crate) async fn change(&mut self) -> Result<User, Error> {
        if self.user.is_management_cluster() {
            // the management cluster has no token that could expire, and needs no role
            if !std::mem::take(&mut self.is_first) {
                std::future::pending::<()>().await;
            }
            return Ok(self.user.clone());
        }
        if !self.is_first {
            let until_expiry =
                self.user.identity.expires.map_or(EXPIRY_WAIT_MAX, |at| {
                    Duration::from_millis(at.since(now()).0).min(EXPIRY_WAIT_MAX)
                });
            tokio::select! {
                _ = self.tokens.changed() => {}
                _ = self.roles.changed() => {}
                () = tokio::time::sleep_until(Instant::now() + until_expiry) => {}
            }
        }
        // something may have changed between the request's check and the subscriptions
        self.is_first = false;
        if !self.authority.tokens.is_valid(&self.user.identity, now()) {
            return Err(Error::Unauthorized);
        }
        self.user = self.authority.user(self.user.identity.clone(), self.user.actor());
        self.user.check(&self.access.access())?;
        Ok(self.user.clone())
    }
}
