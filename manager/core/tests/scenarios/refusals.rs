//! What a rule of residency keeps out, at submission and later, and what the audit log says of it.

use super::*;
use meridian_manager_core::facts::audit::{Action, Entry, Verdict};
use meridian_manager_core::facts::outcome::RejectionReason;
use meridian_shared::ids::Jurisdiction;

fn policy(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": name}, "spec": spec})
}

/// A queue of these clusters only.
fn of_clusters(clusters: &Value) -> Vec<Value> {
    let check = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "mk"}, "spec": {
        "controllerName": "kueue.x-k8s.io/multikueue", "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "some"}}});
    let config = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig", "metadata": {"name": "some"}, "spec": {"clusters": clusters}});
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {},
        "admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 9}]}]}]}});
    vec![check, config, queue]
}

impl Fleet {
    fn lines(&self, action: Action) -> Vec<(String, Entry)> {
        let lines = self.records.iter().filter_map(|(_, record)| match record {
            Record::Audited(line) if line.entry.action == action => {
                Some((line.by.to_string(), line.entry.clone()))
            }
            _ => None,
        });
        lines.collect()
    }

    fn kept_out(&mut self, name: &str, dry_run: bool) -> Option<String> {
        let object = object(job("default", name, 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), ""));
        self.next_uid += 1;
        let changes =
            vec![Change::Put { object, scope: None, uid: Uid(self.next_uid), mode: PutMode::Apply }];
        match self.input(Input::Write(Box::new(Write::new(Actor::user("ana"), changes, dry_run)))) {
            Reply::Rejected(why) => {
                assert_eq!(why[0].reason, RejectionReason::Forbidden, "{}", why[0].message);
                Some(why[0].message.clone())
            }
            _ => None,
        }
    }
}

#[test]
fn a_job_that_no_cluster_of_its_queue_may_run_is_refused_and_remembered() {
    let mut f = Fleet::regions();
    f.apply(vec![policy(
        "eu-only",
        json!({"applies": {"namespaces": ["default"]}, "allow": {"jurisdictions": ["EU"]}}),
    )]);
    assert_eq!(f.kept_out("free", false), None, "`eu` may");
    // The queue's own list leaves nothing that the policy allows.
    f.apply(of_clusters(&json!(["us", "asia"])));
    assert_eq!(f.kept_out("asked", true), f.kept_out("bound", false), "a dry run is told the same");
    let why = f.kept_out("again", false).unwrap();
    assert!(
        why.contains(
            "no cluster of its queue may run this workload: at `asia` residency policy `eu-only` (version "
        ),
        "{why}"
    );
    let lines = f.lines(Action::Submit);
    assert_eq!(lines.len(), 2, "a line for each that was sent, and none for the dry run");
    assert_eq!((lines[0].0.as_str(), lines[0].1.verdict), ("user:ana", Some(Verdict::Denied)));
    assert!(
        lines[0].1.subject.contains("bound") && lines[0].1.detail.as_deref() == Some(why.as_str()),
        "{:?}",
        lines[0]
    );
    // Of a cluster that nobody declared yet the place may be a right one.
    f.apply(of_clusters(&json!(["us", "later"])));
    assert_eq!(f.kept_out("waits", false), None);
}

/// A gang of two whose cluster is about to say that it holds room for it, in a fleet of three.
fn about_to_be_held() -> (Fleet, Uid, ClusterName) {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 2);
    f.exchange();
    let asked =
        f.world.state.workloads()[&uid].legs().values().map(|leg| leg.cluster.clone()).next().unwrap();
    assert_eq!(
        (f.agents[&asked].held().count(), f.phase(uid)),
        (1, Some(Phase::Dispatching)),
        "it holds, and nobody was told"
    );
    (f, uid, asked)
}

#[test]
fn what_a_drained_cluster_holds_is_not_granted_there() {
    for action in [Operator::Drain, Operator::Cordon] {
        let (mut f, uid, asked) = about_to_be_held();
        f.input(Input::Operator { actor: Actor::user("op"), action: action(asked.clone()) });
        f.settle();
        f.settle();
        assert_eq!(f.agents[&asked].held().count(), 0, "its room is given back");
        assert!(f.at(uid).is_some_and(|at| at != asked.as_str()), "{:#}", f.why(uid));
    }
    // As a file says it.
    let (mut f, uid, asked) = about_to_be_held();
    let mut cluster = f
        .world
        .state
        .catalog()
        .get(&Key::global(Kind::Cluster, asked.as_str()))
        .unwrap()
        .object
        .stored
        .clone();
    cluster["spec"]["cordoned"] = json!(true);
    f.apply(vec![cluster]);
    f.settle();
    assert!(f.at(uid).is_some_and(|at| at != asked.as_str()), "{:#}", f.why(uid));
}

#[test]
fn what_a_queue_no_longer_names_is_not_granted_and_what_runs_there_runs_on() {
    let (mut f, uid, asked) = about_to_be_held();
    let others: Vec<&str> = ["eu", "us", "asia"].into_iter().filter(|name| *name != asked.as_str()).collect();
    f.apply(of_clusters(&json!(others)));
    f.settle();
    f.settle();
    let at = f.at(uid).expect("it runs");
    assert_ne!(at, asked.as_str());
    f.apply(of_clusters(&json!([asked.as_str()])));
    f.settle();
    assert_eq!((f.at(uid), f.world.state.workloads()[&uid].attempts()), (Some(at), 1));
}

#[test]
fn an_agent_that_finds_itself_elsewhere_gets_nothing() {
    let declared = |region: &str| json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "eu"}, "spec": {"region": region, "jurisdiction": "EU"}});
    let mut f = Fleet::without_agents(&[("eu", "europe-west4", "EU")]);
    f.add_agent_in("eu", 1_000, Some("us-east4".into()));
    f.settle();
    let uid = f.submit("job", 1);
    f.settle();
    assert_eq!(f.at(uid), None);
    let why = f.why(uid)["clusters"][0]["reason"].as_str().unwrap().to_owned();
    assert_eq!(why, "its agent finds itself in `us-east4`, not where it was declared");
    f.apply(vec![declared("us-east4")]);
    f.settle();
    assert_eq!(f.at(uid).as_deref(), Some("eu"), "what was wrong was the object");
    // It holds for an agent that is connected, too, and for what is under way.
    let late = f.submit("late", 1);
    f.exchange();
    assert_eq!(f.agents[&ClusterName::new("eu")].held().count(), 1);
    f.apply(vec![declared("europe-west1")]);
    f.settle();
    assert_eq!((f.at(late), f.phase(uid)), (None, Some(Phase::Running)), "what runs runs on");
}

#[test]
fn what_may_not_be_stored_here_is_not() {
    let mut f = Fleet::regions();
    f.world.config.jurisdiction = Some(Jurisdiction::new("US"));
    f.apply(vec![policy(
        "eu-only",
        json!({"applies": {"namespaces": ["default"]}, "allow": {"jurisdictions": ["EU"]}}),
    )]);
    let why = f.kept_out("personal", false).unwrap();
    assert!(why.contains("`eu-only`") && why.contains("to be stored in `US`"), "{why}");
    assert!(f.world.uid_of("default", "personal").is_none());
    f.world.config.jurisdiction = Some(Jurisdiction::new("EU"));
    assert_eq!(f.kept_out("personal", false), None);
}

#[test]
fn without_a_policy_nothing_is_allowed_where_one_is_required() {
    let mut f = Fleet::regions();
    f.world.config.residency_required = true;
    let why = f.kept_out("early", false).unwrap();
    assert!(why.contains("no residency policy matches, and the manager requires one"), "{why}");
    f.apply(vec![policy(
        "anywhere",
        json!({"applies": {"namespaces": ["default"]}, "deny": {"clusters": ["asia"]}}),
    )]);
    assert_eq!(f.kept_out("early", false), None);
    f.settle();
    let uid = f.world.uid_of("default", "early").unwrap();
    assert!(f.at(uid).is_some_and(|at| at != "asia"));
}

#[test]
fn every_verdict_and_every_grant_has_its_line() {
    let mut f = Fleet::regions();
    f.apply(vec![policy(
        "not-asia",
        json!({"applies": {"namespaces": ["default"]}, "deny": {"clusters": ["asia"]}}),
    )]);
    let [one, _] = [f.submit("one", 1), f.submit("alike", 1)];
    f.settle();
    let verdicts = f.lines(Action::Verdict);
    let of = |cluster: &str| {
        verdicts.iter().filter(|(_, entry)| entry.cluster.as_deref() == Some(cluster)).collect::<Vec<_>>()
    };
    assert_eq!([of("eu").len(), of("us").len(), of("asia").len()], [1; 3], "once for a class, whoever asks");
    assert_eq!(
        (of("eu")[0].1.verdict, of("asia")[0].1.verdict),
        (Some(Verdict::Allowed), Some(Verdict::Denied))
    );
    assert!(of("asia")[0].1.rule.as_deref().unwrap().starts_with("not-asia@"));
    let grants = f.lines(Action::Grant);
    assert_eq!(grants.len(), 2);
    assert!(grants.iter().any(|(_, entry)| entry.subject == one.to_string() && entry.cluster == f.at(one)));
    // Another version of the rule is judged anew.
    f.apply(vec![policy(
        "not-asia",
        json!({"applies": {"namespaces": ["default"]}, "deny": {"clusters": ["asia", "us"]}}),
    )]);
    f.submit("later", 1);
    f.settle();
    assert_eq!(f.lines(Action::Verdict).len(), 6);
}

#[test]
fn a_grant_that_a_new_rule_forbids_is_a_line_too() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.cut = vec!["eu".into()];
    let uid = f.submit("late", 1);
    f.apply(vec![policy(
        "closed",
        json!({"applies": {"namespaces": ["default"]}, "deny": {"clusters": ["eu"]}}),
    )]);
    f.cut.clear();
    f.settle();
    assert_eq!((f.at(uid), f.lines(Action::Grant).len()), (None, 0), "it was taken back before a hold came");
}

#[test]
fn whoever_caused_a_record_is_known_to_its_readers() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let before = f.world.snapshot();
    f.records.clear();
    let uid = f.submit("one", 2);
    f.settle();
    f.end(uid, EndResult::Succeeded);
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "one"), uid: None }]);
    let mut world = World::restore(&before, config()).unwrap();
    let mut seen = Vec::new();
    for (number, record) in &f.records {
        let by = world.actor_of(record).map(|by| by.to_string());
        if let Record::Workload { fact, .. } = record {
            let fact = serde_json::to_value(fact).unwrap();
            let name = fact.as_object().and_then(|fact| fact.keys().next().cloned());
            seen.push((name.unwrap_or_else(|| fact.to_string()), by));
        }
        world.absorb(*number, record);
    }
    let by = |kind: &str| {
        seen.iter().find(|(of, _)| of == kind).unwrap_or_else(|| panic!("no {kind}: {seen:?}")).1.as_deref()
    };
    for kind in ["Held", "GrantAccepted", "Running", "Ended"] {
        assert_eq!(by(kind), Some("agent:eu"), "{kind}");
    }
    assert!(
        by("Submitted").is_some_and(|by| by.starts_with("user:"))
            && by("DeletionRequested").is_some_and(|by| by.starts_with("user:"))
    );
    assert_eq!([by("QuotaReserved"), by("Offered"), by("Granted")], [None; 3], "the manager's own");
}
