//! Whether each object of a management cluster carries over. What the objects say by themselves is for the
//! reader of `meridian-objects`; here is what follows from their relations. Pure.

use super::setup::{Member, Setup, group_fault};
use crate::output::table::{Cell, Table};
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

/// A reason for a verdict, with the words of the reader where it is the reader's.
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

/// The verdicts on all objects.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) objects: Vec<Row>,
}

impl Report {
    /// Whether nothing is left behind.
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
        format!("{}\n{summary}\n", table.page(colour, columns))
    }
}

pub(super) fn check(setup: &Setup) -> Report {
    let groups = setup.groups();
    let mut objects = Vec::new();
    for member in setup.members() {
        let mut findings = findings(setup, member);
        // What is wrong with a group as a whole is said once, at its first pod.
        if let Some(group) = member.group()
            && let Some(pods) = groups.get(&(member.namespace(), group))
            && pods.first().is_some_and(|first| first.name() == member.name())
        {
            findings.extend(of_group(group, pods));
        }
        objects.extend(row(member, findings));
    }
    Report { objects }
}

/// What the object says by itself, and its references.
fn findings(setup: &Setup, member: &Member) -> Findings {
    match member.kind {
        // A pod that this cluster runs is bound to a node, and one of a group isn't read alone.
        Some(Kind::Pod) if member.group().is_some() || !preview::is_taken(Kind::Pod, &member.object) => {
            of_job(setup, member, Kind::Pod)
        }
        Some(kind) => of_known_kind(setup, member, kind),
        None => read(member.object.clone()).map_or_else(|refused| refused, |_| Vec::new()),
    }
}

fn row(member: &Member, findings: Findings) -> Option<Row> {
    let verdict = findings.iter().map(|(verdict, _)| *verdict).max().unwrap_or(Verdict::Yes);
    // Namespaces and the like are only worth a line if something is to do.
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
                "a kubeconfig doesn't say where its cluster is, and an agent acts there: one that joins from \
                 the cluster, or the manager's own one (`--host-clusters`)",
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
    let message = format!("{what} `{name}` isn't among these objects");
    (Verdict::WithChanges, Note::new(field, message, "create it at the manager, or its jobs wait"))
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
            let message =
                format!("the check `{}` is of `{controller}`, so the queue admits nothing", rule.name);
            findings.push((Verdict::No, Note::new(field, message, "remove the check from the queue")));
        }
    }
    if !has_workers {
        let message = "has no MultiKueue check: with Kueue its jobs run in the management cluster itself, \
                       with Meridian in any cluster that joined";
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
            let remedy = "it waits until all of them are there";
            (Verdict::WithChanges, Note::new("metadata.labels", message, remedy))
        }
        GroupFault::Unfit(reason) => {
            (Verdict::No, Note::new("metadata.labels", format!("group `{group}`: {reason}"), ""))
        }
    })
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
        let message = "Kueue runs it in a worker cluster, and Meridian would start it anew";
        findings
            .push((Verdict::WithChanges, Note::new("status", message, "let it end before its queue moves")));
    }
    if setup.find(Kind::LocalQueue, member.namespace(), member.queue()).is_none() {
        findings.push(missing("metadata.labels", "local queue", member.queue()));
    }
    findings
}
