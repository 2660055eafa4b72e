//! Commands on users: `token`, `auth`.

use super::values::{object_name, positive_duration};
use clap::{Args, Subcommand};
use jiff::SignedDuration;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token of a user, and print it once
    Create(TokenArgs),
    /// List all tokens: their users, groups and expiry
    List,
    /// Revoke a token at once, and close its open watches and logs
    Revoke {
        /// Name of the token
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// Name of the token, by which it is listed and revoked
    pub(crate) name: String,
    /// The user that the token authenticates [default: NAME]
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// A group of the user; repeatable
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// How long the token is valid, at most a year [default: 720h]
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    pub(crate) ttl: Option<SignedDuration>,
    /// Print a kubeconfig with the token; its namespace is that of `-n`
    #[arg(long)]
    pub(crate) as_kubeconfig: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Ask whether you may do something; exits with 1 if not
    #[command(name = "can-i")]
    CanI(CanIArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CanIArgs {
    /// Such as `get`, `list`, `create` or `delete`
    pub(crate) verb: String,
    /// A kind, a kind and a name (`jobs/train`), or a path such as `/metrics`
    pub(crate) resource: String,
    /// Such as `log`
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) subresource: Option<String>,
    /// In all namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
}
