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
