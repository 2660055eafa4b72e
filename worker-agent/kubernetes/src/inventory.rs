//! The cluster's nodes as the agent's inventory.

use crate::hub::{Hub, now};
use meridian_agent_core::runtime::{Answer, Error, Inventory, InventorySource};
use std::sync::Arc;
use std::time::Duration;

/// Changes within this time are read together: many pods start and end at once.
const SETTLE: Duration = Duration::from_millis(200);

/// Reads the nodes from the watches. The result is always complete, and as current as the watches.
#[derive(Debug)]
pub struct ClusterInventory {
    hub: Arc<Hub>,
}

impl ClusterInventory {
    pub fn new(hub: Arc<Hub>) -> Self {
        Self { hub }
    }
}

impl InventorySource for ClusterInventory {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn read(&mut self) -> Answer<'_, Result<Inventory, Error>> {
        Box::pin(async {
            self.hub.complete().await;
            Ok(self.hub.view().inventory(now()))
        })
    }

    fn changed(&mut self) -> Answer<'_, ()> {
        Box::pin(async {
            let lost = self.hub.view().next_loss(now());
            match lost {
                Some(left) => {
                    let until = tokio::time::sleep(Duration::from_millis(left.0 + 1));
                    tokio::select! {
                        () = until => {}
                        () = self.hub.inventory_changed() => {}
                    }
                }
                None => self.hub.inventory_changed().await,
            }
            tokio::time::sleep(SETTLE).await;
        })
    }
}
