//! Audit lines about users' tokens. The API stores the tokens outside the journal, so that a restored journal
//! doesn't bring back a revoked token.

use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry};
use crate::world::turn::Turn;

/// Audits the creation of a token. The API creates the token after the line is committed.
pub(super) fn created(turn: &mut Turn<'_>, by: &Actor, name: &str, user: &str, groups: &[String]) -> String {
    let groups = if groups.is_empty() { String::new() } else { format!(", groups {}", groups.join(", ")) };
    let detail = Some(format!("for user {user}{groups}"));
    let entry = Entry { detail, ..Entry::new(Action::CreateUserToken, name.to_owned()) };
    turn.audit(by.clone(), entry);
    format!("token `{name}` of user `{user}` is created")
}

/// Audits the revocation of a token. The API revokes the token after the line is committed.
pub(super) fn revoked(turn: &mut Turn<'_>, by: &Actor, name: String) -> String {
    let message = format!("token `{name}` is revoked");
    turn.audit(by.clone(), Entry::new(Action::RevokeUserToken, name));
    message
}
