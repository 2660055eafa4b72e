//! Balanced placement (KEP-2724, gate `TASBalancedPlacement`): a pod set with a preferred level that needs
//! several domains is spread evenly over them, instead of filling all but the last.
//!
//! The threshold is the smallest number of slices on any used domain. Of all sets of siblings at the
//! requested level, the set with the highest threshold is chosen, and as few of its domains as possible are
//! used.

use super::capacity::{CapacityTable, DomainCapacity, sum_up};
use super::order::descending;
use super::search::Search;
use crate::tree::DomainId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Result of filling domains in order of their capacity.
struct Greedy {
    domains: i64,
    last_with_leader: Option<DomainId>,
    last: Option<DomainId>,
}

/// Siblings that can hold the pod set in balance.
struct Candidate {
    threshold: i64,
    /// Number of domains of the requested level in use.
    taken: i64,
    domains: Vec<DomainId>,
    /// Capacity without the domains below the threshold.
    table: CapacityTable,
}

/// A domain in a set under construction, and the index of the previous link.
struct Link {
    domain: DomainId,
    before: Option<usize>,
}

impl Search<'_> {
    /// The leaves of a balanced placement, whose pods are written into the table. `None`, with an unchanged
    /// table, if there is no balanced placement.
    ///
    /// As in Kueue, thresholds ignore narrower slices. So the leaves may turn out to hold fewer pods than the
    /// domains above them; then there is no balanced placement.
    pub(super) fn balance(&mut self) -> Option<Vec<DomainId>> {
        let counted = self.table.clone();
        let placed = self.best_siblings(&counted).and_then(|best| {
            self.table = best.table;
            let (depth, domains) = self.spread_from(best.threshold, best.domains)?;
            let leaves = self.descend_balanced(depth, domains);
            self.is_whole(&leaves).then_some(leaves)
        });
        if placed.is_none() {
            self.table = counted;
        }
        placed
    }

    fn best_siblings(&mut self, counted: &CapacityTable) -> Option<Candidate> {
        let tree = self.topology.tree();
        let sets: Vec<Vec<DomainId>> = match self.shape.depth.checked_sub(1) {
            None => vec![tree.level(0).iter().collect()],
            Some(above) => {
                tree.level(above).iter().map(|parent| tree.children(parent).iter().collect()).collect()
            }
        };
        let mut best: Option<Candidate> = None;
        for siblings in sets {
            let (least, fewest) = best.as_ref().map_or((0, 0), |best| (best.threshold, best.taken));
            if let Some((threshold, taken)) = self.balanced(&siblings, counted, least)
                && (threshold > least || (threshold == least && taken < fewest))
            {
                best = Some(Candidate { threshold, taken, domains: siblings, table: self.table.clone() });
            }
        }
        best
    }

    /// The highest threshold at which `siblings` hold the pod set, and the number of siblings used. `None` if
    /// the threshold is below `least`. Prunes the table to the threshold.
    fn balanced(&mut self, siblings: &[DomainId], counted: &CapacityTable, least: i64) -> Option<(i64, i64)> {
        self.table.clone_from(counted);
        let greedy = self.greedy(&self.counted_below(siblings))?;
        let mut threshold = self.shape.slices().checked_div(greedy.domains)?;
        if let Some(domain) = greedy.last_with_leader {
            threshold = threshold.min(self.table[domain.at()].slices_with_leader);
        }
        // The last domain may also have to hold the leader.
        let mut with_leader = threshold;
        if let Some(domain) = greedy.last {
            threshold = threshold.min(self.table[domain.at()].slices);
            with_leader = if self.shape.leaders > 0 {
                threshold.min(self.table[domain.at()].slices_with_leader)
            } else {
                threshold
            };
        }
        if threshold < least {
            return None;
        }
        self.prune(siblings, threshold);
        if let Some(greedy) = self.greedy(siblings) {
            return Some((threshold, greedy.domains));
        }
        if with_leader >= threshold || with_leader <= 0 || with_leader < least {
            return None;
        }
        self.table.clone_from(counted);
        self.prune(siblings, with_leader);
        self.greedy(siblings).map(|greedy| (with_leader, greedy.domains))
    }

    /// The domains to balance: the children of `domains` if slices are at a lower level, else `domains`.
    fn counted_below(&self, domains: &[DomainId]) -> Vec<DomainId> {
        if self.shape.depth < self.shape.slice_depth {
            return domains.iter().flat_map(|domain| self.topology.tree().children(*domain).iter()).collect();
        }
        domains.to_vec()
    }

    /// Fills `domains` in order of their capacity, largest first. `None` if they don't suffice.
    fn greedy(&self, domains: &[DomainId]) -> Option<Greedy> {
        let mut sorted = domains.to_vec();
        let mut greedy = Greedy { domains: 0, last_with_leader: None, last: None };
        let (mut slices, mut leaders) = (self.shape.slices(), self.shape.leaders);
        let mut next = 0;
        if leaders > 0 {
            self.sort_for_leader(&mut sorted, false);
            while leaders > 0 && next < sorted.len() && self.table[sorted[next].at()].leaders > 0 {
                let capacity = &self.table[sorted[next].at()];
                leaders -= capacity.leaders;
                slices -= capacity.slices_with_leader;
                greedy.domains += 1;
                greedy.last_with_leader = Some(sorted[next]);
                next += 1;
            }
        }
        let rest = &mut sorted[next..];
        self.sort(rest, false);
        for domain in rest {
            let holds = self.table[domain.at()].slices;
            if slices <= 0 || holds <= 0 {
                break;
            }
            slices -= holds;
            greedy.domains += 1;
            greedy.last = Some(*domain);
        }
        (leaders <= 0 && slices <= 0).then_some(greedy)
    }

    /// Removes domains with fewer slices than `threshold`: first the children of `domains`, then `domains`.
    fn prune(&mut self, domains: &[DomainId], threshold: i64) {
        let tree = self.topology.tree();
        for child in domains.iter().flat_map(|domain| tree.children(*domain).iter()) {
            self.prune_one(child, threshold);
        }
        for domain in domains {
            sum_up(tree, &self.shape, &mut self.table, *domain, self.shape.depth, false);
            self.prune_one(*domain, threshold);
        }
    }

    fn prune_one(&mut self, domain: DomainId, threshold: i64) {
        let capacity = self.table[domain.at()];
        if capacity.slices < threshold {
            self.each_below(domain, &|capacity| {
                *capacity = DomainCapacity { affinity: capacity.affinity, ..DomainCapacity::default() }
            });
        } else if self.shape.leaders > 0 && capacity.leaders > 0 && capacity.slices_with_leader < threshold {
            // The domain holds enough workers, but not together with the leader.
            self.each_below(domain, &|capacity| {
                (capacity.pods_with_leader, capacity.slices_with_leader, capacity.leaders) = (0, 0, 0)
            });
        }
    }

    fn each_below(&mut self, domain: DomainId, change: &impl Fn(&mut DomainCapacity)) {
        change(&mut self.table[domain.at()]);
        for child in self.topology.tree().children(domain).iter() {
            self.each_below(child, change);
        }
    }

    fn spread_from(&mut self, threshold: i64, domains: Vec<DomainId>) -> Option<(usize, Vec<DomainId>)> {
        if self.shape.depth >= self.shape.slice_depth {
            return Some((self.shape.depth, self.spread(threshold, &domains)?));
        }
        let chosen = self.fewest(&domains, true)?;
        let below = self.counted_below(&chosen);
        Some((self.shape.depth + 1, self.spread(threshold, &below)?))
    }

    /// Gives `threshold` slices to each of the fewest sufficient domains, and the remainder to the first with
    /// free capacity.
    fn spread(&mut self, threshold: i64, domains: &[DomainId]) -> Option<Vec<DomainId>> {
        let mut chosen = self.fewest(domains, false)?;
        let mut over = self.shape.slices() - i64::try_from(chosen.len()).ok()?.saturating_mul(threshold);
        if over < 0 {
            return None;
        }
        self.sort_for_leader(&mut chosen, false);
        let mut leaders = self.shape.leaders;
        for domain in &chosen {
            let capacity = &mut self.table[domain.at()];
            let holds = if leaders > 0 { capacity.slices_with_leader } else { capacity.slices };
            let extra = if leaders > 0 || over > 0 { over.min(holds - threshold) } else { 0 };
            capacity.leaders = leaders.min(1);
            leaders -= capacity.leaders;
            over -= extra;
            capacity.slices = threshold + extra;
            capacity.slices_with_leader = capacity.slices;
            capacity.pods = capacity.slices * self.shape.slice_size;
            capacity.pods_with_leader = capacity.pods - capacity.leaders;
        }
        (over <= 0 && leaders <= 0).then_some(chosen)
    }

    /// Of the smallest sufficient sets of `domains`, the set with the least unused capacity; on a tie, the
    /// set with the first domains. Dynamic programming over the remaining (leaders, pods).
    fn fewest(&self, domains: &[DomainId], by_entropy: bool) -> Option<Vec<DomainId>> {
        let size = usize::try_from(self.greedy(domains)?.domains).ok()?;
        let mut sorted = domains.to_vec();
        if by_entropy {
            self.sort_by_entropy(&mut sorted);
        } else {
            sorted.sort();
        }
        let mut links: Vec<Link> = Vec::new();
        // Per number of domains: the remaining demand, and the last domain of the set that leaves it.
        let mut sets: Vec<BTreeMap<(i64, i64), Option<usize>>> = vec![BTreeMap::new(); size + 1];
        sets[0].insert((self.shape.leaders, self.shape.slices() * self.shape.slice_size), None);
        for domain in sorted {
            let capacity = &self.table[domain.at()];
            for larger in (1..=size).rev() {
                let (smaller_sets, larger_sets) = sets.split_at_mut(larger);
                let Some((smaller, into)) = smaller_sets.last().zip(larger_sets.first_mut()) else {
                    continue;
                };
                for ((leaders, pods), before) in smaller {
                    if *leaders <= 0 && *pods <= 0 {
                        continue;
                    }
                    let led = (*leaders > 0 && capacity.leaders > 0)
                        .then_some((leaders - capacity.leaders, pods - capacity.pods_with_leader));
                    let plain = (capacity.slices > 0).then_some((*leaders, pods - capacity.pods));
                    for left in led.into_iter().chain(plain) {
                        into.entry(left).or_insert_with(|| {
                            links.push(Link { domain, before: *before });
                            Some(links.len() - 1)
                        });
                    }
                }
            }
        }
        // Remaining demand closest to zero, with every pod placed.
        let last = sets.last()?.range((0, i64::MIN)..=(0, 0)).next_back().and_then(|(_, last)| *last)?;
        let mut chosen: Vec<DomainId> =
            std::iter::successors(links.get(last), |link| link.before.and_then(|at| links.get(at)))
                .map(|link| link.domain)
                .collect();
        chosen.reverse();
        Some(chosen)
    }

    /// Sorts by capacity, largest first, then by how evenly the capacity is spread over the children.
    fn sort_by_entropy(&self, domains: &mut Vec<DomainId>) {
        let mut keyed: Vec<(f64, DomainId)> =
            domains.iter().map(|domain| (self.entropy(*domain), *domain)).collect();
        keyed.sort_by(|(entropy, domain), (other_entropy, other)| {
            let capacity = |domain: &DomainId| {
                (
                    Reverse(self.table[domain.at()].leaders),
                    Reverse(self.table[domain.at()].slices_with_leader),
                )
            };
            capacity(domain)
                .cmp(&capacity(other))
                .then(descending(*entropy, *other_entropy))
                .then(domain.cmp(other))
        });
        *domains = keyed.into_iter().map(|(_, domain)| domain).collect();
    }

    /// Shannon entropy, in bits, of the distribution of pods over the children of a domain.
    #[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
    fn entropy(&self, domain: DomainId) -> f64 {
        let pods: Vec<i64> = self
            .topology
            .tree()
            .children(domain)
            .iter()
            .map(|child| self.table[child.at()].pods)
            .filter(|pods| *pods > 0)
            .collect();
        let total = pods.iter().sum::<i64>() as f64;
        let part = |pods: &i64| *pods as f64 / total;
        pods.iter().map(|pods| -part(pods) * part(pods).log2()).sum()
    }
}
