//! Names of objects as `kubectl` prints them.

use super::printable;
use meridian_objects::Kind;

/// `job.batch/train`, `clusterqueue.kueue.x-k8s.io/q`, `namespace/research`.
pub(crate) fn reference(kind: Kind, name: &str) -> String {
    let name = printable::line(name);
    if kind.group().is_empty() {
        format!("{}/{name}", kind.singular())
    } else {
        format!("{}.{}/{name}", kind.singular(), kind.group())
    }
}

/// `1 problem`, `7 problems`.
pub(crate) fn count(number: usize, singular: &str) -> String {
    if number == 1 { format!("1 {singular}") } else { format!("{number} {singular}s") }
}
