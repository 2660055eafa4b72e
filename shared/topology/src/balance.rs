//! Balanced placement (KEP-2724, gate `TASBalancedPlacement`): a preferred pod set that needs several domains is spread over
//! them as evenly as can be, instead of filling all but the last.
//!
//! The measure is the threshold: the fewest slices on a domain that gets any. Of all sets of siblings at the requested level,
//! the one with the highest threshold wins; within it, the fewest domains that suffice are taken.

use crate::order::descending;
use crate::place::Search;
use crate::room::{Room, Sheet, sum_up};
use crate::tree::DomainId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What filling domains one after another comes to.
struct Greedy {
    domains: i64,
    last_led: Option<DomainId>,
    last: Option<DomainId>,
}

/// Siblings that could hold everything in balance.
struct Candidate {
    threshold: i64,
    /// Domains of the requested level that it takes.
    taken: i64,
    domains: Vec<DomainId>,
    /// The room with everything below the threshold cut off.
    sheet: Sheet,
}

/// One domain of a set that is being put together, and the one before.
struct Link {
    domain: DomainId,
    before: Option<usize>,
}

impl Search<'_> {
    /// The leaves of a balanced placement, with what each takes written into the sheet. Otherwise the sheet stays as it is.
    ///
    /// Thresholds don't know of narrower slices (as in Kueue), so it can turn out only at the leaves that not all pods can
    /// be grouped; then there is no balanced placement.
    pub(crate) fn balance(&mut self) -> Option<Vec<DomainId>> {
        let counted = self.sheet.clone();
        let placed = self.best_siblings(&counted).and_then(|best| {
            self.sheet = best.sheet;
            let (depth, domains) = self.spread_from(best.threshold, best.domains)?;
            let leaves = self.descend_balanced(depth, domains);
            self.is_whole(&leaves).then_some(leaves)
        });
        if placed.is_none() {
            self.sheet = counted;
        }
        placed
    }

    fn best_siblings(&mut self, counted: &Sheet) -> Option<Candidate> {
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
                best = Some(Candidate { threshold, taken, domains: siblings, sheet: self.sheet.clone() });
            }
        }
        best
    }

    /// The threshold at which `siblings` hold everything, if it is at least `least`, and how many of them it takes. The sheet
    /// is cut down to it.
    fn balanced(&mut self, siblings: &[DomainId], counted: &Sheet, least: i64) -> Option<(i64, i64)> {
        self.sheet.clone_from(counted);
        let greedy = self.greedy(&self.counted_below(siblings))?;
        let mut threshold = self.shape.slices().checked_div(greedy.domains)?;
        if let Some(domain) = greedy.last_led {
            threshold = threshold.min(self.sheet[domain.at()].slices_led);
        }
        // room for the leader may have to be kept on the last domain
        let mut beside_leader = threshold;
        if let Some(domain) = greedy.last {
            threshold = threshold.min(self.sheet[domain.at()].slices);
            beside_leader = if self.shape.leaders > 0 {
                threshold.min(self.sheet[domain.at()].slices_led)
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
        if beside_leader >= threshold || beside_leader <= 0 || beside_leader < least {
            return None;
        }
        self.sheet.clone_from(counted);
        self.prune(siblings, beside_leader);
        self.greedy(siblings).map(|greedy| (beside_leader, greedy.domains))
    }

    /// The domains between which slices are balanced: those below `domains`, if slices are of a narrower level.
    fn counted_below(&self, domains: &[DomainId]) -> Vec<DomainId> {
        if self.shape.depth < self.shape.slice_depth {
            return domains.iter().flat_map(|domain| self.topology.tree().children(*domain).iter()).collect();
        }
        domains.to_vec()
    }

    /// Fills `domains` one after another, those with most room first; `None` if they don't suffice.
    fn greedy(&self, domains: &[DomainId]) -> Option<Greedy> {
        let mut sorted = domains.to_vec();
        let mut greedy = Greedy { domains: 0, last_led: None, last: None };
        let (mut slices, mut leaders) = (self.shape.slices(), self.shape.leaders);
        let mut next = 0;
        if leaders > 0 {
            self.sort_led(&mut sorted, false);
            while leaders > 0 && next < sorted.len() && self.sheet[sorted[next].at()].leaders > 0 {
                let room = &self.sheet[sorted[next].at()];
                leaders -= room.leaders;
                slices -= room.slices_led;
                greedy.domains += 1;
                greedy.last_led = Some(sorted[next]);
                next += 1;
            }
        }
        let rest = &mut sorted[next..];
        self.sort(rest, false);
        for domain in rest {
            let holds = self.sheet[domain.at()].slices;
            if slices <= 0 || holds <= 0 {
                break;
            }
            slices -= holds;
            greedy.domains += 1;
            greedy.last = Some(*domain);
        }
        (leaders <= 0 && slices <= 0).then_some(greedy)
    }

    /// Cuts off what holds fewer slices than `threshold`, first the children of `domains`, then those themselves.
    fn prune(&mut self, domains: &[DomainId], threshold: i64) {
        let tree = self.topology.tree();
        for child in domains.iter().flat_map(|domain| tree.children(*domain).iter()) {
            self.prune_one(child, threshold);
        }
        for domain in domains {
            sum_up(tree, &self.shape, &mut self.sheet, *domain, self.shape.depth, false);
            self.prune_one(*domain, threshold);
        }
    }

    fn prune_one(&mut self, domain: DomainId, threshold: i64) {
        let room = self.sheet[domain.at()];
        if room.slices < threshold {
            self.each_below(domain, &|room| *room = Room { affinity: room.affinity, ..Room::default() });
        } else if self.shape.leaders > 0 && room.leaders > 0 && room.slices_led < threshold {
            // it holds enough workers, but not beside the leader
            self.each_below(domain, &|room| (room.pods_led, room.slices_led, room.leaders) = (0, 0, 0));
        }
    }

    fn each_below(&mut self, domain: DomainId, change: &impl Fn(&mut Room)) {
        change(&mut self.sheet[domain.at()]);
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

    /// Gives each of the fewest sufficient domains `threshold` slices, and what is over to the first that have room.
    fn spread(&mut self, threshold: i64, domains: &[DomainId]) -> Option<Vec<DomainId>> {
        let mut chosen = self.fewest(domains, false)?;
        let mut over = self.shape.slices() - i64::try_from(chosen.len()).ok()?.saturating_mul(threshold);
        if over < 0 {
            return None;
        }
        self.sort_led(&mut chosen, false);
        let mut leaders = self.shape.leaders;
        for domain in &chosen {
            let room = &mut self.sheet[domain.at()];
            let holds = if leaders > 0 { room.slices_led } else { room.slices };
            let extra = if leaders > 0 || over > 0 { over.min(holds - threshold) } else { 0 };
            room.leaders = leaders.min(1);
            leaders -= room.leaders;
            over -= extra;
            room.slices = threshold + extra;
            room.slices_led = room.slices;
            room.pods = room.slices * self.shape.slice_size;
            room.pods_led = room.pods - room.leaders;
        }
        (over <= 0 && leaders <= 0).then_some(chosen)
    }

    /// Of the smallest sets of `domains` that suffice, the one with the least room to spare, found by dynamic programming
    /// over (leaders, pods) that are left. Of equals, the one whose domains come first.
    fn fewest(&self, domains: &[DomainId], by_entropy: bool) -> Option<Vec<DomainId>> {
        let size = usize::try_from(self.greedy(domains)?.domains).ok()?;
        let mut sorted = domains.to_vec();
        if by_entropy {
            self.sort_by_entropy(&mut sorted);
        } else {
            sorted.sort();
        }
        let mut links: Vec<Link> = Vec::new();
        // per number of domains: what is left, and the last domain of the set that leaves it
        let mut sets: Vec<BTreeMap<(i64, i64), Option<usize>>> = vec![BTreeMap::new(); size + 1];
        sets[0].insert((self.shape.leaders, self.shape.slices() * self.shape.slice_size), None);
        for domain in sorted {
            let room = &self.sheet[domain.at()];
            for larger in (1..=size).rev() {
                let (smaller_sets, larger_sets) = sets.split_at_mut(larger);
                let Some((smaller, into)) = smaller_sets.last().zip(larger_sets.first_mut()) else {
                    continue;
                };
                for ((leaders, pods), before) in smaller {
                    if *leaders <= 0 && *pods <= 0 {
                        continue;
                    }
                    let led = (*leaders > 0 && room.leaders > 0)
                        .then_some((leaders - room.leaders, pods - room.pods_led));
                    let plain = (room.slices > 0).then_some((*leaders, pods - room.pods));
                    for left in led.into_iter().chain(plain) {
                        into.entry(left).or_insert_with(|| {
                            links.push(Link { domain, before: *before });
                            Some(links.len() - 1)
                        });
                    }
                }
            }
        }
        // the most that is left without a pod being left over
        let last = sets.last()?.range((0, i64::MIN)..=(0, 0)).next_back().and_then(|(_, last)| *last)?;
        let mut chosen: Vec<DomainId> =
            std::iter::successors(links.get(last), |link| link.before.and_then(|at| links.get(at)))
                .map(|link| link.domain)
                .collect();
        chosen.reverse();
        Some(chosen)
    }

    /// Sorts domains with more room first, then those whose room is spread more evenly below.
    fn sort_by_entropy(&self, domains: &mut Vec<DomainId>) {
        let mut keyed: Vec<(f64, DomainId)> =
            domains.iter().map(|domain| (self.entropy(*domain), *domain)).collect();
        keyed.sort_by(|(entropy, domain), (other_entropy, other)| {
            let room = |domain: &DomainId| {
                (Reverse(self.sheet[domain.at()].leaders), Reverse(self.sheet[domain.at()].slices_led))
            };
            room(domain).cmp(&room(other)).then(descending(*entropy, *other_entropy)).then(domain.cmp(other))
        });
        *domains = keyed.into_iter().map(|(_, domain)| domain).collect();
    }

    /// Shannon entropy of how the pods of a domain are spread over its children, in bits.
    #[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
    fn entropy(&self, domain: DomainId) -> f64 {
        let pods: Vec<i64> = self
            .topology
            .tree()
            .children(domain)
            .iter()
            .map(|child| self.sheet[child.at()].pods)
            .filter(|pods| *pods > 0)
            .collect();
        let total = pods.iter().sum::<i64>() as f64;
        let part = |pods: &i64| *pods as f64 / total;
        pods.iter().map(|pods| -part(pods) * part(pods).log2()).sum()
    }
}
