//! Every change that `why` suggests starts the workload: the test parses each suggestion from the text,
//! applies it, and checks that the workload starts. It also checks that each kind of suggestion was tried
//! often enough.

#[path = "random_cases.rs"]
mod random_cases;
#[path = "suggestion_parser.rs"]
mod suggestion_parser;

use super::*;
use random_cases::*;
pub(super) use random_cases::{Random, nodes, send};
use std::collections::BTreeSet;
use suggestion_parser::{Remedy, Suggestion, parse_cluster_remedy, parse_suggestions};

/// Random cases of each kind. Some kinds use a multiple of this.
const SEEDS: u64 = 40;

impl Remedy {
    fn apply(&self, case: &mut Case) {
        match self {
            Self::RaiseQuota(_, quotas) => {
                let mut queue = case.object("ClusterQueue", &case.queue());
                for (flavor, resource, to) in quotas {
                    let groups = queue["spec"]["resourceGroups"].as_array_mut().unwrap().iter_mut();
                    let flavors = groups
                        .flat_map(|group| group["flavors"].as_array_mut().unwrap())
                        .filter(|f| f["name"] == **flavor);
                    for quota in flavors
                        .flat_map(|f| f["resources"].as_array_mut().unwrap())
                        .filter(|r| r["name"] == **resource)
                    {
                        quota["nominalQuota"] = json!(to);
                    }
                }
                case.objects.push(queue.clone());
                case.f.apply(vec![queue]);
            }
            Self::End(_, name) => case.end(name),
            Self::Delete(name) => drop(case.f.write(vec![Change::Delete {
                key: Key::namespaced(Kind::Job, "default", name),
                uid: None,
                force: false,
            }])),
            Self::Priority(_, above) => case.resubmit_with_priority(above + 1),
            Self::All(_, all) => all.iter().for_each(|one| one.apply(case)),
            Self::EndAll => {
                let all: Vec<Uid> = case.f.running.iter().map(|(_, uid)| *uid).collect();
                all.into_iter().for_each(|uid| {
                    if case.f.cluster_of(uid).is_some() {
                        case.f.end(uid, EndResult::Succeeded)
                    }
                });
            }
            Self::Plain(what) | Self::CreateMissing(what) => case.apply_plain(what),
        }
    }
}

impl Case {
    /// Submits the workload again with this priority.
    fn resubmit_with_priority(&mut self, priority: i64) {
        self.f.write(vec![Change::Delete {
            key: Key::namespaced(Kind::Job, "default", self.f.world.state().workloads()[&self.uid].name()),
            uid: None,
            force: false,
        }]);
        self.f.settle();
        let mut job = self.manifest.clone();
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("urgent");
        let class = priority_class("urgent", priority);
        self.f.apply(vec![class]);
        self.uid = send(&mut self.f, job);
        assert_eq!(self.f.world.state().workloads()[&self.uid].priority(), priority);
    }

    /// All other pending workloads, by name.
    fn pending_others(&self) -> BTreeMap<String, Uid> {
        let pending = self
            .f
            .world
            .state()
            .workloads()
            .iter()
            .filter(|(uid, w)| **uid != self.uid && w.phase() == Phase::Pending);
        pending.map(|(uid, w)| (w.name().to_string(), *uid)).collect()
    }

    /// Applies a change that is recognised by these words alone.
    fn apply_plain(&mut self, words: &str) {
        match words {
            "uncordon the cluster" => {
                self.f.input(Input::Operator {
                    actor: Actor::user("op"),
                    action: Operator::Uncordon("eu".into()),
                });
                self.f.input(Input::Turn);
            }
            "start or join its agent" => {
                self.f.disconnected.clear();
                let us: ClusterName = "us".into();
                if self.f.world.state().catalog().cluster(&us).is_some() {
                    self.f.add_agent("us", 2_000);
                    nodes(&mut self.f, "us", &[("us-1", 64, &[])]);
                }
            }
            "meridian resume job" => self.f.resume(self.uid),
            "wait for the next attempt" => {}
            "add or enlarge nodes there" => nodes(&mut self.f, "eu", &[("eu-1", 64, &[])]),
            "wait until a workload there ends" => {
                let first = self.f.running[0].1;
                self.f.end(first, EndResult::Succeeded);
            }
            "submit the job again without a region" => {
                self.f.write(vec![Change::Delete {
                    key: Key::namespaced(Kind::Job, "default", "asks"),
                    uid: None,
                    force: false,
                }]);
                self.uid = send(&mut self.f, queue_job("a", "asks", 2));
            }
            "set the stopPolicy of" => {
                let all = [self.object("ClusterQueue", &self.queue()), self.object("LocalQueue", "a")];
                let all: Vec<Value> =
                    all.into_iter().map(|object| with_spec(object, "stopPolicy", json!("None"))).collect();
                self.objects.extend(all.clone());
                self.f.apply(all);
            }
            _ => {
                let object = self.changed_object(words);
                self.objects.push(object.clone());
                self.f.apply(vec![object]);
            }
        }
    }

    /// The object that a change creates or replaces.
    fn changed_object(&mut self, words: &str) -> Value {
        let queue = self.queue();
        match words {
            "raise the cluster's limit of" => cluster_object("eu", "europe-west4", "EU"),
            "add the cluster to the queue's MultiKueueConfig" => {
                with_spec(self.object("MultiKueueConfig", "some"), "clusters", json!(["us", "eu"]))
            }
            "create local queue" => self.object("LocalQueue", "a"),
            "create cluster queue" => self.object("ClusterQueue", &queue),
            "create resource flavor" => resource_flavor("rare"),
            "namespaceSelector" => {
                with_spec(self.object("ClusterQueue", &queue), "namespaceSelector", json!({}))
            }
            "to a resource group" => with_spec(
                self.object("ClusterQueue", &queue),
                "resourceGroups",
                group(&[(GPU, json!(8)), ("cpu", json!(8))]),
            ),
            "add a flavor with matching labels, taints and topology" => {
                let flavor = kueue_object("ResourceFlavor", "other", json!({"nodeLabels": {"pool": "b"}}));
                let mut queue = self.object("ClusterQueue", &queue);
                let flavors = queue["spec"]["resourceGroups"][0]["flavors"].as_array_mut().unwrap();
                flavors.push(flavor_quota("other", 8));
                self.f.apply(vec![flavor]);
                queue
            }
            other => panic!("unknown change `{other}`"),
        }
    }
}

/// The object with another value of a field of its spec.
fn with_spec(mut object: Value, field: &str, value: Value) -> Value {
    object["spec"].as_object_mut().expect("the object has a spec").insert(field.to_owned(), value);
    object
}

/// The minimum number of tries per kind.
const MINIMA: &[(&str, usize)] = &[
    ("raise", 30),
    ("raise before rivals", 15),
    ("raise several", 8),
    ("raise several before rivals", 10),
    ("end of one", 15),
    ("deletion of the head", 8),
    ("end of one there", 15),
    ("ends", 30),
    ("end of several there", 15),
    ("end of several there, others first", 15),
    ("end of several there, no others", 15),
    ("end of one there, others first", 15),
    ("end of one there, no others", 15),
    ("end of one there, with priority", 15),
    ("several steps", 40),
    ("several steps, others first", 2),
    ("several steps, no others", 2),
    ("set the stopPolicy of, others first", 3),
    ("set the stopPolicy of, no others", 3),
    ("priority alone", 20),
    ("raise and priority", 15),
    ("raise for the fewest", 8),
    ("what is missing", 10),
    ("quota and capacity", 3),
    ("uncordon the cluster", 3),
    ("start or join its agent", 3),
    ("add the cluster to the queue's MultiKueueConfig", 3),
    ("raise the cluster's limit of", 3),
    ("submit the job again without a region", 1),
    ("add or enlarge nodes there", 1),
    ("set the stopPolicy of", 6),
    ("create resource flavor", 2),
    ("namespaceSelector", 2),
    ("to a resource group", 2),
    ("add a flavor with matching labels, taints and topology", 2),
    ("meridian resume job", 20),
];

type BuildCase = fn(&mut Random) -> Case;

/// Results of all tried suggestions.
#[derive(Default)]
struct Trial {
    tried: BTreeMap<String, usize>,
    failed: Vec<String>,
    /// Help texts without a suggestion that could be parsed.
    without_suggestion: BTreeSet<String>,
}

impl Trial {
    /// Tries all suggestions that a case starts with.
    fn try_case(&mut self, name: &str, build: BuildCase, seed: u64) {
        let before = build(&mut Random(seed));
        if before.f.phase(before.uid) != Some(Phase::Pending) {
            return;
        }
        let (summary, help) = before.f.summary_and_help(before.uid);
        let mut all = parse_suggestions(&help);
        if ["no cluster ", "the only cluster"].iter().any(|words| summary.contains(words)) {
            let by_cluster = before.f.why(before.uid)["clusters"].as_array().unwrap().clone();
            let remedies = by_cluster
                .iter()
                .filter_map(|cluster| parse_cluster_remedy(cluster["wouldHelp"].as_str().unwrap()));
            let remedies = remedies
                .filter(|remedy| matches!(remedy, Remedy::Plain("submit the job again without a region")));
            all.extend(remedies.map(|remedy| Suggestion { remedy, rivals: None, unless_above: None }));
        }
        if all.is_empty() {
            self.without_suggestion.insert(format!("{name}: {help}"));
        }
        for suggestion in all {
            for (how, case, succeeded) in Self::try_suggestion(&suggestion, build, seed) {
                *self.tried.entry(format!("{}{how}", suggestion.remedy.kind())).or_default() += 1;
                if !succeeded {
                    let now = case.f.summary_and_help(case.uid);
                    self.failed.push(format!(
                        "{name} {seed}{how}: {suggestion:?}\n   {summary}\n   {help}\n   now: {now:?}"
                    ));
                }
            }
        }
    }

    /// Tries a suggestion in each of its variants: the variant, the case afterwards, and whether the
    /// suggestion held.
    fn try_suggestion(
        suggestion: &Suggestion,
        build: BuildCase,
        seed: u64,
    ) -> Vec<(&'static str, Case, bool)> {
        let again = || build(&mut Random(seed));
        let mut tries = Vec::new();
        let mut case = again();
        if !case.enough_capacity && suggestion.remedy.has_rivals() {
            return tries;
        }
        let Some((first, count)) = &suggestion.rivals else {
            suggestion.remedy.apply(&mut case);
            let succeeded = case.started()
                || matches!(suggestion.remedy, Remedy::CreateMissing(_))
                    && !case.f.summary_and_help(case.uid).0.contains("doesn't exist");
            tries.push(("", case, succeeded));
            return tries;
        };
        // Either a rival starts first, or the workload does.
        let others = case.pending_others();
        suggestion.remedy.apply(&mut case);
        let started = case.started();
        let took: Vec<&String> = others
            .iter()
            .filter(|(_, uid)| case.f.phase(**uid) != Some(Phase::Pending))
            .map(|(name, _)| name)
            .collect();
        let succeeded = started || if *count == 1 { took.contains(&first) } else { !took.is_empty() };
        tries.push((", others first", case, succeeded));
        // Without the rivals the workload starts.
        let mut case = again();
        for name in others.into_keys() {
            case.f.write(vec![Change::Delete {
                key: Key::namespaced(Kind::Job, "default", &name),
                uid: None,
                force: false,
            }]);
        }
        suggestion.remedy.apply(&mut case);
        let succeeded = case.started();
        tries.push((", no others", case, succeeded));
        if let Some(above) = suggestion.unless_above {
            let mut case = again();
            case.resubmit_with_priority(above + 1);
            suggestion.remedy.apply(&mut case);
            let succeeded = case.started();
            tries.push((", with priority", case, succeeded));
        }
        tries
    }
}

#[test]
fn every_suggested_change_starts_the_workload() {
    let cases: &[(&str, BuildCase, u64)] = &[
        ("quota", quota_case, 10 * SEEDS),
        ("resources", resources_case, 2 * SEEDS),
        ("usage history", usage_case, SEEDS),
        ("strict order", strict_order_case, SEEDS),
        ("full cluster", full_cluster_case, 2 * SEEDS),
        ("competing workloads", competing_case, 2 * SEEDS),
        ("cluster", cluster_case, SEEDS),
        ("queue setup", queue_setup_case, 3 * SEEDS),
        ("deactivated", deactivated_case, SEEDS),
        ("rack", rack_case, SEEDS),
        ("priorities", priorities_case, SEEDS),
    ];
    let mut trial = Trial::default();
    for (name, build, seeds) in cases {
        (0..*seeds).for_each(|seed| trial.try_case(name, *build, seed));
    }
    let Trial { tried, failed, without_suggestion } = trial;
    assert!(failed.is_empty(), "{} of {:?}:\n{}", failed.len(), tried, failed.join("\n"));
    for (kind, least) in MINIMA {
        let n = tried.get(*kind).copied().unwrap_or(0);
        assert!(
            n >= *least,
            "`{kind}` was tried {n} times, at least {least} are expected: {tried:#?}\n\
             no suggestion: {without_suggestion:#?}"
        );
    }
}
