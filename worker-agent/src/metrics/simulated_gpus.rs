//! Utilisation of a simulated cluster's GPUs, which have no driver to read it from.
//!
//! Only GPUs of running gangs have a value. The metrics have the label `runner="simulated"`.

use crate::inventory::accelerators::Reading;
use meridian_agent_core::runtime::PodPlacement;

/// The resource of GPUs.
const GPU: &str = "nvidia.com/gpu";
/// The same for every GPU, because simulated pods do no work. It is above the limit of the alert, which must
/// not fire.
const BUSY_PERCENT: f64 = 90.0;
/// Most GPUs that get values. If more are in use, none gets a value: those without one would look idle.
const GPUS_MAX: usize = 512;

/// One reading for each GPU of these pods.
pub(crate) fn readings<'p>(running: impl Iterator<Item = &'p PodPlacement>) -> Vec<Reading> {
    let indexes = |pod: &'p PodPlacement| pod.accelerators.get(GPU).into_iter().flatten();
    let gpus = running.flat_map(|pod| indexes(pod).map(|index| (pod.node.as_str(), *index)));
    let gpus: Vec<(&str, u32)> = gpus.take(GPUS_MAX + 1).collect();
    if gpus.len() > GPUS_MAX {
        return Vec::new();
    }
    let reading = |(node, index)| Reading {
        index,
        uuid: format!("simulated-{node}-{index}"),
        model: "simulated".into(),
        utilisation_percent: Some(BUSY_PERCENT),
        memory_used_mib: None,
        power_watts: None,
    };
    gpus.into_iter().map(reading).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use std::collections::BTreeMap;

    fn pod(node: &str, gpus: std::ops::Range<u32>) -> PodPlacement {
        PodPlacement {
            pod_set: "main".into(),
            index: 0,
            node: node.into(),
            accelerators: BTreeMap::from([(GPU.to_owned(), gpus.collect())]),
        }
    }

    #[test]
    fn the_gpus_of_running_gangs_are_busy_and_labelled_as_simulated() {
        let metrics = Metrics::new("simulated", "eu");
        let shown = |pods: &[PodPlacement]| {
            metrics.set_accelerators(&readings(pods.iter()));
            let text = metrics.text();
            let lines = text.lines().filter(|line| line.starts_with("DCGM_"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let lines = shown(&[pod("n0", 0..2), pod("n1", 3..4)]);
        assert_eq!(lines.len(), 3, "{lines:?}");
        for line in &lines {
            assert!(line.starts_with("DCGM_FI_DEV_GPU_UTIL{") && line.ends_with("} 90"), "{line}");
            assert!(line.contains(r#"runner="simulated""#) && line.contains(r#"cluster="eu""#), "{line}");
        }
        assert!(lines[2].contains(r#"UUID="simulated-n1-3""#) && lines[2].contains(r#"gpu="3""#));
        assert!(shown(&[]).is_empty(), "free GPUs have no value");
    }

    #[test]
    fn a_cluster_with_too_many_gpus_has_no_values() {
        let most = u32::try_from(GPUS_MAX).unwrap();
        assert_eq!(readings([pod("n0", 0..most)].iter()).len(), GPUS_MAX);
        assert!(readings([pod("n0", 0..most), pod("n1", 0..1)].iter()).is_empty());
    }
}
