//! Which domain goes before which, and which of them fits best.

use crate::place::Search;
use crate::tree::DomainId;
use std::cmp::{Ordering, Reverse};

/// What is counted out: whole slices of a size, or single pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Slices of this many pods.
    Slices(i64),
    /// Pods.
    Pods,
}

impl Search<'_> {
    /// Sorts for workers: preferred nodes first, then the most slices (the fewest where the fullest are filled first), then
    /// the fewest pods, because they leave the least over.
    pub(crate) fn sort(&self, domains: &mut [DomainId], least_free: bool) {
        domains.sort_by_key(|domain| {
            let room = &self.sheet[domain.at()];
            (Reverse(room.affinity), upwards(room.slices, least_free), room.pods, *domain)
        });
    }

    /// Sorts for leader and workers: domains that hold the leader first, then as [`Self::sort`] beside the leader.
    pub(crate) fn sort_led(&self, domains: &mut [DomainId], least_free: bool) {
        domains.sort_by_key(|domain| {
            let room = &self.sheet[domain.at()];
            (
                Reverse(room.leaders),
                Reverse(room.affinity),
                upwards(room.slices_led, least_free),
                room.pods_led,
                *domain,
            )
        });
    }

    /// Units that a domain holds.
    pub(crate) fn units(&self, domain: DomainId, unit: Unit) -> i64 {
        let room = &self.sheet[domain.at()];
        match unit {
            Unit::Slices(_) => room.slices,
            Unit::Pods => room.pods,
        }
    }

    /// Units that a domain holds beside the leader.
    pub(crate) fn units_led(&self, domain: DomainId, unit: Unit) -> i64 {
        let room = &self.sheet[domain.at()];
        match unit {
            Unit::Slices(_) => room.slices_led,
            Unit::Pods => room.pods_led,
        }
    }

    /// The domain that holds `needed` units (and the leaders) and the least beyond; the first of equals. The first one if
    /// none does. Less preferred domains aren't considered.
    pub(crate) fn best_fit(
        &self,
        domains: &[DomainId],
        needed: i64,
        leaders: i64,
        unit: Unit,
    ) -> Option<DomainId> {
        let first = *domains.first()?;
        let preferred = self.sheet[first.at()].affinity;
        let tier = domains.iter().copied().take_while(|domain| self.sheet[domain.at()].affinity == preferred);
        let units = |domain: &DomainId| {
            if leaders > 0 { self.units_led(*domain, unit) } else { self.units(*domain, unit) }
        };
        let holds = |domain: &DomainId| self.sheet[domain.at()].leaders >= leaders && units(domain) >= needed;
        Some(tier.filter(holds).min_by_key(units).unwrap_or(first))
    }

    /// Moves the first domain to the front that can take the leader without costing workers their room.
    ///
    /// What is known of a wider domain assumes the cheapest place for the leader; so it must be chosen here as well.
    pub(crate) fn leader_first(&self, domains: &mut [DomainId], count: i64, leaders: i64, unit: Unit) {
        if leaders == 0 || domains.len() < 2 {
            return;
        }
        let needed = match unit {
            Unit::Slices(size) => count / size,
            Unit::Pods => count,
        };
        let available: i64 = domains.iter().map(|domain| self.units(*domain, unit)).sum();
        let affords = |domain: &DomainId| {
            let cost = self.units(*domain, unit) - self.units_led(*domain, unit);
            self.sheet[domain.at()].leaders >= leaders && available - cost >= needed
        };
        if let Some(at) = domains.iter().position(affords) {
            domains[..=at].rotate_right(1);
        }
    }
}

/// A key that sorts upwards or downwards.
fn upwards(value: i64, upwards: bool) -> i64 {
    if upwards { value } else { -value }
}

/// Compares what floats say; they are never NaN here.
pub(crate) fn descending(a: f64, b: f64) -> Ordering {
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}
