//! HMAC-SHA-256 (RFC 2104) over what a manager tells an agent about itself.
//!
//! Agents only keep these receipts and show them to a later leadership; only managers check them. One key that lives beside
//! the manager's certificate authority, and never in the journal, is therefore enough, and a lying agent can't invent a fork.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The manager's secret for receipts. Its debug form shows nothing.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ReceiptKey(pub [u8; 32]);

impl std::fmt::Debug for ReceiptKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReceiptKey(…)")
    }
}

/// A message authentication code, the first 16 bytes in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mac(pub String);

impl ReceiptKey {
    /// The code of `message`.
    pub fn sign(&self, message: &[u8]) -> Mac {
        let pad = |with: u8| {
            let mut block = [with; 64];
            for (b, k) in block.iter_mut().zip(self.0) {
                *b ^= k;
            }
            block
        };
        let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
        let outer = Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize();
        Mac(outer[..16].iter().map(|b| format!("{b:02x}")).collect())
    }

    /// Whether `mac` is the code of `message`; takes the same time wherever they differ.
    pub fn verify(&self, message: &[u8], mac: &Mac) -> bool {
        let right = self.sign(message);
        right.0.len() == mac.0.len()
            && right.0.bytes().zip(mac.0.bytes()).fold(0, |d, (a, b)| d | (a ^ b)) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_rfc_4231_case_2_and_notices_a_change() {
        // RFC 4231 test case 2: a four-byte key is zero-padded to the block, as ours is from 32 bytes.
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let key = ReceiptKey(key);
        let mac = key.sign(b"what do ya want for nothing?");
        assert_eq!(mac.0, "5bdcc146bf60754e6a042426089575c7");
        assert!(key.verify(b"what do ya want for nothing?", &mac));
        assert!(!key.verify(b"what do ya want for nothing!", &mac));
    }
}
