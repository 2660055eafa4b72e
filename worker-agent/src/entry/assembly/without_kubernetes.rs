//! An agent that was built without the Kubernetes runner.

use crate::identity::Identity;
use crate::settings::KubernetesSettings;
use meridian_agent_core::runtime::{InventorySource, Runner, RunnerEvent};
use std::path::Path;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Always fails, because this binary has no Kubernetes runner.
pub(super) async fn open(
    _settings: &KubernetesSettings,
    _data_dir: &Path,
    _identity: &Identity,
    _events: mpsc::Sender<RunnerEvent>,
    _stop: &CancellationToken,
    _tasks: &mut JoinSet<()>,
) -> anyhow::Result<Option<(Box<dyn InventorySource>, Box<dyn Runner>)>> {
    anyhow::bail!(
        "this agent was built without the feature `kubernetes`: use another runner, or another build"
    )
}
