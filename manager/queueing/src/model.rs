//! The data that decisions work on, without any rules: flavors, cluster queues, workloads, assignments,
//! reasons.

mod assignment;
mod catalog;
mod cluster_queue;
mod flavor;
mod flavor_scan;
mod queue;
mod reason;
mod request_totals;
mod shape;
mod target;
mod workload;

pub use assignment::{
    Assignment, FlavorAssignment, FlavorAttempt, Mode, PodSetAssignment, PreemptionPossibility,
};
pub use catalog::Catalog;
pub use cluster_queue::{Clash, ClusterQueuePreemption, Inactive, PreemptionRule, QueueId, QueueSetup};
pub use flavor::{Flavor, FlavorFungibility, ResourceGroup};
pub use flavor_scan::FlavorScan;
pub(crate) use queue::PreemptionCandidate;
pub use queue::Queue;
pub use reason::{Obstacle, Reason};
pub(crate) use request_totals::{RequestTotal, request_totals};
pub use shape::{PodSet, Requests, Shape, ShapeId, amount_of};
pub use target::{PreemptionReason, Target};
pub use workload::{
    Charge, Delayed, Holding, Marks, Moment, NO_MOMENT, PodSetAdmission, Update, Usage, Workload, WorkloadId,
};
pub(crate) use workload::{PendingPreemption, Progress};
