//! Names and numbers of the protocol. Each has its own type, and no type converts into another.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Arc<str>);

        impl $name {
            /// The name in a text that was validated at the edge.
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(Arc::from(text.as_ref()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
    };
}

name! {
    /// Name of a worker cluster.
    ClusterName
}
name! {
    /// A cloud region, such as `europe-west4`.
    Region
}
name! {
    /// A legal area, such as `EU`. Compared byte for byte.
    Jurisdiction
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", uuid::Uuid::from_u128(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", uuid::Uuid::from_u128(self.0))
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Ok(Self(uuid::Uuid::parse_str(text)?.as_u128()))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

random_id! {
    /// Identity of a workload, which never changes. A new submission of the same name gets a new uid.
    Uid
}
random_id! {
    /// Created with a journal. A copy of a journal has the same id.
    JournalId
}
random_id! {
    /// Created with an agent's durable store. A new ledger id means that the old store is lost.
    LedgerId
}

/// Position in the journal, and the `resourceVersion` that users see. Never goes back, not even after a
/// restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordNumber(pub u64);

impl RecordNumber {
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for RecordNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

macro_rules! parts {
    ($name:ident, $sep:literal, $($field:ident),+) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&[$(self.$field.to_string()),+].join($sep))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                let bad = || format!("`{text}` is not a {}", stringify!($name));
                let mut split = text.split($sep);
                let parsed = Self { $($field: split.next().ok_or_else(bad)?.parse().map_err(|_| bad())?),+ };
                if split.next().is_some() { return Err(bad()); }
                Ok(parsed)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

/// One start of a leader: the epoch is larger for every start, the id random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leadership {
    pub epoch: u64,
    /// Random; distinguishes two leaders of an equal epoch.
    pub id: u64,
}
parts!(Leadership, "-", epoch, id);

/// Number of a grant, which grows with every grant of a workload. Receivers refuse smaller fences, and fences
/// of an equal epoch with another leadership id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    /// Epoch of the leadership that granted.
    pub epoch: u64,
    /// Random id of that leadership.
    pub leadership: u64,
    /// Counts grants within the leadership.
    pub counter: u64,
}
parts!(Fence, "-", epoch, leadership, counter);

/// Id of one offer to one cluster. Never reused, because it contains the leadership.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfferId {
    /// Epoch of the leadership that offered.
    pub epoch: u64,
    /// Random id of that leadership.
    pub leadership: u64,
    /// Counts offers within the leadership.
    pub counter: u64,
}
parts!(OfferId, "-", epoch, leadership, counter);

/// The life of one agent process: a counter kept in the ledger, and a random id that distinguishes clones of
/// the ledger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    /// Grows with every start of the agent.
    pub counter: u64,
    pub id: u64,
}
parts!(Session, "-", counter, id);

/// Content hash (SHA-256, first 16 bytes) of a stored body, such as a job's spec.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash(pub u128);

impl ContentHash {
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest;
        let digest = sha2::Sha256::digest(bytes);
        let mut head = [0_u8; 16];
        head.copy_from_slice(&digest[..16]);
        Self(u128::from_be_bytes(head))
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        u128::from_str_radix(&text, 16).map(Self).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_parse_from_their_own_text() {
        let fence = Fence { epoch: 3, leadership: u64::MAX, counter: 9 };
        assert_eq!(fence.to_string().parse::<Fence>().unwrap(), fence);
        assert_eq!(serde_json::from_str::<Fence>(&serde_json::to_string(&fence).unwrap()).unwrap(), fence);
        let uid = Uid(7);
        assert_eq!(uid.to_string().parse::<Uid>().unwrap(), uid);
        assert!("1-2".parse::<Fence>().is_err());
        assert!("1-2-3-4".parse::<Fence>().is_err());
    }

    #[test]
    fn fences_order_by_epoch_before_counter() {
        let old = Fence { epoch: 1, leadership: 9, counter: 900 };
        let new = Fence { epoch: 2, leadership: 1, counter: 1 };
        assert!(new > old);
    }
}
