//! Descends from the chosen domains to the leaves, with as few domains as possible.

use super::search::Search;
use super::shape::Unit;
use crate::tree::DomainId;

/// Demand that is not placed yet.
struct Rest {
    units: i64,
    leaders: i64,
}

impl Search<'_> {
    /// The leaves for `domains` of level `depth`. The pods of each are written into the table.
    ///
    /// Down to the slice level, all domains of a level are filled together. Below it, each domain is filled
    /// separately.
    pub(super) fn descend(&mut self, depth: usize, domains: Vec<DomainId>) -> Vec<DomainId> {
        let tree = self.topology.tree();
        let mut chosen = self.fill(domains, self.shape.count, self.shape.leaders, self.shape.unit());
        let together = tree.lowest().min(self.shape.slice_depth);
        for _ in depth..together {
            let mut below: Vec<DomainId> =
                chosen.iter().flat_map(|domain| tree.children(*domain).iter()).collect();
            self.sort(&mut below, self.least_free);
            chosen = self.fill(below, self.shape.count, self.shape.leaders, self.shape.unit());
        }
        self.descend_apart(depth.max(together), chosen)
    }

    /// Descends through balanced domains: every level keeps the distribution of its parents.
    pub(super) fn descend_balanced(&mut self, depth: usize, domains: Vec<DomainId>) -> Vec<DomainId> {
        let chosen = self.fill(domains, self.shape.count, self.shape.leaders, self.shape.unit());
        self.descend_apart(depth, chosen)
    }

    fn descend_apart(&mut self, depth: usize, mut chosen: Vec<DomainId>) -> Vec<DomainId> {
        let tree = self.topology.tree();
        for depth in depth..tree.lowest() {
            let size = if depth < self.shape.slice_depth {
                self.shape.slice_size
            } else {
                self.shape.inner_size(depth + 1).unwrap_or(1)
            };
            let unit = if size > 1 { Unit::Slices(size) } else { Unit::Pods };
            let mut next = Vec::new();
            for domain in chosen {
                let mut children: Vec<DomainId> = tree.children(domain).iter().collect();
                self.sort(&mut children, self.least_free);
                if size > 1 {
                    for child in &children {
                        // Only slices of the widest layer were counted.
                        let capacity = &mut self.table[child.at()];
                        capacity.slices = capacity.pods / size;
                        capacity.slices_with_leader = capacity.pods_with_leader / size;
                    }
                }
                let capacity = self.table[domain.at()];
                next.extend(self.fill(children, capacity.pods, capacity.leaders, unit));
            }
            chosen = next;
        }
        chosen
    }

    /// The first of `domains` that together hold `count` pods and the leaders. The last domain is chosen by
    /// best fit. Writes the pods of each into the table. Empty if the domains don't suffice, but the sums
    /// ensure that they do.
    fn fill(&mut self, mut domains: Vec<DomainId>, count: i64, leaders: i64, unit: Unit) -> Vec<DomainId> {
        self.leader_first(&mut domains, count, leaders, unit);
        let units = match unit {
            Unit::Slices(size) => count / size,
            Unit::Pods => count,
        };
        let mut rest = Rest { units, leaders };
        let mut filled = Vec::new();
        for at in 0..domains.len() {
            let (domain, done) = if rest.leaders > 0 {
                self.fill_with_leader(&domains[at..], &mut rest, unit)
            } else {
                self.fill_one(&domains[at..], &mut rest, unit)
            };
            filled.push(domain);
            if done {
                return filled;
            }
        }
        Vec::new()
    }

    /// Fills one of `domains` with workers. True if nothing remains.
    fn fill_one(&mut self, domains: &[DomainId], rest: &mut Rest, unit: Unit) -> (DomainId, bool) {
        let mut domain = domains[0];
        if !self.least_free && self.units(domain, unit) >= rest.units {
            domain = self.best_fit(domains, rest.units, 0, unit).unwrap_or(domain);
        }
        let holds = self.units(domain, unit);
        self.table[domain.at()].leaders = 0;
        self.put(domain, holds.min(rest.units), unit);
        rest.units -= holds.min(rest.units);
        (domain, rest.units == 0)
    }

    /// Fills one of `domains` with the leader and workers. True if nothing remains.
    fn fill_with_leader(&mut self, domains: &[DomainId], rest: &mut Rest, unit: Unit) -> (DomainId, bool) {
        let all = |search: &Self, domain: DomainId| {
            search.units_with_leader(domain, unit) >= rest.units
                && search.table[domain.at()].leaders >= rest.leaders
        };
        let mut domain = domains[0];
        if !self.least_free && all(self, domain) {
            domain = self.best_fit(domains, rest.units, rest.leaders, unit).unwrap_or(domain);
        }
        let done = all(self, domain);
        let units = self.units_with_leader(domain, unit).min(rest.units);
        let capacity = &mut self.table[domain.at()];
        capacity.leaders = capacity.leaders.min(rest.leaders);
        rest.leaders -= capacity.leaders;
        rest.units -= units;
        self.put(domain, units, unit);
        (domain, done)
    }

    /// Writes the units of a domain into the table.
    fn put(&mut self, domain: DomainId, units: i64, unit: Unit) {
        let capacity = &mut self.table[domain.at()];
        match unit {
            Unit::Slices(size) => (capacity.slices, capacity.pods) = (units, units * size),
            Unit::Pods => capacity.pods = units,
        }
    }
}
