//! Users and their bearer tokens.
//!
//! This module owns `users.json` (tokens with their names, users, groups, hashes and expiry) and the
//! kubeconfigs that carry the tokens. It must not know the users' permissions: roles and bindings are objects
//! of the API. Invariants: only the hash of a token is stored. A look-up takes the same time for every token.
//! No user can act as another user. A revoked or expired token authenticates no request, and streams that it
//! opened are cut.

mod kubeconfig;
mod store;
mod tokens;

pub use kubeconfig::Kubeconfig;
pub use store::{TokenChanges, TokenStore};
pub use tokens::{Error, TOKENS_MAX, TokenInfo, Tokens, User, UserToken};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

/// The token of an `Authorization: Bearer …` header; `None` without one or with several.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (one, None) = (all.next()?, all.next()) else { return None };
    let (scheme, token) = one.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Why a request for impersonation is refused; `None` for all other requests. If the headers were ignored,
/// the request would run with the caller's own permissions instead.
pub fn refuses_impersonation(headers: &HeaderMap) -> Option<&'static str> {
    let impersonates = headers.keys().any(|name| name.as_str().starts_with("impersonate-"));
    impersonates.then_some(
        "impersonation is not supported: leave out `--as`, `--as-group` and `--as-uid`, and use that user's \
         kubeconfig",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn only_one_wellformed_bearer_header_is_read() {
        let mut headers = HeaderMap::new();
        assert_eq!(bearer(&headers), None);
        headers.insert(AUTHORIZATION, HeaderValue::from_static("bearer mu_x"));
        assert_eq!(bearer(&headers), Some("mu_x"));
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer mu_y"));
        assert_eq!(bearer(&headers), None);
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Basic mu_x"));
        assert_eq!(bearer(&headers), None);
    }

    #[test]
    fn every_impersonation_header_is_refused() {
        let mut headers = HeaderMap::new();
        assert_eq!(refuses_impersonation(&headers), None);
        for name in ["Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-scopes"] {
            headers.clear();
            headers
                .insert(axum::http::HeaderName::try_from(name).unwrap(), HeaderValue::from_static("admin"));
            assert!(refuses_impersonation(&headers).is_some(), "{name}");
        }
    }
}
