//! All tokens of users, and the file that keeps them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use meridian_objects::rbac::{AUTHENTICATED, Caller, MASTERS};
use meridian_private_files as files;
use meridian_shared::identity::TokenHash;
use meridian_shared::time::Wall;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;

/// Most tokens in the file. Every look-up compares with all of them.
pub const TOKENS_MAX: usize = 1_000;
/// Longest token that is checked, in bytes. Issued tokens have 46.
const TOKEN_BYTES_MAX: usize = 1_024;
/// Version of the file's format.
const FILE_VERSION: u32 = 2;
/// The format with three fixed roles and without expiry.
const VERSION_WITH_ROLES: u32 = 1;
const TOKEN_PREFIX: &str = "mu_";

/// The user behind a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name in the audit log, and in bindings.
    pub name: String,
    pub groups: BTreeSet<String>,
    /// When the token expires.
    pub expires: Option<Wall>,
    token: TokenHash,
}

impl User {
    /// A user inside this process, without a token.
    pub fn internal(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Self { name: name.to_owned(), groups, expires: None, token: TokenHash::of(b"") }
    }

    /// The user as roles see it.
    pub fn caller(&self) -> Caller {
        let mut groups = self.groups.clone();
        groups.insert(AUTHENTICATED.to_owned());
        Caller { user: self.name.clone(), groups }
    }
}

/// Why the tokens can't be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] files::Error),
    #[error("`{}` is not a valid list of tokens: {reason}", path.display())]
    Unusable { path: PathBuf, reason: String },
    #[error("there are {TOKENS_MAX} tokens already: revoke one first")]
    Full,
    #[error("token `{0}` exists already: revoke it first, or choose another name")]
    Taken(String),
    #[error("there is no token `{0}`")]
    Unknown(String),
}

/// A user's token, to be shown once. Its `Debug` form hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct UserToken(String);

impl UserToken {
    #[cfg(test)]
    pub(super) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for UserToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserToken(…)")
    }
}

/// Public data of a token, without the token itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenInfo {
    /// The name by which the token is listed and revoked.
    pub name: String,
    pub user: String,
    pub groups: BTreeSet<String>,
    pub created: Wall,
    pub expires: Option<Wall>,
}

impl TokenInfo {
    /// A token that has its user's name and doesn't expire.
    pub fn of_user(user: &str, groups: &[&str], created: Wall) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Self { name: user.to_owned(), user: user.to_owned(), groups, created, expires: None }
    }
}

/// All tokens by which the API may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    entries: Vec<Entry>,
    /// Whether the bindings of the first users were ever written. They are not written again, because an
    /// administrator may have deleted them.
    has_bound: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    user: String,
    groups: BTreeSet<String>,
    sha256: TokenHash,
    created: Wall,
    expires: Option<Wall>,
}

impl Entry {
    fn is_expired(&self, now: Wall) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    #[serde(rename = "hasBound")]
    has_bound: bool,
    tokens: Vec<Entry>,
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// A file in the format with three fixed roles.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WithRoles {
    #[serde(rename = "version")]
    _version: u32,
    users: Vec<UserWithRole>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserWithRole {
    name: String,
    role: FixedRole,
    sha256: TokenHash,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FixedRole {
    Admin,
    Submitter,
    Viewer,
}

impl From<UserWithRole> for Entry {
    /// Submitters and viewers get no groups, because bindings of their names give them their rights.
    fn from(UserWithRole { name, role, sha256 }: UserWithRole) -> Self {
        let groups = (role == FixedRole::Admin).then(|| MASTERS.to_owned()).into_iter().collect();
        Self { user: name.clone(), name, groups, sha256, created: Wall(0), expires: None }
    }
}

impl Tokens {
    /// Reads `path`. Without a file there are no tokens. Fails if the file can't be read or is invalid.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let Some(text) = files::read(path)? else { return Ok(Self::default()) };
        let unusable = |reason: String| Error::Unusable { path: path.to_owned(), reason };
        let parsed = parse(&text).map_err(unusable)?;
        if parsed.entries.len() > TOKENS_MAX {
            return Err(unusable(format!("it has more than {TOKENS_MAX} tokens")));
        }
        Ok(parsed)
    }

    /// Writes `path` atomically, with mode 0600. Fails if it can't be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let tokens = self.entries.clone();
        let stored = Stored { version: FILE_VERSION, has_bound: self.has_bound, tokens };
        let text = serde_json::to_string_pretty(&stored).expect("a list of tokens is plain data");
        Ok(files::replace(path, &text)?)
    }

    /// Issues a token of 256 random bits. Fails if its name is taken, or if there are too many tokens.
    pub fn issue(&mut self, new: TokenInfo, random: [u8; 32]) -> Result<UserToken, Error> {
        let TokenInfo { name, user, groups, created, expires } = new;
        if self.entries.iter().any(|entry| entry.name == name) {
            return Err(Error::Taken(name));
        }
        if self.entries.len() >= TOKENS_MAX {
            return Err(Error::Full);
        }
        let token = UserToken(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random)));
        let sha256 = TokenHash::of(token.0.as_bytes());
        self.entries.push(Entry { name, user, groups, sha256, created, expires });
        Ok(token)
    }

    /// Fails if there is no token of this name.
    pub fn revoke(&mut self, name: &str) -> Result<(), Error> {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.name != name);
        if self.entries.len() < before { Ok(()) } else { Err(Error::Unknown(name.to_owned())) }
    }

    /// All tokens in the order in which they were issued, expired ones too.
    pub fn list(&self) -> Vec<TokenInfo> {
        let info = |Entry { name, user, groups, sha256: _, created, expires }| TokenInfo {
            name,
            user,
            groups,
            created,
            expires,
        };
        self.entries.iter().cloned().map(info).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a token has this name.
    pub fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.name == name)
    }

    /// Whether the bindings of the first users were ever written.
    pub fn has_bound(&self) -> bool {
        self.has_bound
    }

    pub fn set_bound(&mut self) {
        self.has_bound = true;
    }

    /// The user with this token, unless it has expired. Every entry is compared, even after a match.
    pub fn find(&self, token: &str, now: Wall) -> Option<User> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        self.of_hash(&TokenHash::of(token.as_bytes()), now)
    }

    /// Whether the token of `user` is still valid.
    pub fn is_valid(&self, user: &User, now: Wall) -> bool {
        self.of_hash(&user.token, now).is_some()
    }

    fn of_hash(&self, hash: &TokenHash, now: Wall) -> Option<User> {
        let mut found = None;
        for entry in &self.entries {
            if bool::from(entry.sha256.0.ct_eq(&hash.0)) {
                found = Some(entry);
            }
        }
        let entry = found.filter(|entry| !entry.is_expired(now))?;
        let Entry { user, groups, sha256, expires, .. } = entry.clone();
        Some(User { name: user, groups, expires, token: sha256 })
    }
}

/// The tokens of a file of any known version.
fn parse(text: &str) -> Result<Tokens, String> {
    let Versioned { version } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match version {
        FILE_VERSION => {
            let stored: Stored = serde_json::from_str(text).map_err(|error| error.to_string())?;
            Ok(Tokens { entries: stored.tokens, has_bound: stored.has_bound })
        }
        VERSION_WITH_ROLES => {
            let stored: WithRoles = serde_json::from_str(text).map_err(|error| error.to_string())?;
            let entries = stored.users.into_iter().map(Entry::from).collect();
            Ok(Tokens { entries, has_bound: false })
        }
        other => Err(format!("its version is {other}, but this manager reads version {FILE_VERSION}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const NOW: Wall = Wall(1_000);

    #[test]
    fn a_token_is_found_by_its_hash_until_it_expires_or_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.json");
        let mut tokens = Tokens::load(&path).unwrap();
        let admin = tokens.issue(TokenInfo::of_user("admin", &[MASTERS], Wall(0)), [1; 32]).unwrap();
        let soon = TokenInfo { expires: Some(Wall(2_000)), ..TokenInfo::of_user("sam", &[], Wall(0)) };
        let submitter = tokens.issue(soon, [2; 32]).unwrap();
        tokens.set_bound();
        tokens.save(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(admin.expose()) && !format!("{admin:?}").contains(admin.expose()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let mut tokens = Tokens::load(&path).unwrap();
        assert!(tokens.has_bound());
        let found = tokens.find(admin.expose(), NOW).unwrap();
        assert_eq!((found.name.as_str(), found.groups.contains(MASTERS)), ("admin", true));
        let sam = tokens.find(submitter.expose(), NOW).unwrap();
        assert!(tokens.is_valid(&sam, NOW) && !tokens.is_valid(&sam, Wall(2_000)), "expired");
        assert_eq!(tokens.find(submitter.expose(), Wall(2_000)), None, "expired");
        for wrong in [
            "",
            "mu_",
            &admin.expose()[1..],
            &format!("{}x", admin.expose()),
            &"m".repeat(TOKEN_BYTES_MAX + 1),
        ] {
            assert_eq!(tokens.find(wrong, NOW), None, "{wrong}");
        }
        assert!(matches!(tokens.issue(TokenInfo::of_user("sam", &[], NOW), [3; 32]), Err(Error::Taken(_))));
        tokens.revoke("sam").unwrap();
        assert!(matches!(tokens.revoke("sam"), Err(Error::Unknown(_))));
        tokens.issue(TokenInfo::of_user("sam", &[], NOW), [3; 32]).unwrap();
        assert!(!tokens.is_valid(&sam, NOW), "another token of the same name");
    }

    #[test]
    fn users_of_the_first_format_keep_their_tokens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.json");
        let hash = |text: &str| serde_json::to_value(TokenHash::of(text.as_bytes())).unwrap();
        let users = serde_json::json!({"version": 1, "users": [
            {"name": "admin", "role": "admin", "sha256": hash("mu_a")},
            {"name": "viewer", "role": "viewer", "sha256": hash("mu_v")},
        ]});
        std::fs::write(&path, users.to_string()).unwrap();
        let tokens = Tokens::load(&path).unwrap();
        assert!(tokens.find("mu_a", NOW).unwrap().caller().groups.contains(MASTERS));
        assert_eq!(tokens.find("mu_v", NOW).unwrap().caller().groups, [AUTHENTICATED.to_owned()].into());
        assert!(!tokens.has_bound());
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
            r#"{"version":2,"users":[]}"#,
        ] {
            std::fs::write(&path, damaged).unwrap();
            assert!(Tokens::load(&path).unwrap_err().to_string().contains("users.json"), "{damaged}");
        }
    }
}
