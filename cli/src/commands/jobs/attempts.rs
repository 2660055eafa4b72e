//! What follows an attempt of a job, by the manager's explanation: `logs --follow` continues with the next
//! attempt, or ends.

use crate::client::AttemptId;
use crate::objects::fields::text;
use serde_json::Value;

/// What follows an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Afterwards {
    /// The job has finished, and this was its last attempt.
    Finished,
    /// The job was deleted; another one may have its name.
    Gone,
    /// The attempt with this number follows.
    Attempt { number: u64, note: String },
    /// No further attempt yet. The note is empty while the manager doesn't know how this attempt ended.
    Pending { note: String },
}

/// Reads from a job's explanation what happened after one attempt.
pub(super) fn after(explained: &Value, attempt: &AttemptId) -> Afterwards {
    let empty = Vec::new();
    let history = explained["history"].as_array().unwrap_or(&empty);
    let count = explained["attempts"].as_u64().unwrap_or(history.len() as u64);
    let place = |number: u64| {
        let from_end = count.checked_sub(number)?;
        history.len().checked_sub(usize::try_from(from_end).ok()? + 1).and_then(|index| history.get(index))
    };
    // Without a fence, the attempt's log was never opened.
    let is_same = |this: &&Value| attempt.fence.is_empty() || text(this, "/fence") == attempt.fence;
    let Some(this) = place(attempt.number).filter(is_same) else { return Afterwards::Gone };
    let end = text(this, "/end");
    let ended = format!(
        "attempt {} in cluster `{}` {}",
        attempt.number,
        text(this, "/cluster"),
        if end.is_empty() { "is over".to_owned() } else { format!("ended: {end}") }
    );
    let number = attempt.number + 1;
    if let Some(next) = place(number) {
        let note = format!("{ended}; attempt {number} in cluster `{}` follows", text(next, "/cluster"));
        return Afterwards::Attempt { number, note };
    }
    match text(explained, "/state") {
        "Finished" => Afterwards::Finished,
        _ if end.is_empty() => Afterwards::Pending { note: String::new() },
        "Deactivated" => {
            Afterwards::Pending { note: format!("{ended}; the job is stopped: waiting until it is resumed") }
        }
        _ => Afterwards::Pending { note: format!("{ended}; waiting for the next attempt") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn explained(state: &str, attempts: u64, history: &[(&str, &str, Option<&str>)]) -> Value {
        let history: Vec<Value> = history
            .iter()
            .map(|(cluster, fence, end)| json!({"cluster": cluster, "fence": fence, "end": end}))
            .collect();
        json!({"state": state, "attempts": attempts, "history": history})
    }

    #[test]
    fn an_attempts_end_is_not_the_jobs() {
        let first = AttemptId { number: 1, fence: "1-1-1".to_owned() };
        let check = |explained: Value, expect: Afterwards| assert_eq!(after(&explained, &first), expect);
        let note = |text: &str| Afterwards::Pending { note: text.to_owned() };
        check(explained("Running", 1, &[("eu", "1-1-1", None)]), note(""));
        check(
            explained("Pending", 1, &[("eu", "1-1-1", Some("the lease expired"))]),
            note("attempt 1 in cluster `eu` ended: the lease expired; waiting for the next attempt"),
        );
        check(
            explained("Deactivated", 1, &[("eu", "1-1-1", Some("stopped"))]),
            note("attempt 1 in cluster `eu` ended: stopped; the job is stopped: waiting until it is resumed"),
        );
        let both = [("eu", "1-1-1", Some("stopped")), ("us", "1-1-2", Some("succeeded"))];
        let follows = "attempt 1 in cluster `eu` ended: stopped; attempt 2 in cluster `us` follows";
        check(explained("Finished", 2, &both), Afterwards::Attempt { number: 2, note: follows.to_owned() });
        check(explained("Finished", 1, &both[..1]), Afterwards::Finished);
        // The status is of another job, or its history no longer has the attempt.
        check(explained("Running", 1, &[("eu", "1-1-9", None)]), Afterwards::Gone);
        check(explained("Running", 9, &both), Afterwards::Gone);
    }
}
