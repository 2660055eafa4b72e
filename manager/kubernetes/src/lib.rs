//! A Kubernetes management cluster as the manager's front door: users submit jobs and see their state there.
//!
//! The crate synchronises two API servers: the management cluster's, and the manager's own, which it uses
//! like any client ([`engine_client`]). Specs go from the cluster to the manager, statuses come back. The
//! manager makes all decisions; this crate reads, compares and writes.
//!
//! | module | holds |
//! |---|---|
//! | `authority` | the manager's authority as a ConfigMap |
//! | `resources` | the kinds that are synchronised, and the version in which each side serves them |
//! | `sides` | the objects of both sides, as their watches show them. Pure |
//! | `manifest` | turns an object of the cluster into the object that the manager gets. Pure |
//! | `pods`, `groups` | pods that the manager takes, and the pods of a group as one object. Pure |
//! | `status`, `pod_status` | turn the manager's statuses into those of the cluster. Pure |
//! | `decide` | decides on the next write for one object. Pure |
//! | `webhook` | answers the API server's requests before it stores a job. Pure |
//! | [`hosting`] | clusters whose agents the manager runs itself. Pure |
//! | `events` | events about jobs, one sentence each. Pure |
//! | `queue` | the objects that must be processed, and when |
//! | `perform` | the requests to both API servers |
//! | `controller` | runs the watches and the workers |
//! | `claim` | which installation of the manager acts for the cluster |
//! | `copies` | ConfigMaps and Secrets that worker clusters get copies of |
//! | [`preview`] | finds the objects that the manager would take, for a check before it is started |
//!
//! Invariants:
//! - Only the holder of the claim and of its Lease submits or writes.
//! - A job that has ended in the cluster is never submitted. A job is submitted under the cluster's uid, so
//!   that a lost journal doesn't start it twice.
//! - Nothing is deleted at the manager before the cluster's list was complete. A list that failed in part
//!   doesn't count.
//! - Specs in the cluster are never written, except those of Workloads, which this crate makes.

mod authority;
mod claim;
mod controller;
mod copies;
mod decide;
mod events;
mod groups;
pub mod hosting;
mod manifest;
mod perform;
mod pod_status;
mod pods;
pub mod preview;
mod queue;
mod resources;
mod sides;
mod status;
mod webhook;

pub use authority::publish_authority;
pub use controller::{Absences, Extras, Installation, Management, ManagementSettings};
pub use copies::CopyReader;
pub use perform::{EXISTED, INACTIVE, RequestCount, RequestCounts};
pub use webhook::{Review, WebhookAddress, WebhookSettings};

use kube::Client;
use meridian_kubernetes::{Permission, Program};

/// Everything that the manager does in the management cluster, outside of its own namespace.
const PERMISSIONS: [Permission; 11] = [
    ("", "namespaces", &["list", "watch"]),
    ("", "limitranges", &["list", "watch"]),
    ("", "events", &["create"]),
    ("", "pods", &["list", "watch"]),
    ("", "pods/status", &["patch"]),
    ("batch", "jobs", &["list", "watch"]),
    ("batch", "jobs/status", &["patch"]),
    ("scheduling.k8s.io", "priorityclasses", &["list", "watch"]),
    ("node.k8s.io", "runtimeclasses", &["list", "watch"]),
    ("kueue.x-k8s.io", "workloads", &["list", "watch", "create", "patch", "delete"]),
    ("kueue.x-k8s.io", "workloads/status", &["patch"]),
];

/// Requirements of the manager on the management cluster.
pub const MANAGER: Program = Program {
    name: "manager",
    minor_min: 30,
    needs: "`spec.managedBy` of jobs and validating admission policies",
    permissions: &PERMISSIONS,
};

/// A client of the manager's own API in this process.
pub fn engine_client<S, B>(service: S) -> Client
where
    S: tower::Service<http::Request<kube::client::Body>, Response = http::Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<tower::BoxError>,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    Client::new(service, "default")
}
