use super::*;
use meridian_objects::job::{ADMISSION_GATES, JobKind, POD_GROUP_LABEL, QUEUE_LABEL};

/// A gated pod of group `g` of three, as an API server stores it.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "team", "uid": format!("uid-{name}"), "resourceVersion": "7",
            "labels": {QUEUE_LABEL: "main", POD_GROUP_LABEL: "g", "app": name},
            "annotations": {POD_GROUP_TOTAL: "3"},
        },
        "spec": {
            "schedulingGates": [{"name": ADMISSION_GATES[0]}], "restartPolicy": "Never", "priority": 0,
            "serviceAccount": "default", "serviceAccountName": "default", "securityContext": {},
            "schedulerName": "default-scheduler", "preemptionPolicy": "PreemptLowerPriority",
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "terminationGracePeriodSeconds": 30,
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists",
                "effect": "NoExecute", "tolerationSeconds": 300}],
            "volumes": [{"name": "kube-api-access-abcde", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            ]}}],
            "containers": [{
                "name": "c", "image": "registry.example.com/train:1", "imagePullPolicy": "Always",
                "env": [{"name": "ME", "value": name}], "resources": {"requests": {"cpu": "1"}},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "volumeMounts": [{"name": "kube-api-access-abcde", "readOnly": true,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
            }],
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    })
}

fn shared(pods: Vec<Value>) -> Vec<Arc<Value>> {
    pods.into_iter().map(Arc::new).collect()
}

fn three() -> Vec<Value> {
    ["a", "b", "c"].map(pod).to_vec()
}

fn whole(pods: Vec<Value>) -> Value {
    match read(&shared(pods)) {
        Some(Group::Whole(object)) => object,
        other => panic!("not whole: {other:?}"),
    }
}

#[test]
fn all_pods_of_a_group_are_one_object_that_the_manager_takes() {
    let object = whole(three());
    assert_eq!((&object["kind"], &object["metadata"]["name"]), (&json!("PodGroup"), &json!("g")));
    let manifest = manifest::for_manager(Kind::PodGroup, &object);
    assert_eq!(manifest["metadata"]["namespace"], "team");
    assert_eq!(manifest["metadata"]["labels"][QUEUE_LABEL], "main");
    assert!(manifest::is_from_cluster(&manifest));
    manifest["metadata"]["uid"].as_str().unwrap().parse::<Uid>().unwrap();
    let pods = manifest["spec"]["pods"].as_array().unwrap();
    let names: Vec<&str> = pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(pods[0]["metadata"]["labels"], json!({"app": "a"}));
    assert!(pods[0]["spec"].get("schedulingGates").is_none(), "the queue decides");
    assert_eq!(pods[0]["spec"]["volumes"], json!([]));
    let (read, _) = meridian_objects::Object::validated(manifest, FieldValidation::Strict).unwrap();
    assert_eq!(JobKind::of(read.kind).unwrap().pods(&read.stored), Some(3));
}

#[test]
fn a_group_waits_for_its_last_pod_and_is_refused_with_the_words_of_files() {
    let mut pods = three();
    pods.pop();
    assert_eq!(read(&shared(pods)), Some(Group::Incomplete { here: 2, total: 3 }));
    assert_eq!(read(&[]), None);
    let refused = |change: &dyn Fn(&mut Vec<Value>), expect: &str| {
        let mut pods = three();
        change(&mut pods);
        let read = read(&shared(pods));
        assert!(matches!(&read, Some(Group::Unfit(why)) if why.contains(expect)), "{read:?}");
    };
    refused(&|pods| pods.push(pod("d")), "group `g` has 4 pods here, and its count is 3");
    refused(
        &|pods| pods[1]["metadata"]["labels"][QUEUE_LABEL] = json!("other"),
        "pod `b`: metadata.labels[kueue.x-k8s.io/queue-name]: differs",
    );
    refused(
        &|pods| pods[2]["metadata"]["annotations"] = json!({}),
        "pod `c`: metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: is missing",
    );
}

#[test]
fn a_replaced_pod_makes_another_group_and_a_changed_one_does_not() {
    let uid = |pods: Vec<Value>| whole(pods)["metadata"]["uid"].clone();
    let first = uid(three());
    let mut reversed = three();
    reversed.reverse();
    assert_eq!(uid(reversed), first);
    let mut labelled = three();
    labelled[0]["metadata"]["labels"]["note"] = json!("x");
    assert_eq!(uid(labelled), first);
    let mut replaced = three();
    replaced[0]["metadata"]["uid"] = json!("uid-new");
    assert_ne!(uid(replaced), first);
}

#[test]
fn a_pod_that_ended_ends_its_group() {
    let kind = Kind::PodGroup.job().unwrap();
    assert!(!kind.has_ended(&whole(three())));
    let mut pods = three();
    pods[1]["status"]["phase"] = json!("Failed");
    let object = whole(pods);
    assert!(kind.has_ended(&object) && !kind.has_succeeded(&object));
    pods = three();
    pods[2]["status"]["phase"] = json!("Succeeded");
    assert!(kind.has_succeeded(&whole(pods)));
}
