//! An agent that was built without the Kubernetes runner.

use super::{ClusterParts, Life, Senders};
use crate::identity::Identity;
use crate::metrics::listener::Probed;
use crate::settings::Settings;
use crate::uplink::Link;
use tokio::task::JoinSet;

/// Always fails, because this binary has no Kubernetes runner.
pub(super) async fn open(
    _settings: &Settings,
    _identity: &Identity,
    _link: &Link,
    _senders: Senders,
    _probed: &Probed,
    _life: &Life,
    _tasks: &mut JoinSet<()>,
) -> anyhow::Result<Option<ClusterParts>> {
    anyhow::bail!(
        "this agent was built without the feature `kubernetes`: use another runner, or another build"
    )
}
