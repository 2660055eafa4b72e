//! Who is told, after a commit, that a cluster has something to hear.
//!
//! A listener notices every wake since it was made, so whoever listens *before* asking the engine can't miss the one that
//! comes between the answer "park" and the parking.

use dashmap::DashMap;
use meridian_shared::ids::ClusterName;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;

/// The wakes of all clusters; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Wakes(Arc<DashMap<ClusterName, watch::Sender<u64>>>);

/// Notices wakes of one cluster.
#[derive(Debug)]
pub struct Wake(watch::Receiver<u64>);

impl Wakes {
    /// Listens from now on. Entries are bounded by the number of clusters with a verified certificate.
    pub fn listen(&self, cluster: &ClusterName) -> Wake {
        let entry = self.0.entry(cluster.clone()).or_insert_with(|| watch::channel(0).0);
        Wake(entry.subscribe())
    }

    pub(super) fn wake(&self, clusters: &BTreeSet<ClusterName>) {
        for cluster in clusters {
            if let Some(sender) = self.0.get(cluster) {
                sender.send_modify(|n| *n = n.wrapping_add(1));
            }
        }
    }

    /// Everyone: what was parked under an earlier leadership must ask again.
    pub(super) fn wake_all(&self) {
        self.0.iter().for_each(|entry| entry.send_modify(|n| *n = n.wrapping_add(1)));
    }
}

impl Wake {
    /// Returns at the next wake that was not noticed yet.
    pub async fn woken(&mut self) {
        if self.0.changed().await.is_err() {
            // The engine is gone, and with it everything that could wake.
            std::future::pending::<()>().await;
        }
    }
}
