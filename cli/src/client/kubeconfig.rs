//! Kubeconfig files: which manager to talk to, and with which identity.
//!
//! A kubeconfig that needs something unsupported (a login plugin, a password, a skipped certificate check) is
//! refused: ignoring it would silently change identity or safety. Invariant: no secret is ever printed or
//! logged.
//!
//! kube's reader is not used: it brings k8s-openapi (half a minute of compilation and ten crates for one file
//! format), reads without a size limit, and its errors quote lines of the file, tokens included.

mod entries;

use self::entries::Entries;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Where `meridian up` writes a kubeconfig, relative to the working or home directory.
pub(crate) const DEFAULT_PATH: &str = ".meridian/kubeconfig";

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "no kubeconfig at {paths}: start a fleet with `meridian up`, or set `--kubeconfig` or KUBECONFIG"
    )]
    Missing { paths: String },
    #[error("can't read `{}`: {source}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` is not a kubeconfig: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
    #[error("the kubeconfig has no {what} `{name}`; it has {known}")]
    Unknown {
        /// `context`, `cluster` or `user`.
        what: &'static str,
        name: String,
        known: String,
    },
    #[error("the kubeconfig has no current-context: name a context with `--context`")]
    NoContext,
    #[error("{what} `{name}` of the kubeconfig has `{field}`, which meridian doesn't support: {remedy}")]
    Unsupported {
        /// `cluster` or `user`.
        what: &'static str,
        name: String,
        field: &'static str,
        remedy: &'static str,
    },
    /// A client certificate without its key, or the reverse.
    #[error("user `{name}` of the kubeconfig has `{field}` without {missing}")]
    Incomplete { name: String, field: &'static str, missing: &'static str },
    #[error("`{field}` of the kubeconfig is not base64")]
    Base64 { field: &'static str },
    #[error(
        "refused to send a token to `{server}` without TLS: the kubeconfig's server must begin with https://"
    )]
    Plaintext { server: String },
}

/// A token or a key, hidden from `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Address and credentials with which a client reaches a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Base URL without a slash at its end.
    pub(crate) server: String,
    /// PEM of the certificate authorities; `None` trusts the system's.
    pub(crate) authorities: Option<Vec<u8>>,
    pub(crate) token: Option<Secret>,
    /// PEM of a client certificate and its key.
    pub(crate) identity: Option<Secret>,
    /// The context's namespace, or `default`.
    pub(crate) namespace: String,
}

/// Where to look for kubeconfigs: the command line and the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookup {
    /// Value of `--kubeconfig`.
    pub(crate) flag: Option<PathBuf>,
    /// `KUBECONFIG`: paths separated as in `PATH`.
    pub(crate) variable: Option<String>,
    /// The home directory.
    pub(crate) home: Option<PathBuf>,
    /// The working directory.
    pub(crate) directory: PathBuf,
    /// Value of `--context`.
    pub(crate) context: Option<String>,
}

impl Lookup {
    /// A lookup of one file.
    pub(crate) fn file(path: PathBuf) -> Self {
        Self { flag: Some(path), ..Self::default() }
    }

    /// The access of the chosen context. Fails if no file is found, or its content is wrong or unsupported.
    pub(crate) fn access(&self) -> Result<Access, Error> {
        let mut entries = Entries::default();
        for path in self.paths()? {
            entries.merge(Entries::read(&path)?);
        }
        entries.access(self.context.as_deref())
    }

    fn paths(&self) -> Result<Vec<PathBuf>, Error> {
        if let Some(path) = &self.flag {
            return Ok(vec![path.clone()]);
        }
        let listed: Vec<PathBuf> = self
            .variable
            .iter()
            .flat_map(|list| std::env::split_paths(list).collect::<Vec<_>>())
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        let candidates = if listed.is_empty() {
            let defaults = std::iter::once(self.directory.clone()).chain(self.home.clone());
            defaults.map(|root| root.join(DEFAULT_PATH)).collect()
        } else {
            listed.clone()
        };
        let mut found: Vec<PathBuf> = candidates.iter().filter(|path| path.exists()).cloned().collect();
        if listed.is_empty() {
            // The default paths are alternatives, while the paths of KUBECONFIG are merged.
            found.truncate(1);
        }
        if found.is_empty() {
            let paths: Vec<String> = candidates.iter().map(|path| format!("`{}`", path.display())).collect();
            return Err(Error::Missing { paths: paths.join(" or ") });
        }
        Ok(found)
    }
}

/// Whether the URL's host is this machine, so that requests don't leave it.
pub(super) fn is_loopback(server: &str) -> bool {
    let Ok(url) = server.parse::<reqwest::Url>() else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
