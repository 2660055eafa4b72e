//! Details of Kueue's semantics, each in the smallest world that shows it.

#[path = "semantics/flavors.rs"]
mod flavors;
#[path = "semantics/lifecycle.rs"]
mod lifecycle;
#[path = "semantics/obstacles.rs"]
mod obstacles;
#[path = "semantics/overcommitted.rs"]
mod overcommitted;
#[path = "semantics/preemption.rs"]
mod preemption;
#[path = "semantics/quota.rs"]
mod quota;
#[path = "semantics/shares.rs"]
mod shares;
#[path = "semantics/stage.rs"]
mod stage;
#[path = "semantics/starvation.rs"]
mod starvation;
#[path = "semantics/usage_history.rs"]
mod usage_history;
