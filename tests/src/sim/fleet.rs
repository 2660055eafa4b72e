//! Queues and jobs as users declare them. Nothing here knows how a manager decides.

pub(crate) mod job;
pub(crate) mod objects;
pub(crate) mod queues;
pub(crate) mod tolerations;
pub(crate) mod topology;
