//! One hash for all equivalent states.
//!
//! Journals of different length with the same meaning are equivalent, and so are sessions that differ only in
//! the number of empty polls. Numbers of records and of transmissions are therefore hashed by rank, because
//! only their order matters. They are fed from separate ranges, and a first pass collects them. Calendar
//! times aren't hashed: no rule of the protocol reads them.

use std::hash::{Hash, Hasher};

/// The number of the journal's first record.
pub const RECORDS: u64 = 1 << 44;
const RANKED_END: u64 = 2 * RECORDS;

/// The number by which a cluster's transmission is fed to a hash.
pub fn transmission(cluster: usize, number: u64) -> u64 {
    RECORDS + ((cluster as u64 + 1) << 32) + number
}

/// Collects ranked numbers in a first pass, and hashes by their rank in a second one.
#[derive(Debug, Default)]
pub struct CanonicalHasher {
    numbers: Vec<u64>,
    ranking: bool,
    hash: u64,
}

impl CanonicalHasher {
    /// The canonical hash of what `feed` feeds.
    pub fn of(feed: impl Fn(&mut Self)) -> u64 {
        let mut canonical_hash = Self::default();
        feed(&mut canonical_hash);
        canonical_hash.numbers.sort_unstable();
        canonical_hash.numbers.dedup();
        canonical_hash.ranking = true;
        canonical_hash.hash = 0;
        feed(&mut canonical_hash);
        canonical_hash.hash
    }

    /// Feeds parts in such a way that their order makes no difference.
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

impl Hasher for CanonicalHasher {
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
