//! Whether each object of a management cluster carries over. The reader of `meridian-objects` judges each
//! object alone; this file judges how objects fit together. Pure.

use super::setup::{Member, Setup, group_fault};
use crate::output::table::{Cell, Table};
use crate::output::wrap::wrap;
use meridian_manager_kubernetes::preview::{self, GroupFault};
use meridian_objects::spec::multikueue::{MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER};
use meridian_objects::spec::{ClusterQueueSpec, MultiKueueConfigSpec};
use meridian_objects::{FieldValidation, Kind, Object, Spec, ignored_fields};
use meridian_shared::counted::counted_with;
use serde::Serialize;

/// The verdict about one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Verdict {
    Yes,
    WithChanges,
    No,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::WithChanges => "changes",
            Self::No => "no",
        }
    }
}

/// A reason for a verdict. A reason from the reader of `meridian-objects` has the reader's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Note {
    /// Empty for the object as a whole.
    field: String,
    message: String,
    /// Empty if the message is enough.
    remedy: String,
}

impl Note {
    fn new(field: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { field: field.to_owned(), message: message.into(), remedy: remedy.into() }
    }

    fn text(&self) -> String {
        let field = if self.field.is_empty() { String::new() } else { format!("{}: ", self.field) };
        let remedy = if self.remedy.is_empty() { String::new() } else { format!("; {}", self.remedy) };
        format!("{field}{}{remedy}", self.message)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    api_version: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    pub(super) carries_over: Verdict,
    pub(super) reasons: Vec<Note>,
    #[serde(skip)]
    pub(super) title: String,
}

/// A note that is printed if there are jobs: stored jobs have the fields that Kueue's webhook added, and
/// files may lack them.
const FILES_NEED_A_SWITCH: &str = "These are stored objects. Kueue's webhook adds `managedBy` when a job is \
                                   created; Meridian adds nothing, so each file of a job with a queue needs \
                                   `suspend: true` or `managedBy: kueue.x-k8s.io/multikueue`.";

/// The verdicts on all objects.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) objects: Vec<Row>,
    /// A note about the files that users submit jobs from.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<&'static str>,
}

impl Report {
    /// Whether every object carries over.
    pub(super) fn carries_over(&self) -> bool {
        self.count(Verdict::No) == 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.objects.iter().filter(|row| row.carries_over == verdict).count()
    }

    pub(super) fn text(&self, colour: bool, columns: usize) -> String {
        let mut table = Table::new(["OBJECT", "CARRIES OVER", "WHY"]);
        for row in &self.objects {
            let why = Cell::paragraphs(row.reasons.iter().map(Note::text));
            table.push(vec![Cell::new(&row.title), Cell::state(row.carries_over.word()), why]);
        }
        let [yes, changes, no] = [Verdict::Yes, Verdict::WithChanges, Verdict::No].map(|v| self.count(v));
        let summary = format!(
            "{}: {yes} as they are, {changes} with changes, {no} not",
            counted_with(self.objects.len(), "object", "carries over", "carry over")
        );
        let files = self.files.map(|text| format!("{}\n", wrap(text, columns).join("\n")));
        format!("{}\n{summary}\n{}", table.page(colour, columns), files.unwrap_or_default())
    }
}

pub(super) fn check(setup: &Setup) -> Report {
    let groups = setup.groups();
    let mut objects = Vec::new();
    for member in setup.members() {
        let mut findings = findings(setup, member);
        // A fault of a group as a whole is reported once, at its first pod.
        if let Some(group) = member.group()
            && let Some(pods) = groups.get(&(member.namespace(), group))
            && pods.first().is_some_and(|first| first.name() == member.name())
        {
            findings.extend(of_group(group, pods));
        }
        objects.extend(row(member, findings));
    }
    let has_jobs = setup.members().any(|member| !member.queue().is_empty());
    Report { objects, files: has_jobs.then_some(FILES_NEED_A_SWITCH) }
}

/// The findings about the object alone, and about its references.
fn findings(setup: &Setup, member: &Member) -> Findings {
    match member.kind {
        // A pod that this cluster runs is bound to a node, and the pods of a group are read together.
        Some(Kind::Pod) if member.group().is_some() || !preview::is_taken(Kind::Pod, &member.object) => {
            of_job(setup, member, Kind::Pod)
        }
        Some(kind) => of_known_kind(setup, member, kind),
        None if member.job_template().is_some() && !member.queue().is_empty() => of_cron_job(setup, member),
        None => read(member.object.clone()).map_or_else(|refused| refused, |_| Vec::new()),
    }
}

fn row(member: &Member, findings: Findings) -> Option<Row> {
    let verdict = findings.iter().map(|(verdict, _)| *verdict).max().unwrap_or(Verdict::Yes);
    // Namespaces and the like get a line only if the user must do something.
    let is_of_queues =
        member.text("/apiVersion").starts_with("kueue.x-k8s.io/") || !member.queue().is_empty();
    (is_of_queues || verdict != Verdict::Yes).then(|| Row {
        api_version: member.text("/apiVersion").to_owned(),
        kind: member.text("/kind").to_owned(),
        namespace: member.namespace().map(str::to_owned),
        name: member.name().to_owned(),
        carries_over: verdict,
        reasons: findings.into_iter().map(|(_, note)| note).collect(),
        title: member.title(),
    })
}

type Findings = Vec<(Verdict, Note)>;

/// Reads an object as the manager does. Fails with the reader's errors.
fn read(manifest: serde_json::Value) -> Result<(Object, Findings), Findings> {
    match Object::validated(manifest, FieldValidation::Warn) {
        Ok((object, warnings)) => {
            let all = warnings.into_iter().chain(ignored_fields(&object));
            let notes =
                all.map(|of| (Verdict::WithChanges, Note::new(&of.field.to_string(), of.message, of.remedy)));
            let notes = notes.collect();
            Ok((object, notes))
        }
        Err(errors) => Err(errors
            .into_iter()
            .map(|of| (Verdict::No, Note::new(&of.field.to_string(), of.message, of.remedy)))
            .collect()),
    }
}

fn of_known_kind(setup: &Setup, member: &Member, kind: Kind) -> Findings {
    let (object, mut findings) = match read(preview::as_taken(kind, &member.object)) {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    match &object.spec {
        Spec::AdmissionCheck(check) if !runs(&check.controller_name) => {
            // The reader's warning says why.
            findings.iter_mut().for_each(|(verdict, _)| *verdict = Verdict::No);
        }
        Spec::ClusterQueue(queue) => findings.extend(of_cluster_queue(setup, queue)),
        Spec::LocalQueue(queue) if setup.find(Kind::ClusterQueue, None, &queue.cluster_queue).is_none() => {
            findings.push(missing("spec.clusterQueue", "cluster queue", &queue.cluster_queue));
        }
        Spec::MultiKueueConfig(config) => findings.extend(of_config(setup, config)),
        Spec::MultiKueueCluster(_) => findings.push((
            Verdict::WithChanges,
            Note::new(
                "spec",
                "a kubeconfig doesn't say where its cluster is, and the cluster needs an agent: one that \
                 joins from there, or one in the manager's process (`--host-clusters`)",
                format!(
                    "create a `Cluster` object `{name}`, or `meridian cluster join {name} --region R \
                     --jurisdiction J`",
                    name = member.name()
                ),
            ),
        )),
        _ if kind.is_job() => findings.extend(of_job(setup, member, kind)),
        _ => {}
    }
    findings
}

/// Whether a controller of this name acts with Meridian.
fn runs(controller: &str) -> bool {
    [MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER].contains(&controller)
}

fn missing(field: &str, what: &str, name: &str) -> (Verdict, Note) {
    let message = format!("{what} `{name}` isn't among the checked objects");
    (Verdict::WithChanges, Note::new(field, message, "create it at the manager: until then its jobs wait"))
}

fn of_cluster_queue(setup: &Setup, queue: &ClusterQueueSpec) -> Findings {
    let field = "spec.admissionChecksStrategy.admissionChecks";
    let mut findings = Findings::new();
    let mut has_workers = false;
    for rule in &queue.admission_checks {
        let Some(check) = setup.find(Kind::AdmissionCheck, None, &rule.name) else {
            findings.push(missing(field, "admission check", &rule.name));
            continue;
        };
        let controller = check.text("/spec/controllerName");
        has_workers |= controller == MULTIKUEUE_CONTROLLER;
        if !runs(controller) {
            let message = format!(
                "the check `{}` is for controller `{controller}`, without which the queue admits nothing",
                rule.name
            );
            findings.push((Verdict::No, Note::new(field, message, "remove the check from the queue")));
        }
    }
    if !has_workers {
        let message = "has no MultiKueue check: Kueue runs its jobs in the management cluster itself, \
                       Meridian would run them in any cluster that joined";
        let remedy = "give it a check with a MultiKueueConfig of the clusters that it may use";
        findings.push((Verdict::WithChanges, Note::new(field, message, remedy)));
    }
    let groups = queue.resource_groups.iter().flat_map(|group| &group.flavors);
    for flavor in groups.filter(|flavor| setup.find(Kind::ResourceFlavor, None, &flavor.name).is_none()) {
        findings.push(missing("spec.resourceGroups", "flavor", &flavor.name));
    }
    findings
}

fn of_config(setup: &Setup, config: &MultiKueueConfigSpec) -> Findings {
    let absent = config
        .clusters
        .iter()
        .filter(|cluster| setup.find(Kind::MultiKueueCluster, None, cluster.as_str()).is_none());
    absent.map(|cluster| missing("spec.clusters", "MultiKueueCluster", cluster.as_str())).collect()
}

fn of_group(group: &str, pods: &[&Member]) -> Option<(Verdict, Note)> {
    group_fault(pods).map(|fault| match fault {
        GroupFault::Incomplete { here, total } => {
            let message = format!("group `{group}` has {here} of its {total} pods here");
            let remedy = "the group waits until all of its pods exist";
            (Verdict::WithChanges, Note::new("metadata.labels", message, remedy))
        }
        GroupFault::Unfit(reason) => {
            (Verdict::No, Note::new("metadata.labels", format!("group `{group}`: {reason}"), ""))
        }
    })
}

/// Meridian takes the jobs that a CronJob makes, and leaves the CronJob itself to its cluster.
fn of_cron_job(setup: &Setup, member: &Member) -> Findings {
    let (api_version, name) = ("batch/v1", "Job");
    let mut job = member.job_template().cloned().unwrap_or_default();
    job["apiVersion"] = api_version.into();
    job["kind"] = name.into();
    let mut findings = Findings::new();
    let is_taken = Kind::from_gvk(api_version, name).is_some_and(|(kind, _)| preview::is_taken(kind, &job));
    if !is_taken {
        let message = "its jobs have a queue, and only Kueue's webhook keeps this cluster from \
                       running them itself";
        let remedy = "write `suspend: true` or `managedBy: kueue.x-k8s.io/multikueue` there";
        findings.push((Verdict::WithChanges, Note::new("spec.jobTemplate.spec", message, remedy)));
    }
    let message = "stays in this cluster: jobs that it makes after its queue has moved wait there until the \
                   end of the move";
    findings.push((Verdict::WithChanges, Note::new("spec.schedule", message, "")));
    if setup.find(Kind::LocalQueue, member.namespace(), member.queue()).is_none() {
        findings.push(missing("spec.jobTemplate.metadata.labels", "local queue", member.queue()));
    }
    findings
}

fn of_job(setup: &Setup, member: &Member, kind: Kind) -> Findings {
    let mut findings = Findings::new();
    if !preview::is_taken(kind, &member.object) && kind == Kind::Pod {
        let message = preview::pod_refusal(&member.object);
        let message = message.unwrap_or_else(|| "this cluster runs it itself".to_owned());
        findings.push((Verdict::No, Note::new("spec.schedulingGates", message, "")));
    } else if !preview::is_taken(kind, &member.object) {
        let message =
            "this cluster runs it itself: it isn't suspended, and `managedBy` doesn't name MultiKueue";
        let remedy = "let it end, or let Kueue suspend it: `stopPolicy: HoldAndDrain` in its queue";
        findings.push((Verdict::No, Note::new("spec", message, remedy)));
    } else if member.is_active() {
        let message = "Kueue runs it in a worker cluster, or is about to, and Meridian would start it again";
        findings
            .push((Verdict::WithChanges, Note::new("status", message, "let it end before its queue moves")));
    }
    if setup.find(Kind::LocalQueue, member.namespace(), member.queue()).is_none() {
        findings.push(missing("metadata.labels", "local queue", member.queue()));
    }
    findings
}
