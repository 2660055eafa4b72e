//! This machine as an inventory: NVIDIA GPUs through NVML, processors and memory from `/proc`, and
//! the disk of its root file system.
//!
//! NVML's library comes with the driver and is loaded at run time. A machine without it has no NVIDIA GPUs,
//! which is no error. A partitioned GPU (MIG) counts as one.

use meridian_agent_core::runtime::{Answer, Error, Inventory, InventorySource, NodeSpec};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::collections::BTreeMap;

/// This machine as the only node of its cluster. It never changes.
#[derive(Clone, Copy, Debug)]
pub struct ThisMachine;

impl InventorySource for ThisMachine {
    fn name(&self) -> &'static str {
        "this-machine"
    }

    fn read(&mut self) -> Answer<'_, Result<Inventory, Error>> {
        Box::pin(std::future::ready(inventory()))
    }

    fn changed(&mut self) -> Answer<'_, ()> {
        Box::pin(std::future::pending())
    }
}

fn inventory() -> Result<Inventory, Error> {
    let gpus = match gpus() {
        Gpus::Found(names) => names,
        Gpus::Absent => Vec::new(),
        Gpus::Broken(why) => {
            return Err(Error::new(format!(
                "{why}; repair it, or name the nodes in a fleet file with `--fleet`"
            )));
        }
    };
    let node = this_node(&gpus).map_err(|error| {
        Error::new(std::io::Error::new(
            error.kind(),
            format!("cannot read this machine's processors, memory and devices: {error}"),
        ))
    })?;
    Ok(Inventory { nodes: vec![node], pools: Vec::new(), region: None })
}

/// The file system whose size is the machine's ephemeral storage, as for kubelets.
const ROOT: &str = "/";
/// The resource name of a node's disk.
pub const DISK: &str = "ephemeral-storage";
/// The resource name of GPUs.
pub const GPU: &str = "nvidia.com/gpu";
/// GKE's label for the type of accelerator.
pub const GKE_ACCELERATOR: &str = "cloud.google.com/gke-accelerator";
/// The label of NVIDIA's GPU feature discovery for the type of accelerator.
pub const GPU_PRODUCT: &str = "nvidia.com/gpu.product";

/// GPUs as NVML reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpus {
    /// The product names of the GPUs, by index; may be empty.
    Found(Vec<String>),
    /// There is no NVIDIA driver.
    Absent,
    /// The driver does not work; with a message for the operator.
    Broken(String),
}

/// Lists the GPUs of this machine.
pub fn gpus() -> Gpus {
    listed(Nvml::init())
}

fn listed(started: Result<Nvml, NvmlError>) -> Gpus {
    let nvml = match started {
        Ok(nvml) => nvml,
        Err(NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded) => {
            return Gpus::Absent;
        }
        Err(error) => return Gpus::Broken(format!("the NVIDIA driver's library doesn't start: {error}")),
    };
    let names = || {
        (0..nvml.device_count()?)
            .map(|index| nvml.device_by_index(index)?.name())
            .collect::<Result<_, NvmlError>>()
    };
    names().map_or_else(
        |error| Gpus::Broken(format!("the NVIDIA driver can't list its GPUs: {error}")),
        Gpus::Found,
    )
}

/// This machine as a node with these GPUs. Fails if `/proc` can't be read.
pub fn this_node(gpus: &[String]) -> std::io::Result<NodeSpec> {
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let meminfo = std::fs::read_to_string("/proc/meminfo")?;
    let processors = std::thread::available_parallelism()?.get();
    let memory =
        memory_bytes(&meminfo).ok_or_else(|| std::io::Error::other("`/proc/meminfo` has no `MemTotal`"))?;
    let mut node = node(hostname.trim(), i64::try_from(processors).unwrap_or(i64::MAX), memory, gpus);
    node.capacity.extend(disk_bytes(ROOT).map(|bytes| (DISK.to_owned(), bytes)));
    Ok(node)
}

/// Size of the file system at `path`; `None` if it can't be read.
fn disk_bytes(path: &str) -> Option<i64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    i64::try_from(stat.f_blocks.checked_mul(stat.f_frsize)?).ok()
}

fn node(name: &str, processors: i64, memory: i64, gpus: &[String]) -> NodeSpec {
    let mut labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), name.to_owned())]);
    let mut capacity =
        BTreeMap::from([("cpu".to_owned(), processors.saturating_mul(1_000)), ("memory".to_owned(), memory)]);
    if let Some(first) = gpus.first() {
        capacity.insert(GPU.into(), i64::try_from(gpus.len()).unwrap_or(i64::MAX));
        // The labels describe all GPUs of a node, so a machine with different GPUs has no such labels.
        if gpus.iter().all(|g| g == first) {
            labels.insert(GPU_PRODUCT.into(), label_value(first));
            labels.extend(gke_name(first).map(|name| (GKE_ACCELERATOR.to_owned(), name.to_owned())));
        }
    }
    NodeSpec { name: name.to_owned(), labels, capacity, ..NodeSpec::default() }
}

fn memory_bytes(meminfo: &str) -> Option<i64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()?.checked_mul(1 << 10)
}

/// A product name as a label's value: letters, digits, `-`, `_`, `.`, at most 63 of them.
fn label_value(product: &str) -> String {
    let safe: String = product
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' })
        .take(63)
        .collect();
    safe.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// GKE's accelerator types (as in its documentation of GPU node pools), by parts of the driver's product
/// name; the first match counts.
const GKE_NAMES: [(&[&str], &str); 13] = [
    (&["GB200"], "nvidia-gb200"),
    (&["B200"], "nvidia-b200"),
    (&["H200"], "nvidia-h200-141gb"),
    (&["H100", "80GB"], "nvidia-h100-80gb"),
    (&["A100", "80GB"], "nvidia-a100-80gb"),
    (&["A100"], "nvidia-tesla-a100"),
    (&["RTX PRO 6000"], "nvidia-rtx-pro-6000"),
    (&["L40S"], "nvidia-l40s"),
    (&["V100"], "nvidia-tesla-v100"),
    (&["P100"], "nvidia-tesla-p100"),
    (&["Tesla P4"], "nvidia-tesla-p4"),
    (&["T4"], "nvidia-tesla-t4"),
    (&["NVIDIA L4"], "nvidia-l4"),
];

fn gke_name(product: &str) -> Option<&'static str> {
    GKE_NAMES.iter().find(|(parts, _)| parts.iter().all(|part| product.contains(part))).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::driver;

    #[test]
    fn a_node_is_labelled_by_its_gpus() {
        let four = node("n", 8, 1 << 30, &vec!["Tesla T4".to_owned(); 4]);
        assert_eq!((four.capacity[GPU], four.capacity["cpu"]), (4, 8_000));
        assert_eq!(
            (four.labels[GKE_ACCELERATOR].as_str(), four.labels[GPU_PRODUCT].as_str()),
            ("nvidia-tesla-t4", "Tesla-T4")
        );
        let mixed = node("n", 8, 1, &["Tesla T4".to_owned(), "NVIDIA L4".to_owned()]);
        assert!(mixed.capacity[GPU] == 2 && !mixed.labels.contains_key(GPU_PRODUCT));
        assert!(!node("n", 8, 1, &[]).capacity.contains_key(GPU));
    }

    #[test]
    fn products_map_to_gke_accelerator_types() {
        for (product, name) in [
            ("NVIDIA H100 80GB HBM3", Some("nvidia-h100-80gb")),
            ("NVIDIA H200", Some("nvidia-h200-141gb")),
            ("NVIDIA A100-SXM4-40GB", Some("nvidia-tesla-a100")),
            ("NVIDIA A100-SXM4-80GB", Some("nvidia-a100-80gb")),
            ("NVIDIA L4", Some("nvidia-l4")),
            ("NVIDIA L40S", Some("nvidia-l40s")),
            ("NVIDIA GB200", Some("nvidia-gb200")),
            ("NVIDIA GeForce RTX 3090", None),
        ] {
            assert_eq!(gke_name(product), name, "{product}");
        }
        assert_eq!(label_value("NVIDIA H100 80GB (PCIe)"), "NVIDIA-H100-80GB--PCIe");
    }

    #[test]
    fn the_drivers_library_is_loaded_at_run_time() {
        let directory = tempfile::tempdir().unwrap();
        let load = |status: u32| listed(driver::load(directory.path(), &[&format!("COUNT_STATUS={status}")]));
        assert_eq!(load(0), Gpus::Found(vec!["Tesla T4".to_owned(); 2]));
        assert!(matches!(load(999), Gpus::Broken(why) if why.contains("can't list its GPUs")));
        let absent = directory.path().join("absent.so");
        assert_eq!(listed(Nvml::builder().lib_path(absent.as_os_str()).init()), Gpus::Absent);
    }

    #[test]
    fn this_machine_is_a_node_with_or_without_gpus() {
        let found = match gpus() {
            Gpus::Found(names) => names,
            Gpus::Absent => Vec::new(),
            Gpus::Broken(why) => panic!("{why}"),
        };
        let this = this_node(&found).unwrap();
        assert!(this.capacity[DISK] > 0 && disk_bytes("/no/such/path").is_none());
        assert!(this.capacity["cpu"] >= 1_000 && this.capacity["memory"] > 0 && !this.name.is_empty());
        assert_eq!(this.capacity.get(GPU).copied().unwrap_or(0), i64::try_from(found.len()).unwrap());
        assert_eq!(memory_bytes("MemFree: 1 kB\nMemTotal:       16 kB\n"), Some(16 << 10));
        assert_eq!(memory_bytes(""), None);
    }
}
