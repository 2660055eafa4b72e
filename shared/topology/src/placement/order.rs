//! Order of domains, and best fit.

use super::search::Search;
use super::shape::Unit;
use crate::tree::DomainId;
use std::cmp::{Ordering, Reverse};

impl Search<'_> {
    /// Sorts for workers: preferred nodes first, then most slices (or fewest, to fill the fullest domain
    /// first), then fewest pods, because they leave the least unused.
    pub(super) fn sort(&self, domains: &mut [DomainId], least_free: bool) {
        domains.sort_by_key(|domain| {
            let capacity = &self.table[domain.at()];
            (Reverse(capacity.affinity), upwards(capacity.slices, least_free), capacity.pods, *domain)
        });
    }

    /// Sorts for leader and workers: domains that fit the leader first, then like [`Self::sort`], with the
    /// capacity left beside the leader.
    pub(super) fn sort_for_leader(&self, domains: &mut [DomainId], least_free: bool) {
        domains.sort_by_key(|domain| {
            let capacity = &self.table[domain.at()];
            (
                Reverse(capacity.leaders),
                Reverse(capacity.affinity),
                upwards(capacity.slices_with_leader, least_free),
                capacity.pods_with_leader,
                *domain,
            )
        });
    }

    /// Units that fit in a domain.
    pub(super) fn units(&self, domain: DomainId, unit: Unit) -> i64 {
        let capacity = &self.table[domain.at()];
        match unit {
            Unit::Slices(_) => capacity.slices,
            Unit::Pods => capacity.pods,
        }
    }

    /// Units that fit in a domain together with the leader.
    pub(super) fn units_with_leader(&self, domain: DomainId, unit: Unit) -> i64 {
        let capacity = &self.table[domain.at()];
        match unit {
            Unit::Slices(_) => capacity.slices_with_leader,
            Unit::Pods => capacity.pods_with_leader,
        }
    }

    /// The domain that fits `needed` units (and the leaders) with the least unused capacity; on a tie, the
    /// first. If no domain fits, the first of all. Domains with a lower preference aren't considered.
    pub(super) fn best_fit(
        &self,
        domains: &[DomainId],
        needed: i64,
        leaders: i64,
        unit: Unit,
    ) -> Option<DomainId> {
        let first = *domains.first()?;
        let preferred = self.table[first.at()].affinity;
        let tier = domains.iter().copied().take_while(|domain| self.table[domain.at()].affinity == preferred);
        let units = |domain: &DomainId| {
            if leaders > 0 { self.units_with_leader(*domain, unit) } else { self.units(*domain, unit) }
        };
        let holds = |domain: &DomainId| self.table[domain.at()].leaders >= leaders && units(domain) >= needed;
        Some(tier.filter(holds).min_by_key(units).unwrap_or(first))
    }

    /// Moves to the front the first domain that fits the leader without reducing the workers below `count`.
    ///
    /// The sums of a wider domain assume the cheapest domain for the leader, so it must be chosen here as
    /// well.
    pub(super) fn leader_first(&self, domains: &mut [DomainId], count: i64, leaders: i64, unit: Unit) {
        if leaders == 0 || domains.len() < 2 {
            return;
        }
        let needed = match unit {
            Unit::Slices(size) => count / size,
            Unit::Pods => count,
        };
        let available: i64 = domains.iter().map(|domain| self.units(*domain, unit)).sum();
        let affords = |domain: &DomainId| {
            let cost = self.units(*domain, unit) - self.units_with_leader(*domain, unit);
            self.table[domain.at()].leaders >= leaders && available - cost >= needed
        };
        if let Some(at) = domains.iter().position(affords) {
            domains[..=at].rotate_right(1);
        }
    }
}

/// Sort key, ascending or descending.
fn upwards(value: i64, upwards: bool) -> i64 {
    if upwards { value } else { -value }
}

/// Compares two floats, largest first. They are never NaN here.
pub(super) fn descending(a: f64, b: f64) -> Ordering {
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}
