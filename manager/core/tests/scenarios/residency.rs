//! Residency policies: refused submissions, evictions, and their lines in the audit log.

use super::*;
use meridian_manager_core::facts::audit::{Action, Entry, Verdict};
use meridian_manager_core::facts::outcome::RejectionReason;
use meridian_shared::ids::Jurisdiction;

fn policy(name: &str, spec: Value) -> Value {
    meridian_object("ResidencyPolicy", name, spec)
}

/// The cluster queue `cq`, restricted to these clusters.
fn queue_of_clusters(clusters: &Value) -> Vec<Value> {
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "some"});
    let check = kueue_object(
        "AdmissionCheck",
        "mk",
        json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}),
    );
    let config = kueue_object("MultiKueueConfig", "some", json!({"clusters": clusters}));
    let queue =
        cluster_queue("cq", 9, &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}}));
    vec![check, config, queue]
}

impl Fleet {
    /// Lines of the audit log about an action: the actor and the entry.
    pub(super) fn audit_lines(&self, action: Action) -> Vec<(String, Entry)> {
        let lines = self.records.iter().filter_map(|(_, record)| match record {
            Record::Audited(line) if line.entry.action == action => {
                Some((line.by.to_string(), line.entry.clone()))
            }
            _ => None,
        });
        lines.collect()
    }

    /// Submits a job, and returns the message if a policy refuses it.
    fn residency_refusal(&mut self, name: &str, dry_run: bool) -> Option<String> {
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
fn a_job_that_no_cluster_of_its_queue_may_run_is_refused() {
    let mut f = Fleet::regions();
    f.apply(vec![policy(
        "eu-only",
        json!({"applies": {"namespaces": ["default"]}, "allow": {"jurisdictions": ["EU"]}}),
    )]);
    assert_eq!(f.residency_refusal("free", false), None, "the policy allows `eu`");
    // The queue lists only clusters that the policy denies.
    f.apply(queue_of_clusters(&json!(["us", "asia"])));
    assert_eq!(
        f.residency_refusal("asked", true),
        f.residency_refusal("bound", false),
        "a dry run gets the same message"
    );
    let why = f.residency_refusal("again", false).unwrap();
    assert!(
        why.contains(
            "no cluster of its queue may run this workload: at `asia` residency policy `eu-only` (version "
        ),
        "{why}"
    );
    let lines = f.audit_lines(Action::Submit);
    assert_eq!(lines.len(), 2, "one line for each submission, none for the dry run");
    assert_eq!((lines[0].0.as_str(), lines[0].1.verdict), ("user:ana", Some(Verdict::Denied)));
    assert!(
        lines[0].1.subject.contains("bound") && lines[0].1.detail.as_deref() == Some(why.as_str()),
        "{:?}",
        lines[0]
    );
    // The region of a cluster that isn't declared yet is unknown: the policy may allow it.
    f.apply(queue_of_clusters(&json!(["us", "later"])));
    assert_eq!(f.residency_refusal("waits", false), None);
}

/// A gang that one of three clusters holds capacity for, and the manager doesn't know yet.
fn unreported_hold() -> (Fleet, Uid, ClusterName) {
    let mut f = Fleet::regions();
    let uid = f.submit("job", 2);
    f.exchange();
    let holder =
        f.world.state().workloads()[&uid].legs().values().map(|leg| leg.cluster().clone()).next().unwrap();
    assert_eq!((f.agents[&holder].held().count(), f.phase(uid)), (1, Some(Phase::Dispatching)));
    (f, uid, holder)
}

#[test]
fn a_hold_in_a_cordoned_or_drained_cluster_is_not_granted() {
    for action in [Operator::Drain, Operator::Cordon] {
        let (mut f, uid, holder) = unreported_hold();
        f.input(Input::Operator { actor: Actor::user("op"), action: action(holder.clone()) });
        f.settle();
        f.settle();
        assert_eq!(f.agents[&holder].held().count(), 0, "the hold is released");
        assert!(f.cluster_of(uid).is_some_and(|cluster| cluster != holder.as_str()), "{:#}", f.why(uid));
    }
    // The same if the cluster's manifest says it.
    let (mut f, uid, holder) = unreported_hold();
    let mut cluster = f
        .world
        .state()
        .catalog()
        .get(&Key::global(Kind::Cluster, holder.as_str()))
        .unwrap()
        .object
        .stored
        .clone();
    cluster["spec"]["cordoned"] = json!(true);
    f.apply(vec![cluster]);
    f.settle();
    assert!(f.cluster_of(uid).is_some_and(|cluster| cluster != holder.as_str()), "{:#}", f.why(uid));
}

#[test]
fn a_cluster_removed_from_a_queue_gets_no_grant_and_keeps_its_runs() {
    let (mut f, uid, holder) = unreported_hold();
    let others: Vec<&str> =
        ["eu", "us", "asia"].into_iter().filter(|name| *name != holder.as_str()).collect();
    f.apply(queue_of_clusters(&json!(others)));
    f.settle();
    f.settle();
    let home = f.cluster_of(uid).expect("the gang runs");
    assert_ne!(home, holder.as_str());
    f.apply(queue_of_clusters(&json!([holder.as_str()])));
    f.settle();
    assert_eq!((f.cluster_of(uid), f.world.state().workloads()[&uid].attempts()), (Some(home), 1));
}

#[test]
fn an_agent_outside_its_declared_region_gets_no_work() {
    let declared = |region: &str| cluster_object("eu", region, "EU");
    let mut f = Fleet::without_agents(EU);
    f.add_agent_in("eu", 1_000, Some("us-east4".into()));
    f.settle();
    let uid = f.submit("job", 1);
    f.settle();
    assert_eq!(f.cluster_of(uid), None);
    let why = f.why(uid)["clusters"][0]["reason"].as_str().unwrap().to_owned();
    assert_eq!(
        why,
        "quarantined: its agent is in `us-east4`, but the `Cluster` object declares another place"
    );
    f.apply(vec![declared("us-east4")]);
    f.settle();
    assert_eq!(f.cluster_of(uid).as_deref(), Some("eu"), "the declaration was wrong, and is corrected");
    // The same holds for an agent that is connected already, and for a hold that isn't granted yet.
    let late = f.submit("late", 1);
    f.exchange();
    assert_eq!(f.agents[&ClusterName::new("eu")].held().count(), 1);
    f.apply(vec![declared("europe-west1")]);
    f.settle();
    assert_eq!(
        (f.cluster_of(late), f.phase(uid)),
        (None, Some(Phase::Running)),
        "the running workload continues"
    );
}

#[test]
fn a_manager_outside_the_allowed_jurisdictions_refuses_the_job() {
    let mut f = Fleet::regions();
    f.world.config_mut().jurisdiction = Some(Jurisdiction::new("US"));
    f.apply(vec![policy(
        "eu-only",
        json!({"applies": {"namespaces": ["default"]}, "allow": {"jurisdictions": ["EU"]}}),
    )]);
    let why = f.residency_refusal("personal", false).unwrap();
    assert!(why.contains("`eu-only`") && why.contains("to be stored in `US`"), "{why}");
    assert!(f.world.uid_of(Kind::Job, "default", "personal").is_none());
    f.world.config_mut().jurisdiction = Some(Jurisdiction::new("EU"));
    assert_eq!(f.residency_refusal("personal", false), None);
}

#[test]
fn a_manager_that_requires_a_policy_refuses_jobs_without_one() {
    let mut f = Fleet::regions();
    f.world.config_mut().residency_required = true;
    let why = f.residency_refusal("early", false).unwrap();
    assert!(why.contains("no residency policy matches, and the manager requires one"), "{why}");
    f.apply(vec![policy(
        "anywhere",
        json!({"applies": {"namespaces": ["default"]}, "deny": {"clusters": ["asia"]}}),
    )]);
    assert_eq!(f.residency_refusal("early", false), None);
    f.settle();
    let uid = f.world.uid_of(Kind::Job, "default", "early").unwrap();
    assert!(f.cluster_of(uid).is_some_and(|cluster| cluster != "asia"));
}

#[test]
fn the_audit_log_has_a_line_per_verdict_and_per_grant() {
    let mut f = Fleet::regions();
    f.apply(vec![policy(
        "not-asia",
        json!({"applies": {"namespaces": ["default"]}, "deny": {"clusters": ["asia"]}}),
    )]);
    let [one, _] = [f.submit("one", 1), f.submit("alike", 1)];
    f.settle();
    let verdicts = f.audit_lines(Action::Verdict);
    let of = |cluster: &str| {
        verdicts.iter().filter(|(_, entry)| entry.cluster.as_deref() == Some(cluster)).collect::<Vec<_>>()
    };
    assert_eq!(
        [of("eu").len(), of("us").len(), of("asia").len()],
        [1; 3],
        "one line for all equivalent workloads"
    );
    assert_eq!(
        (of("eu")[0].1.verdict, of("asia")[0].1.verdict),
        (Some(Verdict::Allowed), Some(Verdict::Denied))
    );
    assert!(of("asia")[0].1.rule.as_deref().unwrap().starts_with("not-asia@"));
    let grants = f.audit_lines(Action::Grant);
    assert_eq!(grants.len(), 2);
    assert!(
        grants
            .iter()
            .any(|(_, entry)| entry.subject == one.to_string() && entry.cluster == f.cluster_of(one))
    );
    // A new version of the policy gets new verdicts.
    f.apply(vec![policy(
        "not-asia",
        json!({"applies": {"namespaces": ["default"]}, "deny": {"clusters": ["asia", "us"]}}),
    )]);
    f.submit("later", 1);
    f.settle();
    assert_eq!(f.audit_lines(Action::Verdict).len(), 6);
}

#[test]
fn an_offer_that_a_new_policy_forbids_is_withdrawn_without_a_grant() {
    let mut f = Fleet::new(EU);
    f.disconnected = vec!["eu".into()];
    let uid = f.submit("late", 1);
    f.apply(vec![policy(
        "closed",
        json!({"applies": {"namespaces": ["default"]}, "deny": {"clusters": ["eu"]}}),
    )]);
    f.disconnected.clear();
    f.settle();
    assert_eq!(
        (f.cluster_of(uid), f.audit_lines(Action::Grant).len()),
        (None, 0),
        "the offer was withdrawn before the hold arrived"
    );
}

#[test]
fn the_actor_of_a_record_is_known_on_replay() {
    let mut f = Fleet::new(EU);
    let before = f.world.snapshot();
    f.records.clear();
    let uid = f.submit("one", 2);
    f.settle();
    f.end(uid, EndResult::Succeeded);
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "one"),
        uid: None,
        force: false,
    }]);
    let mut world = World::restore(&before, config()).unwrap();
    let mut actors = Vec::new();
    for (number, record) in &f.records {
        let by = world.actor_of(record).map(|by| by.to_string());
        if let Record::Workload { fact, .. } = record {
            let fact = serde_json::to_value(fact).unwrap();
            let name = fact.as_object().and_then(|fact| fact.keys().next().cloned());
            actors.push((name.unwrap_or_else(|| fact.to_string()), by));
        }
        world.absorb(*number, record);
    }
    let by = |kind: &str| {
        actors
            .iter()
            .find(|(of, _)| of == kind)
            .unwrap_or_else(|| panic!("no {kind}: {actors:?}"))
            .1
            .as_deref()
    };
    for kind in ["Held", "GrantAccepted", "Running", "Ended"] {
        assert_eq!(by(kind), Some("agent:eu"), "{kind}");
    }
    assert!(
        by("Submitted").is_some_and(|by| by.starts_with("user:"))
            && by("DeletionRequested").is_some_and(|by| by.starts_with("user:"))
    );
    assert_eq!(
        [by("QuotaReserved"), by("Offered"), by("Granted")],
        [None; 3],
        "the manager itself decides these"
    );
}

#[test]
fn a_residency_policy_restricts_a_gang_to_allowed_clusters() {
    let mut f = Fleet::regions();
    f.apply(vec![
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "research", "labels": {"data": "personal"}},
        }),
        local_queue_in("research", "lq", "cq"),
        policy(
            "eu-only",
            json!({
                "applies": {"namespaceSelector": {"matchLabels": {"data": "personal"}}},
                "allow": {"jurisdictions": ["EU"]},
            }),
        ),
    ]);
    let first = f.submit_in("research", "a", 3, json!({}));
    let second = f.submit_in("research", "b", 3, json!({}));
    f.settle();
    assert_eq!(f.cluster_of(first).as_deref(), Some("eu"));
    assert_eq!(f.phase(second), Some(Phase::Pending));
    let why = f.why(second);
    let verdicts: Vec<&str> =
        why["clusters"].as_array().unwrap().iter().map(|c| c["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["forbidden", "no-room", "forbidden"]);
    // A stricter policy evicts the running gang.
    f.apply(vec![policy(
        "nowhere",
        json!({
            "applies": {"namespaces": ["research"]},
            "allow": {"jurisdictions": ["EU"]}, "deny": {"clusters": ["eu"]},
        }),
    )]);
    f.settle();
    assert_eq!(f.cluster_of(first), None);
    assert_eq!(f.phase(first), Some(Phase::Pending));
}

#[test]
fn a_flag_policy_keeps_running_gangs_and_starts_no_new_ones() {
    let mut f = Fleet::regions();
    let running = f.submit("runs", 3);
    f.settle();
    let home = f.cluster_of(running).unwrap();
    let flag = json!({
        "applies": {"namespaces": ["default"]}, "deny": {"clusters": [home]}, "onChange": "Flag",
    });
    f.apply(vec![policy("flag", flag)]);
    f.settle();
    assert_eq!(f.cluster_of(running), Some(home.clone()));
    let why = f.why(running)["summary"].as_str().unwrap().to_owned();
    assert!(
        why.contains("residency policy `flag` (version ")
            && why.ends_with("but the policy has `onChange: Flag`, so the workload keeps running"),
        "{why}"
    );
    let verdicts = f.audit_lines(Action::Verdict);
    let denied = verdicts.iter().filter(|(_, entry)| {
        entry.verdict == Some(Verdict::Denied) && entry.cluster.as_deref() == Some(home.as_str())
    });
    assert_eq!(denied.count(), 1, "the audit log has a line about the forbidden run");
    let after: Vec<Uid> = (0..3).map(|i| f.submit(&format!("after-{i}"), 1)).collect();
    f.settle();
    assert!(after.iter().all(|u| f.cluster_of(*u).is_some_and(|cluster| cluster != home)));
}
