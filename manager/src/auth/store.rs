//! The tokens of a running manager: changed by commands, saved at once, and watched by open streams.

use super::tokens::{Error, TokenInfo, Tokens, User};
use crate::locks;
use meridian_shared::time::Wall;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};
use tokio::sync::watch;

/// The tokens of a running manager. Clones share them.
#[derive(Clone, Debug)]
pub struct TokenStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tokens: RwLock<Arc<Tokens>>,
    /// `None` keeps them in memory only, for tests.
    path: Option<PathBuf>,
    /// Held while a change is written, so that changes are written one after the other.
    writing: Mutex<()>,
    changes: watch::Sender<u64>,
}

/// Notifies of changed tokens.
pub type TokenChanges = watch::Receiver<u64>;

impl TokenStore {
    /// A store that saves changes to `path`. With `None`, changes are kept in memory only.
    pub fn new(tokens: Tokens, path: Option<PathBuf>) -> Self {
        let tokens = RwLock::new(Arc::new(tokens));
        Self(Arc::new(Inner { tokens, path, writing: Mutex::new(()), changes: watch::channel(0).0 }))
    }

    fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&locks::read(&self.0.tokens))
    }

    /// The user with this token, if it is valid now.
    pub fn find(&self, token: &str, now: Wall) -> Option<User> {
        self.tokens().find(token, now)
    }

    /// Whether the token of `user` is still valid.
    pub fn is_valid(&self, user: &User, now: Wall) -> bool {
        self.tokens().is_valid(user, now)
    }

    pub fn list(&self) -> Vec<TokenInfo> {
        self.tokens().list()
    }

    pub fn has(&self, name: &str) -> bool {
        self.tokens().has(name)
    }

    pub fn has_bound(&self) -> bool {
        self.tokens().has_bound()
    }

    /// Changes with each change of the tokens.
    pub fn changes(&self) -> TokenChanges {
        self.0.changes.subscribe()
    }

    /// Makes a change, which takes effect once it is saved. Fails, and changes nothing, if `change` fails or
    /// the file can't be saved. Blocks on the disk.
    pub fn change<T>(&self, change: impl FnOnce(&mut Tokens) -> Result<T, Error>) -> Result<T, Error> {
        let _writing = locks::lock(&self.0.writing);
        let mut tokens = Tokens::clone(&self.tokens());
        let result = change(&mut tokens)?;
        if let Some(path) = &self.0.path {
            tokens.save(path)?;
        }
        *locks::write(&self.0.tokens) = Arc::new(tokens);
        self.0.changes.send_modify(|changes| *changes += 1);
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_saved_before_it_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.json");
        let store = TokenStore::new(Tokens::default(), Some(path.clone()));
        let changes = store.changes();
        let new = || TokenInfo::of_user("sam", &[], Wall(0));
        let token = store.change(|tokens| tokens.issue(new(), [1; 32])).unwrap();
        assert!(changes.has_changed().unwrap() && store.has("sam"));
        assert!(Tokens::load(&path).unwrap().find(token.expose(), Wall(0)).is_some());
        let lost = TokenStore::new(Tokens::default(), Some(dir.path().join("missing/users.json")));
        assert!(lost.change(|tokens| tokens.issue(new(), [1; 32])).is_err());
        assert!(!lost.has("sam"));
    }
}
