//! A pod as the cluster made it.

use super::*;

pub(super) fn pod(number: u32) -> PodFacts {
    PodFacts {
        namespace: "ml".into(),
        name: format!("train-{number}"),
        uid: format!("pod-{number}"),
        run: Some(KEY),
        holds: None,
        node: None,
        requests: BTreeMap::new(),
        phase: PodPhase::Pending,
        gates: vec![GATE.to_owned()],
        deleting: false,
        written_off: false,
        index: None,
        pod_set: None,
        position: None,
        failed_container: None,
        held_up: None,
        created: Some(Wall(i64::from(number))),
    }
}
