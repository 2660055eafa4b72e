//! The command itself: files, flags and a scripted manager in, a plan or one clear error out.

use crate::client::fake::{Answer, Fake};
use crate::commands::tests::run;
use serde_json::{Value, json};

const QUEUE: &str = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: cq}\nspec: {namespaceSelector: {}, resourceGroups: \
    [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 10}]}]}]}\n";
const NODE: &str = "---\napiVersion: v1\nkind: Node\nmetadata: {name: n}\n";

#[tokio::test]
async fn a_plan_asks_no_manager() {
    let fake = Fake::new([]);
    let ran = run(&fake, &["plan", "-f", "-"], &format!("{QUEUE}{NODE}")).await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert!(
        ran.answers.starts_with(
            "1 cycle: nothing changes any more\n0 workloads: 0 admitted\nthere is no job and no workload"
        ),
        "{}",
        ran.answers
    );
    assert_eq!(
        run(&fake, &["plan", "-f", "-", "-o", "text"], QUEUE).await.answers.lines().next(),
        ran.answers.lines().next()
    );
    let json = run(&fake, &["plan", "-f", "-", "-o", "json", "--heads-per-queue", "3"], QUEUE).await;
    let report: Value = serde_json::from_str(&json.answers).unwrap();
    assert_eq!(
        (&report["apiVersion"], &report["kind"], &report["run"]["headsPerQueue"]),
        (&json!("meridian.dev/plan/v1"), &json!("Plan"), &json!(3))
    );
    let yaml = run(&fake, &["plan", "-f", "-", "-o", "yaml"], QUEUE).await.answers;
    assert!(yaml.contains("apiVersion: meridian.dev/plan/v1"), "{yaml}");
    assert!(fake.asked().is_empty());
}

#[tokio::test]
async fn bad_input_is_one_clear_error() {
    let fake = Fake::new([]);
    let broken =
        run(&fake, &["plan", "-f", "-"], &QUEUE.replace("nominalQuota: 10", "nominalQuota: ten")).await;
    assert_eq!(broken.code(), 1);
    assert!(
        broken.error().starts_with("<stdin>:4:")
            && broken.error().contains("nominalQuota: `ten` is not a quantity"),
        "{}",
        broken.error()
    );
    assert!(broken.error().ends_with("1 problem found; nothing was decided"), "{}", broken.error());
    assert_eq!(
        run(&fake, &["plan", "-f", "-"], "---\n").await.error(),
        "there is no object in the given files"
    );
    let gate = run(
        &fake,
        &["plan", "-f", "-", "--feature-gates", "PartialAdmission=true,PartialAdmision=true"],
        QUEUE,
    )
    .await;
    assert_eq!((gate.code(), gate.answers.as_str()), (2, ""));
    assert!(gate.error().ends_with("did you mean `PartialAdmission`?"), "{}", gate.error());
    let cohorts = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: a}\nspec: {parentName: b}\n---\n\
        apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: b}\nspec: {parentName: a}\n";
    let circular = run(&fake, &["plan", "-f", "-"], cohorts).await;
    assert_eq!(circular.code(), 1);
    assert!(
        circular.error().contains("cohort `a` would be its own ancestor through `b`"),
        "{}",
        circular.error()
    );
    assert!(
        circular.error().contains("cohort `b` would be its own ancestor through `a`"),
        "{}",
        circular.error()
    );
    let elsewhere = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: q, namespace: a}\nspec: {clusterQueue: cq}\n";
    let ran = run(&fake, &["plan", "-f", "-", "-n", "b"], elsewhere).await;
    assert!(ran.error().contains("`localqueue/a/q` is of namespace `a`, not `b`"), "{}", ran.error());
}

#[tokio::test]
async fn what_if_asks_the_manager_for_everything_that_decisions_look_at() {
    let empty = || Answer::Json(200, json!({"metadata": {"resourceVersion": "1"}, "items": []}));
    let queue = json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": [
        {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 10}]}]}]}});
    let workers = json!({"metadata": {"name": "cq", "labels": {"meridian.dev/cluster": "eu"}}, "spec": {}});
    let fake = Fake::new([
        ("GET /api/v1/namespaces?", empty()),
        ("GET /apis/scheduling.k8s.io/v1/priorityclasses?", empty()),
        (
            "GET /apis/node.k8s.io/v1/runtimeclasses?",
            Answer::Json(404, json!({"reason": "NotFound", "message": "no such kind"})),
        ),
        ("GET /api/v1/limitranges?", empty()),
        ("GET /apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses?", empty()),
        ("GET /apis/kueue.x-k8s.io/v1beta2/topologies?", empty()),
        ("GET /apis/kueue.x-k8s.io/v1beta2/resourceflavors?", empty()),
        ("GET /apis/kueue.x-k8s.io/v1beta2/multikueueclusters?", empty()),
        ("GET /apis/kueue.x-k8s.io/v1beta2/multikueueconfigs?", empty()),
        ("GET /apis/kueue.x-k8s.io/v1beta2/provisioningrequestconfigs?", empty()),
        ("GET /apis/kueue.x-k8s.io/v1beta2/admissionchecks?", empty()),
        ("GET /apis/kueue.x-k8s.io/v1beta2/cohorts?", empty()),
        (
            "GET /apis/kueue.x-k8s.io/v1beta2/clusterqueues?",
            Answer::Json(200, json!({"metadata": {}, "items": [queue, workers]})),
        ),
        ("GET /apis/kueue.x-k8s.io/v1beta2/localqueues?", empty()),
        ("GET /apis/batch/v1/jobs?", empty()),
        ("GET /apis/kueue.x-k8s.io/v1beta2/workloads?", empty()),
    ]);
    let files = format!("{QUEUE}---\n{}", QUEUE.replace("name: cq", "name: other"));
    let ran = run(&fake, &["plan", "--what-if", "-f", "-"], &files).await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert_eq!(fake.asked().len(), 16);
    let lines: Vec<&str> = ran.answers.lines().collect();
    assert_eq!(lines[..2], ["clusterqueue/cq is there as it is", "clusterqueue/other would be added"]);
    assert!(lines.contains(&"no workload gains or loses by it"), "{}", ran.answers);
    assert!(lines.contains(&"  the manager knows no runtimeclasses: none are looked at"), "{}", ran.answers);
}

#[tokio::test]
async fn what_queues_do_not_look_at_is_said_not_to_be_judged() {
    let policy = include_str!("../../../../manifests/examples/dispatch-race.yaml");
    let nothing =
        || Fake::new([(); 16].map(|()| ("GET ", Answer::Json(200, json!({"metadata": {}, "items": []})))));
    let ran = run(&nothing(), &["plan", "--what-if", "-f", "-"], policy).await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert!(
        ran.answers.contains("\nas far as it is judged, no workload gains or loses by it"),
        "{}",
        ran.answers
    );
    assert!(
        ran.answers.contains("what `dispatchpolicy/default` changes isn't judged here"),
        "{}",
        ran.answers
    );
    let json = run(&nothing(), &["plan", "--what-if", "-f", "-", "-o", "json"], policy).await;
    assert!(json.answers.contains("\"notJudged\": true"), "{}", json.answers);
}

#[tokio::test]
async fn the_examples_decide_as_documented() {
    let fake = Fake::new([]);
    let files = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/examples/plan");
    let ran = run(&fake, &["plan", "-f", files, "--now", "2026-06-01T10:00:00Z"], "").await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    let documented = include_str!("../../../../docs/plan.md")
        .split("```")
        .find(|block| block.contains("--now 2026-06-01T10:00:00Z\n6 cycles"))
        .unwrap();
    let documented = documented.split_once("10:00:00Z\n").unwrap().1;
    assert_eq!(ran.answers, documented);
    let shrunk =
        run(&fake, &["plan", "-f", files, "-o", "json", "--feature-gates", "PartialAdmission=false"], "")
            .await;
    let report: Value = serde_json::from_str(&shrunk.answers).unwrap();
    assert!(
        !report["admitted"].as_array().unwrap().iter().any(|h| h["workload"] == "default/sweep"),
        "{report}"
    );
}

#[tokio::test]
async fn who_is_evicted_for_a_lost_node_is_looked_at_anew() {
    let node = |rack: usize, host: usize| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n-{rack}-{host}, labels: {{t4: 'yes', rack: r{rack}, kubernetes.io/hostname: n-{rack}-{host}}}}}\n\
             status: {{allocatable: {{gpu: '4', pods: '10'}}, conditions: [{{type: Ready, status: 'True'}}]}}\n"
        )
    };
    // The gang's own rack has one of its two nodes left, the other rack has both.
    let nodes = [node(0, 1), node(1, 0), node(1, 1)].concat();
    let rest = "apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: dc}
spec: {levels: [{nodeLabel: rack}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: t4}
spec: {nodeLabels: {t4: 'yes'}, topologyName: dc}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [gpu], flavors: [{name: t4, resources: [{name: gpu, nominalQuota: 96}]}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: run, namespace: default, uid: u, creationTimestamp: '2026-06-01T01:00:00Z'}
spec:
  queueName: lq
  podSets: [{name: main, count: 2, topologyRequest: {required: rack}, template: {spec: {restartPolicy: Never, containers: [{name: m, image: x, resources: {requests: {gpu: 4}}}]}}}]
status:
  unhealthyNodes: [{name: n-0-0}]
  admission: {clusterQueue: cq, podSetAssignments: [{name: main, count: 2, flavors: {gpu: t4}, resourceUsage: {gpu: 8}, topologyAssignment: {levels: [kubernetes.io/hostname], slices: [{domainCount: 2, podCounts: {universal: 1}, valuesPerLevel: [{individual: {roots: [n-0-0, n-0-1]}}]}]}}]}
  conditions:
  - {type: QuotaReserved, status: 'True', reason: QuotaReserved, message: m, lastTransitionTime: '2026-06-01T01:00:00Z'}
  - {type: Admitted, status: 'True', reason: Admitted, message: m, lastTransitionTime: '2026-06-01T01:00:00Z'}
";
    let ran = run(
        &Fake::new([]),
        &["plan", "-f", "-", "--now", "2026-06-01T10:00:00Z", "-o", "json"],
        &format!("{rest}{nodes}"),
    )
    .await;
    let report: Value =
        serde_json::from_str(&ran.answers).unwrap_or_else(|e| panic!("{e}: {:?}", ran.result));
    assert_eq!(report["evicted"][0]["workload"], "default/run", "{report:#}");
    assert_eq!(
        (&report["admitted"][0]["workload"], &report["admitted"][0]["cycle"]),
        (&json!("default/run"), &json!(2)),
        "{report:#}"
    );
}

/// A manager with these objects, each in its kind's list.
fn manager(objects: &[Value]) -> Fake {
    let kinds = [
        "Namespace",
        "PriorityClass",
        "RuntimeClass",
        "LimitRange",
        "WorkloadPriorityClass",
        "Topology",
        "ResourceFlavor",
        "MultiKueueCluster",
        "MultiKueueConfig",
        "ProvisioningRequestConfig",
        "AdmissionCheck",
        "Cohort",
        "ClusterQueue",
        "LocalQueue",
        "Job",
        "Workload",
    ];
    let items =
        |kind: &str| objects.iter().filter(|object| object["kind"] == kind).cloned().collect::<Vec<_>>();
    Fake::new(kinds.map(|kind| ("GET ", Answer::Json(200, json!({"metadata": {}, "items": items(kind)})))))
}

fn queue(name: &str, cpus: u32, more: &Value) -> Value {
    let mut spec = json!({"namespaceSelector": {}, "resourceGroups": [
        {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": cpus}]}]}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})
}

fn leads(local: &str, queue: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": local, "namespace": "ml"}, "spec": {"clusterQueue": queue}})
}

/// An elastic job of one CPU a pod.
fn elastic(name: &str, local: &str, pods: u32) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "ml", "uid": format!("j-{name}"),
        "labels": {"kueue.x-k8s.io/queue-name": local}, "annotations": {"kueue.x-k8s.io/elastic-job": "true"}},
        "spec": {"parallelism": pods, "completions": 100, "template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}}})
}

/// What the manager shows of a job's workload that has so many pods of a queue's quota, or none.
fn stands_for(job: &Value, number: u32, has: Option<(u32, &str)>) -> Value {
    let (name, uid) = (job["metadata"]["name"].as_str().unwrap(), job["metadata"]["uid"].as_str().unwrap());
    let mut workload = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": format!("job-{name}"), "namespace": "ml", "uid": format!("w-{name}"), "creationTimestamp": "2026-06-01T09:00:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true}]},
        "spec": {"queueName": job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "priority": 0, "active": true,
            "podSets": [{"name": "main", "count": job["spec"]["parallelism"]}]},
        "status": {"meridian": {"submitted": number.to_string()}}});
    if let Some((pods, queue)) = has {
        workload["status"]["admission"] = json!({"clusterQueue": queue, "podSetAssignments": [
            {"name": "main", "count": pods, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": pods.to_string()}}]});
        workload["status"]["conditions"] = json!(
            ["QuotaReserved", "Admitted"].map(|kind| json!({"type": kind, "status": "True", "reason": kind, "lastTransitionTime": "2026-06-01T09:00:01Z"}))
        );
    }
    workload
}

async fn what_if(there: &[Value], given: &[Value]) -> Value {
    let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {}});
    let there: Vec<Value> = there.iter().cloned().chain([flavor]).collect();
    let files = given.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n");
    let ran = run(
        &manager(&there),
        &["plan", "--what-if", "-f", "-", "-o", "json", "--now", "2026-06-01T10:00:00Z"],
        &files,
    )
    .await;
    serde_json::from_str(&ran.answers).unwrap_or_else(|e| panic!("{e}: {:?}", ran.result))
}

/// Who is in a list of a comparison, with a word about each.
fn listed(report: &Value, list: &str, word: &str) -> Vec<(String, Value)> {
    let all = report[list].as_array().unwrap_or_else(|| panic!("{report:#}"));
    let name = |one: &Value| {
        ["/workload", "/waits/workload"]
            .iter()
            .find_map(|path| one.pointer(path)?.as_str())
            .unwrap_or_default()
            .to_owned()
    };
    all.iter().map(|one| (name(one), one.pointer(word).cloned().unwrap_or_default())).collect()
}

#[tokio::test]
async fn an_elastic_job_of_another_size_keeps_what_it_holds() {
    let (train, next) = (elastic("train", "lq", 4), elastic("next", "lq", 4));
    let runs = [stands_for(&train, 1, Some((4, "cq"))), stands_for(&next, 2, None)];
    let there: Vec<Value> =
        [queue("cq", 6, &json!({})), leads("lq", "cq"), train, next].into_iter().chain(runs).collect();
    let of = |list: &[(&str, Value)]| {
        list.iter().map(|(name, word)| ((*name).to_owned(), word.clone())).collect::<Vec<_>>()
    };
    let count = "/to/0/count";
    // So many less, that the next one starts.
    let shrunk = what_if(&there, &[elastic("train", "lq", 2)]).await;
    assert_eq!(listed(&shrunk, "moved", count), of(&[("ml/job-train", json!(2))]), "{shrunk:#}");
    assert_eq!(listed(&shrunk, "admitted", "/clusterQueue"), of(&[("ml/job-next", json!("cq"))]));
    assert_eq!(
        (&shrunk["starved"], &shrunk["changes"][0]["change"], &shrunk["notes"]),
        (&json!([]), &json!("Replaced"), &json!([]))
    );
    // As many more as there is quota for, and more than that: nobody loses anything.
    let grown = what_if(&there, &[elastic("train", "lq", 6)]).await;
    assert_eq!(
        (listed(&grown, "moved", count), &grown["lost"]),
        (of(&[("ml/job-train", json!(6))]), &Value::Null),
        "{grown:#}"
    );
    let too_large = what_if(&there, &[elastic("train", "lq", 7)]).await;
    assert_eq!(
        listed(&too_large, "starved", "/loss"),
        of(&[("ml/job-train-growth", json!("BlockedForGood"))]),
        "{too_large:#}"
    );
    let why = &too_large["starved"][0]["waits"]["reasons"][0];
    assert_eq!(
        (&why["reason"], &why["flavor"], &why["resource"]),
        (&json!("ExceedsMaxQuota"), &json!("f"), &json!("cpu")),
        "{too_large:#}"
    );
    assert!(why["message"].as_str().unwrap().starts_with("asks for 7 cpu in flavor f, the most"), "{why}");
    assert_eq!((&too_large["moved"], &too_large["lost"]), (&json!([]), &Value::Null));
    // Where only others are in the way, it waits for their end.
    let both = [elastic("train", "lq", 2), elastic("next", "lq", 4)];
    let two = both
        .iter()
        .zip([(1, 2), (2, 4)])
        .map(|(job, (number, has))| stands_for(job, number, Some((has, "cq"))));
    let full: Vec<Value> =
        [queue("cq", 6, &json!({})), leads("lq", "cq")].into_iter().chain(two).chain(both.clone()).collect();
    let in_the_way = what_if(&full, &[elastic("train", "lq", 6)]).await;
    assert_eq!(
        listed(&in_the_way, "starved", "/loss"),
        of(&[("ml/job-train-growth", json!("Waits"))]),
        "{in_the_way:#}"
    );
    // Who waits asks for another number where it stands.
    let smaller = what_if(&there, &[elastic("next", "lq", 2)]).await;
    assert_eq!(
        (listed(&smaller, "admitted", "/podSets/0/count"), &smaller["starved"]),
        (of(&[("ml/job-next", json!(2))]), &json!([])),
        "{smaller:#}"
    );
}

#[tokio::test]
async fn a_growth_that_waits_is_known() {
    let train = elastic("train", "lq", 6);
    let mut has = stands_for(&train, 1, Some((2, "cq")));
    has["status"]["meridian"]["growthAsked"] = json!("7");
    let there = [queue("cq", 4, &json!({})), leads("lq", "cq"), train.clone(), has];
    let more = what_if(&there, &[queue("cq", 8, &json!({}))]).await;
    assert_eq!(listed(&more, "moved", "/to/0/count"), [("ml/job-train".to_owned(), json!(6))], "{more:#}");
    assert_eq!(
        (&more["before"]["waiting"], &more["lost"], &more["starved"]),
        (&json!(1), &Value::Null, &json!([]))
    );
    // It is asked for less, for which there is quota, and is no longer asked for.
    for (pods, moved) in [(3, 1), (2, 0)] {
        let less = what_if(&there, &[elastic("train", "lq", pods)]).await;
        assert_eq!(
            (less["moved"].as_array().unwrap().len(), &less["after"]["waiting"], &less["lost"]),
            (moved, &json!(0), &Value::Null),
            "{less:#}"
        );
    }
    // It waits where the gang has its quota, wherever its local queue leads by now.
    let led = what_if(&there, &[leads("lq", "b"), queue("b", 9, &json!({}))]).await;
    assert_eq!(
        (&led["admitted"], &led["moved"], &led["after"]["waiting"]),
        (&json!([]), &json!([]), &json!(1)),
        "{led:#}"
    );
    // Another spec, and it is another job.
    let mut other = train;
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other");
    let anew = what_if(&there, &[other]).await;
    assert_eq!((&anew["after"]["workloads"], &anew["after"]["waiting"]), (&json!(1), &json!(1)), "{anew:#}");
}

#[tokio::test]
async fn who_gives_way_waits_where_its_local_queue_leads_now() {
    let low = elastic("low", "lq", 4);
    let runs = stands_for(&low, 1, Some((4, "a")));
    let displaces = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let there = [
        queue("a", 4, &displaces),
        queue("b", 4, &json!({})),
        leads("lq", "a"),
        leads("other", "a"),
        low,
        runs,
    ];
    let class = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9});
    let mut high = elastic("high", "other", 4);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    let stays = what_if(&there, &[class.clone(), high.clone()]).await;
    assert_eq!(
        listed(&stays, "starved", "/loss"),
        [("ml/job-low".to_owned(), json!("Preempted"))],
        "{stays:#}"
    );
    let moves = what_if(&there, &[class.clone(), high.clone(), leads("lq", "b")]).await;
    assert_eq!(
        listed(&moves, "moved", "/toClusterQueue"),
        [("ml/job-low".to_owned(), json!("b"))],
        "{moves:#}"
    );
    assert_eq!(listed(&moves, "preempted", "/clusterQueue"), [("ml/job-low".to_owned(), json!("a"))]);
    let nowhere = what_if(&there, &[class, high, leads("lq", "gone")]).await;
    assert_eq!(nowhere["lost"], json!(["ml/job-low"]), "{nowhere:#}");
    let words = "workload `ml/job-low` waits nowhere once it has stopped: local queue `ml/lq` leads to cluster queue `gone`, which isn't there";
    assert!(nowhere["notes"].as_array().unwrap().contains(&json!(words)), "{nowhere:#}");
}

#[tokio::test]
async fn who_gives_way_waits_for_all_that_it_wants_at_its_own_age() {
    let class = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9});
    let displaces = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let (train, next) = (elastic("train", "lq", 6), elastic("next", "lq", 5));
    let mut has = stands_for(&train, 1, Some((4, "cq")));
    has["status"]["meridian"]["growthAsked"] = json!("7");
    let waits = stands_for(&next, 2, None);
    let there: Vec<Value> =
        vec![queue("cq", 6, &displaces), leads("lq", "cq"), class, train, next, has, waits];
    let mut high = elastic("high", "lq", 3);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    let stops = what_if(&there, std::slice::from_ref(&high)).await;
    assert_eq!(
        listed(&stops, "starved", "/loss"),
        [("ml/job-train".to_owned(), json!("Preempted"))],
        "{stops:#}"
    );
    assert_eq!(
        listed(&stops, "starved", "/waits/position"),
        [("ml/job-train".to_owned(), json!(1))],
        "it is older than the next one"
    );
    assert_eq!((&stops["lost"], &stops["after"]["waiting"]), (&Value::Null, &json!(2)));
    // A growth for which there is quota without the change.
    let there: Vec<Value> = there
        .into_iter()
        .filter(|object| !object["metadata"]["name"].as_str().unwrap().contains("next"))
        .collect();
    high["spec"]["parallelism"] = json!(2);
    let kept_out = what_if(&there, &[high]).await;
    assert_eq!(
        listed(&kept_out, "starved", "/loss"),
        [("ml/job-train-growth".to_owned(), json!("NotAdmitted"))],
        "{kept_out:#}"
    );
}

#[tokio::test]
async fn only_a_gang_that_runs_grows_and_by_all_of_it() {
    let more = |job: &Value, change: &dyn Fn(&mut Value)| {
        let mut has = stands_for(job, 1, Some((4, "cq")));
        change(&mut has);
        vec![queue("cq", 6, &json!({})), leads("lq", "cq"), job.clone(), has]
    };
    let (train, larger) = (elastic("train", "lq", 4), elastic("train", "lq", 8));
    // Quota for some of it is of no use, whatever the job makes do with.
    let least = more(&train, &|has| has["spec"]["podSets"][0]["minCount"] = json!(2));
    let waits = what_if(&least, std::slice::from_ref(&larger)).await;
    let blocked = vec![("ml/job-train-growth".to_owned(), json!("BlockedForGood"))];
    assert_eq!((listed(&waits, "starved", "/loss"), &waits["moved"]), (blocked, &json!([])), "{waits:#}");
    // Who makes do with fewer pods doesn't grow by itself.
    let fewer = what_if(
        &more(&larger, &|has| has["spec"]["podSets"][0]["minCount"] = json!(2)),
        &[queue("cq", 9, &json!({}))],
    )
    .await;
    assert_eq!((&fewer["moved"], &fewer["before"]["waiting"]), (&json!([]), &json!(0)), "{fewer:#}");
    // What isn't granted yet is asked for anew.
    let reserved = more(&train, &|has| has["status"]["conditions"].as_array_mut().unwrap().truncate(1));
    let anew = what_if(&reserved, &[larger]).await;
    assert_eq!(
        (listed(&anew, "starved", "/loss"), &anew["after"]["admitted"]),
        (vec![("ml/job-train".to_owned(), json!("NotAdmitted"))], &json!(0)),
        "{anew:#}"
    );
    // Who is stopped by people waits for nothing once it has stopped.
    let inactive = more(&train, &|has| {
        has["spec"]["active"] = json!(false);
        has["status"]["conditions"][1] = json!({"type": "Evicted", "status": "True", "reason": "Deactivated", "lastTransitionTime": "2026-06-01T09:00:02Z"});
    });
    let stopped = what_if(&inactive, &[queue("cq", 9, &json!({}))]).await;
    assert_eq!(
        (&stopped["before"]["workloads"], &stopped["after"]["workloads"]),
        (&json!(0), &json!(0)),
        "{stopped:#}"
    );
    // What no manager says is left out and noted.
    for broken in [json!("x"), json!(["x"]), json!([{"name": "main", "count": "x"}])] {
        let odd = more(&train, &|has| {
            has["spec"]["podSets"] = broken.clone();
            has["status"]["admission"]["podSetAssignments"] = broken.clone();
            has["status"]["meridian"]["growthAsked"] = json!(3);
        });
        let told = what_if(&odd, &[elastic("train", "lq", 8)]).await;
        assert!(
            told["notes"].to_string().contains("ml/job-train of the manager can't be read and is left out"),
            "{told:#}"
        );
    }
}

#[tokio::test]
async fn a_gang_that_has_grown_is_as_old_as_it_was_and_asks_for_no_more_than_is_added() {
    let displaces = json!({"preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"}});
    let (train, next) = (elastic("train", "lq", 2), elastic("next", "lq", 6));
    let there = [
        queue("cq", 6, &displaces),
        leads("lq", "cq"),
        train.clone(),
        next.clone(),
        stands_for(&train, 1, Some((2, "cq"))),
        stands_for(&next, 2, None),
    ];
    let grown = what_if(&there, &[elastic("train", "lq", 3)]).await;
    assert_eq!(listed(&grown, "moved", "/to/0/count"), [("ml/job-train".to_owned(), json!(3))], "{grown:#}");
    assert_eq!(
        (&grown["preempted"], &grown["admitted"], &grown["starved"]),
        (&json!([]), &json!([]), &json!([]))
    );
    // A pod has succeeded: its quota is free, and the one that is added takes it.
    let mut has = stands_for(&train, 1, Some((2, "cq")));
    has["status"]["reclaimablePods"] = json!([{"name": "main", "count": 1}]);
    let there = [queue("cq", 2, &json!({})), leads("lq", "cq"), train, has];
    let grown = what_if(&there, &[elastic("train", "lq", 3)]).await;
    assert_eq!(
        (listed(&grown, "moved", "/to/0/count"), &grown["starved"]),
        (vec![("ml/job-train".to_owned(), json!(3))], &json!([])),
        "{grown:#}"
    );
    // Nor is what is free counted again where more was asked for before.
    let [queue, leads, _, mut has] = there;
    has["status"]["meridian"]["growthAsked"] = json!("9");
    has["spec"]["podSets"][0]["count"] = json!(5);
    let there = [queue, leads, elastic("train", "lq", 5), has];
    for (pods, grows) in [(3, 1), (4, 0), (2, 0)] {
        let asked = what_if(&there, &[elastic("train", "lq", pods)]).await;
        assert_eq!(asked["moved"].as_array().unwrap().len(), grows, "{pods}: {asked:#}");
        assert_eq!(asked["after"]["waiting"], json!(u8::from(pods == 4)), "{pods}: {asked:#}");
    }
}

#[tokio::test]
async fn a_growth_goes_through_its_local_queue() {
    let train = elastic("train", "lq", 2);
    let there = [
        queue("cq", 6, &json!({})),
        leads("lq", "cq"),
        train.clone(),
        stands_for(&train, 1, Some((2, "cq"))),
    ];
    let mut held = leads("lq", "cq");
    held["spec"]["stopPolicy"] = json!("Hold");
    let on_hold = queue("other", 6, &json!({"stopPolicy": "Hold"}));
    for closed in [vec![held], vec![leads("lq", "other"), on_hold]] {
        let files: Vec<Value> = closed.into_iter().chain([elastic("train", "lq", 4)]).collect();
        let waits = what_if(&there, &files).await;
        assert_eq!((&waits["moved"], &waits["after"]["waiting"]), (&json!([]), &json!(1)), "{waits:#}");
    }
}
