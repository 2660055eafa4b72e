//! Access of manager and agent to a Kubernetes API server: a checked connection, a Lease, and readable
//! errors.
//!
//! | module | holds |
//! |---|---|
//! | [`connection`] | the client, from a kubeconfig or the pod's service account; its permissions |
//! | [`kubeconfig`] | kubeconfigs, in a file or as text |
//! | [`election`] | the Lease that lets one of several replicas act |
//! | [`error`] | errors of the API server, as text and by their consequence |
//! | [`quiet`] | requests about objects whose content must not get into a log |

pub mod connection;
pub mod election;
pub mod error;
pub mod kubeconfig;
pub mod quiet;

pub use connection::{Client, Connection, ConnectionSettings, Permission, Program};
pub use error::Error;
pub use kubeconfig::{KubeconfigSource, KubeconfigText};
