//! A Kubernetes cluster as an agent's worker: its nodes and pods as the inventory, its jobs as runs.
//!
//! The crate implements the interfaces of `meridian_agent_core::runtime` with an API server. The agent's core
//! decides everything; this crate reads, writes, and reports what was seen.
//!
//! | module | holds |
//! |---|---|
//! | `connection` | version and permissions that the agent needs of the API server |
//! | `copies` | copies of ConfigMaps and Secrets of the management cluster; its `plan` is pure |
//! | `error` | errors of the runner, the provider and the connection |
//! | [`labels`] | the labels and annotations that mark what this agent made |
//! | `facts` | the few fields of nodes, pods and jobs that the agent uses. Pure |
//! | `view` | what the watches have shown: one copy of the cluster's state. Pure |
//! | [`hub`] | the watches themselves, and the tasks that they wake |
//! | [`holds`] | what a hold needs in addition to the ledger: referenced objects, placeholders, Workloads |
//! | [`inventory`] | the source of the cluster's nodes |
//! | `shape` | pods that have requests and places like a gang's pods, but run nothing. Pure |
//! | `objects` | creates and deletes objects other than jobs |
//! | [`provisioning`] | the provider of nodes; `provisioning::order` decides for one offer and is pure |
//! | [`runner`] | the runner of gangs as jobs; `runner::run` decides for one run and is pure |
//!
//! Invariants:
//! - A job is created suspended, and started by a second write, after the agent has read its own Lease again.
//!   A paused replica therefore starts nothing.
//! - A read that failed means *unknown*, never *gone*.
//! - Pods are deleted with their grace period, never by force, and a run has ended only when its pods were
//!   seen ended.
//! - Objects that this agent didn't make are never changed.

mod connection;
mod copies;
mod error;
mod facts;
pub mod holds;
pub mod hub;
pub mod inventory;
pub mod labels;
mod objects;
pub mod provisioning;
pub mod runner;
mod shape;
mod view;

pub use connection::connect;
pub use copies::{Copies, CopyAsker, NotCopied};
pub use error::Error;
pub use holds::{ClusterHolds, HoldMode, PlaceholderSettings};
pub use hub::{Hub, NodeSettings};
pub use inventory::ClusterInventory;
pub use provisioning::{ProvisioningProvider, ProvisioningSettings};
pub use runner::{GuardSettings, JobRunner};
