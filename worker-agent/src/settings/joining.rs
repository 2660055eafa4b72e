//! Settings of an agent that joins by the service account that its cluster gives it.

use super::{Error, Settings};
use clap::Args;
use std::path::PathBuf;

/// Flags of a join by service account.
#[derive(Clone, Debug, Default, Args)]
pub struct IssuerJoinArgs {
    /// File with a token of this agent's service account. An agent without an identity joins with it; the
    /// manager trusts its issuer.
    #[arg(long, value_name = "FILE", env = "MERIDIAN_AGENT_JOIN_TOKEN_FILE")]
    pub join_token_file: Option<PathBuf>,
    /// File with the certificate of the manager's authority, in PEM, for a join by service account.
    #[arg(long, value_name = "FILE", env = "MERIDIAN_AGENT_MANAGER_CA_FILE")]
    pub manager_ca_file: Option<PathBuf>,
}

impl IssuerJoinArgs {
    /// Fills in what the configuration file has.
    pub(super) fn or(self, join_token_file: Option<PathBuf>, manager_ca_file: Option<PathBuf>) -> Self {
        Self {
            join_token_file: self.join_token_file.or(join_token_file),
            manager_ca_file: self.manager_ca_file.or(manager_ca_file),
        }
    }
}

/// A join by service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IssuerJoin {
    /// Address of the manager.
    pub(crate) manager: String,
    /// Kubernetes replaces the token before it expires, so the file is read for each attempt.
    pub(crate) token_file: PathBuf,
    pub(crate) ca_file: PathBuf,
}

impl IssuerJoin {
    /// `None` if no token file is set. Fails if one of the three settings is missing.
    pub(super) fn of(args: IssuerJoinArgs, manager: Option<&String>) -> Result<Option<Self>, Error> {
        let IssuerJoinArgs { join_token_file, manager_ca_file } = args;
        let (token_file, ca_file) = match (join_token_file, manager_ca_file) {
            (None, None) => return Ok(None),
            (Some(token_file), Some(ca_file)) => (token_file, ca_file),
            (Some(_), None) => {
                let why = "the token must not be sent to anybody but the manager";
                return Err(Error::Missing { flag: "manager-ca-file", why });
            }
            (None, Some(_)) => {
                let why = "the manager's certificate is for a join by service account";
                return Err(Error::Missing { flag: "join-token-file", why });
            }
        };
        let why = "an agent that joins by its service account gets the manager's address from this flag only";
        let manager = manager.cloned().ok_or(Error::Missing { flag: "manager", why })?;
        Ok(Some(Self { manager, token_file, ca_file }))
    }
}

impl Settings {
    /// The join by service account, if it is set up.
    pub(crate) fn issuer_join(&self) -> Option<&IssuerJoin> {
        self.join.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_by_service_account_needs_all_three_settings() {
        let args = |token: bool, ca: bool| IssuerJoinArgs {
            join_token_file: token.then(|| "token".into()),
            manager_ca_file: ca.then(|| "ca.crt".into()),
        };
        let manager = "https://manager.example:7443".to_owned();
        assert_eq!(IssuerJoin::of(args(false, false), Some(&manager)).unwrap(), None);
        assert!(IssuerJoin::of(args(true, true), Some(&manager)).unwrap().is_some());
        for (args, manager, flag) in [
            (args(true, false), Some(&manager), "--manager-ca-file"),
            (args(false, true), Some(&manager), "--join-token-file"),
            (args(true, true), None, "--manager"),
        ] {
            let error = IssuerJoin::of(args, manager).unwrap_err().to_string();
            assert!(error.contains(&format!("`{flag}` is missing")), "{error}");
        }
    }
}
