//! Queues that share: borrowing, taking back, displacing, draining, changing priorities.

use super::*;
use meridian_manager_core::facts::outcome::WriteResult;
use meridian_queueing::settings::FairSharing;
use meridian_shared::protocol::StopReason;

/// Two teams in one cohort, each with its own quota of GPUs.
pub(super) fn teams(f: &mut Fleet, own: [i64; 2], preemption: &Value) {
    let queue = |name: &str, nominal: i64| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {
            "cohortName": "all", "namespaceSelector": {}, "preemption": preemption, "resourceGroups": [
                {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": nominal}]}]}]}})
    };
    let local = |name: &str, queue: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": queue}});
    f.apply(vec![
        queue("team-a", own[0]),
        queue("team-b", own[1]),
        local("a", "team-a"),
        local("b", "team-b"),
    ]);
}

pub(super) fn priorities(f: &mut Fleet, high: i64) {
    f.apply(vec![
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": high}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "low"}, "value": 1}),
    ]);
}

impl Fleet {
    pub(super) fn submit_to(&mut self, queue: &str, name: &str, pods: u32, class: Option<&str>) -> Uid {
        let mut labels = json!({"kueue.x-k8s.io/queue-name": queue});
        if let Some(class) = class {
            labels["kueue.x-k8s.io/priority-class"] = json!(class);
        }
        match self.apply(vec![job("default", name, pods, &labels, "")]) {
            Reply::Written(written) => written[0].uid,
            other => panic!("not submitted: {other:?}"),
        }
    }

    pub(super) fn phases(&self, uids: &[Uid]) -> Vec<Option<Phase>> {
        uids.iter().map(|uid| self.phase(*uid)).collect()
    }
}

#[test]
fn what_others_leave_is_borrowed_and_never_more() {
    let mut f = Fleet::regions();
    teams(&mut f, [4, 4], &json!({}));
    let borrower = f.submit_to("a", "borrower", 4, None);
    let more = f.submit_to("a", "more", 4, None);
    let late = f.submit_to("a", "late", 1, None);
    f.settle();
    assert_eq!(
        f.phases(&[borrower, more, late]),
        [Some(Phase::Running), Some(Phase::Running), Some(Phase::Pending)]
    );
    assert!(f.world.over_quota().is_empty());
    // The owner may displace nobody: it waits, and is told whose quota it is.
    let owner = f.submit_to("b", "owner", 2, None);
    f.settle();
    assert_eq!(f.phase(owner), Some(Phase::Pending));
    assert_eq!(
        f.why(owner)["summary"],
        "waits: asks for 2 `nvidia.com/gpu`; cluster queue `team-b` has 0 of 4 free in flavor `any` (others have borrowed 4 of it), cohort `all` lends 0; \
         it would fit if `default/more` (priority 0) were preempted, which `reclaimWithinCohort: Never` forbids"
    );
    f.end(more, EndResult::Succeeded);
    assert_eq!(f.phase(owner), Some(Phase::Running));
}

#[test]
fn a_lender_takes_back_whole_gangs_and_no_more_of_them_than_it_needs() {
    let mut f = Fleet::regions();
    teams(&mut f, [4, 4], &json!({"reclaimWithinCohort": "Any"}));
    let gangs: Vec<Uid> = (0..4).map(|i| f.submit_to("a", &format!("gang-{i}"), 2, None)).collect();
    f.settle();
    assert_eq!(f.phases(&gangs), [Some(Phase::Running); 4]);
    let owner = f.submit_to("b", "owner", 2, None);
    // Before the victim has stopped, its quota is still charged and the owner waits for it.
    let stopping: Vec<&Uid> = gangs.iter().filter(|uid| f.phase(**uid) == Some(Phase::Stopping)).collect();
    assert_eq!(stopping.len(), 1, "one gang of two is enough");
    let victim = *stopping[0];
    assert_eq!(f.world.state.workloads()[&victim].stopping(), Some(StopReason::Evicted));
    let preempted = f.world.state.workloads()[&victim].preempted().clone().expect("it says for whom");
    assert_eq!((preempted.by, preempted.reason.as_str()), (owner, "InCohortReclamation"));
    assert_eq!(f.phase(owner), Some(Phase::Pending));
    assert!(f.world.over_quota().is_empty());
    f.settle();
    assert_eq!(f.phase(owner), Some(Phase::Running));
    assert_eq!(f.phase(victim), Some(Phase::Pending), "it waits again, and nobody is displaced for it");
    assert_eq!(gangs.iter().filter(|uid| f.phase(**uid) == Some(Phase::Running)).count(), 3);
    f.settle();
    assert_eq!(f.phase(owner), Some(Phase::Running), "nothing goes back and forth");
}

#[test]
fn a_higher_priority_displaces_within_its_queue_and_a_raised_one_too() {
    let mut f = Fleet::regions();
    teams(&mut f, [4, 0], &json!({"withinClusterQueue": "LowerPriority"}));
    priorities(&mut f, 1);
    let first = f.submit_to("a", "first", 4, Some("low"));
    f.settle();
    let second = f.submit_to("a", "second", 4, Some("high"));
    f.settle();
    assert_eq!(f.phases(&[first, second]), [Some(Phase::Running), Some(Phase::Pending)]);
    priorities(&mut f, 50);
    f.settle();
    assert_eq!(f.phases(&[first, second]), [Some(Phase::Pending), Some(Phase::Running)]);
    assert_eq!(f.world.state.workloads()[&second].priority(), 50);
}

#[test]
fn victims_are_chosen_where_their_room_is_of_use() {
    let mut f = Fleet::regions();
    teams(&mut f, [12, 0], &json!({"withinClusterQueue": "LowerPriority"}));
    priorities(&mut f, 9);
    // Three clusters of four GPUs, full of pairs: a gang of four needs two pairs in one of them.
    let pairs: Vec<Uid> = (0..6).map(|i| f.submit_to("a", &format!("pair-{i}"), 2, Some("low"))).collect();
    f.settle();
    assert_eq!(f.phases(&pairs), [Some(Phase::Running); 6]);
    let four = f.submit_to("a", "four", 4, Some("high"));
    let victims: Vec<Uid> =
        pairs.iter().copied().filter(|uid| f.phase(*uid) == Some(Phase::Stopping)).collect();
    assert_eq!(victims.len(), 2);
    assert_eq!(f.at(victims[0]), f.at(victims[1]), "both in one cluster");
    f.settle();
    assert_eq!(f.phase(four), Some(Phase::Running));
}

/// A cluster with four GPUs, of which two are free and two will be: a victim stops for a gang of four, and a thief would have
/// room now.
fn one_stops_for_another() -> (Fleet, [Uid; 3]) {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    teams(&mut f, [4, 0], &json!({"withinClusterQueue": "LowerPriority"}));
    priorities(&mut f, 9);
    let victim = f.submit_to("a", "victim", 2, Some("low"));
    f.settle();
    let four = f.submit_to("a", "four", 4, Some("high"));
    let thief = f.submit_to("lq", "thief", 2, None);
    assert_eq!(
        f.phases(&[victim, four, thief]),
        [Some(Phase::Stopping), Some(Phase::Pending), Some(Phase::Pending)]
    );
    (f, [victim, four, thief])
}

#[test]
fn room_that_comes_free_is_kept_for_whom_others_stop() {
    let (mut f, [victim, four, thief]) = one_stops_for_another();
    let eu = &f.why(thief)["clusters"][0];
    assert_eq!(eu["reason"], "its room is kept for `default/four`, for which others are stopping");
    assert_eq!(eu["wouldHelp"], "the start of `default/four`, and room beside it");
    f.settle();
    assert_eq!(
        f.phases(&[victim, four, thief]),
        [Some(Phase::Pending), Some(Phase::Running), Some(Phase::Pending)]
    );
    // What isn't kept any more is for everybody.
    f.end(four, EndResult::Succeeded);
    assert_eq!(f.phases(&[victim, thief]), [Some(Phase::Running); 2]);
}

#[test]
fn room_is_no_longer_kept_for_who_gave_up() {
    let (mut f, [_, _, thief]) = one_stops_for_another();
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "four"), uid: None }]);
    assert_ne!(f.phase(thief), Some(Phase::Pending));
}

#[test]
fn who_was_displaced_does_not_displace_in_turn() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    teams(
        &mut f,
        [2, 4],
        &json!({"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}),
    );
    priorities(&mut f, 9);
    let own = f.submit_to("b", "own", 4, Some("low"));
    let beside = f.submit_to("b", "beside", 2, None);
    f.settle();
    assert_eq!(f.phases(&[own, beside]), [Some(Phase::Running); 2]);
    // By priority it displaces who borrows; who is displaced is entitled to the quota, by its own displacing others.
    let high = f.submit_to("a", "high", 4, Some("high"));
    for _ in 0..10 {
        f.settle();
        f.pass(Millis::secs(5));
    }
    assert_eq!(
        f.phases(&[own, beside, high]),
        [Some(Phase::Pending), Some(Phase::Running), Some(Phase::Running)]
    );
    assert_eq!(f.world.state.workloads()[&own].attempts(), 1);
    f.end(high, EndResult::Succeeded);
    assert_eq!(f.phase(own), Some(Phase::Running));
}

#[test]
fn a_new_leadership_remembers_who_displaced_whom() {
    let (mut f, [victim, four, _]) = one_stops_for_another();
    f.settle();
    assert_eq!(f.phases(&[victim, four]), [Some(Phase::Pending), Some(Phase::Running)]);
    let pairs = |f: &Fleet| {
        let of = |victim: &Uid| {
            f.world.state.displaced()[victim].iter().map(|other| (other.by, other.times)).collect::<Vec<_>>()
        };
        f.world.state.displaced().keys().map(|uid| (*uid, of(uid))).collect::<Vec<_>>()
    };
    assert_eq!(pairs(&f), [(victim, vec![(four, 1)])]);
    f.restart(2, None);
    f.settle();
    assert_eq!(pairs(&f), [(victim, vec![(four, 1)])]);
    // The tables turn by somebody's word, and what was before counts for nothing.
    f.apply(vec![json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "low"}, "value": 99})]);
    f.settle();
    f.settle();
    assert_eq!(f.phases(&[victim, four]), [Some(Phase::Running), Some(Phase::Pending)]);
    assert_eq!(pairs(&f), [(four, vec![(victim, 1)])]);
    f.pass(Millis::mins(11));
    f.restart(3, None);
    assert_eq!(pairs(&f), [], "after ten minutes it is forgotten");
}

#[test]
fn other_quota_lets_who_was_displaced_take_back_what_is_its_own() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let only =
        |own: [i64; 2]| (own, json!({"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}));
    let (own, policy) = only([4, 0]);
    teams(&mut f, own, &policy);
    let borrows = f.submit_to("b", "borrows", 4, None);
    f.settle();
    let owns = f.submit_to("a", "owns", 4, None);
    f.settle();
    f.settle();
    assert_eq!(f.phases(&[borrows, owns]), [Some(Phase::Pending), Some(Phase::Running)]);
    let (own, policy) = only([0, 4]);
    teams(&mut f, own, &policy);
    f.settle();
    f.settle();
    assert_eq!(
        f.phases(&[borrows, owns]),
        [Some(Phase::Running), Some(Phase::Pending)],
        "{:#}",
        f.why(borrows)
    );
}

#[test]
fn shares_decide_where_fair_sharing_is_on() {
    let mut f = Fleet::regions();
    f.world.config.fair_sharing = Some(FairSharing::default());
    teams(&mut f, [0, 0], &json!({"reclaimWithinCohort": "Any"}));
    f.apply(vec![json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "all"}, "spec": {"resourceGroups": [
        {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 8}]}]}]}})]);
    let of_a: Vec<Uid> = (0..8).map(|i| f.submit_to("a", &format!("a-{i}"), 1, None)).collect();
    f.settle();
    assert_eq!(f.phases(&of_a), [Some(Phase::Running); 8]);
    for i in 0..8 {
        f.submit_to("b", &format!("b-{i}"), 1, None);
    }
    for _ in 0..12 {
        f.settle();
    }
    let running = |queue: &str| {
        let of = |w: &&meridian_manager_core::state::workload::Workload| {
            w.phase() == Phase::Running && &*f.world.queues.class(w.class()).queue == queue
        };
        f.world.state.workloads().values().filter(of).count()
    };
    assert_eq!((running("a"), running("b")), (4, 4));
    assert!(f.world.over_quota().is_empty());
}

/// Random numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: i64) -> i64 {
        self.0 = meridian_shared::backoff::splitmix(self.0);
        i64::try_from(self.0 % 1_000_000).unwrap() % sides
    }
}

/// The quota that `why` says would let a workload start does, and one unit less doesn't.
#[test]
fn what_why_says_would_help_does() {
    let (mut helped, mut ended) = (0, 0);
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let limits = [json!(null), json!(0), json!(2)];
        let (own, other) = (dice.roll(5), 2 + dice.roll(4));
        let (borrow, lend) = (
            limits[usize::try_from(dice.roll(3)).unwrap()].clone(),
            limits[usize::try_from(dice.roll(3)).unwrap()].clone(),
        );
        let queue = |name: &str, nominal: i64, borrow: &Value, lend: &Value| {
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {
                "cohortName": "all", "namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU], "flavors": [
                    {"name": "any", "resources": [{"name": GPU, "nominalQuota": nominal, "borrowingLimit": borrow, "lendingLimit": lend}]}]}]}})
        };
        let build = |own: i64| {
            let mut f = Fleet::regions();
            teams(&mut f, [1, 1], &json!({}));
            f.apply(vec![
                queue("team-a", own, &borrow, &json!(null)),
                queue("team-b", other, &json!(null), &lend),
            ]);
            f
        };
        let (first, second, asks) = (dice.roll(4), dice.roll(4), 1 + u32::try_from(dice.roll(4)).unwrap());
        let story = |f: &mut Fleet| {
            for (queue, pods) in [("a", first), ("b", second)] {
                if pods > 0 {
                    f.submit_to(queue, &format!("there-{queue}"), u32::try_from(pods).unwrap(), None);
                }
            }
            f.settle();
            let uid = f.submit_to("a", "asks", asks, None);
            f.settle();
            uid
        };
        let mut f = build(own);
        let uid = story(&mut f);
        // Who is older and waits too would take what is raised.
        let others_run = ["there-a", "there-b"].iter().all(|name| {
            f.world.uid_of("default", name).is_none_or(|uid| f.phase(uid) == Some(Phase::Running))
        });
        if f.phase(uid) == Some(Phase::Running) || !others_run {
            continue;
        }
        let helps = f.why(uid)["wouldHelp"].as_str().unwrap().to_owned();
        let to: i64 = helps
            .split("to ")
            .nth(1)
            .and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
            .unwrap_or_else(|| panic!("seed {seed}: {helps}"));
        for (nominal, starts) in [(to - 1, false), (to, true)] {
            f.apply(vec![queue("team-a", nominal, &borrow, &json!(null))]);
            f.settle();
            assert_eq!(
                f.phase(uid) == Some(Phase::Running),
                starts,
                "seed {seed}: {nominal} of {to}: {helps}: {}",
                f.why(uid)["summary"]
            );
        }
        if let Some((_, rest)) = helps.split_once("; the end of `default/") {
            let (name, _) = rest.split_once("` alone would do").unwrap();
            let mut f = build(own);
            let uid = story(&mut f);
            f.end(f.world.uid_of("default", name).unwrap(), EndResult::Succeeded);
            assert_eq!(f.phase(uid), Some(Phase::Running), "seed {seed}: {helps}");
            ended += 1;
        }
        helped += 1;
    }
    assert!(helped > 10 && ended > 5, "{helped} {ended}");
}

#[test]
fn a_drained_queue_gives_everything_back_and_goes_on_later() {
    let mut f = Fleet::regions();
    let running = f.submit("running", 3);
    f.settle();
    let stopped = |policy: &str| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"stopPolicy": policy, "namespaceSelector": {}, "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 100}]}]}]}})
    };
    f.apply(vec![stopped("Hold")]);
    let held = f.submit("held", 1);
    f.settle();
    assert_eq!(f.phases(&[running, held]), [Some(Phase::Running), Some(Phase::Pending)]);
    assert_eq!(f.why(held)["summary"], "waits: cluster queue `cq` is stopped");
    f.apply(vec![stopped("HoldAndDrain")]);
    f.settle();
    assert_eq!(f.phases(&[running, held]), [Some(Phase::Pending), Some(Phase::Pending)]);
    f.apply(vec![stopped("None")]);
    f.settle();
    assert_eq!(f.phases(&[running, held]), [Some(Phase::Running), Some(Phase::Running)]);
}

#[test]
fn a_cohort_above_itself_is_refused() {
    let mut f = Fleet::regions();
    let cohort = |name: &str, parent: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": name}, "spec": {"parentName": parent}});
    assert!(matches!(f.apply(vec![cohort("a", "b"), cohort("b", "c")]), Reply::Written(_)));
    let Reply::Rejected(why) = f.apply(vec![cohort("c", "a")]) else { panic!("taken") };
    assert_eq!(
        why[0].message,
        "cohort `c` would be its own ancestor through `a`: name another parent, or none"
    );
    assert_eq!(why[0].field.as_deref(), Some("spec.parentName"));
}

#[test]
fn a_restart_forgets_nothing_that_queues_depend_on() {
    let mut f = Fleet::regions();
    teams(&mut f, [4, 4], &json!({"reclaimWithinCohort": "Any"}));
    let gangs: Vec<Uid> = (0..4).map(|i| f.submit_to("a", &format!("gang-{i}"), 2, None)).collect();
    f.settle();
    let copy = f.world.snapshot();
    f.world = World::restore(&copy, config()).expect("it was written just now");
    f.world.lead(start(2, f.now, None, false), &f.bodies);
    f.world.committed(Mono(f.now));
    f.settle();
    f.settle();
    assert_eq!(f.phases(&gangs), [Some(Phase::Running); 4]);
    let owner = f.submit_to("b", "owner", 4, None);
    f.settle();
    assert_eq!(f.phase(owner), Some(Phase::Running));
    assert!(f.world.over_quota().is_empty());
}

#[test]
fn what_a_namespace_and_a_runtime_add_is_counted_and_what_it_forbids_is_refused() {
    let mut f = Fleet::regions();
    f.apply(vec![
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "most", "namespace": "default"}, "spec": {"limits": [
            {"type": "Container", "max": {GPU: 2}, "defaultRequest": {"cpu": "500m"}, "default": {"cpu": 1}}]}}),
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "boxed"}, "handler": "boxed", "overhead": {"podFixed": {"cpu": "250m"}}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
            "namespaceSelector": {}, "excludeResourcePrefixes": ["example.com/"], "resourceGroups": [
            {"coveredResources": [GPU, "cpu"], "flavors": [{"name": "any", "resources": [
                {"name": GPU, "nominalQuota": 4}, {"name": "cpu", "nominalQuota": 1}]}]}]}}),
    ]);
    let mut boxed = job("default", "boxed", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    boxed["spec"]["template"]["spec"]["runtimeClassName"] = json!("boxed");
    boxed["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["example.com/license"] =
        json!(1);
    let Reply::Written(written) = f.apply(vec![boxed]) else { panic!("not submitted") };
    let class = f.world.queues.class(f.world.state.workloads()[&written[0].uid].class()).clone();
    assert_eq!(
        class.gang.pod_sets[0].per_pod,
        Amounts::from([("cpu".into(), 750), (GPU.into(), 1), ("example.com/license".into(), 1)])
    );
    let second = f.submit("second", 1);
    let class = f.world.queues.class(f.world.state.workloads()[&second].class()).clone();
    assert_eq!(class.gang.pod_sets[0].per_pod["cpu"], 500, "cpu that it never wrote");
    let mut greedy = job("default", "greedy", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    greedy["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {GPU: 3}, "limits": {GPU: 3}});
    let Reply::Rejected(why) = f.apply(vec![greedy]) else { panic!("taken") };
    assert_eq!(
        why[0].message,
        "containers[0] asks for more than the limit range allows; `nvidia.com/gpu` is `3`, the most is `2`"
    );
}

#[test]
fn quota_sees_what_the_operator_makes_of_requests() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.world.config.resources = std::sync::Arc::new(
        meridian_objects::ResourceRules::from_json(&json!({
            "excludeResourcePrefixes": ["net.example/"],
            "transformations": [{"input": GPU, "strategy": "Replace", "outputs": {"credits": "10"}}],
        }))
        .unwrap(),
    );
    // Quota is in credits, and the flavor's label reaches the pods all the same.
    f.apply(vec![
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {"nodeLabels": {"pool": "none-has-it"}}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": [
            {"coveredResources": ["credits"], "flavors": [{"name": "any", "resources": [{"name": "credits", "nominalQuota": 25}]}]}]}}),
    ]);
    let labelled = f.submit("labelled", 1);
    f.settle();
    assert_eq!(f.phase(labelled), Some(Phase::Pending), "no node has the label of the flavor");
    f.apply(vec![json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}})]);
    f.settle();
    let (second, third) = (f.submit("second", 1), f.submit("third", 1));
    f.settle();
    assert_eq!(
        f.phases(&[labelled, second, third]),
        [Some(Phase::Running), Some(Phase::Running), Some(Phase::Pending)]
    );
    assert!(
        f.why(third)["summary"]
            .as_str()
            .unwrap()
            .starts_with("waits: asks for 10 `credits`; cluster queue `cq` has 5 of 25 free in flavor `any`")
    );
    let key =
        Key { scope: None, kind: Kind::LocalQueue, namespace: Some("default".into()), name: "lq".into() };
    let shown = f.world.render(&key, &f.bodies, now(f.now)).unwrap();
    assert_eq!(shown["status"]["flavorsUsage"][0]["resources"][0], json!({"name": "credits", "total": "20"}));
    f.restart(2, Some(RecoveryStart { restored: false, members_unknown: false }));
    f.settle();
    f.settle();
    f.end(second, EndResult::Succeeded);
    assert_eq!(f.phases(&[labelled, third]), [Some(Phase::Running), Some(Phase::Running)]);
}

#[test]
fn a_request_names_an_object_once() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let uid = f.submit("train", 1);
    let key = Key::namespaced(Kind::Job, "default", "train");
    let delete = || Change::Delete { key: key.clone(), uid: None };
    let put = Change::Put {
        object: object(job("default", "train", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "")),
        scope: None,
        uid: Uid(99),
        mode: PutMode::Apply,
    };
    for changes in [vec![delete(), delete()], vec![delete(), put]] {
        let Reply::Rejected(why) = f.write(changes) else { panic!("taken") };
        assert!(why[0].index == 1 && why[0].message.ends_with("appears twice in one request"), "{why:?}");
    }
    assert!(f.world.state.workloads().contains_key(&uid), "nothing of it was done");
}

#[test]
fn pods_are_counted_where_a_queue_gives_quota_for_them() {
    let mut f = Fleet::regions();
    f.apply(vec![
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "few"}, "spec": {"namespaceSelector": {}, "resourceGroups": [
            {"coveredResources": [GPU, "pods"], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 100}, {"name": "pods", "nominalQuota": 5}]}]}]}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "few", "namespace": "default"}, "spec": {"clusterQueue": "few"}}),
    ]);
    let (four, more) = (f.submit_to("few", "four", 4, None), f.submit_to("few", "more", 2, None));
    f.settle();
    assert_eq!(f.phases(&[four, more]), [Some(Phase::Running), Some(Phase::Pending)]);
    assert_eq!(f.world.queues.usage("few").unwrap()[&(Arc::from("any"), "pods".to_owned())], 4);
    f.restart(2, RECOVERY);
    f.settle();
    f.settle();
    f.end(four, EndResult::Succeeded);
    f.settle();
    assert_eq!(f.phase(more), Some(Phase::Running));
}

#[test]
fn a_charge_stays_where_it_was_made_whatever_the_local_queue_leads_to_later() {
    let mut f = Fleet::regions();
    teams(&mut f, [4, 4], &json!({}));
    let uid = f.submit_to("a", "moves", 3, None);
    f.settle();
    f.apply(vec![json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "a", "namespace": "default"}, "spec": {"clusterQueue": "team-b"}})]);
    let charged = |f: &Fleet| f.world.queues.charged_to(uid).map(ToString::to_string);
    assert_eq!(charged(&f).as_deref(), Some("team-a"));
    f.restart(2, RECOVERY);
    assert_eq!(charged(&f).as_deref(), Some("team-a"));
}

#[test]
fn who_waits_asks_for_no_more_of_what_its_queue_leaves_out_from_now_on() {
    let mut f = Fleet::regions();
    let queue = |prefixes: &[&str]| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "excludeResourcePrefixes": prefixes, "resourceGroups": [
            {"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": 10}]}]}]}})
    };
    f.apply(vec![queue(&[])]);
    let (first, second) = (f.submit("first", 1), f.submit("second", 1));
    f.settle();
    assert_eq!(f.phases(&[first, second]), [Some(Phase::Pending), Some(Phase::Pending)]);
    f.apply(vec![queue(&["nvidia.com/"])]);
    f.settle();
    assert_eq!(f.phases(&[first, second]), [Some(Phase::Running), Some(Phase::Running)]);
}

fn of_class(name: &str, pods: u32, class: Option<&str>, annotations: &Value) -> Value {
    let mut labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
    if let Some(class) = class {
        labels["kueue.x-k8s.io/priority-class"] = json!(class);
    }
    let mut job = job("default", name, pods, &labels, "");
    job["metadata"]["annotations"] = annotations.clone();
    job
}

fn priority(f: &Fleet, uid: Uid) -> i64 {
    f.world.state.workloads()[&uid].priority()
}

#[test]
fn another_priority_class_is_another_place_waiting_or_running() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    priorities(&mut f, 100);
    f.apply(vec![
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 4}]}]}]}}),
    ]);
    let none = json!({});
    let holder = f.submit_to("lq", "holder", 4, Some("high"));
    let (first, second) = (f.submit_to("lq", "first", 4, Some("low")), f.submit_to("lq", "second", 4, None));
    f.settle();
    assert_eq!(f.why(second)["position"]["place"], 2);
    assert!(
        matches!(f.apply(vec![of_class("second", 4, Some("high"), &none)]), Reply::Written(w) if w[0].result == WriteResult::Configured)
    );
    assert_eq!((priority(&f, second), f.why(second)["position"]["place"].clone()), (100, json!(1)));
    // Applied again it is the same; without the label it is back.
    assert!(
        matches!(f.apply(vec![of_class("second", 4, Some("high"), &none)]), Reply::Written(w) if w[0].result == WriteResult::Unchanged)
    );
    // Who runs gives way once it matters less.
    f.apply(vec![of_class("holder", 4, Some("low"), &none)]);
    f.settle();
    f.settle();
    assert_eq!(
        f.phases(&[holder, first, second]),
        [Some(Phase::Pending), Some(Phase::Pending), Some(Phase::Running)]
    );
    assert_eq!(priority(&f, holder), 1);
    f.restart(2, RECOVERY);
    f.settle();
    f.apply(vec![of_class("second", 4, None, &none)]);
    assert_eq!(priority(&f, second), 0);
    // Nothing else of it changes with the label, nothing after its end, and to no class that isn't there.
    let rejected = |reply: Reply| match reply {
        Reply::Rejected(why) => why[0].message.clone(),
        other => panic!("{other:?}"),
    };
    assert!(
        rejected(f.apply(vec![of_class("second", 3, Some("low"), &none)]))
            .contains("nothing of a job can be changed but the label")
    );
    assert!(
        rejected(f.apply(vec![of_class("second", 4, Some("none"), &none)]))
            .contains("there is no WorkloadPriorityClass `none`")
    );
    f.end(second, EndResult::Succeeded);
    assert!(
        rejected(f.apply(vec![of_class("second", 4, Some("high"), &none)]))
            .contains("its priority can't be changed any more")
    );
}

#[test]
fn an_elastic_job_changes_its_size_and_its_priority_class_at_once() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    priorities(&mut f, 100);
    let elastic = |pods: u32, class: &str| {
        let mut job = of_class("grows", pods, Some(class), &json!({"kueue.x-k8s.io/elastic-job": "true"}));
        job["spec"]["completionMode"] = json!("Indexed");
        job
    };
    let Reply::Written(written) = f.apply(vec![elastic(2, "low")]) else { panic!("not submitted") };
    let uid = written[0].uid;
    f.settle();
    assert!(
        matches!(f.apply(vec![elastic(3, "high")]), Reply::Written(w) if w[0].result == WriteResult::Configured)
    );
    f.settle();
    f.settle();
    assert_eq!((priority(&f, uid), f.phase(uid)), (100, Some(Phase::Running)));
    assert_eq!(f.world.queues.usage("cq").unwrap()[&(Arc::from("any"), GPU.to_owned())], 3);
}

#[test]
fn who_names_no_class_has_the_usual_one() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let pods = |name: &str, value: i64, usual: bool| json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, "globalDefault": usual});
    let plain = f.submit("plain", 1);
    f.apply(vec![pods("a", 300, true), pods("b", 100, true), pods("c", 7, false)]);
    let lowest = f.submit("lowest", 1);
    f.apply(vec![json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "default"}, "value": 50})]);
    let usual = f.submit("usual", 1);
    assert_eq!([plain, lowest, usual].map(|uid| priority(&f, uid)), [0, 100, 50]);
    // Who was given the class follows its value, who came before it doesn't.
    f.apply(vec![json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "default"}, "value": 60})]);
    assert_eq!([plain, lowest, usual].map(|uid| priority(&f, uid)), [0, 100, 60]);
    let mut system = job("default", "system", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    system["spec"]["template"]["spec"]["priorityClassName"] = json!("system-node-critical");
    assert!(matches!(f.apply(vec![system.clone()]), Reply::Written(_)));
    f.input(Input::Write(Box::new(Write::new(
        Actor::user("test"),
        vec![Change::Delete {
            key: Key {
                scope: None,
                kind: Kind::WorkloadPriorityClass,
                namespace: None,
                name: "default".into(),
            },
            uid: None,
        }],
        false,
    ))));
    system["metadata"]["name"] = json!("critical");
    let Reply::Written(written) = f.apply(vec![system]) else { panic!("refused") };
    assert_eq!(priority(&f, written[0].uid), 2_000_001_000);
    assert!(
        matches!(f.apply(vec![pods("c", 8, false)]), Reply::Rejected(why) if why[0].message.contains("which can't be changed"))
    );
    f.submit("after", 1);
}

#[test]
fn of_equals_the_one_that_was_charged_last_gives_way_before_and_after_a_restart() {
    for restarts in [false, true] {
        let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
        priorities(&mut f, 100);
        f.apply(vec![
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"},
                "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 4}]}]}]}}),
        ]);
        let all: Vec<Uid> = (0..4)
            .map(|at| {
                let uid = f.submit_to("lq", &format!("low-{at}"), 1, Some("low"));
                f.settle();
                f.pass(Millis::secs(1));
                uid
            })
            .collect();
        // The second one comes back last, older though its job is.
        f.end(all[1], EndResult::NodeLost { message: "gone".into() });
        f.pass(Millis::secs(5));
        assert_eq!(f.phases(&all), [Some(Phase::Running); 4]);
        if restarts {
            f.restart(2, RECOVERY);
            f.settle();
            f.settle();
        }
        for victim in [1, 3, 2, 0] {
            f.submit_to("lq", &format!("high-{victim}"), 1, Some("high"));
            f.settle();
            f.settle();
            assert_eq!(
                f.phase(all[victim]),
                Some(Phase::Pending),
                "{victim} of {:?}, restarted: {restarts}",
                f.phases(&all)
            );
        }
    }
}

#[test]
fn what_was_submitted_before_asks_for_what_it_asked_for_then() {
    let mut f = Fleet::regions();
    let range = |limits: Value| {
        let limits = vec![
            json!({"type": "Container", "max": limits["max"], "defaultRequest": limits["defaultRequest"]}),
        ];
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "usual", "namespace": "default"}, "spec": {"limits": limits}})
    };
    let class = |name: &str, value: i64| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value});
    f.apply(vec![range(json!({"max": {}, "defaultRequest": {"cpu": 3}})), class("hi", 10), class("top", 20)]);
    let per_pod = |f: &Fleet, uid: Uid| {
        f.world.queues.class(f.world.state.workloads()[&uid].class()).gang.pod_sets[0].per_pod["cpu"]
    };
    let manifest = |pods: u32, class: &str| {
        let mut job = super::elastic::elastic("early", pods);
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
        job
    };
    let (uid, _) = f.put(manifest(2, "hi"));
    f.settle();
    assert_eq!(per_pod(&f, uid), 3_000);
    // Less for each, and then less than it asks for.
    for limits in [
        json!({"max": {}, "defaultRequest": {"cpu": 1}}),
        json!({"max": {"cpu": 2}, "defaultRequest": {"cpu": 1}}),
    ] {
        f.apply(vec![range(limits)]);
        for (pods, class, expected) in [(2, "top", 20), (3, "hi", 10), (2, "hi", 10)] {
            assert_eq!(f.put(manifest(pods, class)).0, uid);
            f.settle();
            assert_eq!((per_pod(&f, uid), priority(&f, uid)), (3_000, expected), "{pods} {class}");
        }
    }
    let later = f.submit("later", 1);
    assert_eq!(per_pod(&f, later), 1_000);
}

#[test]
fn who_displaced_others_starts_when_they_have_stopped_whatever_its_queue_belongs_to_by_then() {
    let preemption = json!({"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"});
    let alone = |name: &str| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {
            "namespaceSelector": {}, "preemption": preemption, "resourceGroups": [
                {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 4}]}]}]}})
    };
    for leaves in ["team-a", "team-b"] {
        let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
        teams(&mut f, [4, 4], &preemption);
        let lent: Vec<Uid> = (0..4).map(|i| f.submit_to("b", &format!("lent-{i}"), 2, None)).collect();
        f.settle();
        assert_eq!(f.phases(&lent), [Some(Phase::Running); 4]);
        f.hold_ends = true;
        let owner = f.submit_to("a", "owner", 3, None);
        f.settle();
        let stopping = |f: &Fleet| {
            lent.iter().copied().filter(|uid| f.phase(*uid) == Some(Phase::Stopping)).collect::<Vec<_>>()
        };
        assert_eq!(stopping(&f).len(), 2);
        f.apply(vec![alone(leaves)]);
        f.settle();
        f.hold_ends = false;
        for uid in stopping(&f) {
            f.end(uid, EndResult::Stopped);
        }
        f.settle();
        assert_eq!(f.phase(owner), Some(Phase::Running), "{leaves} left: {:#}", f.why(owner));
    }
}

#[test]
fn who_was_passed_over_is_looked_at_for_every_flavor_before_it_waits() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    let group = |quotas: &[(&str, i64)]| {
        let flavors: Vec<Value> = quotas
            .iter()
            .map(|(name, quota)| json!({"name": name, "resources": [{"name": GPU, "nominalQuota": quota}]}))
            .collect();
        json!([{"coveredResources": [GPU], "flavors": flavors}])
    };
    let queue = |name: &str, preemption: Value, groups: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {"cohortName": "co", "namespaceSelector": {}, "preemption": preemption, "resourceGroups": groups}});
    let local = |name: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": name}});
    f.apply(vec![
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "other"}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "co"}, "spec": {"resourceGroups": group(&[("any", 2)])}}),
        queue("s", json!({"reclaimWithinCohort": "LowerPriority"}), group(&[("any", 2)])),
        queue("p", json!({}), group(&[("any", 0), ("other", 0)])),
        local("s"),
        local("p"),
    ]);
    let runs = f.submit_to("s", "runs", 3, None);
    f.settle();
    assert_eq!(f.phase(runs), Some(Phase::Running));
    // What would displace keeps the last GPU from others for a cycle, and can't.
    let changes = [("head", "s", 2), ("small", "p", 1)].map(|(name, queue, pods)| {
        f.next_uid += 1;
        let job = job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": queue}), "");
        Change::Put { object: object(job), scope: None, uid: Uid(f.next_uid), mode: PutMode::Apply }
    });
    let Reply::Written(written) = f.write(changes.into()) else { panic!("not submitted") };
    f.settle();
    assert_eq!(
        f.phases(&[written[0].uid, written[1].uid]),
        [Some(Phase::Pending), Some(Phase::Running)],
        "{:#}",
        f.why(written[1].uid)
    );
}
