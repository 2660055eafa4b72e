//! The steps of a move, queue by queue, and back. Every command exists; a test parses those of this program.
//! Pure.

use super::setup::Setup;
use super::source::Source;
use crate::output::wrap::hang;
use serde::Serialize;
use std::fmt::Write as _;

const LEGEND: &str = "`kubectl` is for the management cluster, and `meridian` for the manager. Kueue keeps \
                      every queue that has not moved.";

#[derive(Clone, Debug, Serialize)]
pub(super) struct MigrationStep {
    text: String,
    pub(super) commands: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Section {
    title: String,
    pub(super) steps: Vec<MigrationStep>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Steps {
    pub(super) sections: Vec<Section>,
}

impl Steps {
    /// Numbered steps, wrapped at `columns`; commands aren't wrapped.
    pub(super) fn text(&self, columns: usize) -> String {
        let mut text = format!("{}\n", hang("", LEGEND, columns));
        let mut number = 0;
        for section in &self.sections {
            let _ = writeln!(text, "\n{}", section.title);
            for step in &section.steps {
                number += 1;
                let _ = writeln!(text, "{}", hang(&format!("{number:>3}. "), &step.text, columns));
                step.commands.iter().for_each(|command| {
                    let _ = writeln!(text, "       {command}");
                });
            }
        }
        text
    }
}

fn step(text: &str, commands: impl IntoIterator<Item = String>) -> MigrationStep {
    MigrationStep { text: text.to_owned(), commands: commands.into_iter().collect() }
}

/// The steps for these cluster queues.
pub(super) fn plan(setup: &Setup, queues: &[&str], source: &Source) -> Steps {
    let mut sections = vec![preparation(setup)];
    sections.extend(queues.iter().map(|queue| moving(setup, queue, source)));
    sections.extend(queues.iter().map(|queue| moving_back(setup, queue, source)));
    if setup.cluster_queues().len() == queues.len() {
        sections.push(the_end(queues));
        sections.push(back_from_the_end(queues));
    }
    Steps { sections }
}

fn preparation(setup: &Setup) -> Section {
    let joins = setup
        .clusters()
        .into_iter()
        .map(|name| format!("meridian cluster join {name} --region REGION --jurisdiction JURISDICTION"));
    let steps = vec![
        step(
            "Start a manager beside Kueue, without `--kubernetes`: it takes nothing from Kueue's cluster.",
            ["meridian manager --data-dir manager --init".to_owned()],
        ),
        step(
            "Join an agent in each worker cluster, with the printed command. Capacity that pods of \
             Kueue's jobs use there counts as used.",
            joins,
        ),
        step("Wait until every cluster is connected.", ["meridian get clusters".to_owned()]),
    ];
    Section { title: "Once".to_owned(), steps }
}

fn stop_policy(queue: &str, policy: &str) -> String {
    format!(
        "kubectl patch clusterqueue {queue} --type merge -p '{{\"spec\":{{\"stopPolicy\":\"{policy}\"}}}}'"
    )
}

/// Commands that copy the queue as it is now. `moment` names the export, if one is needed.
fn copy(queue: &str, source: &Source, moment: &str) -> Vec<String> {
    source.part(queue, "queue", &format!("{queue}-{moment}.yaml"), " | meridian apply -f -")
}

fn moving(setup: &Setup, queue: &str, source: &Source) -> Section {
    let waiting = setup.waiting_jobs(queue).len();
    let file = format!("{queue}-jobs.yaml");
    let mut steps = vec![
        step(
            "Copy the queue, and what queues share. Nothing starts: its jobs are still Kueue's.",
            copy(queue, source, "before"),
        ),
        step("Hold it at Kueue. Running jobs go on; no other starts there.", [stop_policy(queue, "Hold")]),
        step(
            "Wait until this prints `0 0`: no job has quota, and none runs.",
            [format!(
                "kubectl get clusterqueue {queue} -o jsonpath='{{.status.reservingWorkloads}} \
                 {{.status.admittedWorkloads}}'"
            )],
        ),
    ];
    let text = format!(
        "Move the jobs that wait ({waiting} now): write them down as they are after the wait, submit them to \
         the manager, and delete them here, so that they can't run twice."
    );
    let written = source.part(queue, "jobs", &format!("{queue}-held.yaml"), &format!(" > {file}"));
    let moved = [format!("meridian apply -f {file}"), format!("kubectl delete -f {file}")];
    steps.push(step(&text, written.into_iter().chain(moved)));
    steps.push(step(
        "From now on submit to the manager, and look there.",
        ["meridian create -f job.yaml".to_owned(), "meridian get workloads -A".to_owned()],
    ));
    Section { title: format!("Move queue {queue}"), steps }
}

fn moving_back(setup: &Setup, queue: &str, source: &Source) -> Section {
    let local = setup.local_queues(queue);
    let listed = local.iter().map(|(namespace, name)| {
        format!("meridian get jobs -n {namespace} -l kueue.x-k8s.io/queue-name={name}")
    });
    let deleted =
        local.iter().map(|(namespace, name)| format!("meridian delete localqueue {name} -n {namespace}"));
    let steps = vec![
        step(
            "Hold it at the manager: Kueue's copy still says `Hold`, and is copied again.",
            copy(queue, source, "back"),
        ),
        step(
            "Wait until none of its jobs runs. Those that wait are submitted to Kueue again, from their \
             files, \
             and deleted at the manager.",
            listed.chain(["kubectl create -f job.yaml".to_owned(), "meridian delete -f job.yaml".to_owned()]),
        ),
        step(
            "Delete the queue at the manager, and release it at Kueue.",
            deleted.chain([format!("meridian delete clusterqueue {queue}"), stop_policy(queue, "None")]),
        ),
    ];
    Section { title: format!("Back to Kueue with queue {queue}, if need be"), steps }
}

/// Kueue's kinds whose objects it keeps from being deleted.
const WITH_FINALIZERS: &str = "clusterqueues.kueue.x-k8s.io,resourceflavors.kueue.x-k8s.io,\
                               admissionchecks.kueue.x-k8s.io,topologies.kueue.x-k8s.io";

/// The last steps. Once Kueue is gone, no program answers its webhooks, converts its objects or removes its
/// finalizers.
fn the_end(queues: &[&str]) -> Section {
    let steps = vec![
        step(
            "When every queue has moved, let the API server refuse jobs with a queue that the cluster itself \
             would run. Kueue's webhook added `managedBy` to files without it; from now on every file, and \
             every jobTemplate of a CronJob, needs `suspend: true` or `managedBy`. The manifests are in \
             Meridian's repository.",
            ["crds/meridian", "admission"].map(|folder| format!("kubectl apply -f manifests/{folder}")),
        ),
        step(
            "Stop Kueue.",
            [
                "kubectl -n kueue-system scale deployment kueue-controller-manager --replicas=0".to_owned(),
                "kubectl -n kueue-system wait pod -l control-plane=controller-manager --for=delete \
                 --timeout=120s"
                    .to_owned(),
            ],
        ),
        step(
            "Delete its webhooks: without an answer to them, the API server refuses every change of a queue \
             or a job.",
            ["validating", "mutating"].map(|kind| {
                format!("kubectl delete {kind}webhookconfiguration kueue-{kind}-webhook-configuration")
            }),
        ),
        step(
            "Keep objects readable without Kueue's conversion, and apply definitions that need none.",
            [
                "kubectl get crd -o name | grep '\\.kueue\\.x-k8s\\.io$' | xargs -I{} kubectl patch {} \
                 --type merge -p '{\"spec\":{\"conversion\":{\"strategy\":\"None\",\"webhook\":null}}}'"
                    .to_owned(),
                "kubectl apply --server-side --force-conflicts -f manifests/crds/kueue".to_owned(),
            ],
        ),
        step(
            "Remove the finalizers `kueue.x-k8s.io/resource-in-use`, the only ones of these kinds: with \
             them, deleting a queue or a flavor never ends.",
            [format!(
                "kubectl get {WITH_FINALIZERS} -o name | xargs -I{{}} kubectl patch {{}} --type merge -p \
                 '{{\"metadata\":{{\"finalizers\":null}}}}'"
            )],
        ),
        step(
            "Release the queues: the manager takes over what the management cluster says of them.",
            queues.iter().map(|queue| stop_policy(queue, "None")),
        ),
        step(
            "Restart the manager with the management cluster as its front door: kubectl works as before.",
            ["meridian manager --data-dir manager --kubernetes --kubeconfig FILE".to_owned()],
        ),
    ];
    Section { title: "At the end".to_owned(), steps }
}

fn back_from_the_end(queues: &[&str]) -> Section {
    let steps = vec![
        step(
            "Hold the queues, and wait until none of their jobs runs. Those that wait stay in this cluster.",
            queues
                .iter()
                .map(|queue| stop_policy(queue, "Hold"))
                .chain(["meridian get workloads -A".to_owned()]),
        ),
        step(
            "Stop the manager, and delete its webhook and admission policies.",
            [
                "kubectl delete validatingwebhookconfiguration meridian-jobs --ignore-not-found".to_owned(),
                "kubectl delete -f manifests/admission".to_owned(),
            ],
        ),
        step(
            "Install the release of Kueue again: its webhooks, conversions and finalizers come back with it.",
            ["kubectl apply --server-side --force-conflicts -f \
              https://github.com/kubernetes-sigs/kueue/releases/download/VERSION/manifests.yaml"
                .to_owned()],
        ),
        step("Release the queues.", queues.iter().map(|queue| stop_policy(queue, "None"))),
    ];
    Section { title: "Back to Kueue from the end, if need be".to_owned(), steps }
}
