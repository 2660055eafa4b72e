//! Versions of the capacity report, and deltas between them.

use super::rounding;
use crate::ledger::Ledger;
use meridian_shared::packing::Block;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Offset of capacity versions in a fingerprint: keeps them apart from transmissions, because the fingerprint
/// replaces the numbers of both by their order.
pub const VERSIONS: u64 = 1 << 20;
/// Versions remembered as bases for deltas.
const BASES_MAX: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CapacityReports {
    /// Revision of the ledger that the newest version describes.
    revision: Option<u64>,
    version: u64,
    acknowledged: u64,
    bases: BTreeMap<u64, Vec<Block>>,
    /// Pools in the newest version.
    pools: Vec<Block>,
    /// Nodes that the newest version leaves out.
    unreported: u32,
}

/// The part of a capacity report that depends on versions.
pub(crate) struct ReportedCapacity {
    pub(crate) version: u64,
    /// The version that `blocks` is a delta to; `None` for a whole report.
    pub(crate) base: Option<u64>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) pools: Vec<Block>,
}

impl CapacityReports {
    /// Number of nodes that the newest report leaves out, because too many nodes differ.
    pub(crate) fn unreported(&self) -> u32 {
        self.unreported
    }

    /// Takes the acknowledged version of an answer.
    pub(crate) fn acknowledge(&mut self, version: u64) {
        self.acknowledged = self.acknowledged.max(version);
    }

    /// A new leadership has no version of this capacity yet.
    pub(crate) fn forget_acknowledged(&mut self) {
        self.acknowledged = 0;
    }

    /// The report that the manager lacks; `None` if it has the newest version.
    pub(crate) fn next(&mut self, ledger: &Ledger) -> Option<ReportedCapacity> {
        self.update(ledger);
        if self.version == self.acknowledged {
            return None;
        }
        let current = self.bases.get(&self.version).cloned().unwrap_or_default();
        let acknowledged = self.bases.get(&self.acknowledged);
        let (base, blocks) = match acknowledged.and_then(|old| rounding::delta(old, &current)) {
            None => (None, current),
            Some(changed) => (Some(self.acknowledged), changed),
        };
        Some(ReportedCapacity { version: self.version, base, blocks, pools: self.pools.clone() })
    }

    /// Makes a new version if the ledger changed in a way that the manager sees.
    fn update(&mut self, ledger: &Ledger) {
        if self.revision == Some(ledger.revision()) {
            return;
        }
        let bounded = rounding::bounded(ledger.blocks(), ledger.pools());
        let is_same = self.bases.get(&self.version) == Some(&bounded.blocks) && self.pools == bounded.pools;
        let is_first = self.revision.is_none();
        self.unreported = bounded.unreported;
        self.revision = Some(ledger.revision());
        if is_same && !is_first {
            return;
        }
        self.version += 1;
        self.pools = bounded.pools;
        self.bases.insert(self.version, bounded.blocks);
        while self.bases.len() > BASES_MAX {
            self.bases.pop_first();
        }
    }

    pub(crate) fn hash_fingerprint(
        &self,
        ledger: &Ledger,
        number: &dyn Fn(u64) -> u64,
        into: &mut impl Hasher,
    ) {
        let Self { revision, version, acknowledged, bases: _, pools: _, unreported: _ } = self;
        (*revision == Some(ledger.revision())).hash(into);
        (number(VERSIONS + version), number(VERSIONS + acknowledged)).hash(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::NodeSpec;
    use meridian_shared::gang::Amounts;

    fn nodes(gpus: &[i64]) -> Vec<NodeSpec> {
        let node = |(number, gpus): (usize, &i64)| NodeSpec {
            name: format!("n{number}"),
            capacity: Amounts::from([("nvidia.com/gpu".into(), *gpus)]),
            ..NodeSpec::default()
        };
        gpus.iter().enumerate().map(node).collect()
    }

    /// Version and base of a report, and the accelerators of its blocks with their nodes.
    type Summary = (u64, Option<u64>, Vec<(i64, u32)>);

    fn next(reports: &mut CapacityReports, ledger: &Ledger) -> Option<Summary> {
        let report = reports.next(ledger)?;
        let blocks =
            report.blocks.iter().map(|block| (block.capacity["nvidia.com/gpu"], block.nodes)).collect();
        Some((report.version, report.base, blocks))
    }

    #[test]
    fn a_report_is_whole_until_one_is_acknowledged_and_then_says_what_changed() {
        let (mut reports, mut ledger) = (CapacityReports::default(), Ledger::default());
        assert_eq!(next(&mut reports, &ledger), Some((1, None, Vec::new())), "nothing is capacity too");
        ledger.set_nodes(nodes(&[4, 4]), Vec::new());
        assert_eq!(next(&mut reports, &ledger), Some((2, None, vec![(4, 2)])));
        assert_eq!(next(&mut reports, &ledger), Some((2, None, vec![(4, 2)])), "the manager lacks it still");
        reports.acknowledge(2);
        assert_eq!(next(&mut reports, &ledger), None);
        ledger.set_nodes(nodes(&[4, 4, 8]), Vec::new());
        assert_eq!(next(&mut reports, &ledger), Some((3, Some(2), vec![(8, 1)])));
        ledger.set_nodes(nodes(&[4, 8]), Vec::new());
        assert_eq!(next(&mut reports, &ledger), Some((4, Some(2), vec![(4, 1), (8, 1)])));
        reports.acknowledge(4);
        reports.acknowledge(3);
        assert_eq!(next(&mut reports, &ledger), None, "an answer that comes late takes nothing back");
        reports.forget_acknowledged();
        assert_eq!(next(&mut reports, &ledger), Some((4, None, vec![(4, 1), (8, 1)])));
    }

    #[test]
    fn a_change_that_the_manager_does_not_see_makes_no_version() {
        let (mut reports, mut ledger) = (CapacityReports::default(), Ledger::default());
        ledger.set_nodes(nodes(&[4]), Vec::new());
        next(&mut reports, &ledger);
        reports.acknowledge(1);
        ledger.set_nodes(nodes(&[4]), Vec::new());
        assert_eq!(next(&mut reports, &ledger), None);
        let pool = Block { nodes: 3, capacity: nodes(&[4])[0].capacity.clone(), ..Block::default() };
        ledger.set_nodes(nodes(&[4]), vec![pool.clone()]);
        let report = reports.next(&ledger).expect("the pools differ");
        assert_eq!(
            (report.version, report.base, report.blocks, report.pools),
            (2, Some(1), vec![], vec![pool])
        );
    }

    #[test]
    fn a_base_is_remembered_for_eight_versions() {
        let (mut reports, mut ledger) = (CapacityReports::default(), Ledger::default());
        let base_after = |reports: &mut CapacityReports, ledger: &mut Ledger, count: i64| {
            ledger.set_nodes(nodes(&[count]), Vec::new());
            next(reports, ledger).expect("the node changed").1
        };
        base_after(&mut reports, &mut ledger, 1);
        reports.acknowledge(1);
        for count in 2..=8 {
            assert_eq!(base_after(&mut reports, &mut ledger, count), Some(1));
        }
        assert_eq!(base_after(&mut reports, &mut ledger, 9), None);
    }

    #[test]
    fn nodes_that_are_left_out_are_counted() {
        let (mut reports, mut ledger) = (CapacityReports::default(), Ledger::default());
        let labelled = |number: usize| NodeSpec {
            name: format!("n{number}"),
            labels: BTreeMap::from([("asset".into(), format!("{number:0400}"))]),
            ..NodeSpec::default()
        };
        ledger.set_nodes((0..3_000).map(labelled).collect(), Vec::new());
        let report = reports.next(&ledger).expect("it is the first");
        assert!(reports.unreported() > 1);
        assert_eq!(report.blocks.len() + reports.unreported() as usize, 3_000);
    }
}
