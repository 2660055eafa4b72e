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
