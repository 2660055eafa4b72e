//! One hash for all states that differ in nothing that matters.
//!
//! Journals of different length that say the same are the same, and so are sessions that have polled in vain more or less
//! often. So the numbers of records and of transmissions are hashed by rank: only their order is ever asked. They are fed
//! from ranges where no other number lies, and a first pass collects them.
//! Calendar moments are not hashed: people read them, no rule of the protocol does.

use std::hash::{Hash, Hasher};

/// The number of the journal's first record.
pub const RECORDS: u64 = 1 << 44;
const RANKED_END: u64 = 2 * RECORDS;

/// The number of a cluster's transmission as it is fed to a hash.
pub fn transmission(cluster: usize, number: u64) -> u64 {
    RECORDS + ((cluster as u64 + 1) << 32) + number
}

/// Collects ranked numbers, or hashes by their rank.
#[derive(Debug, Default)]
pub struct Canon {
    numbers: Vec<u64>,
    ranking: bool,
    hash: u64,
}

impl Canon {
    /// The canonical hash of what `feed` feeds.
    pub fn of(feed: impl Fn(&mut Self)) -> u64 {
        let mut canon = Self::default();
        feed(&mut canon);
        canon.numbers.sort_unstable();
        canon.numbers.dedup();
        canon.ranking = true;
        canon.hash = 0;
        feed(&mut canon);
        canon.hash
    }

    /// Feeds parts whose order means nothing.
    pub fn unordered<T>(&mut self, parts: impl Iterator<Item = T>, feed: impl Fn(&T, &mut Self)) {
        let before = self.hash;
        let mut sum = 0_u64;
        for part in parts {
            self.hash = 0;
            feed(&part, self);
            sum = sum.wrapping_add(self.hash);
        }
        self.hash = before;
        sum.hash(self);
    }

    fn mix(&mut self, word: u64) {
        // Folded multiplication, as in wyhash.
        let product =
            u128::from(self.hash ^ 0x9e37_79b9_7f4a_7c15) * u128::from(word ^ 0xd6e8_feb8_6659_fd93);
        self.hash = (product as u64) ^ ((product >> 64) as u64) ^ self.hash.rotate_left(23);
    }
}

impl Hasher for Canon {
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.ranking {
            for chunk in bytes.chunks(8) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                self.mix(u64::from_le_bytes(word));
            }
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }

    fn write_u64(&mut self, n: u64) {
        if !(RECORDS..RANKED_END).contains(&n) {
            if self.ranking {
                self.mix(n);
            }
        } else if self.ranking {
            let rank = self.numbers.binary_search(&n).expect("the first pass fed the same");
            self.mix(RECORDS + rank as u64);
        } else {
            self.numbers.push(n);
        }
    }

    fn write_i64(&mut self, _: i64) {}
}
