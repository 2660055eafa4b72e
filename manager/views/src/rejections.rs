//! Why the core rejected a change, as its user may read it.

use crate::asker::{Asker, OTHER_TENANT};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::{InUse, Rejection, Users};

/// The message of a rejection. Objects that the asker may not read are counted only.
pub fn message(rejection: &Rejection, asker: &Asker) -> String {
    match &rejection.in_use {
        Some(in_use) => in_use_message(in_use, asker),
        None => rejection.message.clone(),
    }
}

fn in_use_message(in_use: &InUse, asker: &Asker) -> String {
    let parts: Vec<String> = in_use.users.iter().map(|users| part(users, asker)).collect();
    in_use.message(&parts)
}

/// `3 workloads (a, b, c)`.
fn part(users: &Users, asker: &Asker) -> String {
    let (named, hidden): (Vec<&Key>, Vec<&Key>) = users.first.iter().partition(|key| asker.may_name(key));
    let mut names: Vec<String> = named.into_iter().map(name).collect();
    match hidden.len() {
        0 => {}
        1 if hidden[0].kind.is_job() => names.push(OTHER_TENANT.to_owned()),
        n => names.push(format!("{n} of other tenants")),
    }
    if users.count > users.first.len() {
        names.push(format!("{} more", users.count - users.first.len()));
    }
    format!("{} ({})", users.counted(), names.join(", "))
}

/// A job without its kind, since the sentence says what it is.
fn name(key: &Key) -> String {
    match (key.kind, &key.namespace) {
        (kind, Some(namespace)) if kind.is_job() => format!("{namespace}/{}", key.name),
        _ => key.to_string(),
    }
}
