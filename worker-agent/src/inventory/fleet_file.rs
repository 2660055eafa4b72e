//! A fleet file as an inventory source: it is read again whenever it was written.

use super::fleet::{self, FleetCluster};
use meridian_agent_core::runtime::{Answer, Error, Inventory, InventorySource};
use meridian_shared::ids::ClusterName;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Pause between two checks of the file.
pub(crate) const CHECK_EVERY: Duration = Duration::from_secs(2);

/// One cluster of a fleet file.
#[derive(Debug)]
pub struct FleetFile {
    path: PathBuf,
    cluster: ClusterName,
    /// Modification time and length: two writes within one tick of the file system's clock may differ only in
    /// the length.
    stamp: Option<(SystemTime, u64)>,
}

impl FleetFile {
    /// The cluster `cluster` of the file at `path`.
    pub fn new(path: PathBuf, cluster: ClusterName) -> Self {
        Self { path, cluster, stamp: None }
    }

    fn current_stamp(&self) -> Option<(SystemTime, u64)> {
        std::fs::metadata(&self.path).and_then(|m| Ok((m.modified()?, m.len()))).ok()
    }

    fn load(&mut self) -> Result<Inventory, Error> {
        // The time is taken before the read, so that a write during the read is noticed.
        self.stamp = self.current_stamp();
        let clusters = fleet::load(&self.path).map_err(Error::new)?;
        let names = clusters.iter().map(|c| format!("`{}`", c.cluster)).collect::<Vec<_>>().join(", ");
        let found = clusters.into_iter().find(|c| c.cluster == self.cluster);
        let FleetCluster { nodes, provisionable, region, .. } = found.ok_or_else(|| {
            Error::new(format!(
                "fleet file `{}` has no cluster `{}`, only {names}: choose one with `--cluster`",
                self.path.display(),
                self.cluster
            ))
        })?;
        Ok(Inventory { nodes, pools: provisionable, region: Some(region) })
    }
}

impl InventorySource for FleetFile {
    fn name(&self) -> &'static str {
        "fleet-file"
    }

    fn read(&mut self) -> Answer<'_, Result<Inventory, Error>> {
        Box::pin(std::future::ready(self.load()))
    }

    fn changed(&mut self) -> Answer<'_, ()> {
        Box::pin(async move {
            loop {
                tokio::time::sleep(CHECK_EVERY).await;
                if self.current_stamp() != self.stamp {
                    return;
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::follow;
    use super::*;
    use meridian_shared::ids::Region;
    use meridian_telemetry::with_causes;
    use tokio::task::JoinSet;

    #[tokio::test(start_paused = true)]
    async fn a_written_file_is_read_again_and_a_bad_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fleet.yaml");
        let write = |nodes: &str| {
            std::fs::write(
                &path,
                format!("cluster: eu\nregion: europe-west4\njurisdiction: EU\nnodes:\n{nodes}"),
            )
            .unwrap()
        };
        write("- {name: a, cpu: 4, memory: 1Gi}\n- {name: b, cpu: 4, memory: 1Gi}\n");
        let mut source = FleetFile::new(path.clone(), ClusterName::new("eu"));
        let Inventory { nodes: first, region, .. } = source.read().await.unwrap();
        assert_eq!(region, Some(Region::new("europe-west4")));
        let mut tasks = JoinSet::new();
        let mut followed = follow(Box::new(source), first, &mut tasks);
        write(
            "- {name: a, cpu: 4, memory: 1Gi, ready: false}\n\
             - {name: c, cpu: 4, memory: 1Gi, unschedulable: true}\n",
        );
        followed.changed().await.unwrap();
        let nodes: Vec<_> = followed
            .borrow_and_update()
            .iter()
            .map(|n| (n.name.clone(), n.unready, n.unschedulable))
            .collect();
        assert_eq!(nodes, [("a".into(), true, false), ("c".into(), false, true)]);
        write("- {name: a, cpu: lots, memory: 1Gi}\n");
        tokio::time::sleep(3 * CHECK_EVERY).await;
        assert!(!followed.has_changed().unwrap());
        write("- {name: a, cpu: 4, memory: 1Gi}\n");
        followed.changed().await.unwrap();
        assert_eq!(followed.borrow().len(), 1);
    }

    #[tokio::test]
    async fn a_missing_file_is_named_once() {
        let mut source = FleetFile::new("no/such/file".into(), ClusterName::new("eu"));
        let error = source.read().await.unwrap_err();
        assert_eq!(
            with_causes(&error),
            "cannot read fleet file `no/such/file`: No such file or directory (os error 2)"
        );
    }
}
