//! The provider's settings from what was applied for the cluster, for an agent whose own settings name no
//! provider.
//!
//! The last answer is kept in a file, so that an agent that starts without its manager goes on as before. A
//! change begins a new life of the agent, as a change of its own files does.

use super::super::Life;
use crate::settings::{HoldChosen, Settings};
use crate::uplink::{Link, cluster_objects};
use anyhow::Context as _;
use meridian_agent_kubernetes::ProvisioningSettings;
use meridian_shared::cluster_objects::ClusterObjects;
use meridian_telemetry::with_causes;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;

/// File with the last answer, in the data directory.
const FILE: &str = "cluster-objects.json";
/// Pause between two questions.
const ASK_EVERY: Duration = Duration::from_secs(15);

/// What the objects ask for: the settings, nothing, or a reason why they can't be used.
type Asked = Result<Option<ProvisioningSettings>, String>;

/// Returns the provider's settings by the newest objects that are known, and ends this life when others are
/// applied. Fails if the kept answer can't be read.
pub(super) async fn provisioning(
    all: &Settings,
    link: &Link,
    life: &Life,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Option<ProvisioningSettings>> {
    let reader = Reader {
        path: all.data_dir.join(FILE),
        requests_max: all.kubernetes.requests_max(),
        holds_by_kueue: matches!(all.kubernetes.hold, HoldChosen::Kueue { .. }),
    };
    let applied = match cluster_objects::fetch(link).await {
        Ok(Some(applied)) => {
            // A full disk must not keep the agent from its gangs.
            if let Err(error) = keep(&reader.path, &applied) {
                tracing::error!("the next start can't go on by this answer: {}", with_causes(error.as_ref()));
            }
            applied
        }
        Ok(None) => ClusterObjects::default(),
        Err(error) => {
            tracing::warn!(
                "cannot ask what was applied for this cluster, and goes on by the last answer: {}",
                with_causes(&error)
            );
            kept(&reader.path)?
        }
    };
    let asked = reader.read(&applied);
    match &asked {
        Ok(Some(settings)) => tracing::info!(
            class = settings.config.class_name,
            pools = settings.pools.len(),
            "nodes are asked for as the Cluster object says"
        ),
        Ok(None) => {}
        Err(why) => tracing::error!("no nodes are asked for: {why}"),
    }
    let settings = asked.clone().ok().flatten();
    tasks.spawn(follow(reader, asked, link.clone(), life.clone()));
    Ok(settings)
}

struct Reader {
    path: PathBuf,
    requests_max: usize,
    /// Whether the cluster's own Kueue holds room.
    holds_by_kueue: bool,
}

impl Reader {
    fn read(&self, applied: &ClusterObjects) -> Asked {
        let settings = ProvisioningSettings::of_objects(applied, self.requests_max)?;
        if settings.is_some() && self.holds_by_kueue {
            return Err(
                "`--hold kueue` holds room on nodes that are there, and doesn't go with the provider \
                        `ProvisioningRequest` of the Cluster object: change one of the two"
                    .to_owned(),
            );
        }
        Ok(settings)
    }
}

/// Asks again and again, until an answer asks for something else.
async fn follow(reader: Reader, asked: Asked, link: Link, life: Life) {
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        // Without an answer nothing changes, and the link says itself that it is broken.
        let Ok(Some(applied)) = cluster_objects::fetch(&link).await else { continue };
        if reader.read(&applied) == asked {
            continue;
        }
        match keep(&reader.path, &applied) {
            Ok(()) => {
                tracing::info!(
                    "other provider settings were applied for this cluster: the agent begins anew"
                );
                return life.begin_another();
            }
            Err(error) => tracing::error!("{}", with_causes(error.as_ref())),
        }
    }
}

fn keep(path: &Path, applied: &ClusterObjects) -> anyhow::Result<()> {
    let text = serde_json::to_string(applied).context("cannot write the cluster's objects as JSON")?;
    Ok(meridian_private_files::replace(path, &text)?)
}

fn kept(path: &Path) -> anyhow::Result<ClusterObjects> {
    let Some(text) = meridian_private_files::read(path)? else { return Ok(ClusterObjects::default()) };
    serde_json::from_str(&text).with_context(|| {
        format!("`{}` is damaged: remove it, and the agent asks its manager again", path.display())
    })
}
