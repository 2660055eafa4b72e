//! HMAC-SHA-256 (RFC 2104) over statements of a manager about its journal.
//!
//! Agents keep these statements and report them to later leaderships. Only managers verify them, so a secret
//! key suffices. It is stored with the manager's certificate authority, never in the journal. Without the
//! key, a malicious agent can't invent a fork of the journal.

use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Bytes of a code that are kept: half of SHA-256's output, as RFC 2104 (section 5) allows.
const CODE_BYTES: usize = 16;

/// The manager's secret for receipts. Its debug form hides the bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ReceiptKey(pub [u8; 32]);

impl std::fmt::Debug for ReceiptKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReceiptKey(…)")
    }
}

/// A message authentication code: its first 16 bytes in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mac(pub String);

impl ReceiptKey {
    pub fn sign(&self, message: &[u8]) -> Mac {
        let code = self.hmac(message).finalize().into_bytes();
        Mac(code[..CODE_BYTES].iter().map(|b| format!("{b:02x}")).collect())
    }

    /// Whether `mac` is the code of `message`. Takes constant time, independent of where the codes differ.
    pub fn verify(&self, message: &[u8], mac: &Mac) -> bool {
        from_hex(&mac.0).is_some_and(|code| self.hmac(message).verify_truncated_left(&code).is_ok())
    }

    fn hmac(&self, message: &[u8]) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length").chain_update(message)
    }
}

/// The bytes of a code in the form of [`ReceiptKey::sign`]; `None` for any other text.
fn from_hex(text: &str) -> Option<[u8; CODE_BYTES]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * CODE_BYTES || !digits.iter().all(|d| matches!(d, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut code = [0; CODE_BYTES];
    for (byte, pair) in code.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_agree_with_rfc_4231_and_detect_changes() {
        // RFC 4231 test case 2: a four-byte key is zero-padded to the block, as ours is from 32 bytes.
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let key = ReceiptKey(key);
        let mac = key.sign(b"what do ya want for nothing?");
        assert_eq!(mac.0, "5bdcc146bf60754e6a042426089575c7");
        assert!(key.verify(b"what do ya want for nothing?", &mac));
        assert!(!key.verify(b"what do ya want for nothing!", &mac));
        for other in ["", "5bdcc146", "5BDCC146BF60754E6A042426089575C7", &format!("{}00", mac.0)] {
            assert!(!key.verify(b"what do ya want for nothing?", &Mac(other.into())), "{other}");
        }
    }
}
