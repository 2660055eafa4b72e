//! Users and their bearer tokens.
//!
//! This module owns `users.json` (names, roles and hashes of tokens) and the kubeconfigs that carry the
//! tokens. It must not know what a role permits: the API's table of roles says that. Invariants: only the
//! hash of a token is stored here. A look-up takes the same time for every token. No user can act as another
//! one.

mod kubeconfig;

pub use kubeconfig::Kubeconfig;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use meridian_private_files as files;
use meridian_shared::identity::TokenHash;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;

/// Most users in the file. Every look-up compares with all of them.
pub const USERS_MAX: usize = 1_000;
/// Longest token that is checked, in bytes; ours have 46.
const TOKEN_BYTES_MAX: usize = 1_024;
/// Version of the file's format.
const FILE_VERSION: u32 = 1;
const TOKEN_PREFIX: &str = "mu_";

/// What a user may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May do everything.
    Admin,
    /// May submit, read and delete jobs.
    Submitter,
    /// May read everything except the output of jobs and the audit log; for dashboards.
    Viewer,
}

/// The user behind a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name in the audit log.
    pub name: String,
    pub role: Role,
}

/// Why the file of users can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] files::Error),
    #[error("`{}` is not a valid list of users: {reason}", path.display())]
    Unusable { path: PathBuf, reason: String },
    #[error("there are {USERS_MAX} users already: remove one first")]
    Full,
}

/// A user's token, to be written into a kubeconfig once. Its `Debug` form hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct UserToken(String);

impl UserToken {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for UserToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserToken(…)")
    }
}

/// All users that may call the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    role: Role,
    sha256: TokenHash,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    users: Vec<Entry>,
}

impl Users {
    /// Reads `path`. Without a file there are no users. Fails if the file can't be read or is invalid.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let Some(text) = files::read(path)? else { return Ok(Self::default()) };
        let unusable = |reason: String| Error::Unusable { path: path.to_owned(), reason };
        let stored: Stored = serde_json::from_str(&text).map_err(|e| unusable(e.to_string()))?;
        if stored.version != FILE_VERSION {
            return Err(unusable(format!(
                "its version is {}, but this manager reads version {FILE_VERSION}",
                stored.version
            )));
        }
        if stored.users.len() > USERS_MAX {
            return Err(unusable(format!("it has more than {USERS_MAX} users")));
        }
        Ok(Self(stored.users))
    }

    /// Writes `path` atomically, with mode 0600. Fails if it can't be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let stored = Stored { version: FILE_VERSION, users: self.0.clone() };
        let text = serde_json::to_string_pretty(&stored).expect("a list of users is plain data");
        Ok(files::replace(path, &text)?)
    }

    /// Issues a token of 256 random bits for `name`. An earlier token of that name becomes invalid. Fails if
    /// there are too many users.
    pub fn issue(&mut self, name: &str, role: Role, random: [u8; 32]) -> Result<UserToken, Error> {
        let token = UserToken(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random)));
        self.0.retain(|entry| entry.name != name);
        if self.0.len() >= USERS_MAX {
            return Err(Error::Full);
        }
        self.0.push(Entry { name: name.to_owned(), role, sha256: TokenHash::of(token.0.as_bytes()) });
        Ok(token)
    }

    /// Whether any user has this role.
    pub fn has(&self, role: Role) -> bool {
        self.0.iter().any(|entry| entry.role == role)
    }

    /// The user with this token. Every entry is compared, even after a match.
    pub fn find(&self, token: &str) -> Option<User> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let hash = TokenHash::of(token.as_bytes());
        let mut found = None;
        for entry in &self.0 {
            if bool::from(entry.sha256.0.ct_eq(&hash.0)) {
                found = Some(entry);
            }
        }
        found.map(|entry| User { name: entry.name.clone(), role: entry.role })
    }
}

/// The token of an `Authorization: Bearer …` header; `None` without one or with several.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (one, None) = (all.next()?, all.next()) else { return None };
    let (scheme, token) = one.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Why a request for impersonation is refused; `None` for all other requests. Ignoring the headers instead
/// would perform the request with the caller's own permissions, which is not what was asked for.
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
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_found_by_its_hash_and_replaced_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.json");
        let mut users = Users::load(&path).unwrap();
        let admin = users.issue("admin", Role::Admin, [1; 32]).unwrap();
        let submitter = users.issue("submitter", Role::Submitter, [2; 32]).unwrap();
        users.save(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(admin.expose()) && !format!("{admin:?}").contains(admin.expose()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let mut users = Users::load(&path).unwrap();
        assert_eq!(users.find(admin.expose()), Some(User { name: "admin".to_owned(), role: Role::Admin }));
        assert_eq!(users.find(submitter.expose()).unwrap().role, Role::Submitter);
        for wrong in [
            "",
            "mu_",
            &admin.expose()[1..],
            &format!("{}x", admin.expose()),
            &"m".repeat(TOKEN_BYTES_MAX + 1),
        ] {
            assert_eq!(users.find(wrong), None, "{wrong}");
        }
        let next = users.issue("admin", Role::Admin, [3; 32]).unwrap();
        assert_eq!(users.find(admin.expose()), None);
        assert_eq!(users.find(next.expose()).unwrap().name, "admin");
    }

    #[test]
    fn the_error_names_a_damaged_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.json");
        for damaged in [
            "",
            "{}",
            r#"{"version":9,"users":[]}"#,
            r#"{"version":1,"users":[{"name":"a","role":"king","sha256":""}]}"#,
        ] {
            std::fs::write(&path, damaged).unwrap();
            assert!(Users::load(&path).unwrap_err().to_string().contains("users.json"), "{damaged}");
        }
    }

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
