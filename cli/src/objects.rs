//! Reading objects as the manager sends them: Kubernetes-shaped JSON.

pub(crate) mod fields;
pub(crate) mod job;
