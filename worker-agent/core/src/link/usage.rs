//! Reclaimable pods, pod failures and completed indexes of runs that the manager may not know.

use meridian_shared::ids::Uid;
use meridian_shared::protocol::POD_REPORTS_MAX;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// For each run: the first transmission with the report, or 0 if there was none yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct UsageReports(BTreeMap<Uid, u64>);

impl UsageReports {
    /// The usage of a run changed.
    pub(crate) fn push(&mut self, uid: Uid) {
        self.0.insert(uid, 0);
    }

    pub(crate) fn remove(&mut self, uid: Uid) {
        self.0.remove(&uid);
    }

    /// Whether a report has not been sent yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.0.values().any(|carried| *carried == 0)
    }

    /// The runs that this transmission reports: those sent before and not acknowledged, and as many new ones
    /// as fit.
    pub(crate) fn carry(&mut self, transmission: u64) -> impl Iterator<Item = Uid> + '_ {
        let left = POD_REPORTS_MAX.saturating_sub(self.0.values().filter(|carried| **carried > 0).count());
        for carried in self.0.values_mut().filter(|carried| **carried == 0).take(left) {
            *carried = transmission;
        }
        self.0.iter().filter(|(_, carried)| **carried > 0).map(|(uid, _)| *uid)
    }

    /// An answer to `transmission` arrived. A report is in every transmission since its first one, so an
    /// answer to any of these confirms it.
    pub(crate) fn acknowledge(&mut self, transmission: u64) {
        self.0.retain(|_, carried| *carried == 0 || *carried > transmission);
    }

    pub(crate) fn hash_fingerprint(&self, number: &dyn Fn(u64) -> u64, into: &mut impl Hasher) {
        for (uid, carried) in &self.0 {
            (uid, *carried == 0, number(*carried)).hash(into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(count: u128) -> UsageReports {
        let mut reports = UsageReports::default();
        (1..=count).for_each(|uid| reports.push(Uid(uid)));
        reports
    }

    fn carry(reports: &mut UsageReports, transmission: u64) -> Vec<Uid> {
        reports.carry(transmission).collect()
    }

    #[test]
    fn a_report_is_repeated_until_a_transmission_with_it_was_answered() {
        let mut reports = reports(1);
        assert!(reports.has_unsent());
        assert_eq!([3, 4].map(|number| carry(&mut reports, number)), [[Uid(1)], [Uid(1)]]);
        assert!(!reports.has_unsent());
        reports.acknowledge(2);
        assert_eq!(carry(&mut reports, 5), [Uid(1)]);
        reports.acknowledge(3);
        assert_eq!(carry(&mut reports, 6), []);
    }

    #[test]
    fn a_later_change_is_reported_by_a_later_transmission() {
        let mut reports = reports(1);
        carry(&mut reports, 1);
        reports.push(Uid(1));
        assert!(reports.has_unsent());
        reports.acknowledge(1);
        assert_eq!(carry(&mut reports, 2), [Uid(1)]);
        reports.remove(Uid(1));
        assert_eq!(carry(&mut reports, 3), []);
    }

    #[test]
    fn a_transmission_has_a_bounded_number_of_reports() {
        let most = u128::try_from(POD_REPORTS_MAX).unwrap();
        let mut reports = reports(2);
        carry(&mut reports, 1);
        (3..=most + 3).for_each(|uid| reports.push(Uid(uid)));
        assert_eq!([2, 3].map(|number| carry(&mut reports, number).len()), [POD_REPORTS_MAX; 2]);
        assert!(reports.has_unsent());
        reports.acknowledge(1);
        assert_eq!(carry(&mut reports, 4).len(), POD_REPORTS_MAX, "two go, and two of three others fit");
        reports.acknowledge(3);
        assert_eq!(carry(&mut reports, 5).len(), 3);
    }
}
