//! The audit log: one line per verdict, grant, refusal and operator's action, chained by hash.
//!
//! Each line's hash covers the hash before it, so that a flipped byte, a removed line or a rewritten log shows. A cut tail
//! shows only against a witness: heads go to agents with every receipt, and signatures have their field.

use crate::facts::actor::Actor;
use crate::facts::end::Preempted;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Number and hash of the newest line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Head {
    /// Lines so far.
    pub lines: u64,
    /// Hash of the newest; empty before the first.
    pub hash: String,
}

/// What was done or judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Residency of a class of workloads at a cluster.
    Verdict,
    Submit,
    Delete,
    Deactivate,
    Activate,
    Grant,
    Stop,
    Preempt,
    ScaleUp,
    /// A residency or dispatch rule was applied or deleted.
    Rule,
    Join,
    MintToken,
    Admit,
    Cordon,
    Uncordon,
    Drain,
    DeclareLost,
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

/// What one line is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    pub action: Action,
    /// Ids and names, never a spec.
    pub subject: String,
    pub cluster: Option<String>,
    pub verdict: Option<Verdict>,
    /// The rule that decided, with its version.
    pub rule: Option<String>,
    /// The preemptor, where the subject was preempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<Preempted>,
    /// More, for people.
    pub detail: Option<String>,
}

impl Entry {
    pub(crate) fn new(action: Action, subject: String) -> Self {
        Self { action, subject, cluster: None, verdict: None, rule: None, preempted: None, detail: None }
    }

    pub(crate) fn at(self, cluster: &ClusterName) -> Self {
        Self { cluster: Some(cluster.to_string()), ..self }
    }

    /// A workload that a cluster did not get, or did not take.
    pub(crate) fn denied(action: Action, uid: Uid, cluster: &ClusterName, detail: Option<String>) -> Self {
        Self { verdict: Some(Verdict::Denied), detail, ..Self::new(action, uid.to_string()).at(cluster) }
    }
}

/// One line as it is stored and exported.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Line {
    /// From 1.
    pub number: u64,
    /// When.
    pub at: Wall,
    /// Who.
    pub by: Actor,
    /// What.
    pub entry: Entry,
    /// Hash of the line before.
    pub previous: String,
    /// Hash of all of the above.
    pub hash: String,
    /// A signature over the hash, once identities sign.
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

/// What is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A line's hash isn't what its content gives.
    #[error("line {0} was changed: its hash doesn't match its content")]
    Changed(u64),
    /// A line doesn't follow the one before.
    #[error("line {found} follows line {after}: lines were removed, added or reordered")]
    Gap {
        /// The line before.
        after: u64,
        /// The number found.
        found: u64,
    },
    /// A line names another predecessor.
    #[error("line {0} doesn't name the hash of the line before it: the log was rewritten")]
    Rewritten(u64),
    /// The log is shorter than a witness says.
    #[error("the log ends at line {has}, but a witness has seen line {witnessed}: its tail was cut")]
    Cut {
        /// Lines there are.
        has: u64,
        /// Lines a witness has seen.
        witnessed: u64,
    },
}

/// Checks lines one by one.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    head: Head,
}

impl Verifier {
    /// For what follows a head that is taken as given.
    pub fn after(head: Head) -> Self {
        Self { head }
    }

    /// Takes the next line.
    pub fn take(&mut self, line: &Line) -> Result<(), Broken> {
        if line.number != self.head.lines + 1 {
            return Err(Broken::Gap { after: self.head.lines, found: line.number });
        }
        if line.previous != self.head.hash {
            return Err(Broken::Rewritten(line.number));
        }
        // Nothing signs yet, so a signature is something that somebody added.
        if line.hash != line.expected_hash() || line.signature.is_some() {
            return Err(Broken::Changed(line.number));
        }
        self.head = Head { lines: line.number, hash: line.hash.clone() };
        Ok(())
    }

    /// The verified head; with a witness's head, also that nothing behind it was cut.
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
    fn every_kind_of_tampering_shows() {
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
