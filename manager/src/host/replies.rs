//! Which replies may leave.

use meridian_manager_core::facts::outcome::Reply;
use meridian_shared::protocol::{SyncAnswer, SyncRefusal};

/// Why there is no reply. HTTP answers it with 503 and `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("the manager isn't the leader now: try again in a few seconds")]
    NotLeading,
    #[error("the manager is shutting down: try again in a moment")]
    Stopping,
    /// The poll was parked, and only one poll per agent is.
    #[error("a newer poll of this agent replaced this one")]
    Replaced,
    /// The engine's queue is full.
    #[error("the manager has too many requests: try again in a moment")]
    Busy,
    #[error("the change could not be made durable: it was most likely not made; try again in a moment")]
    NotCommitted,
    /// The disk is full.
    #[error(
        "the disk of the manager's journal is full: new work is refused while ends and deletions are taken; \
         free some space on it and try again"
    )]
    Full,
}

/// The refusal after which an agent looks for another leader.
pub fn not_leading() -> Reply {
    Reply::Sync(Box::new(SyncAnswer::Refused(SyncRefusal::NotLeading)))
}

/// The reply that may be sent after its commit. Without a valid claim no reply is sent: a slow commit may
/// have outlived the claim, and another manager may lead by now. Replies that needed no commit, such as
/// "unchanged", may be outdated and are withheld too.
///
/// # Errors
/// If a user's reply is withheld.
pub fn after_commit(reply: Reply, claim_is_valid: bool) -> Result<Reply, Unavailable> {
    match reply {
        Reply::Sync(answer) if !claim_is_valid && matches!(*answer, SyncAnswer::Ok(_)) => Ok(not_leading()),
        Reply::Written(_) | Reply::Rejected(_) | Reply::Done(_) if !claim_is_valid => {
            Err(Unavailable::NotLeading)
        }
        reply => Ok(reply),
    }
}
