//! The stored form: one value as JSON under each key.

use super::{Durable, Tombstone};
use meridian_shared::ids::{ClusterName, LedgerId};
use meridian_shared::protocol::Receipt;
use serde::{Deserialize, Serialize};

/// One write: a value to keep under a key, or a key to drop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreOp {
    /// The part before the first `/` names the type of the value.
    pub key: String,
    /// JSON, or `None` to drop the key.
    pub value: Option<String>,
}

/// Writes of one turn, in order. Only the ledger's own methods add to them, so that its state in memory and
/// in the store never differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writes(Vec<StoreOp>);

impl Writes {
    pub fn ops(&self) -> &[StoreOp] {
        &self.0
    }

    pub fn into_ops(self) -> Vec<StoreOp> {
        self.0
    }

    pub(super) fn push(&mut self, op: StoreOp) {
        self.0.push(op);
    }

    /// Loses the writes so far. Only for a planted bug.
    pub(crate) fn lose(&mut self) {
        self.0.clear();
    }
}

/// A stored value that can't be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "stored value `{key}` can't be read: {message}; the store is damaged, move it away and join again with \
     `--replace`"
)]
pub struct Error {
    pub key: String,
    pub message: String,
}

/// Whether a live grant is stored under this key.
pub fn is_run(key: &str) -> bool {
    key.starts_with("run/")
}

pub(super) fn put<T: Serialize>(key: &str, value: &T) -> StoreOp {
    StoreOp {
        key: key.to_owned(),
        value: Some(serde_json::to_string(value).expect("our own types serialise")),
    }
}

fn read<'v, T: Deserialize<'v>>(value: &'v str) -> Result<T, String> {
    serde_json::from_str(value).map_err(|e| e.to_string())
}

impl Durable {
    /// Reads what was stored; `None` if there is no ledger yet. Fails if a key is unknown or a value can't be
    /// read.
    pub fn load<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Option<Self>, Error> {
        let mut this = Self::new(LedgerId(0));
        let mut born = false;
        for (key, value) in pairs {
            born |= key == "ledger";
            this.load_value(key, value).map_err(|message| Error { key: key.to_owned(), message })?;
        }
        Ok(born.then_some(this))
    }

    fn load_value(&mut self, key: &str, value: &str) -> Result<(), String> {
        let uid = |text: &str| text.parse().map_err(|_| "bad uid".to_owned());
        match key.split_once('/') {
            None if key == "ledger" => self.ledger = read(value)?,
            None if key == "sessions" => self.sessions = read(value)?,
            None if key == "follows" => self.follows = read(value)?,
            Some(("fence", name)) => {
                self.fences.insert(uid(name)?, read(value)?);
            }
            Some(("run", name)) => {
                self.runs.insert(uid(name)?, read(value)?);
            }
            Some(("tombstone", _)) => {
                let tombstone: Tombstone = read(value)?;
                self.tombstones.insert((tombstone.end.uid, tombstone.end.fence), tombstone);
            }
            Some(("receipts", _)) => {
                let (receipt, members): (Receipt, Vec<ClusterName>) = read(value)?;
                self.receipts.load(receipt, members);
            }
            _ => return Err("unknown key; the store was written by a newer version".into()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_without_a_ledger_is_empty_and_one_with_an_unknown_key_is_refused() {
        let ledger = Durable::new(LedgerId(3)).birth();
        let born = (ledger.key.as_str(), ledger.value.as_deref().unwrap_or_default());
        assert_eq!(Durable::load([]).unwrap(), None);
        assert_eq!(Durable::load([("sessions", "4")]).unwrap(), None);
        assert_eq!(Durable::load([born, ("sessions", "4")]).unwrap().map(|store| store.sessions()), Some(4));
        for key in ["leases", "Sessions", "lease/1"] {
            let error = Durable::load([born, (key, "null")]).unwrap_err();
            assert_eq!(error.key, key, "{error}");
        }
    }

    #[test]
    fn a_live_grant_is_known_by_its_key() {
        assert!(is_run("run/00000000-0000-0000-0000-000000000001"));
        assert!(!is_run("runs") && !is_run("tombstone/run/1"));
    }
}
