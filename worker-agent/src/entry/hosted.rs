//! An agent in the process of its manager, for a cluster that only a kubeconfig reaches.

use super::assembly;
use crate::metrics::listener::Probed;
use crate::server::Exit;
use crate::settings::Settings;
use anyhow::Context as _;
use meridian_kubernetes::KubeconfigText;
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;

/// An agent that its manager runs.
#[derive(Clone, Debug)]
pub struct HostedAgent {
    /// Directory of its identity and its store; it must have joined.
    pub data_dir: PathBuf,
    /// The cluster, and the account that acts there.
    pub kubeconfig: KubeconfigText,
}

/// Runs the agent on this thread, until `stop` is cancelled or the agent loses its Lease. Fails
/// if the cluster can't be used, or the manager doesn't follow this agent.
pub fn run_hosted(agent: HostedAgent, stop: &CancellationToken) -> anyhow::Result<()> {
    // The agent has its own runtime, so that its waits don't delay the manager.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the agent's runtime")?;
    let settings = Settings::hosted(agent.data_dir, agent.kubeconfig);
    runtime.block_on(async {
        match assembly::serve(&settings, &Probed::default(), stop).await? {
            Exit::Requested => Ok(()),
            Exit::Superseded => anyhow::bail!(
                "the manager follows another agent of this cluster: remove the MultiKueueCluster's \
                 kubeconfig, or that agent and this one's directory `{}`",
                settings.data_dir.display()
            ),
        }
    })
}
