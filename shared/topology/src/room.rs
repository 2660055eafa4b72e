//! The first pass: how many pods and whole slices each domain holds, counted at the leaves and summed up to the roots.

use crate::exclusions::Exclusions;
use crate::node::{Against, Wishes};
use crate::place::{Question, Search, Shape};
use crate::snapshot::Topology;
use crate::tree::{DomainId, Tree};
use crate::usage::{Demand, Taken};

/// What a domain holds; in the second pass, what is put there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Pods.
    pub(crate) pods: i64,
    /// Whole slices; 0 below the level of slices.
    pub(crate) slices: i64,
    /// Pods beside the leader, wherever below it costs least.
    pub(crate) pods_led: i64,
    /// Whole slices beside the leader.
    pub(crate) slices_led: i64,
    /// Leaders: 1 where the leader fits somewhere below.
    pub(crate) leaders: i64,
    /// How much its nodes are preferred, in sum.
    pub(crate) affinity: i64,
}

/// The room of every domain, by number.
pub(crate) type Sheet = Vec<Room>;

impl Search<'_> {
    /// Counts the leaves, and from them everything above.
    pub(crate) fn count_room(&mut self, question: &Question<'_>, wishes: &Wishes<'_>, taken: &Taken<'_>) {
        let tree = self.topology.tree();
        let counter = Counter {
            topology: self.topology,
            question,
            taken,
            workers: Demand::of(&question.workers.per_pod, self.topology.resources()),
            leader: question.leader.map(|leader| Demand::of(&leader.per_pod, self.topology.resources())),
        };
        let region = question.within.map(|region| counter.region(region));
        let mut left = Vec::new();
        for leaf in tree.leaves().iter() {
            self.exclusions.total += 1;
            let affinity =
                match tree.face(leaf).map_or(Ok(0), |face| wishes.judge(&face.labels, &face.taints)) {
                    Ok(affinity) => affinity,
                    Err(against) => {
                        self.exclusions.count(against);
                        continue;
                    }
                };
            let room = &mut self.sheet[leaf.at()];
            room.affinity = affinity;
            if region.as_ref().is_some_and(|region| !region.contains(&leaf.at())) {
                self.exclusions.topology_domain += 1;
                continue;
            }
            if let Some(short) = counter.leaf(leaf, room, &mut left) {
                *self.exclusions.resources.entry(short.to_owned()).or_insert(0) += 1;
            }
        }
        for root in tree.level(0).iter() {
            sum_up(tree, &self.shape, &mut self.sheet, root, 0, true);
        }
    }
}

impl Exclusions {
    fn count(&mut self, against: Against) {
        match against {
            Against::Taint(taint) => *self.taints.entry(taint).or_insert(0) += 1,
            Against::Selector => self.node_selector += 1,
            Against::Affinity => self.affinity += 1,
        }
    }
}

struct Counter<'a> {
    topology: &'a Topology,
    question: &'a Question<'a>,
    taken: &'a Taken<'a>,
    workers: Demand,
    leader: Option<Demand>,
}

impl Counter<'_> {
    /// Fills the room of a leaf; says what is short if not even one pod fits.
    fn leaf(&self, leaf: DomainId, room: &mut Room, left: &mut Vec<i64>) -> Option<&str> {
        self.topology.left_into(leaf, self.question.simulate_empty, left);
        if let Some(row) = self.taken.row(leaf) {
            for (left, taken) in left.iter_mut().zip(row) {
                *left = left.saturating_sub(*taken);
            }
        }
        let (pods, limit) = self.workers.fits(left);
        room.pods = pods;
        room.pods_led = pods;
        if let Some(leader) = &self.leader
            && leader.fits(left).0 > 0
        {
            room.leaders = 1;
            leader.take(left);
            room.pods_led = self.workers.fits(left).0;
        }
        limit.filter(|_| pods == 0)
    }

    /// The leaves in `domain`, by number. A host of a deeper topology is none: as in Kueue, a replacement is sought in a
    /// domain that has hosts below it, and a host isn't sought in itself.
    fn region(&self, domain: DomainId) -> std::ops::Range<usize> {
        let tree = self.topology.tree();
        let depth = tree.depth_of(domain);
        if depth == tree.lowest() && depth > 0 && tree.is_by_host() {
            return 0..0;
        }
        let within = |leaf: &DomainId| tree.ancestor(*leaf, depth) == domain;
        let mut leaves = tree.leaves().iter().filter(within).map(DomainId::at);
        let first = leaves.next().unwrap_or(0);
        first..leaves.next_back().unwrap_or(first) + 1
    }
}

/// Sums the room of everything below `domain`, which is at `depth`. A leader is assumed where it costs the fewest pods.
///
/// `layered` rounds each child down to whole slices of its layer, so that no pods are counted that can't be grouped.
pub(crate) fn sum_up(
    tree: &Tree,
    shape: &Shape<'_>,
    sheet: &mut [Room],
    domain: DomainId,
    depth: usize,
    layered: bool,
) {
    let children = tree.children(domain);
    if children.is_empty() {
        if depth == shape.slice_depth {
            let room = &mut sheet[domain.at()];
            room.slices = room.pods / shape.slice_size;
            room.slices_led = room.pods_led / shape.slice_size;
        }
        return;
    }
    let whole = if layered { shape.inner_size(depth + 1).unwrap_or(1) } else { 1 };
    let mut sum = Room::default();
    // what the leader costs, in pods and in slices, where it costs least
    let mut cost: Option<(i64, i64)> = None;
    for child in children.iter() {
        sum_up(tree, shape, sheet, child, depth + 1, layered);
        let room = sheet[child.at()];
        let (pods, pods_led) = (room.pods / whole * whole, room.pods_led / whole * whole);
        sum.pods += pods;
        sum.slices += room.slices;
        sum.leaders = sum.leaders.max(room.leaders);
        sum.affinity += room.affinity;
        if shape.leaders == 0 || room.leaders > 0 {
            let (least_pods, least_slices) = cost.unwrap_or((i64::MAX, i64::MAX));
            cost = Some((least_pods.min(pods - pods_led), least_slices.min(room.slices - room.slices_led)));
        }
    }
    if let Some((pods, slices)) = cost {
        sum.pods_led = sum.pods - pods;
        sum.slices_led = sum.slices - slices;
    }
    if depth == shape.slice_depth {
        sum.slices = sum.pods / shape.slice_size;
        sum.slices_led = sum.pods_led / shape.slice_size;
    }
    sheet[domain.at()] = sum;
}
