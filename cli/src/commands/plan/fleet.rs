//! What a running manager has, as the objects of a plan; and other objects laid over them.
//!
//! The manager shows a workload's pod sets by name and count only. What a pod asks for is in the job behind it, and so is
//! filled in from there.

use super::resize::{growth_asked, resize};
use super::{identity, is_read};
use crate::client::{Client, Selection};
use crate::error::Error;
use jiff::Timestamp;
use meridian_objects::job::CompletionMode;
use meridian_objects::job::{PRIORITY_LABEL, USUAL_PRIORITY_CLASS, decides};
use meridian_objects::plan::{PlanObject, PlannedObject};
use meridian_objects::spec::workload::{ELASTIC_ANNOTATION, PriorityClassRef, WorkloadObject};
use meridian_objects::{JobWorkload, Kind, Object, Spec, applied, job_to_workload, quantity};
use meridian_planning::load::GROWTH_ANNOTATION;
use meridian_planning::what_if::{Change, Kind as ChangeKind};
use meridian_queueing::model::Moment;
use meridian_shared::gang::{Amounts, add_scaled};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What decisions on queues look at, in an order in which others are referred to first.
const KINDS: [Kind; 16] = [
    Kind::Namespace,
    Kind::PriorityClass,
    Kind::RuntimeClass,
    Kind::LimitRange,
    Kind::WorkloadPriorityClass,
    Kind::Topology,
    Kind::ResourceFlavor,
    Kind::MultiKueueCluster,
    Kind::MultiKueueConfig,
    Kind::ProvisioningRequestConfig,
    Kind::AdmissionCheck,
    Kind::Cohort,
    Kind::ClusterQueue,
    Kind::LocalQueue,
    Kind::Job,
    Kind::Workload,
];
/// The label of objects that are a worker cluster's own.
const CLUSTER_LABEL: &str = "/metadata/labels/meridian.dev~1cluster";
/// The uid of the job behind a workload.
const OWNER: &str = "/metadata/ownerReferences/0/uid";

/// What is there.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    pub(super) objects: Vec<PlanObject>,
    /// Jobs whose workloads are among the objects, and so are not.
    jobs: Vec<PlanObject>,
    /// Jobs that have ended, by namespace and name.
    over: BTreeSet<(String, String)>,
    /// When the last workload was submitted, in milliseconds since 1970.
    latest: Moment,
    /// What could not be taken as it is.
    pub(super) notes: Vec<String>,
}

/// Asks the manager for everything that decisions look at.
pub(super) async fn fetch(client: &Client) -> Result<Fleet, Error> {
    let mut fleet = Fleet::default();
    let mut jobs: BTreeMap<String, Value> = BTreeMap::new();
    let mut owned: BTreeSet<String> = BTreeSet::new();
    let mut classes: BTreeSet<String> = BTreeSet::new();
    for kind in KINDS {
        let selection = Selection { kind, namespace: None, labels: String::new(), name: None };
        let items = match client.list(&selection).await {
            Ok(list) => list.items,
            Err(error) if error.is_not_found() => {
                fleet.notes.push(format!("the manager knows no {}: none are looked at", kind.plural()));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let (over, mut items): (Vec<Value>, Vec<Value>) =
            items.into_iter().filter(|item| item.pointer(CLUSTER_LABEL).is_none()).partition(is_over);
        if kind == Kind::Job {
            fleet.over = over
                .iter()
                .map(|job| {
                    (text(job, "/metadata/namespace").to_owned(), text(job, "/metadata/name").to_owned())
                })
                .collect();
        }
        if kind == Kind::Workload {
            let owner = |item: &Value| jobs.get(text(item, OWNER)).is_some_and(is_elastic);
            let growths: Vec<Value> =
                items.iter_mut().filter(|item| owner(item)).filter_map(growth_asked).collect();
            items.extend(growths);
            fleet.latest = keep_order(&mut items);
        }
        for mut item in items {
            match kind {
                Kind::WorkloadPriorityClass => {
                    classes.insert(text(&item, "/metadata/name").to_owned());
                }
                Kind::Job => {
                    jobs.insert(text(&item, "/metadata/uid").to_owned(), item);
                    continue;
                }
                Kind::Workload => {
                    follow_class(&mut item, &classes);
                    keep_reservation(&mut item);
                    let owner = text(&item, OWNER).to_owned();
                    if let Some(job) = jobs.get(&owner) {
                        complete(&mut item, job);
                        owned.insert(owner);
                    }
                }
                _ => {}
            }
            fleet.take(&item);
        }
    }
    for (uid, job) in &jobs {
        if !owned.contains(uid) {
            fleet.take(job);
        } else if let Ok(job) = PlanObject::lenient(job) {
            fleet.jobs.push(job);
        }
    }
    Ok(fleet)
}

impl Fleet {
    fn take(&mut self, item: &Value) {
        match PlanObject::lenient(item) {
            Ok(object) => self.objects.push(object),
            Err(why) => {
                let (kind, namespace, name) =
                    (text(item, "/kind"), text(item, "/metadata/namespace"), text(item, "/metadata/name"));
                self.notes.push(format!(
                    "{kind} {namespace}/{name} of the manager can't be read and is left out: {why}"
                ));
            }
        }
    }
}

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a job or workload has ended.
fn is_over(item: &Value) -> bool {
    let conditions = item.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| {
        c["status"] == "True"
            && (c["type"] == "Finished"
                || ((c["type"] == "Complete" || c["type"] == "Failed") && item["kind"] == "Job"))
    })
}

/// Whether a job may have another number of pods while it runs.
fn is_elastic(job: &Value) -> bool {
    job["metadata"]["annotations"][ELASTIC_ANNOTATION] == "true"
}

/// Makes moments of the order in which workloads were submitted, and says the last one. Kubernetes' times are whole seconds;
/// of one second the manager tells the order by the number of the record, and a plan orders by milliseconds.
fn keep_order(workloads: &mut [Value]) -> Moment {
    let number = |item: &Value| text(item, "/status/meridian/submitted").parse::<u64>().ok();
    workloads.sort_by_key(number);
    let mut last = Moment::MIN;
    for item in workloads.iter_mut().filter(|item| number(item).is_some()) {
        let Ok(created) = text(item, "/metadata/creationTimestamp").parse::<Timestamp>() else { continue };
        last = created.as_millisecond().max(last.saturating_add(1));
        if let Ok(at) = Timestamp::from_millisecond(last) {
            item["metadata"]["creationTimestamp"] = json!(at.to_string());
        }
    }
    last
}

/// When quota was reserved, to the millisecond: the condition has whole seconds, and of equals who came last gives way first.
fn keep_reservation(workload: &mut Value) {
    let exact = workload["status"]["meridian"]["reserved"].clone();
    let conditions = workload
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut)
        .filter(|_| exact.is_string());
    for condition in conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["type"] == "QuotaReserved" && condition["status"] == "True")
    {
        condition["lastTransitionTime"] = exact.clone();
    }
}

/// The manager shows a workload's priority as its class has it, and whoever names the class follows when its value changes.
fn follow_class(workload: &mut Value, classes: &BTreeSet<String>) {
    let of = &workload["spec"]["priorityClassRef"];
    if of["kind"] == "WorkloadPriorityClass"
        && of["name"].as_str().is_some_and(|name| classes.contains(name))
        && let Some(spec) = workload["spec"].as_object_mut()
    {
        spec.remove("priority");
    }
}

/// Fills in what a workload's pods ask for, and what its quota is, from the job behind it.
fn complete(workload: &mut Value, job: &Value) {
    let template = job.pointer("/spec/template").cloned().unwrap_or_default();
    let sets = workload.pointer_mut("/spec/podSets").and_then(Value::as_array_mut);
    for set in sets
        .into_iter()
        .flatten()
        .filter(|set| set.is_object() && set.get("template").is_none_or(Value::is_null))
    {
        set["template"] = template.clone();
    }
    let mut unstatused = job.clone();
    if let Some(map) = unstatused.as_object_mut() {
        map.remove("status");
    }
    let read = Object::from_value(unstatused).ok().and_then(|(object, _)| job_to_workload(&object).ok());
    let gang = read.map(|job| job.gang).unwrap_or_default();
    let given = workload.pointer_mut("/status/admission/podSetAssignments").and_then(Value::as_array_mut);
    for (given, set) in given.into_iter().flatten().zip(&gang.pod_sets) {
        if given.get("resourceUsage").is_some() || !given.is_object() {
            continue;
        }
        let mut usage = Amounts::new();
        add_scaled(&mut usage, &set.per_pod, i64::from(set.count));
        let flavored = |resource: &str| given.pointer("/flavors").and_then(|f| f.get(resource)).is_some();
        let texts: Map<String, Value> = usage
            .iter()
            .filter(|(resource, _)| flavored(resource))
            .map(|(resource, amount)| (resource.clone(), json!(quantity::format(resource, *amount))))
            .collect();
        given["count"] = json!(set.count);
        given["resourceUsage"] = Value::Object(texts);
    }
}

/// Objects that others were laid over.
pub(super) struct Overlaid {
    pub(super) objects: Vec<PlanObject>,
    /// What each of the given ones is to those that were there.
    pub(super) changes: Vec<Change>,
    /// What a person should know of it.
    pub(super) notes: Vec<String>,
}

/// Lays objects over those that are there: one of the same kind, namespace and name is merged into the other, as `apply` does it.
/// A job takes the place of the workload that stands for the job of its name; jobs are submitted after all that are there, in the
/// order of their files.
pub(super) fn overlay(there: Fleet, given: Vec<PlanObject>, now: Moment) -> Overlaid {
    let Fleet { mut objects, jobs, over, latest, mut notes } = there;
    let mut submitted = now.max(latest.saturating_add(1));
    let mut changes = Vec::with_capacity(given.len());
    let class = |object: &PlanObject| match object {
        PlanObject::Object(planned) if planned.object.kind == Kind::WorkloadPriorityClass => {
            Some(planned.object.name.clone())
        }
        _ => None,
    };
    let classes: BTreeSet<String> = objects.iter().chain(&given).filter_map(class).collect();
    for mut object in given {
        if let PlanObject::Object(planned) = &mut object
            && planned.object.kind == Kind::Job
        {
            planned.created = Some(submitted);
            submitted = submitted.saturating_add(1);
        }
        let at = objects
            .iter()
            .position(|other| identity(other) == identity(&object) || stands_for(other, &object));
        if let Some(at) = at {
            notes.extend(merge(&objects[at], &mut object));
        }
        let before = jobs.iter().find(|job| identity(job) == identity(&object));
        if has_ended(&object, &over) {
            notes.push(format!("`{}` has ended: `apply` leaves it as it is, and refuses to change it; to run it again, delete it first", object.title()));
            changes.push(Change { object: object.title(), change: ChangeKind::Unchanged, not_judged: false });
            continue;
        }
        if let (Some(at), Some(before)) = (at, before) {
            let changed = in_place(&mut objects, at, (before, &object), &classes);
            if changed != Ok(false) {
                notes.extend(changed.err().map(|why| {
                    format!("`{}`: {why}, and `apply` will refuse it: here it stays as it is", object.title())
                }));
                let change = if same(before, &object) { ChangeKind::Unchanged } else { ChangeKind::Replaced };
                changes.push(Change { object: object.title(), change, not_judged: false });
                continue;
            }
        }
        let change = match at {
            None => ChangeKind::Added,
            Some(at) if same(&objects[at], &object) => ChangeKind::Unchanged,
            Some(_) if before.is_some_and(|job| same(job, &object)) => ChangeKind::Unchanged,
            Some(_) => ChangeKind::Replaced,
        };
        changes.push(Change { object: object.title(), change, not_judged: !is_read(&object) });
        if change == ChangeKind::Replaced
            && matches!(&object, PlanObject::Object(planned) if planned.object.kind == Kind::Job)
        {
            notes.push(format!("`{}` is there with another spec: it is taken here as deleted and created again; `apply` refuses that", object.title()));
        }
        match at {
            None => objects.push(object),
            Some(at) if change == ChangeKind::Replaced => {
                if let PlanObject::Workload(was) = std::mem::replace(&mut objects[at], object) {
                    drop_growth(&mut objects, &was.meta.key());
                }
            }
            Some(_) => {}
        }
    }
    Overlaid { objects, changes, notes }
}

/// Merges an object into the one that is there, if it isn't a job; with what a person should know of it.
fn merge(there: &PlanObject, given: &mut PlanObject) -> Option<String> {
    let title = given.title();
    let (PlanObject::Object(there), PlanObject::Object(given)) = (there, given) else { return None };
    if given.object.kind == Kind::Job {
        return None;
    }
    match applied::over(&there.object, &given.object) {
        Ok(merged) => {
            let mut before = there.object.clone();
            applied::forget(&mut before);
            let remarks = merged.remarks();
            given.object = merged.object;
            (given.object != before && !remarks.is_empty())
                .then(|| format!("`{title}`: {}", remarks.join("; ")))
        }
        Err(errors) => {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Some(format!(
                "`{title}`: `apply` will refuse it together with what is there already, and here it takes that one's place: {}",
                errors.join("; ")
            ))
        }
    }
}

/// Whether an object is a job that has ended.
fn has_ended(object: &PlanObject, over: &BTreeSet<(String, String)>) -> bool {
    let PlanObject::Object(planned) = object else { return false };
    let object = &planned.object;
    let key = || (object.namespace_or_default().unwrap_or_default().to_owned(), object.name.clone());
    object.kind == Kind::Job && over.contains(&key())
}

/// Changes a job's workload as `apply` does it in place: its place and what it holds stay its own. Whether that is so, as nothing is
/// different but the priority class, labels and annotations by which nothing is decided, and an elastic job's pods; and an error where
/// there is no such class.
fn in_place(
    objects: &mut Vec<PlanObject>,
    at: usize,
    (before, given): (&PlanObject, &PlanObject),
    classes: &BTreeSet<String>,
) -> Result<bool, String> {
    let (PlanObject::Workload(workload), PlanObject::Object(before), PlanObject::Object(planned)) =
        (&objects[at], before, given)
    else {
        return Ok(false);
    };
    let (Spec::Job(was), Spec::Job(job)) = (&before.object.spec, &planned.object.spec) else {
        return Ok(false);
    };
    let deciding = |all: &BTreeMap<String, String>| {
        all.iter()
            .filter(|(key, _)| decides(key) && *key != PRIORITY_LABEL)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<BTreeMap<_, _>>()
    };
    let same = |of: fn(&Object) -> &BTreeMap<String, String>| {
        deciding(of(&before.object)) == deciding(of(&planned.object))
    };
    let Some(resized) = resizes(was, job, &before.object) else { return Ok(false) };
    let template = |object: &Object| object.stored.pointer("/spec/template").cloned();
    if template(&before.object) != template(&planned.object)
        || !same(|object| &object.labels)
        || !same(|object| &object.annotations)
    {
        return Ok(false);
    }
    let usual = || Some(USUAL_PRIORITY_CLASS.to_owned()).filter(|usual| classes.contains(usual));
    let reclassed = was.priority_class != job.priority_class;
    let class = match (job.priority_class.clone(), &job.pod_priority_class) {
        _ if !reclassed => None,
        (Some(class), _) if !classes.contains(&class) => {
            return Err(format!("there is no WorkloadPriorityClass `{class}`"));
        }
        (None, Some(_)) => return Ok(false),
        (class, _) => class.or_else(usual),
    };
    let key = workload.meta.key();
    if resized {
        let wanted: Vec<u64> = job.gang.pod_sets.iter().map(|set| u64::from(set.count)).collect();
        let Some((stays, growth)) = resize(&workload.stored, &wanted, planned.created.unwrap_or_default())
        else {
            return Ok(false);
        };
        objects[at] = stays;
        drop_growth(objects, &key);
        objects.extend(growth);
    }
    let all = objects
        .iter_mut()
        .filter_map(|object| if let PlanObject::Workload(workload) = object { Some(workload) } else { None });
    let of_the_job = all.filter(|workload| workload.meta.key() == key || grows(workload, &key));
    for workload in of_the_job.filter(|_| reclassed) {
        let (group, kind) =
            (Kind::WorkloadPriorityClass.group().to_owned(), Kind::WorkloadPriorityClass.name().to_owned());
        workload.spec.priority_class = class.clone().map(|name| PriorityClassRef { group, kind, name });
        workload.spec.priority = None;
    }
    Ok(true)
}

/// Whether a job has another number of pods and is otherwise alike, but for its class; none where it isn't alike, or may not have another.
/// Its `completions` go with its pods where every pod is one of them.
fn resizes(was: &JobWorkload, job: &JobWorkload, before: &Object) -> Option<bool> {
    let mut gang = was.gang.clone();
    gang.pod_sets.iter_mut().zip(&job.gang.pod_sets).for_each(|(set, other)| set.count = other.count);
    let (parallelism, completions) = (job.parallelism, job.completions);
    let alike = JobWorkload {
        suspend: job.suspend,
        priority_class: job.priority_class.clone(),
        parallelism,
        completions,
        gang,
        ..was.clone()
    } == *job;
    let follows = |job: &JobWorkload| {
        job.completion_mode == CompletionMode::Indexed && job.completions == Some(job.parallelism)
    };
    let resized = was.parallelism != job.parallelism || was.completions != job.completions;
    let elastic = before.annotations.get(ELASTIC_ANNOTATION).is_some_and(|value| value == "true");
    let may = elastic && (was.completions == job.completions || (follows(was) && follows(job)));
    (alike && (!resized || may)).then_some(resized)
}

/// Leaves out what a workload wanted to grow by.
fn drop_growth(objects: &mut Vec<PlanObject>, workload: &str) {
    objects.retain(|object| !matches!(object, PlanObject::Workload(growth) if grows(growth, workload)));
}

/// Whether a workload is what another is to grow by.
fn grows(growth: &WorkloadObject, workload: &str) -> bool {
    growth.meta.annotations.get(GROWTH_ANNOTATION).is_some_and(|of| of == workload)
}

/// Whether `workload` is what became of `job`.
fn stands_for(workload: &PlanObject, job: &PlanObject) -> bool {
    let (PlanObject::Workload(workload), PlanObject::Object(job)) = (workload, job) else { return false };
    let WorkloadObject { meta, .. } = &**workload;
    let PlannedObject { object, .. } = &**job;
    let of = meta.controller().or(meta.owners.first());
    workload.replaces().is_none()
        && object.kind == Kind::Job
        && Some(meta.namespace.as_str()) == object.namespace_or_default()
        && of.is_some_and(|o| o.kind == "Job" && o.name == object.name)
}

/// Whether two objects of one identity say the same.
fn same(a: &PlanObject, b: &PlanObject) -> bool {
    match (a, b) {
        (PlanObject::Object(a), PlanObject::Object(b)) => {
            let (a, b) = (&a.object, &b.object);
            let specs = match (&a.spec, &b.spec) {
                // The manager says by `suspend` whether the job runs.
                (Spec::Job(was), Spec::Job(job)) => {
                    JobWorkload { suspend: job.suspend, ..(**was).clone() } == **job
                        && a.stored.pointer("/spec/template") == b.stored.pointer("/spec/template")
                }
                (a, b) => a == b,
            };
            let annotations = |object: &Object| {
                object
                    .annotations
                    .iter()
                    .filter(|(key, _)| *key != applied::LAST_APPLIED)
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect::<BTreeMap<_, _>>()
            };
            specs && a.labels == b.labels && annotations(a) == annotations(b)
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "train", "namespace": "ml", "uid": "j1", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
            "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"restartPolicy": "Never", "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m", "nvidia.com/gpu": "4"}}}]}}},
        })
    }

    fn workload() -> Value {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "job-train-00001", "namespace": "ml", "uid": "w1", "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j1", "controller": true}]},
            "spec": {"queueName": "q", "priority": 0, "active": true, "podSets": [{"name": "main", "count": 2}]},
            "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "flavors": {"nvidia.com/gpu": "spot"}}]}},
        })
    }

    fn object(value: &Value) -> PlanObject {
        PlanObject::lenient(value).unwrap()
    }

    #[test]
    fn workloads_get_their_requests_and_use_from_their_jobs() {
        let mut item = workload();
        complete(&mut item, &job());
        let PlanObject::Workload(read) = object(&item) else { panic!("not a workload") };
        assert_eq!(read.spec.pod_sets[0].count, 2);
        let given = &read.status.admission.unwrap().pod_sets[0];
        assert_eq!(given.count, Some(2));
        // What no flavor was given for isn't used.
        assert_eq!(given.usage, Amounts::from([("nvidia.com/gpu".to_owned(), 8)]));
    }

    #[test]
    fn workloads_of_one_second_keep_their_order_and_new_jobs_come_after_them() {
        let of = |name: &str, submitted: u32, second: u32| {
            let mut item = workload();
            item["metadata"]["name"] = json!(name);
            item["metadata"]["creationTimestamp"] = json!(format!("2026-06-01T12:00:{second:02}Z"));
            item["status"]["meridian"] = json!({"submitted": submitted.to_string()});
            item
        };
        let mut items = [of("late", 12, 0), of("early", 9, 0), of("next", 13, 1)];
        let last = keep_order(&mut items);
        let created = |item: &Value| match object(item) {
            PlanObject::Workload(read) => read.meta.created.unwrap(),
            _ => panic!("not a workload"),
        };
        assert_eq!(items.each_ref().map(|item| text(item, "/metadata/name")), ["early", "late", "next"]);
        assert_eq!(items.each_ref().map(created), [last - 1_000, last - 999, last]);
        let there = Fleet { objects: items.iter().map(object).collect(), latest: last, ..Fleet::default() };
        let mut fresh = job();
        fresh["metadata"]["name"] = json!("fresh");
        let mut after = job();
        after["metadata"]["name"] = json!("after");
        let Overlaid { objects, .. } = overlay(there, vec![object(&fresh), object(&after)], last - 5);
        let [.., PlanObject::Object(fresh), PlanObject::Object(after)] = &objects[..] else {
            panic!("not two jobs")
        };
        assert_eq!((fresh.created, after.created), (Some(last + 1), Some(last + 2)));
    }

    #[test]
    fn an_object_is_merged_into_the_one_that_is_there_as_apply_does_it() {
        let namespace = |labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": labels}});
        let mut there = namespace(json!({"team": "vision", "residency": "eu"}));
        let before = namespace(json!({"team": "vision"})).to_string();
        let file = || vec![object(&namespace(json!({"tier": "1"})))];
        let laid =
            |there: &Value| overlay(Fleet { objects: vec![object(there)], ..Fleet::default() }, file(), 0);
        let labels = |laid: &Overlaid| match &laid.objects[0] {
            PlanObject::Object(planned) => planned.object.labels.keys().cloned().collect::<Vec<_>>(),
            _ => panic!("not a namespace"),
        };
        let unknown = laid(&there);
        assert_eq!(
            (labels(&unknown), unknown.notes.len()),
            (vec!["residency".to_owned(), "team".to_owned(), "tier".to_owned()], 1)
        );
        there["metadata"]["annotations"] = json!({ applied::LAST_APPLIED: before });
        let known = laid(&there);
        assert_eq!((labels(&known), known.notes.len()), (vec!["residency".to_owned(), "tier".to_owned()], 0));
        assert_eq!(known.changes[0].change, ChangeKind::Replaced);
    }

    #[test]
    fn a_job_keeps_its_place_and_what_it_holds_when_only_its_class_or_remarks_change() {
        let there = || {
            let mut stands = workload();
            complete(&mut stands, &job());
            Fleet { objects: vec![object(&stands)], jobs: vec![object(&job())], ..Fleet::default() }
        };
        let high = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9});
        let with = |place: &str, key: &str, value: &str| {
            let mut given = job();
            given["metadata"][place][key] = json!(value);
            vec![object(&high), object(&given)]
        };
        for (given, class) in
            [(with("labels", PRIORITY_LABEL, "high"), Some("high")), (with("labels", "team", "vision"), None)]
        {
            let Overlaid { objects, changes, notes } = overlay(there(), given, 0);
            let PlanObject::Workload(stays) = &objects[0] else { panic!("{class:?}") };
            assert_eq!(stays.spec.priority_class.as_ref().map(|class| class.name.as_str()), class);
            assert!(
                stays.status.admission.is_some()
                    && notes.is_empty()
                    && changes[1].change == ChangeKind::Replaced,
                "{notes:?}"
            );
        }
        let Overlaid { notes, .. } = overlay(there(), with("labels", PRIORITY_LABEL, "low"), 0);
        assert_eq!(
            notes,
            [
                "`job/ml/train`: there is no WorkloadPriorityClass `low`, and `apply` will refuse it: here it stays as it is"
            ]
        );
        let Overlaid { notes, .. } =
            overlay(there(), with("annotations", "simulated.meridian.dev/duration", "9s"), 0);
        assert!(notes[0].starts_with("`job/ml/train` is there with another spec"), "{notes:?}");
        let mut had = there();
        let PlanObject::Object(before) = &mut had.jobs[0] else { panic!("not a job") };
        let Spec::Job(spec) = &mut before.object.spec else { panic!("not a job") };
        spec.priority_class = Some("high".to_owned());
        let Overlaid { objects, .. } = overlay(had, vec![object(&job())], 0);
        assert!(
            matches!(&objects[..], [PlanObject::Workload(stays)] if stays.spec.priority_class.is_none() && stays.spec.priority.is_none())
        );
    }

    #[test]
    fn a_job_that_has_ended_does_not_come_again() {
        let there =
            Fleet { over: BTreeSet::from([("ml".to_owned(), "train".to_owned())]), ..Fleet::default() };
        let Overlaid { objects, changes, notes } = overlay(there, vec![object(&job())], 0);
        assert!(objects.is_empty() && changes[0].change == ChangeKind::Unchanged, "{changes:?}");
        assert_eq!(
            notes,
            [
                "`job/ml/train` has ended: `apply` leaves it as it is, and refuses to change it; to run it again, delete it first"
            ]
        );
    }

    #[test]
    fn a_reservation_is_known_to_the_millisecond() {
        let mut item = workload();
        item["status"]["conditions"] = json!([{"type": "QuotaReserved", "status": "True", "reason": "R", "lastTransitionTime": "2026-06-01T12:00:07Z"}]);
        let since = |item: &Value| match object(item) {
            PlanObject::Workload(read) => read.status.condition("QuotaReserved").unwrap().since.unwrap(),
            _ => panic!("not a workload"),
        };
        let whole = since(&item);
        keep_reservation(&mut item);
        assert_eq!(since(&item), whole, "an older manager doesn't tell");
        item["status"]["meridian"] = json!({"reserved": "2026-06-01T12:00:07.250000Z"});
        keep_reservation(&mut item);
        assert_eq!(since(&item), whole + 250);
    }

    #[test]
    fn a_priority_is_what_its_class_says() {
        let classes = BTreeSet::from(["high".to_owned()]);
        let priority = |class: &str| {
            let mut item = workload();
            item["spec"]["priorityClassRef"] =
                json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": class});
            follow_class(&mut item, &classes);
            item["spec"]["priority"].clone()
        };
        assert_eq!((priority("high"), priority("gone")), (Value::Null, json!(0)));
    }

    #[test]
    fn what_is_over_takes_no_part() {
        let done = |kind: &str, condition: &str| {
            is_over(&json!({"kind": kind, "status": {"conditions": [{"type": condition, "status": "True"}]}}))
        };
        assert!(done("Workload", "Finished") && done("Job", "Complete") && done("Job", "Failed"));
        assert!(!done("Workload", "Admitted") && !is_over(&json!({"kind": "Job"})));
    }

    #[test]
    fn given_objects_take_the_place_of_those_that_are_there() {
        let flavor = |name: &str, label: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": {"a": label}}});
        let mut stands = workload();
        complete(&mut stands, &job());
        let there = || Fleet {
            objects: vec![object(&flavor("x", "1")), object(&flavor("y", "1")), object(&stands)],
            jobs: vec![object(&job())],
            ..Fleet::default()
        };
        let mut other = job();
        other["spec"]["parallelism"] = json!(1);
        let mut same = job();
        same["spec"]["suspend"] = json!(true);
        let given = vec![object(&flavor("x", "2")), object(&flavor("y", "1")), object(&flavor("z", "1"))];
        let Overlaid { objects, changes, notes } =
            overlay(there(), given.into_iter().chain([object(&same)]).collect(), 0);
        let words: Vec<(&str, ChangeKind)> = changes.iter().map(|c| (c.object.as_str(), c.change)).collect();
        assert_eq!(
            words,
            [
                ("resourceflavor/x", ChangeKind::Replaced),
                ("resourceflavor/y", ChangeKind::Unchanged),
                ("resourceflavor/z", ChangeKind::Added),
                ("job/ml/train", ChangeKind::Unchanged),
            ]
        );
        assert_eq!(objects.len(), 4);
        assert_eq!(
            notes,
            [
                "`resourceflavor/x`: what was applied before isn't known: what the file leaves out stays as it is"
            ]
        );
        let Overlaid { objects, changes, notes } = overlay(there(), vec![object(&other)], 0);
        assert!(notes[0].starts_with("`job/ml/train` is there with another spec"), "{notes:?}");
        assert_eq!(changes[0].change, ChangeKind::Replaced);
        assert!(
            !objects.iter().any(|o| matches!(o, PlanObject::Workload(_))),
            "the job is a new one, which waits"
        );
    }
}
