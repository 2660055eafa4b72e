//! The steps of a move, queue by queue, and back. Every command exists; a test parses those of this program.
//! Pure.

use super::setup::Setup;
use crate::output::wrap::hang;
use serde::Serialize;
use std::fmt::Write as _;

const LEGEND: &str = "`kubectl` is for the management cluster, and `meridian` for the manager. Kueue keeps \
                      every queue that has not moved.";

#[derive(Clone, Debug, Serialize)]
pub(super) struct Step {
    text: String,
    pub(super) commands: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Section {
    title: String,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Steps {
    pub(super) sections: Vec<Section>,
}

impl Steps {
    /// Numbered steps; only commands are wider than `columns`.
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

fn step(text: &str, commands: impl IntoIterator<Item = String>) -> Step {
    Step { text: text.to_owned(), commands: commands.into_iter().collect() }
}

/// The steps for these cluster queues. `source` are the flags that name the management cluster's objects.
pub(super) fn plan(setup: &Setup, queues: &[&str], source: &str) -> Steps {
    let mut sections = vec![preparation(setup)];
    sections.extend(queues.iter().map(|queue| moving(setup, queue, source)));
    sections.extend(queues.iter().map(|queue| moving_back(setup, queue, source)));
    if setup.cluster_queues().len() == queues.len() {
        sections.push(the_end(queues));
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
            "Join an agent in each worker cluster, with the command that this prints. It counts what \
             the pods \
             of Kueue's jobs use there as taken.",
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

fn copy(queue: &str, source: &str) -> String {
    format!("meridian migrate plan{source} --queue {queue} --manifests queue | meridian apply -f -")
}

fn moving(setup: &Setup, queue: &str, source: &str) -> Section {
    let waiting = setup.waiting_jobs(queue).len();
    let file = format!("{queue}-jobs.yaml");
    let mut steps = vec![
        step(
            "Copy the queue, and what queues share. Nothing starts: its jobs are still Kueue's.",
            [copy(queue, source)],
        ),
        step("Hold it at Kueue. What runs goes on; nothing else starts there.", [stop_policy(queue, "Hold")]),
        step(
            "Wait until this prints 0.",
            [format!("kubectl get clusterqueue {queue} -o jsonpath='{{.status.admittedWorkloads}}'")],
        ),
    ];
    let text = format!(
        "Move the jobs that wait ({waiting} now): write them down, submit them to the manager, and delete \
         them here, so that they can't run twice."
    );
    steps.push(step(
        &text,
        [
            format!("meridian migrate plan{source} --queue {queue} --manifests jobs > {file}"),
            format!("meridian apply -f {file}"),
            format!("kubectl delete -f {file}"),
        ],
    ));
    steps.push(step(
        "From now on submit to the manager, and look there.",
        ["meridian create -f job.yaml".to_owned(), "meridian get workloads -A".to_owned()],
    ));
    Section { title: format!("Move queue {queue}"), steps }
}

fn moving_back(setup: &Setup, queue: &str, source: &str) -> Section {
    let local = setup.local_queues(queue);
    let listed = local.iter().map(|(namespace, name)| {
        format!("meridian get jobs -n {namespace} -l kueue.x-k8s.io/queue-name={name}")
    });
    let deleted =
        local.iter().map(|(namespace, name)| format!("meridian delete localqueue {name} -n {namespace}"));
    let steps = vec![
        step(
            "Hold it at the manager: Kueue's copy still says `Hold`, and is copied again.",
            [copy(queue, source)],
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

fn the_end(queues: &[&str]) -> Section {
    let steps = vec![
        step(
            "When every queue has moved, stop Kueue.",
            ["kubectl -n kueue-system scale deployment kueue-controller-manager --replicas=0".to_owned()],
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
