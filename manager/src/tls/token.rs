//! Minting of join tokens. The core records a token's cluster, region, jurisdiction, expiry and use.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use meridian_shared::identity::{JoinToken, TokenHash};

/// The token made of 256 random bits, to be shown once, and the hash to be stored.
pub fn mint(random: [u8; 32]) -> (JoinToken, TokenHash) {
    let token = JoinToken::from_base64url(&URL_SAFE_NO_PAD.encode(random))
        .expect("32 bytes in base64url are a token's text");
    let hash = token.hash();
    (token, hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minted_token_survives_its_text_and_matches_only_its_own_hash() {
        let (token, hash) = mint([0xfb; 32]);
        assert!(token.expose().starts_with("mj_"));
        let shown: JoinToken = token.expose().parse().unwrap();
        assert!(shown.hash() == hash);
        let mut other = [0xfb; 32];
        other[31] ^= 1;
        assert!(mint(other).1 != hash);
    }
}
