//! Whole commands on exported objects.

use super::setup::Setup;
use super::source::Source;
use super::steps;
use crate::args::Cli;
use crate::client::fake::Fake;
use crate::commands::tests::{CommandRun, run};
use clap::Parser as _;
use serde_json::{Value, json};

/// As `kubectl get … -o yaml` prints them, with what servers and controllers add.
const EXPORTED: &str = "\
apiVersion: v1
kind: List
items:
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: ResourceFlavor
  metadata:
    name: t4
    uid: 0b5a1f4e-0000-4000-8000-000000000001
    resourceVersion: '7'
    finalizers: [kueue.x-k8s.io/resource-in-use]
  spec: {nodeLabels: {cloud.google.com/gke-accelerator: nvidia-tesla-t4}}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: ClusterQueue
  metadata: {name: dws}
  spec:
    namespaceSelector: {}
    admissionChecks: [regions]
    resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: t4, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]
  status: {admittedWorkloads: 1}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: ClusterQueue
  metadata: {name: audited}
  spec:
    namespaceSelector: {}
    admissionChecks: [budget]
    resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: t4, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: LocalQueue
  metadata: {name: gpus, namespace: default}
  spec: {clusterQueue: dws}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: AdmissionCheck
  metadata: {name: regions}
  spec:
    controllerName: kueue.x-k8s.io/multikueue
    parameters: {apiGroup: kueue.x-k8s.io, kind: MultiKueueConfig, name: regions}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: AdmissionCheck
  metadata: {name: budget}
  spec: {controllerName: example.com/budget}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: MultiKueueConfig
  metadata: {name: regions}
  spec: {clusters: [eu]}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: MultiKueueCluster
  metadata: {name: eu}
  spec: {kubeConfig: {locationType: Secret, location: eu-secret}}
- apiVersion: batch/v1
  kind: Job
  metadata:
    name: waits
    namespace: default
    uid: 0b5a1f4e-0000-4000-8000-000000000002
    labels: {kueue.x-k8s.io/queue-name: gpus}
  spec:
    suspend: true
    managedBy: kueue.x-k8s.io/multikueue
    selector: {matchLabels: {batch.kubernetes.io/controller-uid: 0b5a1f4e-0000-4000-8000-000000000002}}
    template:
      metadata:
        labels:
          batch.kubernetes.io/controller-uid: 0b5a1f4e-0000-4000-8000-000000000002
          batch.kubernetes.io/job-name: waits
      spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
- apiVersion: batch/v1
  kind: Job
  metadata: {name: runs-here, namespace: default, labels: {kueue.x-k8s.io/queue-name: gpus}}
  spec:
    template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
- apiVersion: batch/v1
  kind: Job
  metadata: {name: runs-there, namespace: default, labels: {kueue.x-k8s.io/queue-name: gpus}}
  spec:
    suspend: true
    managedBy: kueue.x-k8s.io/multikueue
    template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}
  status: {active: 1}
- apiVersion: batch/v1
  kind: Job
  metadata: {name: over, namespace: default, labels: {kueue.x-k8s.io/queue-name: gpus}}
  spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
  status: {conditions: [{type: Complete, status: 'True'}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: driver, namespace: default, labels: {kueue.x-k8s.io/queue-name: gpus}}
  spec: {schedulingGates: [{name: kueue.x-k8s.io/admission}], containers: [{name: c, image: i}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: runs-alone, namespace: default, labels: {kueue.x-k8s.io/queue-name: gpus}}
  spec: {nodeName: node-1, containers: [{name: c, image: i}]}
  status: {phase: Running}
- apiVersion: v1
  kind: Pod
  metadata:
    name: of-a-deployment
    namespace: default
    labels: {kueue.x-k8s.io/queue-name: gpus}
    ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: u, controller: true}]
  spec: {containers: [{name: c, image: i}]}
- apiVersion: v1
  kind: Pod
  metadata:
    name: half
    namespace: default
    labels: {kueue.x-k8s.io/queue-name: gpus, kueue.x-k8s.io/pod-group-name: pair}
    annotations: {kueue.x-k8s.io/pod-group-total-count: '2'}
  spec: {schedulingGates: [{name: kueue.x-k8s.io/admission}], containers: [{name: c, image: i}]}
- apiVersion: ray.io/v1
  kind: RayService
  metadata: {name: serves, namespace: default, labels: {kueue.x-k8s.io/queue-name: gpus}}
- apiVersion: batch/v1
  kind: CronJob
  metadata: {name: nightly, namespace: default}
  spec:
    schedule: '0 3 * * *'
    jobTemplate:
      metadata: {labels: {kueue.x-k8s.io/queue-name: gpus}}
      spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
- apiVersion: batch/v1
  kind: CronJob
  metadata: {name: unqueued, namespace: default}
  spec: {schedule: '0 3 * * *', jobTemplate: {spec: {template: {}}}}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: Workload
  metadata:
    name: job-waits-1f4e
    namespace: default
    ownerReferences:
    - apiVersion: batch/v1
      kind: Job
      name: waits
      uid: 0b5a1f4e-0000-4000-8000-000000000002
      controller: true
  status: {conditions: [{type: QuotaReserved, status: 'False'}]}
- apiVersion: scheduling.k8s.io/v1
  kind: PriorityClass
  metadata: {name: system-cluster-critical}
  value: 2000000000
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: other, namespace: default}
";

async fn migrate(line: &[&str], stdin: &str) -> CommandRun {
    let words: Vec<&str> = std::iter::once("migrate").chain(line.iter().copied()).collect();
    run(&Fake::default(), &words, stdin).await
}

/// The answer for one object.
async fn verdict(report: &Value, kind: &str, name: &str) -> (String, String) {
    let rows = report["objects"].as_array().unwrap();
    let row = rows.iter().find(|row| row["kind"] == kind && row["name"] == name).unwrap();
    (row["carriesOver"].as_str().unwrap().to_owned(), row["reasons"].to_string())
}

#[tokio::test]
async fn each_object_carries_over_changes_or_stays_with_a_reason() {
    let checked = migrate(&["check", "-f", "-", "-o", "json"], EXPORTED).await;
    assert_eq!(checked.code(), 1, "a check of another controller doesn't carry over");
    let report: Value = serde_json::from_str(&checked.answers).unwrap();
    for (kind, name, carries, why) in [
        ("ResourceFlavor", "t4", "yes", "[]"),
        ("ClusterQueue", "dws", "yes", "[]"),
        ("ClusterQueue", "audited", "no", "the check `budget` is for controller `example.com/budget`"),
        ("LocalQueue", "gpus", "yes", "[]"),
        ("AdmissionCheck", "regions", "yes", "[]"),
        // The reader's own words.
        ("AdmissionCheck", "budget", "no", "no controller of this name is running"),
        ("MultiKueueConfig", "regions", "yes", "[]"),
        ("MultiKueueCluster", "eu", "withChanges", "meridian cluster join eu"),
        ("Job", "waits", "yes", "[]"),
        ("Job", "runs-here", "no", "this cluster runs it itself"),
        ("Job", "runs-there", "withChanges", "would start it again"),
        ("Pod", "driver", "yes", "[]"),
        ("Pod", "runs-alone", "no", "without a scheduling gate this cluster's own scheduler runs the pod"),
        ("Pod", "half", "withChanges", "group `pair` has 1 of its 2 pods here"),
        ("CronJob", "nightly", "withChanges", "write `suspend: true` or `managedBy"),
        ("RayService", "serves", "no", "is not a kind of job that Meridian runs"),
    ] {
        let (found, reasons) = verdict(&report, kind, name).await;
        assert!(found == carries && reasons.contains(why), "{kind} {name}: {found} {reasons}");
    }
    let count = report["objects"].as_array().unwrap().len();
    assert_eq!(count, 16, "a job that has ended, a ConfigMap and what Kubernetes made need no verdict");
}

/// The second pod has no gate: Kueue's cluster runs it itself, and the first one must not move alone.
#[tokio::test]
async fn a_group_with_a_pod_that_stays_is_not_moved() {
    let pod = |name: &str, gates: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: default\n  labels: \
             {{kueue.x-k8s.io/queue-name: gpus, kueue.x-k8s.io/pod-group-name: duo}}\n  annotations: \
             {{kueue.x-k8s.io/pod-group-total-count: '2'}}\nspec: {{schedulingGates: [{gates}], \
             containers: [{{name: c, image: i}}]}}\n"
        )
    };
    let gate = "{name: kueue.x-k8s.io/admission}";
    for (second, moved) in [(gate, true), ("", false)] {
        let text = format!("{EXPORTED}{}{}", pod("one", gate), pod("two", second));
        let line = ["plan", "-f", "-", "--queue", "dws", "--manifests", "jobs"];
        let printed = migrate(&line, &text).await;
        assert_eq!(printed.answers.contains("name: one"), moved, "{}", printed.answers);
        let checked = migrate(&["check", "-f", "-", "-o", "json"], &text).await;
        let report: Value = serde_json::from_str(&checked.answers).unwrap();
        let (found, reasons) = verdict(&report, "Pod", "one").await;
        assert_eq!((found == "yes", reasons.contains("1 of its 2 pods")), (moved, !moved), "{reasons}");
    }
}

#[tokio::test]
async fn a_setup_without_losses_is_a_table_of_80_columns_and_a_success() {
    let sound: Vec<&str> = EXPORTED.split("\n- ").collect();
    let unsound = ["budget", "runs-here", "RayService", "kind: Pod", "CronJob"];
    let is_sound = |part: &&&str| !unsound.iter().any(|no| part.contains(no));
    let sound = sound.iter().filter(is_sound).copied().collect::<Vec<_>>().join("\n- ");
    let checked = migrate(&["check", "-f", "-"], &sound).await;
    assert_eq!(checked.code(), 0, "{}", checked.answers);
    assert!(checked.answers.lines().all(|line| line.chars().count() <= 80), "{}", checked.answers);
    let words = "OBJECT CARRIES OVER WHY clusterqueue/dws yes - job/default/waits yes";
    for word in words.split(' ') {
        assert!(checked.answers.contains(word), "{word} is not in {}", checked.answers);
    }
    let end = "8 objects carry over: 6 as they are, 2 with changes, 0 not\nThese are stored objects.";
    assert!(checked.answers.contains(end), "{}", checked.answers);
}

#[tokio::test]
async fn dangling_references_are_named() {
    let queue = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {name: q, namespace: a}\n\
                 spec: {clusterQueue: gone}\n";
    let checked = migrate(&["check", "-f", "-"], queue).await;
    assert_eq!(checked.code(), 0);
    let text = checked.answers.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("cluster queue `gone` isn't among the checked objects"), "{text}");
    let nothing =
        migrate(&["check", "-f", "-"], "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n").await;
    assert!(nothing.code() == 1 && nothing.error().contains("no object of Kueue"), "{}", nothing.error());
    let broken = migrate(&["check", "-f", "-"], "a: [").await;
    assert!(broken.error().starts_with("`<stdin>` can't be read"), "{}", broken.error());
}

#[tokio::test]
async fn the_parts_of_a_queue_are_manifests_that_the_manager_takes() {
    let part = async |part: &str| {
        let line = ["plan", "-f", "-", "--queue", "dws", "--manifests", part];
        let printed = migrate(&line, EXPORTED).await;
        assert_eq!(printed.code(), 0);
        let parsed = meridian_objects::parse("printed", &printed.answers);
        assert!(parsed.errors.is_empty(), "{:?}\n{}", parsed.errors, printed.answers);
        parsed.objects.iter().map(|located| located.value.title()).collect::<Vec<_>>()
    };
    let waiting = ["job/default/waits", "pod/default/driver"];
    assert_eq!(part("jobs").await, waiting, "not those that run or are over");
    let queue = part("queue").await;
    assert!(queue.contains(&"localqueue/default/gpus".to_owned()), "{queue:?}");
    assert!(!queue.contains(&"clusterqueue/audited".to_owned()), "{queue:?}");
    let unknown = migrate(&["plan", "-f", "-", "--queue", "other"], EXPORTED).await;
    assert_eq!(unknown.error(), "there is no ClusterQueue `other`; there are audited, dws");
}

const SUBJECT: &str = "0b5a1f4e-0000-4000-8000-00000000000a";
const OTHER: &str = "0b5a1f4e-0000-4000-8000-00000000000b";

/// Objects of one job, with a Workload that has these conditions.
fn with_workload(uid: &str, conditions: &str) -> String {
    format!(
        "{EXPORTED}---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: subject, namespace: default, uid: \
         {SUBJECT}, labels: {{kueue.x-k8s.io/queue-name: gpus}}}}\nspec: {{suspend: true, managedBy: \
         kueue.x-k8s.io/multikueue, template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: \
         i}}]}}}}}}\n---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload\nmetadata:\n  name: w\n  \
         namespace: default\n  ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: subject, uid: \
         {uid}}}]\nstatus: {{conditions: [{conditions}]}}\n"
    )
}

/// The status of a job in the management cluster may stay empty for as long as the job runs elsewhere.
#[tokio::test]
async fn kueues_workload_decides_whether_a_job_waits() {
    let is = |kind: &str| format!("{{type: {kind}, status: 'True'}}");
    let (reserved, admitted, finished) = (is("QuotaReserved"), is("Admitted"), is("Finished"));
    for (uid, conditions, moved, verdict_of) in [
        (SUBJECT, String::new(), true, Some("yes")),
        (SUBJECT, reserved.clone(), false, Some("withChanges")),
        (SUBJECT, format!("{reserved}, {admitted}"), false, Some("withChanges")),
        (SUBJECT, format!("{reserved}, {admitted}, {finished}"), false, None),
        // Of an earlier job of this name.
        (OTHER, format!("{reserved}, {admitted}, {finished}"), true, Some("yes")),
    ] {
        let text = with_workload(uid, &conditions);
        let line = ["plan", "-f", "-", "--queue", "dws", "--manifests", "jobs"];
        let printed = migrate(&line, &text).await;
        assert_eq!(printed.answers.contains("name: subject"), moved, "{conditions}: {}", printed.answers);
        let checked = migrate(&["check", "-f", "-", "-o", "json"], &text).await;
        let report: Value = serde_json::from_str(&checked.answers).unwrap();
        let rows = report["objects"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == "subject");
        assert_eq!(row.map(|row| row["carriesOver"].as_str().unwrap()), verdict_of, "{conditions}");
    }
    let without = EXPORTED.replace("kind: Workload", "kind: Other");
    let refused = migrate(&["plan", "-f", "-", "--queue", "dws", "--manifests", "jobs"], &without).await;
    assert!(refused.error().contains("have no Workloads"), "{}", refused.error());
}

/// The commands of a plan for exported files, in their order.
async fn commands() -> Vec<String> {
    let planned = migrate(&["plan", "-f", "-", "-o", "json"], EXPORTED).await;
    let plan: Value = serde_json::from_str(&planned.answers).unwrap();
    let sections = plan["sections"].as_array().unwrap().iter();
    let steps = sections.flat_map(|section| section["steps"].as_array().unwrap());
    let commands = steps.flat_map(|step| step["commands"].as_array().unwrap());
    commands.map(|command| command.as_str().unwrap().to_owned()).collect()
}

/// Jobs that waited at the first export may have ended before a step is taken.
#[tokio::test]
async fn a_step_reads_an_export_that_it_made_itself() {
    let commands = commands().await;
    let mut files = std::collections::BTreeSet::new();
    for (at, command) in commands.iter().enumerate() {
        let Some((_, rest)) = command.split_once("meridian migrate plan -f ") else { continue };
        let file = rest.split(' ').next().unwrap();
        assert!(files.insert(file.to_owned()), "{file} is used twice");
        let export = &commands[at - 1];
        assert!(export.starts_with("kubectl get ") && export.ends_with(&format!("> {file}")), "{export}");
        assert!(export.contains("workloads.kueue.x-k8s.io,jobs.batch,pods"), "{export}");
    }
    assert_eq!(files.len(), 6, "before, held and back of two queues: {files:?}");
}

/// A webhook of a program that is gone refuses every change.
#[tokio::test]
async fn what_kueue_leaves_behind_is_removed_in_an_order_that_works() {
    let commands = commands().await;
    let place = |part: &str| {
        commands.iter().position(|command| command.contains(part)).unwrap_or_else(|| panic!("no {part}"))
    };
    let order = [
        "apply -f manifests/admission",
        "scale deployment kueue-controller-manager",
        "delete validatingwebhookconfiguration kueue-validating-webhook-configuration",
        "delete mutatingwebhookconfiguration kueue-mutating-webhook-configuration",
        "\"conversion\":{\"strategy\":\"None\"",
        "\"finalizers\":null",
        "--data-dir manager --kubernetes",
        "kueue/releases/download",
    ];
    let places = order.map(place);
    assert!(places.is_sorted(), "{places:?}");
    let released = commands.iter().rposition(|command| command.contains("\"stopPolicy\":\"None\""));
    assert!(released > Some(place("kueue/releases/download")), "the way back releases last");
}

#[tokio::test]
async fn every_command_of_a_plan_exists() {
    let items = serde_saphyr::from_str::<Value>(EXPORTED).unwrap()["items"].as_array().unwrap().clone();
    let setup = Setup::of(items);
    let source = Source::Cluster(" --context 'a b'".to_owned());
    let plan = steps::plan(&setup, &["audited", "dws"], &source);
    let mut ours = 0;
    for command in plan.sections.iter().flat_map(|section| &section.steps).flat_map(|step| &step.commands) {
        for command in command.split(" | ").filter(|command| command.starts_with("meridian ")) {
            let line = command.split(" > ").next().unwrap().replace("'a b'", "a-b");
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
            ours += 1;
        }
    }
    assert!(ours > 12, "{ours}");
    let text = plan.text(80);
    assert!(text.contains("Move the jobs that wait (2 now)") && text.contains("At the end"), "{text}");
    let prose = text.lines().filter(|line| !line.starts_with("       "));
    assert!(prose.clone().count() > 20 && prose.clone().all(|line| line.chars().count() <= 80), "{text}");
    let one = steps::plan(&setup, &["dws"], &source);
    assert!(!json!(one).to_string().contains("At the end"), "the other queue stays with Kueue");
}
