//! The audit log: one line per verdict, grant, refusal and operator's action, in a hash chain.
//!
//! The hash of each line covers the hash of the line before, so changed, removed and reordered lines are
//! found. A removed tail is found only with a *witness*: a head that somebody else has kept. Agents have
//! witnesses, because every receipt to an agent carries the head.

use crate::facts::actor::Actor;
use crate::facts::end::Preempted;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Position of the log: number and hash of its newest line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Head {
    /// Number of lines.
    pub lines: u64,
    /// Hash of the newest line; empty before the first.
    pub hash: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Whether residency allows a class of workloads at a cluster.
    Verdict,
    Submit,
    Delete,
    /// A damaged manifest was stored again.
    Repair,
    Deactivate,
    Activate,
    Grant,
    /// A cluster with the right to run was sent the content of an object that the workload's pods name.
    Copy,
    Stop,
    Preempt,
    ScaleUp,
    /// A residency, dispatch or quota rule was applied or deleted, or a role or a role binding.
    Rule,
    Join,
    MintToken,
    CreateUserToken,
    RevokeUserToken,
    Admit,
    Cordon,
    Uncordon,
    Drain,
    DeclareLost,
    /// The certificates of a cluster were voided by an operator.
    Revoke,
    AdoptCertificate,
    AdoptOrphan,
    StopOrphan,
    ConfirmRules,
    ConfirmRecovery,
    RecoveryClosed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Allowed,
    Denied,
    Created,
    Changed,
    Deleted,
}

/// Content of a line: the action, its subject, and the rule that decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    pub action: Action,
    /// Ids or names of what was acted on; never a spec.
    pub subject: String,
    pub cluster: Option<String>,
    pub verdict: Option<Verdict>,
    /// The rule that decided, with its version if it has one.
    pub rule: Option<String>,
    /// The preemptor, if the subject was preempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<Preempted>,
    /// An explanation for the reader.
    pub detail: Option<String>,
}

impl Entry {
    pub fn new(action: Action, subject: String) -> Self {
        Self { action, subject, cluster: None, verdict: None, rule: None, preempted: None, detail: None }
    }

    pub(crate) fn at(self, cluster: &ClusterName) -> Self {
        Self { cluster: Some(cluster.to_string()), ..self }
    }

    /// Entry about a workload that wasn't allowed at a cluster, or that its agent refused.
    pub(crate) fn denied(action: Action, uid: Uid, cluster: &ClusterName, detail: Option<String>) -> Self {
        Self { verdict: Some(Verdict::Denied), detail, ..Self::new(action, uid.to_string()).at(cluster) }
    }
}

/// One line of the log, as stored and exported.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Line {
    /// Counts from 1.
    pub number: u64,
    pub at: Wall,
    pub by: Actor,
    pub entry: Entry,
    /// Hash of the line before; empty in the first.
    pub previous: String,
    /// Hash of all fields above.
    pub hash: String,
    /// Reserved for a signature over the hash. Always `None` today.
    #[serde(default)]
    pub signature: Option<String>,
}

impl Line {
    /// The line that follows `head`.
    pub fn after(head: &Head, at: Wall, by: Actor, entry: Entry) -> Self {
        let mut line = Self {
            number: head.lines + 1,
            at,
            by,
            entry,
            previous: head.hash.clone(),
            hash: String::new(),
            signature: None,
        };
        line.hash = line.expected_hash();
        line
    }

    fn expected_hash(&self) -> String {
        let body = serde_json::to_vec(&(self.number, self.at, &self.by, &self.entry, &self.previous))
            .expect("our own types serialise");
        Sha256::digest(body).iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// How a log was tampered with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("line {0} was changed: its hash doesn't match its content")]
    Changed(u64),
    #[error("line {found} follows line {after}: lines were removed, added or reordered")]
    Gap { after: u64, found: u64 },
    #[error("line {0} doesn't name the hash of the line before it: the log was rewritten")]
    Rewritten(u64),
    #[error("the log ends at line {has}, but a witness has seen line {witnessed}: its tail was cut")]
    Cut { has: u64, witnessed: u64 },
}

/// Verifies the hash chain, line by line.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    head: Head,
}

impl Verifier {
    /// Verifies the lines after `head`, which is trusted.
    pub fn after(head: Head) -> Self {
        Self { head }
    }

    /// The head so far.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Verifies the next line. Fails if the line doesn't follow the one before, or if its content was
    /// changed.
    pub fn take(&mut self, line: &Line) -> Result<(), Broken> {
        if line.number != self.head.lines + 1 {
            return Err(Broken::Gap { after: self.head.lines, found: line.number });
        }
        if line.previous != self.head.hash {
            return Err(Broken::Rewritten(line.number));
        }
        // The manager doesn't sign lines yet, so a signature means that the line was changed.
        if line.hash != line.expected_hash() || line.signature.is_some() {
            return Err(Broken::Changed(line.number));
        }
        self.head = Head { lines: line.number, hash: line.hash.clone() };
        Ok(())
    }

    /// Returns the verified head. Fails if a witness has a later line, or another hash of this one.
    pub fn finish(self, witness: Option<&Head>) -> Result<Head, Broken> {
        match witness {
            Some(w) if w.lines > self.head.lines => {
                Err(Broken::Cut { has: self.head.lines, witnessed: w.lines })
            }
            Some(w) if w.lines == self.head.lines && w.hash != self.head.hash => {
                Err(Broken::Rewritten(w.lines))
            }
            _ => Ok(self.head),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> (Vec<Line>, Head) {
        let mut head = Head::default();
        let lines = (0..5)
            .map(|i| {
                let entry = Entry::new(Action::Verdict, format!("class {i}"));
                let line = Line::after(&head, Wall(i), Actor::System, entry);
                head = Head { lines: line.number, hash: line.hash.clone() };
                line
            })
            .collect();
        (lines, head)
    }

    fn verify(lines: &[Line], witness: &Head) -> Result<Head, Broken> {
        let mut v = Verifier::default();
        lines.iter().try_for_each(|l| v.take(l))?;
        v.finish(Some(witness))
    }

    #[test]
    fn every_kind_of_tampering_is_found() {
        let (lines, head) = log();
        assert_eq!(verify(&lines, &head).unwrap(), head);
        let mut flipped = lines.clone();
        flipped[2].entry.subject.push('x');
        assert_eq!(verify(&flipped, &head), Err(Broken::Changed(3)));
        let mut signed = lines.clone();
        signed[3].signature = Some("of nobody".to_owned());
        assert_eq!(verify(&signed, &head), Err(Broken::Changed(4)));
        let mut removed = lines.clone();
        removed.remove(1);
        assert_eq!(verify(&removed, &head), Err(Broken::Gap { after: 1, found: 3 }));
        assert_eq!(verify(&lines[..4], &head), Err(Broken::Cut { has: 4, witnessed: 5 }));
        let mut rewritten = lines;
        let before = Head { lines: 3, hash: "forged".into() };
        rewritten[3] = Line::after(&before, Wall(9), Actor::System, rewritten[3].entry.clone());
        assert_eq!(verify(&rewritten, &head), Err(Broken::Rewritten(4)));
    }
}
