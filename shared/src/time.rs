//! Times of two clocks that must never be mixed, and durations.
//!
//! [`Mono`] is boot time (it runs through suspend) and is the only clock that a lease, a claim, a hold or a
//! stop budget may use. [`Wall`] is calendar time, for users and for convenience timers. They are different
//! types, so code that mixes them doesn't compile. Shells read the clocks and pass the values in as a
//! [`Now`].

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};

/// A duration in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    pub const fn secs(n: u64) -> Self {
        Self(n * 1_000)
    }

    pub const fn mins(n: u64) -> Self {
        Self(n * 60_000)
    }

    /// The difference, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Millis {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ms if ms % 60_000 == 0 && ms > 0 => write!(f, "{}m", ms / 60_000),
            ms if ms % 1_000 == 0 => write!(f, "{}s", ms / 1_000),
            ms => write!(f, "{}.{:03}s", ms / 1_000, ms % 1_000),
        }
    }
}

/// A time on one machine's boot-time clock, in milliseconds. Comparable only with times of the same boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mono(pub u64);

impl Mono {
    /// The time from `earlier` to this; zero if this isn't later.
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Millis> for Mono {
    type Output = Self;
    fn add(self, by: Millis) -> Self {
        Self(self.0.saturating_add(by.0))
    }
}

impl Sub<Millis> for Mono {
    type Output = Self;
    fn sub(self, by: Millis) -> Self {
        Self(self.0.saturating_sub(by.0))
    }
}

/// A calendar time in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wall(pub i64);

impl Wall {
    /// The time from `earlier` to this; zero if this isn't later.
    pub const fn since(self, earlier: Self) -> Millis {
        let diff = self.0.saturating_sub(earlier.0);
        Millis(if diff < 0 { 0 } else { diff as u64 })
    }
}

impl Add<Millis> for Wall {
    type Output = Self;
    fn add(self, by: Millis) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.0).unwrap_or(i64::MAX)))
    }
}

/// One reading of both clocks of one machine. Passed into a core with every input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Now {
    pub mono: Mono,
    pub wall: Wall,
}
