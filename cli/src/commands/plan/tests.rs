//! The command itself: files, flags and a scripted manager in, a plan or an error out.

mod elastic;
pub(super) mod fixtures;
mod nodes;

use crate::client::fake::{Fake, FakeAnswer};
use crate::commands::tests::run;
use fixtures::{manager, manager_asked_for};
use serde_json::{Value, json};

const QUEUE: &str = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: cq}\n\
    spec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], \
    flavors: [{name: f, resources: [{name: cpu, nominalQuota: 10}]}]}]}\n";
const NODE: &str = "---\napiVersion: v1\nkind: Node\nmetadata: {name: n}\n";

#[tokio::test]
async fn a_job_without_its_queue_is_explained() {
    let job = "apiVersion: batch/v1\nkind: Job\n\
        metadata: {name: a, namespace: default, labels: {kueue.x-k8s.io/queue-name: q}}\n\
        spec: {template: {spec: {restartPolicy: Never, \
        containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}\n";
    let ran = run(&Fake::new([]), &["plan", "-f", "-"], job).await;
    assert!(
        ran.answers.contains("no workload is queued: add the files of jobs, or see the notes"),
        "{}",
        ran.answers
    );
    assert!(ran.answers.contains("local queue `default/q` doesn't exist"), "{}", ran.answers);
}

#[tokio::test]
async fn a_plan_needs_no_manager() {
    let fake = Fake::new([]);
    let ran = run(&fake, &["plan", "-f", "-"], &format!("{QUEUE}{NODE}")).await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert!(
        ran.answers.starts_with(
            "1 cycle: nothing changes any more\n0 workloads: 0 admitted\nno workload is queued: add"
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
    assert!(fake.requests().is_empty());
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
    let cohorts = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: a}\n\
                   spec: {parentName: b}\n---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\n\
                   metadata: {name: b}\nspec: {parentName: a}\n";
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
    let elsewhere = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\n\
                     metadata: {name: q, namespace: a}\nspec: {clusterQueue: cq}\n";
    let ran = run(&fake, &["plan", "-f", "-", "-n", "b"], elsewhere).await;
    assert!(ran.error().contains("`localqueue/a/q` is in namespace `a`, not `b`"), "{}", ran.error());
}

#[tokio::test]
async fn what_if_fetches_all_kinds_that_decisions_depend_on() {
    let empty = || FakeAnswer::Json(200, json!({"metadata": {"resourceVersion": "1"}, "items": []}));
    let resources = json!([{"name": "cpu", "nominalQuota": 10}]);
    let group = json!({"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]});
    let queue =
        json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": [group]}});
    let workers = json!({"metadata": {"name": "cq", "labels": {"meridian.dev/cluster": "eu"}}, "spec": {}});
    let fake = Fake::new([
        ("GET /api/v1/namespaces?", empty()),
        ("GET /apis/scheduling.k8s.io/v1/priorityclasses?", empty()),
        (
            "GET /apis/node.k8s.io/v1/runtimeclasses?",
            FakeAnswer::Json(404, json!({"reason": "NotFound", "message": "no such kind"})),
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
            FakeAnswer::Json(200, json!({"metadata": {}, "items": [queue, workers]})),
        ),
        ("GET /apis/kueue.x-k8s.io/v1beta2/localqueues?", empty()),
        ("GET /apis/batch/v1/jobs?", empty()),
        ("GET /apis/jobset.x-k8s.io/v1alpha2/jobsets?", empty()),
        ("GET /apis/kubeflow.org/v1/pytorchjobs?", empty()),
        ("GET /apis/kubeflow.org/v2beta1/mpijobs?", empty()),
        ("GET /apis/ray.io/v1/rayjobs?", empty()),
        ("GET /apis/ray.io/v1/rayclusters?", empty()),
        ("GET /apis/leaderworkerset.x-k8s.io/v1/leaderworkersets?", empty()),
        ("GET /apis/trainer.kubeflow.org/v1alpha1/trainjobs?", empty()),
        ("GET /api/v1/pods?", empty()),
        ("GET /apis/meridian.dev/v1alpha1/podgroups?", empty()),
        ("GET /apis/kueue.x-k8s.io/v1beta2/workloads?", empty()),
    ]);
    let files = format!("{QUEUE}---\n{}", QUEUE.replace("name: cq", "name: other"));
    let ran = run(&fake, &["plan", "--what-if", "-f", "-"], &files).await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert_eq!(fake.requests().len(), 25);
    let lines: Vec<&str> = ran.answers.lines().collect();
    assert_eq!(lines[..2], ["clusterqueue/cq is unchanged", "clusterqueue/other would be added"]);
    assert!(lines.contains(&"no workload is affected"), "{}", ran.answers);
    assert!(
        lines.contains(&"  the manager doesn't serve runtimeclasses: none are considered"),
        "{}",
        ran.answers
    );
}

#[tokio::test]
async fn objects_that_plans_cannot_evaluate_are_noted() {
    let policy = include_str!("../../../../manifests/examples/dispatch-race.yaml");
    let ran =
        run(&manager_asked_for(&[], &["DispatchPolicy"]), &["plan", "--what-if", "-f", "-"], policy).await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert!(ran.answers.contains("\nno workload is affected by the changes"), "{}", ran.answers);
    assert!(ran.answers.contains("`dispatchpolicy/default` isn't evaluated"), "{}", ran.answers);
    let json = run(
        &manager_asked_for(&[], &["DispatchPolicy"]),
        &["plan", "--what-if", "-f", "-", "-o", "json"],
        policy,
    )
    .await;
    assert!(json.answers.contains("\"notEvaluated\": true"), "{}", json.answers);
}

#[tokio::test]
async fn an_existing_object_that_plans_cannot_evaluate_is_not_added() {
    let cluster = "{apiVersion: meridian.dev/v1alpha1, kind: Cluster, metadata: {name: eu}, spec: {region: \
                   europe-west4, jurisdiction: EU}}";
    let existing = json!({
        "apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "eu"},
        "spec": {"region": "europe-west4", "jurisdiction": "EU"}, "status": {"state": "Connected"},
    });
    let manager = manager_asked_for(&[existing], &["Cluster"]);
    let ran = run(&manager, &["plan", "--what-if", "-f", "-"], cluster).await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert!(ran.answers.contains("cluster/eu is unchanged"), "{}", ran.answers);
    let other = cluster.replace("europe-west4", "us-east4");
    let ran = run(&manager_asked_for(&[], &["Cluster"]), &["plan", "--what-if", "-f", "-"], &other).await;
    assert!(ran.answers.contains("cluster/eu would be added"), "{}", ran.answers);
}

#[tokio::test]
async fn a_change_of_the_clusters_behind_a_check_is_not_evaluated() {
    let check = "{apiVersion: kueue.x-k8s.io/v1beta2, kind: AdmissionCheck, metadata: {name: where}, spec: \
                 {controllerName: kueue.x-k8s.io/multikueue, parameters: {apiGroup: kueue.x-k8s.io, kind: \
                 MultiKueueConfig, name: only-us}}}";
    let ran = run(&manager(&[]), &["plan", "--what-if", "-f", "-"], check).await;
    assert_eq!(ran.code(), 0, "{:?}", ran.result);
    assert!(ran.answers.contains("no workload is affected by the changes"), "{}", ran.answers);
    assert!(ran.answers.contains("`admissioncheck/where` decides which clusters"), "{}", ran.answers);
}

#[tokio::test]
async fn the_documented_session_is_real() {
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
    let without_partial_admission =
        run(&fake, &["plan", "-f", files, "-o", "json", "--feature-gates", "PartialAdmission=false"], "")
            .await;
    let report: Value = serde_json::from_str(&without_partial_admission.answers).unwrap();
    assert!(
        !report["admitted"].as_array().unwrap().iter().any(|h| h["workload"] == "default/sweep"),
        "{report}"
    );
}

#[tokio::test]
async fn a_gang_with_a_lost_node_is_evicted_and_placed_anew() {
    let node = |rack: usize, host: usize| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n-{rack}-{host}, \
             labels: {{t4: 'yes', rack: r{rack}, kubernetes.io/hostname: n-{rack}-{host}}}}}\n\
             status: {{allocatable: {{gpu: '4', pods: '10'}}, \
             conditions: [{{type: Ready, status: 'True'}}]}}\n"
        )
    };
    // The gang's own rack has one of its two nodes left, the other rack has both.
    let nodes = [node(0, 1), node(1, 0), node(1, 1)].concat();
    let rest = include_str!("tests/lost_node.yaml");
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
