//! The second pass, second half: from the chosen domains down to the leaves, in as few domains as will do.

use crate::order::Unit;
use crate::place::Search;
use crate::tree::DomainId;

/// What is still to be put somewhere.
struct Rest {
    units: i64,
    leaders: i64,
}

impl Search<'_> {
    /// The leaves for `domains` of level `depth`, with what each takes written into the sheet.
    ///
    /// Down to the level of slices all domains of a level are filled as one; below it, each takes what its parent took.
    pub(crate) fn descend(&mut self, depth: usize, domains: Vec<DomainId>) -> Vec<DomainId> {
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

    /// The same for balanced domains, where every level keeps to what the parents took.
    pub(crate) fn descend_balanced(&mut self, depth: usize, domains: Vec<DomainId>) -> Vec<DomainId> {
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
                        // what was counted holds for the widest slices only
                        let room = &mut self.sheet[child.at()];
                        room.slices = room.pods / size;
                        room.slices_led = room.pods_led / size;
                    }
                }
                let room = self.sheet[domain.at()];
                next.extend(self.fill(children, room.pods, room.leaders, unit));
            }
            chosen = next;
        }
        chosen
    }

    /// The first of `domains` that together take `count` pods and the leaders; what each takes is written into the sheet.
    /// The last one is the one that fits best. Nothing if they don't suffice, which what was summed up rules out.
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
                self.fill_led(&domains[at..], &mut rest, unit)
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

    /// Fills one of `domains` with workers; whether that was all.
    fn fill_one(&mut self, domains: &[DomainId], rest: &mut Rest, unit: Unit) -> (DomainId, bool) {
        let mut domain = domains[0];
        if !self.least_free && self.units(domain, unit) >= rest.units {
            domain = self.best_fit(domains, rest.units, 0, unit).unwrap_or(domain);
        }
        let holds = self.units(domain, unit);
        self.sheet[domain.at()].leaders = 0;
        self.put(domain, holds.min(rest.units), unit);
        rest.units -= holds.min(rest.units);
        (domain, rest.units == 0)
    }

    /// Fills one of `domains` with the leader and workers; whether that was all.
    fn fill_led(&mut self, domains: &[DomainId], rest: &mut Rest, unit: Unit) -> (DomainId, bool) {
        let all = |search: &Self, domain: DomainId| {
            search.units_led(domain, unit) >= rest.units && search.sheet[domain.at()].leaders >= rest.leaders
        };
        let mut domain = domains[0];
        if !self.least_free && all(self, domain) {
            domain = self.best_fit(domains, rest.units, rest.leaders, unit).unwrap_or(domain);
        }
        let done = all(self, domain);
        let units = self.units_led(domain, unit).min(rest.units);
        let room = &mut self.sheet[domain.at()];
        room.leaders = room.leaders.min(rest.leaders);
        rest.leaders -= room.leaders;
        rest.units -= units;
        self.put(domain, units, unit);
        (domain, done)
    }

    /// Writes that a domain takes so many units.
    fn put(&mut self, domain: DomainId, units: i64, unit: Unit) {
        let room = &mut self.sheet[domain.at()];
        match unit {
            Unit::Slices(size) => (room.slices, room.pods) = (units, units * size),
            Unit::Pods => room.pods = units,
        }
    }
}
