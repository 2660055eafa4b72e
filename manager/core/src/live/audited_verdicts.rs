//! Residency verdicts that are in the audit log already.

use crate::facts::submission::ClassId;
use meridian_shared::ids::{ClusterName, RecordNumber};
use std::collections::BTreeMap;

/// Residency verdicts in the audit log, with the version of the rules that they follow.
///
/// Keeps the log short: a verdict is written once per class, cluster and version of the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AuditedVerdicts(BTreeMap<ClassId, BTreeMap<ClusterName, RecordNumber>>);

impl AuditedVerdicts {
    /// Notes a verdict. Returns false if the log has it for this version of the rules.
    pub(crate) fn note(&mut self, class: ClassId, cluster: &ClusterName, rules: RecordNumber) -> bool {
        self.0.entry(class).or_default().insert(cluster.clone(), rules) != Some(rules)
    }

    /// Forgets a class that has no workload left.
    pub(crate) fn forget(&mut self, class: ClassId) {
        self.0.remove(&class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_noted_once_for_each_version_of_the_rules() {
        let mut audited = AuditedVerdicts::default();
        let (class, eu) = (ClassId(1), ClusterName::new("eu"));
        assert!(audited.note(class, &eu, RecordNumber(1)));
        assert!(!audited.note(class, &eu, RecordNumber(1)));
        assert!(audited.note(class, &ClusterName::new("us"), RecordNumber(1)));
        assert!(audited.note(class, &eu, RecordNumber(2)));
        audited.forget(class);
        assert_eq!(audited, AuditedVerdicts::default(), "nothing is kept of a class that is gone");
    }
}
