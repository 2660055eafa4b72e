//! The provider's settings from what was applied for the cluster, for an agent whose own settings name no
//! provider.
//!
//! The last answer is kept in a file, so that an agent that starts without its manager keeps its settings.
//! After a change the agent begins a new life with the new settings.

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
/// Pause between two requests.
const ASK_EVERY: Duration = Duration::from_secs(15);

/// The provider's settings in the objects: `None` without a provider, or why they can't be used.
type Asked = Result<Option<ProvisioningSettings>, String>;

/// Returns the provider's settings in the newest known objects, and ends this life of the agent when other
/// objects are applied.
pub(super) async fn provisioning(
    all: &Settings,
    link: &Link,
    life: &Life,
    tasks: &mut JoinSet<()>,
) -> Option<ProvisioningSettings> {
    let reader = Reader {
        path: all.data_dir.join(FILE),
        requests_max: all.kubernetes.requests_max(),
        holds_by_kueue: matches!(all.kubernetes.hold, HoldChosen::Kueue { .. }),
    };
    let applied = match cluster_objects::fetch(link).await {
        Ok(Some(applied)) => {
            // A full disk must not keep the agent from its gangs.
            if let Err(error) = keep(&reader.path, &applied) {
                tracing::error!("the next start can't use this answer: {}", with_causes(error.as_ref()));
            }
            applied
        }
        Ok(None) => ClusterObjects::default(),
        Err(error) => {
            tracing::warn!(
                "cannot read the objects applied for this cluster, so the last answer stays in use: {}",
                with_causes(&error)
            );
            kept(&reader.path)
        }
    };
    let asked = reader.read(&applied);
    match &asked {
        Ok(Some(settings)) => tracing::info!(
            class = settings.config.class_name,
            pools = settings.pools.len(),
            "nodes are requested as the Cluster object says"
        ),
        Ok(None) => {}
        Err(why) => tracing::error!("no nodes are requested: {why}"),
    }
    let settings = asked.clone().ok().flatten();
    tasks.spawn(follow(reader, asked, link.clone(), life.clone()));
    settings
}

struct Reader {
    path: PathBuf,
    requests_max: usize,
    /// Whether the cluster's own Kueue holds capacity.
    holds_by_kueue: bool,
}

impl Reader {
    fn read(&self, applied: &ClusterObjects) -> Asked {
        let settings = ProvisioningSettings::of_objects(applied, self.requests_max)?;
        if settings.is_some() && self.holds_by_kueue {
            return Err(
                "`--hold kueue` holds capacity on existing nodes only, so it can't be used with the provider \
                        `ProvisioningRequest` of the Cluster object: change one of the two"
                    .to_owned(),
            );
        }
        Ok(settings)
    }
}

/// Asks repeatedly until an answer has other settings.
async fn follow(reader: Reader, asked: Asked, link: Link, life: Life) {
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        // Without an answer nothing changes; the uplink logs that the manager can't be reached.
        let Ok(Some(applied)) = cluster_objects::fetch(&link).await else { continue };
        if reader.read(&applied) == asked {
            continue;
        }
        match keep(&reader.path, &applied) {
            Ok(()) => {
                tracing::info!(
                    "new provider settings were applied for this cluster: the agent starts again with them"
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

/// The last answer; empty if there is none. A damaged file must not keep the agent from its gangs.
fn kept(path: &Path) -> ClusterObjects {
    let read = || -> anyhow::Result<ClusterObjects> {
        let text = meridian_private_files::read(path)?;
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?.unwrap_or_default())
    };
    read().unwrap_or_else(|error| {
        tracing::error!(
            "no nodes are requested until the manager answers, because `{}` can't be read: {}",
            path.display(),
            with_causes(error.as_ref())
        );
        ClusterObjects::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> ClusterObjects {
        let cluster = r#"{"apiVersion":"meridian.dev/v1alpha1","kind":"Cluster","metadata":{"name":"eu"},
            "spec":{"region":"europe-west4","jurisdiction":"EU",
            "provider":{"kind":"ProvisioningRequest","className":"queued-provisioning.gke.io"},
            "provisionable":[{"name":"h100","capacityClass":"flex-start","maxNodes":4,
            "labels":{"pool":"h100"},"perNode":{"nvidia.com/gpu":8}}]}}"#;
        ClusterObjects { objects: vec![cluster.to_owned()] }
    }

    #[test]
    fn the_last_answer_is_kept_and_a_damaged_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        assert_eq!(kept(&path), ClusterObjects::default());
        keep(&path, &objects()).unwrap();
        assert_eq!(kept(&path), objects());
        std::fs::write(&path, "{\"objects\": [").unwrap();
        assert_eq!(kept(&path), ClusterObjects::default());
    }

    #[test]
    fn nodes_are_not_asked_for_where_the_own_kueue_holds_room() {
        let read = |holds_by_kueue| {
            Reader { path: PathBuf::new(), requests_max: 7, holds_by_kueue }.read(&objects())
        };
        assert_eq!(read(false).unwrap().unwrap().requests_max, 7);
        assert!(read(true).unwrap_err().contains("`--hold kueue`"));
    }
}
