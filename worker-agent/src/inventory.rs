//! The inventory sources of this crate: a fleet file, or this machine; and how busy its GPUs are.
//!
//! The trait and its rules are `meridian_agent_core::runtime::InventorySource`.

use meridian_agent_core::runtime::{InventorySource, NodeSpec};
use meridian_telemetry::with_causes;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub mod accelerators;
#[cfg(test)]
mod driver;
pub mod fleet;
mod fleet_file;
mod quantity;
pub mod this_machine;

pub use fleet_file::FleetFile;
pub use this_machine::ThisMachine;

/// Follows the nodes of `source`, which were `first`, in a task of `tasks`. A read that fails changes
/// nothing.
pub fn follow(
    mut source: Box<dyn InventorySource>,
    first: Vec<NodeSpec>,
    tasks: &mut JoinSet<()>,
) -> watch::Receiver<Vec<NodeSpec>> {
    let (nodes, followed) = watch::channel(first);
    tasks.spawn(async move {
        while !nodes.is_closed() {
            source.changed().await;
            match source.read().await {
                Ok(inventory) => {
                    let unready = inventory.nodes.iter().filter(|node| node.unready).count();
                    tracing::info!(
                        source = source.name(),
                        nodes = inventory.nodes.len(),
                        unready,
                        "the inventory was read again"
                    );
                    nodes.send_if_modified(|known| std::mem::replace(known, inventory.nodes) != *known);
                }
                Err(error) => tracing::error!(
                    source = source.name(),
                    error = %with_causes(&error),
                    "the inventory changed and can't be read: the nodes stay as they were"
                ),
            }
        }
    });
    followed
}
