//! The first half of the second pass: chooses the level of a pod set, and its domains at that level.

use super::search::Search;
use crate::placement_error::PlacementError;
use crate::tree::DomainId;

impl Search<'_> {
    /// The level to start from, and domains of it that together hold all pods.
    pub(super) fn choose_level(&self) -> Result<(usize, Vec<DomainId>), PlacementError> {
        let tree = self.topology.tree();
        let mut depth = self.shape.depth;
        loop {
            let mut domains: Vec<DomainId> = tree.level(depth).iter().collect();
            self.sort_for_leader(&mut domains, self.least_free);
            if domains.is_empty() {
                return Err(PlacementError::NoDomains { level: tree.levels()[depth].clone() });
            }
            if let Some(domain) = self.single(&domains, depth)? {
                return Ok((depth, vec![domain]));
            }
            if depth == 0 || self.shape.unconstrained {
                return Ok((depth, self.several(domains, depth)?));
            }
            depth -= 1;
        }
    }

    /// The one domain of the sorted `domains` that holds all pods. Fails if one is required and none fits.
    fn single(&self, domains: &[DomainId], depth: usize) -> Result<Option<DomainId>, PlacementError> {
        let slices = self.shape.slices();
        let leads = |domain: DomainId| self.table[domain.at()].leaders >= self.shape.leaders;
        let holds =
            |domain: &DomainId| self.table[domain.at()].slices_with_leader >= slices && leads(*domain);
        if self.least_free {
            let units = |domain: DomainId| {
                if self.shape.leaders > 0 {
                    self.units_with_leader(domain, self.shape.unit())
                } else {
                    self.units(domain, self.shape.unit())
                }
            };
            if let Some(domain) =
                domains.iter().copied().find(|domain| leads(*domain) && units(*domain) >= slices)
            {
                return Ok(Some(domain));
            }
            if self.shape.required {
                let most = domains.last().map_or(0, |domain| self.table[domain.at()].pods);
                return Err(self.insufficient(depth, most));
            }
        }
        let Some(first) = domains.first() else { return Ok(None) };
        if holds(first) {
            return Ok(if self.least_free {
                Some(*first)
            } else {
                self.best_fit(domains, slices, self.shape.leaders, self.shape.unit())
            });
        }
        if !self.shape.required {
            return Ok(None);
        }
        // With preferences, the first domain may be too small although a later one fits.
        let preferred = self.topology.flavor().profile.preferred_affinity;
        match domains.iter().position(holds).filter(|_| preferred) {
            Some(at) => Ok(self.best_fit(&domains[at..], slices, self.shape.leaders, self.shape.unit())),
            None => Err(self.insufficient(depth, self.table[first.at()].slices)),
        }
    }

    /// As many of the sorted `domains` as needed: first one for the leader, then those with most capacity for
    /// workers.
    fn several(&self, mut domains: Vec<DomainId>, depth: usize) -> Result<Vec<DomainId>, PlacementError> {
        let unit = self.shape.unit();
        let mut chosen = Vec::new();
        let (mut slices, mut leaders) = (self.shape.slices(), self.shape.leaders);
        self.leader_first(&mut domains, self.shape.count, self.shape.leaders, unit);
        let mut next = 0;
        while leaders > 0 && next < domains.len() && self.table[domains[next].at()].leaders > 0 {
            let mut domain = domains[next];
            if !self.least_free && self.units_with_leader(domain, unit) >= slices {
                domain = self.best_fit(&domains[next..], slices, leaders, unit).unwrap_or(domain);
            }
            chosen.push(domain);
            leaders -= self.table[domain.at()].leaders;
            slices -= self.units_with_leader(domain, unit);
            next += 1;
        }
        if leaders > 0 {
            return Err(self.insufficient(depth, self.shape.leaders - leaders));
        }
        let rest = &mut domains[next..];
        self.sort(rest, self.least_free);
        for at in 0..rest.len() {
            if slices <= 0 {
                break;
            }
            let mut domain = rest[at];
            if !self.least_free && self.units(domain, unit) >= slices {
                domain = self.best_fit(&rest[at..], slices, 0, unit).unwrap_or(domain);
            }
            chosen.push(domain);
            slices -= self.units(domain, unit);
        }
        if slices > 0 { Err(self.insufficient(depth, self.shape.slices() - slices)) } else { Ok(chosen) }
    }
}
