//! What `why` says would start a workload does: every suggestion is read from its words, the change is made, and the workload
//! is seen to start. How often each kind was tried is counted, so that none goes untried.

#[path = "stories.rs"]
mod stories;

use super::*;
use std::collections::BTreeSet;
use stories::*;
pub(super) use stories::{nodes, send};

/// Dice per kind of story.
const SEEDS: u64 = 40;

/// One promise, as it is read from the words.
#[derive(Clone, Debug)]
enum Claim {
    /// Nominal quotas by flavor and resource, with the kind that it counts as.
    Raise(&'static str, Vec<(String, String, i64)>),
    End(&'static str, String),
    Delete(String),
    /// A priority above this one.
    Priority(&'static str, i64),
    /// The end of all who hold what it lacks.
    Ends,
    /// What is missing is made, and what comes next isn't known.
    Make(&'static str),
    /// Words without numbers.
    Do(&'static str),
    /// All of them together.
    All(&'static str, Vec<Claim>),
}

/// A promise, and what it depends on.
#[derive(Clone, Debug)]
struct Promise {
    claim: Claim,
    /// Others may take it first: who is named, and how many are meant.
    rivals: Option<(String, usize)>,
    /// But not if its priority is above this one.
    unless_above: Option<i64>,
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn number(text: &str) -> i64 {
    text.chars()
        .take_while(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .unwrap_or_else(|_| panic!("no number: {text}"))
}

fn job_name(text: &str) -> String {
    quoted(text)[0].strip_prefix("default/").unwrap().to_owned()
}

fn raise(text: &str) -> Option<Claim> {
    let (_, rest) = text.split_once("raise the queue's nominal quota of ")?;
    let one = |part: &str| {
        let names = quoted(part);
        (names[1].to_owned(), names[0].to_owned(), number(part.rsplit_once("` to ").unwrap().1))
    };
    let (quotas, rivals) =
        rest.split_once(", which is enough for ").map_or((rest, false), |(quotas, _)| (quotas, true));
    let quotas = quotas.split(", or ask for less").next().unwrap();
    let all: Vec<_> = quotas
        .split(" and of ")
        .flat_map(|part| part.split(", and of "))
        .map(|part| one(part.trim_end_matches(',')))
        .collect();
    let kind = match (all.len(), rivals) {
        (1, false) => "raise",
        (1, true) => "raise before rivals",
        (_, false) => "raise several",
        (_, true) => "raise several before rivals",
    };
    Some(Claim::Raise(kind, all))
}

/// What is promised without conditions.
const PLAIN: &[&str] = &[
    "uncordon it",
    "start or join its agent",
    "add it to the queue's MultiKueueConfig",
    "a higher cap",
    "set the stopPolicy of",
    "create local queue",
    "create cluster queue",
    "create resource flavor",
    "namespaceSelector",
    "to a resource group",
    "add a flavor whose labels, taints and topology fit",
    "meridian resume job",
    "other nodes there",
    "the end of a workload there",
    "it is asked again after a while",
    "a submission that doesn't narrow its regions",
];

fn at_cluster(text: &str) -> Option<Claim> {
    if text.contains("the end of ") && text.contains("` there") {
        let (_, rest) = text.split_once("the end of ").unwrap();
        let all: Vec<Claim> = quoted(rest)
            .into_iter()
            .map(|name| Claim::End("end of one there", name.strip_prefix("default/").unwrap().to_owned()))
            .collect();
        return Some(if all.len() > 1 { Claim::All("end of several there", all) } else { all[0].clone() });
    }
    PLAIN.iter().find(|plain| text.contains(**plain)).map(|plain| Claim::Do(plain))
}

/// The first number after these words.
fn number_after(text: &str, words: &str) -> Option<i64> {
    text.split_once(words).map(|(_, rest)| number(rest))
}

/// What makes good for everything by itself.
fn alone(part: &str, steps: &[Promise]) -> Claim {
    if let Some(above) = number_after(part, "a priority above ") {
        return Claim::Priority("priority alone", above);
    }
    if let Some(to) = number_after(part, "a nominal quota of ") {
        let Claim::Raise(_, quotas) = &steps[0].claim else { panic!("of which quota: {part}") };
        return Claim::Raise("raise for the fewest", vec![(quotas[0].0.clone(), quotas[0].1.clone(), to)]);
    }
    if part.contains("the end of workloads with ") {
        return Claim::Ends;
    }
    if part.contains("the end of") {
        Claim::End("end of one", job_name(part))
    } else {
        Claim::Delete(job_name(part))
    }
}

/// Whom a condition names, and how many it is about.
fn rivals(part: &str) -> (String, usize) {
    let more = part.split_once(" and ").map_or(0, |(_, rest)| usize::try_from(number(rest)).unwrap());
    (job_name(part), more + 1)
}

/// Every promise of a text; the text is used up by them.
fn promises(helps: &str) -> Vec<Promise> {
    let plain = |claim| Promise { claim, rivals: None, unless_above: None };
    let (mut steps, mut found, mut whole) = (Vec::<Promise>::new(), Vec::new(), true);
    for part in
        helps.split("; ").filter(|part| !part.is_empty() && *part != "no single change is known to start it")
    {
        let part = part.trim_start_matches("first: ");
        if part.contains(" alone would do") {
            found.push(plain(alone(part, &steps)));
        } else if part.contains("may take it first") {
            let Some(last) = steps.last_mut() else { continue };
            (last.rivals, last.unless_above) = (
                Some(rivals(part)),
                number_after(part, "unless it is submitted again with a priority above "),
            );
        } else if let Some(above) = number_after(part, "submitted again with a priority above ") {
            let Some(Claim::Raise(_, quotas)) = steps.last().map(|step| step.claim.clone()) else {
                panic!("of which quota: {part}")
            };
            let quota = (quotas[0].0.clone(), quotas[0].1.clone(), number(part.rsplit_once(", ").unwrap().1));
            found.push(plain(Claim::All(
                "raise and priority",
                vec![Claim::Priority("", above), Claim::Raise("raise", vec![quota])],
            )));
        } else if part.contains("what comes next depends") {
            whole = false;
            found.extend(at_cluster(helps).map(|claim| plain(Claim::Make(claim.kind()))));
        } else if part.contains(", and that of ") || part.ends_with(" before it") {
            whole = false;
        } else if let (Some(Claim::Raise("raise" | "raise several", _)), true, 0) =
            (raise(part), part.starts_with("the end of workloads with "), steps.len())
        {
            found.push(plain(Claim::Ends));
            steps.extend(raise(part).map(plain));
        } else if let Some(claim) = raise(part).or_else(|| at_cluster(part)) {
            steps.push(plain(claim));
        } else if part.contains("the start or deletion of ") && helps.contains("no single change") {
            steps.push(plain(Claim::Delete(job_name(part))));
        } else {
            whole = false;
        }
    }
    // What asks for another priority, or for ends, besides asks for it beside all other steps.
    found.retain(|promise| {
        steps.len() < 2 || !matches!(promise.claim, Claim::All("raise and priority", _) | Claim::Ends)
    });
    match steps.as_slice() {
        _ if !whole => {}
        [] => {}
        [one] => found.push(one.clone()),
        many => found.push(Promise {
            claim: Claim::All(
                if matches!(many[0].claim, Claim::Raise(..)) {
                    "quota and room"
                } else {
                    "one after another"
                },
                many.iter().map(|step| step.claim.clone()).collect(),
            ),
            rivals: many.iter().find_map(|step| step.rivals.clone()),
            unless_above: None,
        }),
    }
    found
}

impl Claim {
    fn kind(&self) -> &'static str {
        match self {
            Self::Raise(kind, _)
            | Self::End(kind, _)
            | Self::Do(kind)
            | Self::Priority(kind, _)
            | Self::All(kind, _) => kind,
            Self::Delete(_) => "deletion of the head",
            Self::Ends => "ends",
            Self::Make(_) => "what is missing",
        }
    }

    /// Others may come first, and take the room.
    fn has_rivals(&self) -> bool {
        match self {
            Self::Raise(kind, _) => kind.contains("rivals"),
            Self::All(_, all) => all.iter().any(Self::has_rivals),
            Self::End(..)
            | Self::Delete(_)
            | Self::Do(_)
            | Self::Priority(..)
            | Self::Ends
            | Self::Make(_) => false,
        }
    }

    /// Makes the change.
    fn make(&self, story: &mut Story) {
        match self {
            Self::Raise(_, quotas) => {
                let mut queue = story.object("ClusterQueue", &story.queue());
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
                story.objects.push(queue.clone());
                story.f.apply(vec![queue]);
            }
            Self::End(_, name) => story.end(name),
            Self::Delete(name) => {
                drop(story.f.write(vec![Change::Delete {
                    key: Key::namespaced(Kind::Job, "default", name),
                    uid: None,
                }]))
            }
            Self::Priority(_, above) => story.prioritise(above + 1),
            Self::All(_, all) => all.iter().for_each(|one| one.make(story)),
            Self::Ends => {
                let all: Vec<Uid> = story.f.running.iter().map(|(_, uid)| *uid).collect();
                all.into_iter().for_each(|uid| {
                    if story.f.at(uid).is_some() {
                        story.f.end(uid, EndResult::Succeeded)
                    }
                });
            }
            Self::Do(what) | Self::Make(what) => story.follow(what),
        }
    }
}

impl Story {
    /// Submits the workload again, with another priority.
    fn prioritise(&mut self, priority: i64) {
        self.f.write(vec![Change::Delete {
            key: Key::namespaced(Kind::Job, "default", &self.f.world.state.workloads()[&self.uid].name()),
            uid: None,
        }]);
        self.f.settle();
        let mut job = self.asks.clone();
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("urgent");
        let class = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": priority});
        self.f.apply(vec![class]);
        self.uid = send(&mut self.f, job);
        assert_eq!(self.f.world.state.workloads()[&self.uid].priority(), priority);
    }

    /// Everybody else who waits.
    fn others(&self) -> BTreeMap<String, Uid> {
        let waits = self
            .f
            .world
            .state
            .workloads()
            .iter()
            .filter(|(uid, w)| **uid != self.uid && w.phase() == Phase::Pending);
        waits.map(|(uid, w)| (w.name().to_string(), *uid)).collect()
    }

    fn follow(&mut self, what: &str) {
        let queue = self.queue();
        let change = |object: Value, at: &str, field: &str, value: Value| {
            let mut object = object;
            *object
                .pointer_mut(at)
                .unwrap_or_else(|| panic!("{at}"))
                .as_object_mut()
                .unwrap()
                .entry(field.to_owned())
                .or_insert(Value::Null) = value;
            object
        };
        let eu = || json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "eu"}, "spec": {"region": "europe-west4", "jurisdiction": "EU"}});
        let object = match what {
            "uncordon it" => {
                self.f.input(Input::Operator {
                    actor: Actor::user("op"),
                    action: Operator::Uncordon("eu".into()),
                });
                self.f.input(Input::Turn);
                return;
            }
            "start or join its agent" => {
                self.f.cut.clear();
                let us: ClusterName = "us".into();
                if self.f.world.state.catalog().cluster(&us).is_some() {
                    self.f.add_agent("us", 2_000);
                    nodes(&mut self.f, "us", &[("us-1", 64, &[])]);
                }
                return;
            }
            "meridian resume job" => return self.f.resume(self.uid),
            "it is asked again after a while" => return,
            "other nodes there" => return nodes(&mut self.f, "eu", &[("eu-1", 64, &[])]),
            "the end of a workload there" => {
                let first = self.f.running[0].1;
                return self.f.end(first, EndResult::Succeeded);
            }
            "a submission that doesn't narrow its regions" => {
                self.f.write(vec![Change::Delete {
                    key: Key::namespaced(Kind::Job, "default", "asks"),
                    uid: None,
                }]);
                self.uid = send(&mut self.f, queue_job("a", "asks", 2));
                return;
            }
            "a higher cap" => eu(),
            "add it to the queue's MultiKueueConfig" => {
                change(self.object("MultiKueueConfig", "some"), "/spec", "clusters", json!(["us", "eu"]))
            }
            "create local queue" => self.object("LocalQueue", "a"),
            "create cluster queue" => self.object("ClusterQueue", &queue),
            "create resource flavor" => {
                json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "rare"}})
            }
            "namespaceSelector" => {
                change(self.object("ClusterQueue", &queue), "/spec", "namespaceSelector", json!({}))
            }
            "to a resource group" => change(
                self.object("ClusterQueue", &queue),
                "/spec",
                "resourceGroups",
                group(&[(GPU, json!(8)), ("cpu", json!(8))]),
            ),
            "set the stopPolicy of" => {
                let all = [self.object("ClusterQueue", &queue), self.object("LocalQueue", "a")];
                let all: Vec<Value> = all
                    .into_iter()
                    .map(|object| change(object, "/spec", "stopPolicy", json!("None")))
                    .collect();
                self.objects.extend(all.clone());
                self.f.apply(all);
                return;
            }
            "add a flavor whose labels, taints and topology fit" => {
                let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "other"}, "spec": {"nodeLabels": {"pool": "b"}}});
                let mut queue = self.object("ClusterQueue", &queue);
                let flavors = queue["spec"]["resourceGroups"][0]["flavors"].as_array_mut().unwrap();
                flavors.push(json!({"name": "other", "resources": [{"name": GPU, "nominalQuota": 8}]}));
                self.f.apply(vec![flavor]);
                queue
            }
            other => panic!("nobody knows how to follow `{other}`"),
        };
        self.objects.push(object.clone());
        self.f.apply(vec![object]);
    }
}

/// How often each kind was tried at least.
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
    ("one after another", 40),
    ("one after another, others first", 2),
    ("one after another, no others", 2),
    ("set the stopPolicy of, others first", 3),
    ("set the stopPolicy of, no others", 3),
    ("priority alone", 20),
    ("raise and priority", 15),
    ("raise for the fewest", 8),
    ("what is missing", 10),
    ("quota and room", 3),
    ("uncordon it", 3),
    ("start or join its agent", 3),
    ("add it to the queue's MultiKueueConfig", 3),
    ("a higher cap", 3),
    ("a submission that doesn't narrow its regions", 1),
    ("other nodes there", 1),
    ("set the stopPolicy of", 6),
    ("create resource flavor", 2),
    ("namespaceSelector", 2),
    ("to a resource group", 2),
    ("add a flavor whose labels, taints and topology fit", 2),
    ("meridian resume job", 20),
];

/// How a story comes about.
type Tell = fn(&mut Dice) -> Story;

/// What became of promises.
#[derive(Default)]
struct Trial {
    tried: BTreeMap<String, usize>,
    wrong: Vec<String>,
    /// Of which nothing was promised.
    silent: BTreeSet<String>,
}

impl Trial {
    /// Tries out everything that is promised at the start of a story.
    fn of(&mut self, name: &str, tell: Tell, seed: u64) {
        let before = tell(&mut Dice(seed));
        if before.f.phase(before.uid) != Some(Phase::Pending) {
            return;
        }
        let (summary, helps) = before.f.words(before.uid);
        let mut all = promises(&helps);
        if summary.contains("start it now") {
            let by_cluster = before.f.why(before.uid)["clusters"].as_array().unwrap().clone();
            let wish =
                by_cluster.iter().filter_map(|cluster| at_cluster(cluster["wouldHelp"].as_str().unwrap()));
            let wish = wish
                .filter(|claim| matches!(claim, Claim::Do("a submission that doesn't narrow its regions")));
            all.extend(wish.map(|claim| Promise { claim, rivals: None, unless_above: None }));
        }
        if all.is_empty() {
            self.silent.insert(format!("{name}: {helps}"));
        }
        for promise in all {
            for (how, story, kept) in Self::keep(&promise, tell, seed) {
                *self.tried.entry(format!("{}{how}", promise.claim.kind())).or_default() += 1;
                if !kept {
                    let now = story.f.words(story.uid);
                    self.wrong.push(format!(
                        "{name} {seed}{how}: {promise:?}\n   {summary}\n   {helps}\n   now: {now:?}"
                    ));
                }
            }
        }
    }

    /// The ways in which a promise is tried, and whether it was kept in each.
    fn keep(promise: &Promise, tell: Tell, seed: u64) -> Vec<(&'static str, Story, bool)> {
        let again = || tell(&mut Dice(seed));
        let mut tries = Vec::new();
        let mut story = again();
        if !story.roomy && promise.claim.has_rivals() {
            return tries;
        }
        let Some((first, count)) = &promise.rivals else {
            promise.claim.make(&mut story);
            let kept = story.started()
                || matches!(promise.claim, Claim::Make(_))
                    && !story.f.words(story.uid).0.contains("there is no ");
            tries.push(("", story, kept));
            return tries;
        };
        // Whoever may take it first does, or it starts.
        let others = story.others();
        promise.claim.make(&mut story);
        let started = story.started();
        let took: Vec<&String> = others
            .iter()
            .filter(|(_, uid)| story.f.phase(**uid) != Some(Phase::Pending))
            .map(|(name, _)| name)
            .collect();
        let kept = started || if *count == 1 { took.contains(&first) } else { !took.is_empty() };
        tries.push((", others first", story, kept));
        // Without them it starts.
        let mut story = again();
        for name in others.into_keys() {
            story
                .f
                .write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", &name), uid: None }]);
        }
        promise.claim.make(&mut story);
        let kept = story.started();
        tries.push((", no others", story, kept));
        if let Some(above) = promise.unless_above {
            let mut story = again();
            story.prioritise(above + 1);
            promise.claim.make(&mut story);
            let kept = story.started();
            tries.push((", with priority", story, kept));
        }
        tries
    }
}

#[test]
fn every_suggestion_starts_what_it_is_made_for() {
    let stories: &[(&str, Tell, u64)] = &[
        ("quota", quota, 10 * SEEDS),
        ("resources", resources, 2 * SEEDS),
        ("past use", usage_history, SEEDS),
        ("strict", strict, SEEDS),
        ("room", room, 2 * SEEDS),
        ("room for several", crowd, 2 * SEEDS),
        ("cluster", cluster, SEEDS),
        ("way", way, 3 * SEEDS),
        ("deactivated", deactivated, SEEDS),
        ("rack", rack, SEEDS),
        ("priorities", priorities, SEEDS),
    ];
    let mut trial = Trial::default();
    for (name, tell, seeds) in stories {
        (0..*seeds).for_each(|seed| trial.of(name, *tell, seed));
    }
    let Trial { tried, wrong, silent } = trial;
    assert!(wrong.is_empty(), "{} of {:?}:\n{}", wrong.len(), tried, wrong.join("\n"));
    for (kind, least) in MINIMA {
        let n = tried.get(*kind).copied().unwrap_or(0);
        assert!(
            n >= *least,
            "`{kind}` was tried {n} times, at least {least} are wanted: {tried:#?}\nno promise: {silent:#?}"
        );
    }
}
