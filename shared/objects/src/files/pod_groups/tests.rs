//! Pods of a group in files: the object that they become, and what is refused, with its place.

use crate::files::{Parsed, parse, parse_set};
use crate::job::{GroupPod, QUEUE_LABEL};
use crate::kind::Kind;
use crate::object::{Object, job_to_workload};
use serde_json::{Value, json};

const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";

/// One pod of group `g` of three, with so many cpus, and a variable that no other pod has.
fn pod(name: &str, cpus: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ml",
            "labels": {QUEUE_LABEL: "team", GROUP: "g", "app": name, "org": "x"},
            "annotations": {TOTAL: "3", "meridian.dev/region": "europe-west4", "note": name},
        },
        "spec": {"restartPolicy": "Never", "containers": [{
            "name": "c", "image": "registry.example.com/train:1", "env": [{"name": "ME", "value": name}],
            "resources": {"requests": {"cpu": cpus, "memory": "1Gi"}},
        }]},
    })
}

fn group() -> Vec<Value> {
    vec![pod("driver", 1), pod("worker-a", 4), pod("worker-b", 4)]
}

/// One file with a pod on every line.
fn text(pods: &[Value]) -> String {
    format!("[{}]", pods.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n"))
}

fn read(pods: &[Value]) -> Parsed {
    parse("f", &text(pods))
}

fn only(parsed: &Parsed) -> &Object {
    assert_eq!(parsed.errors, []);
    let [object] = &parsed.objects[..] else { panic!("{:?}", parsed.objects) };
    &object.value
}

/// The changed group is refused with an error that begins with this place and has these words.
fn check_refused(change: impl Fn(&mut Vec<Value>), place: &str, expect: &str) {
    let mut pods = group();
    change(&mut pods);
    let parsed = read(&pods);
    let errors: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
    let is_it = |error: &String| error.starts_with(place) && error.contains(expect);
    assert!(errors.iter().any(is_it), "wanted `{place}` … `{expect}` in {errors:#?}");
}

#[test]
fn the_pods_of_a_group_are_one_object_with_a_pod_set_for_each_shape() {
    let parsed = read(&group());
    assert_eq!(parsed.warnings, []);
    let object = only(&parsed);
    assert_eq!(
        (object.kind, object.name.as_str(), object.namespace.as_deref()),
        (Kind::PodGroup, "g", Some("ml"))
    );
    let metadata = &object.stored["metadata"];
    assert_eq!(metadata["labels"], json!({QUEUE_LABEL: "team", "org": "x"}));
    assert_eq!(metadata["annotations"], json!({"meridian.dev/region": "europe-west4"}));
    let driver = &object.stored["spec"]["pods"][0];
    assert_eq!(
        driver["metadata"],
        json!({"name": "driver", "labels": {"app": "driver", "org": "x"},
        "annotations": {"note": "driver"}})
    );
    assert_eq!(driver["spec"]["containers"][0]["env"][0]["value"], "driver");
    let job = job_to_workload(object).unwrap();
    let sets: Vec<(&str, u32, i64)> =
        job.gang.pod_sets.iter().map(|set| (set.name.as_str(), set.count, set.per_pod["cpu"])).collect();
    assert_eq!(sets, [("role-1", 1, 1_000), ("role-2", 2, 4_000)]);
    assert_eq!((job.queue.as_str(), job.regions.len(), job.parallelism), ("team", 1, 3));
    let kind = Kind::PodGroup.job().unwrap();
    let of = |at: &str, pod_set: &str| GroupPod { at: at.into(), pod_set: pod_set.into() };
    assert_eq!(
        kind.group_pods(&object.stored),
        [of("/spec/pods/0", "role-1"), of("/spec/pods/1", "role-2"), of("/spec/pods/2", "role-2")]
    );
}

#[test]
fn pods_of_one_shape_in_several_files_are_one_pod_set() {
    let files: Vec<(String, String)> =
        (0..3).map(|number| (format!("f{number}"), pod(&format!("p{number}"), 2).to_string())).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let parsed = parse_set(&files);
    let job = job_to_workload(only(&parsed)).unwrap();
    assert_eq!((job.gang.pod_sets[0].name.as_str(), job.gang.pod_sets[0].count), ("main", 3));
    assert_eq!(job.gang.pod_sets.len(), 1);
}

/// As in Kueue's own example of a group.
#[test]
fn pods_with_a_generated_name_get_one_that_stays() {
    let mut pods = group();
    for pod in &mut pods {
        pod["metadata"]["name"] = Value::Null;
        pod["metadata"]["generateName"] = json!("sample-");
    }
    let (first, again) = (read(&pods), read(&pods));
    assert_eq!(only(&first), only(&again), "an applied file doesn't change what it applied");
    let names = |parsed: &Parsed| -> Vec<String> {
        let pods = only(parsed).stored["spec"]["pods"].as_array().unwrap().clone();
        pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let of_g = names(&first);
    assert!(of_g[2].starts_with("sample-") && of_g[2].ends_with("-2"), "{of_g:?}");
    for pod in &mut pods {
        pod["metadata"]["labels"][GROUP] = json!("h");
    }
    assert_ne!(names(&read(&pods)), of_g, "groups don't share the names of pods");
}

#[test]
fn a_group_that_is_not_whole_is_refused_where_it_says_so() {
    let total = |pods: &mut Vec<Value>, index: usize, count: Value| {
        pods[index]["metadata"]["annotations"][TOTAL] = count;
    };
    check_refused(|pods| drop(pods.pop()), "f:1:", "2 of 3 pods of group `g` are here; submit all pods");
    check_refused(|pods| pods.push(pod("more", 4)), "f:4:", "has 4 pods here, and its count is 3");
    let count = "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: ";
    check_refused(|pods| total(pods, 1, json!("4")), "f:2:", &format!("{count}is `4`, and `3` at f:1:"));
    check_refused(|pods| total(pods, 2, json!("many")), "f:3:", "`many` is not a number of pods");
    check_refused(|pods| total(pods, 2, json!("0")), "f:3:", "`0` is not a number of pods");
    let missing = |pods: &mut Vec<Value>| {
        pods[1]["metadata"]["annotations"].as_object_mut().unwrap().remove(TOTAL);
    };
    check_refused(missing, "f:2:", &format!("{count}is missing, so the size of the group isn't known"));
}

#[test]
fn pods_that_disagree_about_their_group_are_refused_where_they_do() {
    check_refused(
        |pods| pods[2]["metadata"]["labels"][QUEUE_LABEL] = json!("other"),
        "f:3:",
        "metadata.labels[kueue.x-k8s.io/queue-name]: differs from that of the pod at f:1:",
    );
    check_refused(
        |pods| pods[1]["metadata"]["annotations"]["meridian.dev/region"] = json!("us-east4"),
        "f:2:",
        "metadata.annotations[meridian.dev/region]: differs from that of the pod",
    );
    check_refused(
        |pods| pods[1]["metadata"]["name"] = json!("driver"),
        "f:2:",
        "pod `driver` of the group is also at f:1:",
    );
    check_refused(
        |pods| pods[2]["spec"]["containers"][0]["image"] = json!(7),
        "f:3:",
        "spec.containers[0].image: must be a string",
    );
    check_refused(
        |pods| pods[1]["spec"]["nodeName"] = json!("n"),
        "f:2:",
        "spec.nodeName: would bind the pod",
    );
    check_refused(
        |pods| pods.iter_mut().for_each(|pod| pod["metadata"]["labels"][GROUP] = json!("G g")),
        "f:1:",
        "metadata.name",
    );
}

#[test]
fn what_no_group_gets_is_a_warning_at_its_pod() {
    let mut pods = group();
    pods[1]["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = json!("true");
    pods[2]["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] = json!("false");
    let parsed = read(&pods);
    only(&parsed);
    let warnings: Vec<String> = parsed.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let fast = "metadata.annotations[kueue.x-k8s.io/pod-group-fast-admission]: has no effect";
    assert!(warnings[0].starts_with("f:2:") && warnings[0].contains(fast), "{warnings:?}");
    assert!(warnings[1].starts_with("f:3:"), "{warnings:?}");
}

/// Objects that are posted have their pods in place, and are checked as strictly.
#[test]
fn every_pod_of_a_posted_group_is_checked() {
    let parsed = read(&group());
    let object = only(&parsed).stored.clone();
    assert!(Object::from_value(object.clone()).is_ok());
    let refused = |at: &str, value: Value, expect: &str| {
        let mut object = object.clone();
        *object.pointer_mut(at).unwrap() = value;
        let errors: Vec<String> =
            Object::from_value(object).unwrap_err().iter().map(ToString::to_string).collect();
        assert!(errors.iter().any(|error| error.contains(expect)), "wanted `{expect}` in {errors:#?}");
    };
    refused("/spec/pods/2/spec/containers/0/image", json!(7), "spec.pods[2].spec.containers[0].image");
    refused(
        "/spec/pods/2/metadata/name",
        json!("driver"),
        "spec.pods[2].metadata.name: `driver` appears twice",
    );
    refused("/spec/pods/1/metadata/name", json!(""), "spec.pods[1].metadata.name: is missing");
    refused("/spec/pods", json!([]), "describes no pods");
    refused("/spec/pods/1", json!("x"), "spec.pods[1]: must be a mapping");
    refused("/spec/pods/1", json!(null), "spec.pods[1]");
}

#[test]
fn a_suspended_group_has_the_gate_of_admission_on_every_pod() {
    let parsed = read(&group());
    let submitted = only(&parsed).stored.clone();
    let kind = Kind::PodGroup.job().unwrap();
    let mut object = submitted.clone();
    kind.set_suspended(&mut object, true);
    assert!(kind.is_suspended(&object) && kind.is_pod_group() && kind.is_of_pods());
    for pod in object["spec"]["pods"].as_array().unwrap() {
        assert_eq!(pod["spec"]["schedulingGates"], json!([{"name": "kueue.x-k8s.io/admission"}]));
    }
    assert_eq!(kind.for_cluster(object.clone()), submitted);
    kind.set_suspended(&mut object, false);
    assert_eq!(object, submitted);
    assert_eq!((kind.cluster_kind(), Kind::Job.job().unwrap().cluster_kind()), (Kind::Pod, Kind::Job));
}
