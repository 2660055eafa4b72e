//! Pods from two watches whose events come in any order.

use super::*;
use crate::facts::NodeFacts;
use crate::labels;
use meridian_objects::job::JobKind;
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::time::Wall;
use serde_json::{Value, json};

const KEY: RunKey = (Uid(7), Fence { epoch: 1, leadership: 2, counter: 3 });

fn marked() -> Value {
    json!({
        "app.kubernetes.io/managed-by": "meridian", "meridian.dev/cluster": "eu",
        "meridian.dev/uid": KEY.0.to_string(), "meridian.dev/fence": "1-2-3",
    })
}

/// The pod `ml/p` on the node `n1`, as an agent of the cluster `eu` reads it.
fn pod(uid: &str, labels: &Value, phase: &str) -> PodFacts {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ml", "uid": uid, "labels": labels},
        "spec": {"nodeName": "n1", "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}},
        ]},
        "status": {"phase": phase},
    });
    let mut pod = serde_json::from_value::<kube::api::DynamicObject>(pod).unwrap();
    labels::disown_other(&mut pod.metadata, "eu");
    PodFacts::read(&pod).unwrap()
}

/// GPUs of the node that pods of others use.
fn foreign(view: &View) -> i64 {
    let use_of_node = view.foreign_use().remove("n1").unwrap_or_default();
    use_of_node.get("nvidia.com/gpu").copied().unwrap_or(0)
}

fn list(view: &mut View, watch: PodWatch, pods: &[PodFacts]) -> BTreeSet<Touched> {
    view.apply_pod(watch, Change::ListBegins);
    for pod in pods {
        view.apply_pod(watch, Change::Listed(pod.clone()));
    }
    view.apply_pod(watch, Change::ListEnds)
}

#[test]
fn a_pod_that_gets_or_loses_the_mark_counts_once_whichever_watch_is_first() {
    let (plain, ours) = (pod("u", &json!({}), "Running"), pod("u", &marked(), "Running"));
    let enters = [
        (PodWatch::Marked, Change::Applied(ours.clone())),
        (PodWatch::Others, Change::Deleted(plain.clone())),
    ];
    let leaves = [
        (PodWatch::Marked, Change::Deleted(ours.clone())),
        (PodWatch::Others, Change::Applied(plain.clone())),
    ];
    for is_reversed in [false, true] {
        let mut view = View::default();
        let both = |view: &mut View, mut events: [(PodWatch, Change<PodFacts>); 2]| {
            if is_reversed {
                events.reverse();
            }
            let mut touched = BTreeSet::new();
            for (watch, change) in events {
                let before = foreign(view);
                let now = view.apply_pod(watch, change);
                let as_ours = i64::try_from(view.pods_of(KEY).len()).unwrap();
                assert!(foreign(view) + as_ours <= 1, "it is one pod");
                assert!(foreign(view) == before || now.contains(&Touched::Inventory), "nobody would look");
                touched.extend(now);
            }
            touched
        };
        list(&mut view, PodWatch::Others, std::slice::from_ref(&plain));
        assert_eq!((foreign(&view), view.pods_of(KEY).len()), (1, 0));
        assert!(both(&mut view, enters.clone()).contains(&Touched::Run(KEY)));
        assert_eq!((foreign(&view), view.pods_of(KEY).len()), (0, 1));
        assert!(both(&mut view, leaves.clone()).contains(&Touched::Run(KEY)));
        assert_eq!((foreign(&view), view.pods_of(KEY).len()), (1, 0));
    }
}

#[test]
fn the_watch_of_others_takes_no_pod_of_a_gang_for_gone() {
    let mut view = View::default();
    for phase in ["Running", "Succeeded", "Failed"] {
        let ours = pod("u", &marked(), phase);
        list(&mut view, PodWatch::Marked, std::slice::from_ref(&ours));
        // The watch of others reports a deletion when the pod got the mark, or when an earlier pod of its
        // name was deleted.
        for gone in [pod("u", &json!({}), "Running"), pod("earlier", &json!({}), "Running"), ours.clone()] {
            view.apply_pod(PodWatch::Others, Change::Deleted(gone));
            assert_eq!(view.pods_of(KEY), std::slice::from_ref(&ours), "{phase}");
        }
        list(&mut view, PodWatch::Others, &[]);
        assert_eq!(view.pods_of(KEY), std::slice::from_ref(&ours), "{phase}: a list of others lacks it");
    }
}

#[test]
fn a_list_replaces_only_the_part_of_its_own_watch() {
    let mut view = View::default();
    let (plain, ours) = (pod("others", &json!({}), "Running"), pod("u", &marked(), "Running"));
    list(&mut view, PodWatch::Others, &[plain]);
    list(&mut view, PodWatch::Marked, &[ours]);
    assert_eq!((foreign(&view), view.pods_of(KEY).len()), (1, 1));
    view.apply_pod(PodWatch::Others, Change::ListBegins);
    list(&mut view, PodWatch::Marked, &[]);
    assert_eq!((foreign(&view), view.pods_of(KEY).len()), (1, 0), "the list of others has only begun");
    let touched = view.apply_pod(PodWatch::Others, Change::ListEnds);
    assert_eq!((foreign(&view), touched), (0, BTreeSet::from([Touched::Inventory])));
}

#[test]
fn a_new_pod_under_the_name_of_a_marked_one_is_another_pod() {
    for others_first in [false, true] {
        let mut view = View::default();
        let (ours, next) = (pod("u", &marked(), "Running"), pod("next", &json!({}), "Running"));
        view.apply_pod(PodWatch::Marked, Change::Applied(ours.clone()));
        let mut events =
            [(PodWatch::Marked, Change::Deleted(ours)), (PodWatch::Others, Change::Applied(next))];
        if others_first {
            events.reverse();
        }
        for (watch, change) in events {
            view.apply_pod(watch, change);
        }
        assert_eq!((foreign(&view), view.pods_of(KEY).len()), (1, 0), "others first: {others_first}");
    }
}

#[test]
fn a_pod_that_another_clusters_agent_marked_is_a_pod_of_others() {
    let mut view = View::default();
    let mut labels = marked();
    labels["meridian.dev/cluster"] = json!("us");
    let theirs = pod("u", &labels, "Running");
    let touched = view.apply_pod(PodWatch::Marked, Change::Applied(theirs.clone()));
    assert_eq!(touched, BTreeSet::from([Touched::Inventory]));
    assert_eq!((foreign(&view), view.pods_of(KEY).len()), (1, 0));
    view.apply_pod(PodWatch::Marked, Change::Deleted(theirs));
    assert_eq!(foreign(&view), 0);
}

#[test]
fn the_view_is_complete_only_after_both_lists_of_pods() {
    let both = [PodWatch::Marked, PodWatch::Others];
    for (first, second) in [(both[0], both[1]), (both[1], both[0])] {
        let mut view = View::default();
        view.apply_node(Change::<NodeFacts>::ListEnds);
        JobKind::all().for_each(|kind| view.set_served(kind.kind(), false));
        list(&mut view, first, &[]);
        assert!(!view.is_complete(), "{first:?} alone");
        view.apply_pod(second, Change::ListBegins);
        assert!(!view.is_complete(), "{second:?} has begun");
        view.apply_pod(second, Change::ListEnds);
        assert!(view.is_complete());
        assert_eq!(view.inventory(Wall(0)).nodes.len(), 0);
    }
}
