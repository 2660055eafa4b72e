//! Groups of pod sets that are placed together, and the role of each member.

use crate::request::PodSetRequest;
use std::collections::BTreeSet;

/// Members of a group, as indexes of the requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Roles {
    pub(super) workers: usize,
    pub(super) leader: Option<usize>,
}

/// Indexes of the requests that are placed together, in the order of their first members.
pub(super) fn groups(requests: &[PodSetRequest]) -> Vec<Vec<usize>> {
    let mut seen = BTreeSet::new();
    let mut groups = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        match &request.group {
            None => groups.push(vec![index]),
            Some(name) if seen.insert(name) => {
                groups.push(
                    (index..requests.len())
                        .filter(|other| requests[*other].group.as_ref() == Some(name))
                        .collect(),
                );
            }
            Some(_) => {}
        }
    }
    groups
}

/// The workers and the leader of a group. Of the first two members, the leader is the one with fewer pods; on
/// a tie, the second.
pub(super) fn roles(requests: &[PodSetRequest], group: &[usize]) -> Option<Roles> {
    match group {
        [] => None,
        [only] => Some(Roles { workers: *only, leader: None }),
        [first, second, ..] if requests[*second].count > requests[*first].count => {
            Some(Roles { workers: *second, leader: Some(*first) })
        }
        [first, second, ..] => Some(Roles { workers: *first, leader: Some(*second) }),
    }
}
