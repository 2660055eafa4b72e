//! What `why` says of who waits: its place, its first obstacle, and what would help. What it promises is tried out in
//! [`claims`], and what it names in [`names`].

#[path = "why/claims.rs"]
mod claims;
#[path = "why/names.rs"]
mod names;

use super::*;
use meridian_manager_core::facts::record::WorkloadFact;
use meridian_manager_core::facts::submission::Submission;
use meridian_queueing::pending::COUNTED_MAX;
use meridian_queueing::settings::FairSharing;

const EU: &[(&str, &str, &str)] = &[("eu", "europe-west4", "EU")];

pub(super) fn cluster_queue(name: &str, nominal: i64, more: &Value) -> Value {
    let mut queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {
        "namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": nominal}]}]}]}});
    for (field, value) in more.as_object().into_iter().flatten() {
        queue["spec"][field] = value.clone();
    }
    queue
}

pub(super) fn local_queue(name: &str, leads_to: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": leads_to}})
}

impl Fleet {
    fn words(&self, uid: Uid) -> (String, String) {
        let why = self.why(uid);
        (why["summary"].as_str().unwrap().to_owned(), why["wouldHelp"].as_str().unwrap().to_owned())
    }

    /// Of its local queue, and of its cluster queue where others wait there: place and of how many.
    fn places(&self, uid: Uid) -> ((u64, u64), Option<(u64, u64)>) {
        let position = self.why(uid)["position"].clone();
        let of = |value: &Value| (value["place"].as_u64().unwrap(), value["of"].as_u64().unwrap());
        (of(&position), position.get("clusterQueue").map(of))
    }
}

/// Two local queues of one cluster queue with four GPUs; the first has used something, and everything runs that can.
fn used(strategy: &str) -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    f.world.config.admission_fair_sharing = Some("half-life=10m,sampling=5s".parse().unwrap());
    let mode = json!({"queueingStrategy": strategy, "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}});
    f.apply(vec![cluster_queue("shared", 4, &mode), local_queue("a", "shared"), local_queue("b", "shared")]);
    let old = f.submit_to("a", "old", 4, None);
    f.pass(Millis::mins(2));
    f.end(old, EndResult::Succeeded);
    let runs = f.submit_to("b", "runs", 4, None);
    f.settle();
    assert_eq!(f.phase(runs), Some(Phase::Running));
    (f, runs)
}

#[test]
fn where_past_use_decides_place_and_obstacle_go_by_it() {
    for strategy in ["BestEffortFIFO", "StrictFIFO"] {
        let (mut f, runs) = used(strategy);
        // A long run of the first queue weighs more than the entry of the second's.
        let [first, second, third] = [("a", "first"), ("a", "second"), ("b", "third")]
            .map(|(queue, name)| f.submit_to(queue, name, 4, None));
        f.settle();
        let weighs = |f: &Fleet, queue: &str| {
            f.world.local_queue_rows(10).iter().find(|row| &*row.name == queue).unwrap().weighted_use.unwrap()
        };
        // Until it has used more itself, which takes long.
        assert!(
            weighs(&f, "b") > weighs(&f, "a") || f.places(third) == ((1, 1), Some((1, 3))),
            "{:#}",
            f.why(third)
        );
        while weighs(&f, "b") < weighs(&f, "a") {
            f.pass(Millis::secs(5));
        }
        assert_eq!(
            (f.places(first), f.places(second), f.places(third)),
            (((1, 2), Some((1, 3))), ((2, 2), Some((2, 3))), ((1, 1), Some((3, 3))))
        );
        let (summary, _) = f.words(third);
        let (a, b) = (weighs(&f, "a"), weighs(&f, "b"));
        let shown = if format!("{a:.2}") == format!("{b:.2}") {
            (format!("{b:.9}"), format!("{a:.9}"))
        } else {
            (format!("{b:.2}"), format!("{a:.2}"))
        };
        let turn = format!(
            "local queue `default/b` has used more ({}) than `default/a` ({}), so `default/first` comes first",
            shown.0, shown.1
        );
        assert!(summary.contains(&turn), "{summary}");
        if strategy == "StrictFIFO" {
            assert!(summary.contains("cluster queue `shared` keeps strict order, and its head `default/first` can't start: asks for 4"), "{summary}");
        }
        f.end(runs, EndResult::Succeeded);
        assert_eq!(
            f.phases(&[first, second, third]),
            [Some(Phase::Running), Some(Phase::Pending), Some(Phase::Pending)]
        );
        // Its entry cost the queue something: now the other one is behind again.
        let order = (f.places(second), f.places(third));
        f.end(first, EndResult::Succeeded);
        let runs = if order.0.1 == Some((1, 2)) { second } else { third };
        assert_eq!(f.phase(runs), Some(Phase::Running), "{strategy}: {order:?}");
    }
}

/// Two queues without quota of their own share what their cohort has.
fn cohort(fair: bool) -> Fleet {
    let mut f = Fleet::regions();
    f.world.config.fair_sharing = fair.then(FairSharing::default);
    let member = json!({"cohortName": "all"});
    f.apply(vec![
        cluster_queue("team-a", 0, &member),
        cluster_queue("team-b", 0, &member),
        local_queue("a", "team-a"),
        local_queue("b", "team-b"),
    ]);
    f.apply(vec![json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "all"}, "spec": {"resourceGroups": [
        {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 8}]}]}]}})]);
    f
}

#[test]
fn where_shares_decide_the_obstacle_names_them() {
    let mut f = cohort(true);
    let large: Vec<Uid> = (0..3).map(|i| f.submit_to("a", &format!("a-{i}"), 2, None)).collect();
    let small = f.submit_to("b", "b-0", 2, None);
    f.settle();
    assert_eq!(f.phases(&large), [Some(Phase::Running); 3]);
    let (older, newer) = (f.submit_to("a", "older", 2, None), f.submit_to("b", "newer", 2, None));
    f.settle();
    let (summary, _) = f.words(older);
    let turn = "; `default/newer` of cluster queue `team-b` comes first for what comes free: with it the share on the side of `team-b` is 0.50, with this one that of `team-a` is 1.00";
    assert!(summary.ends_with(turn), "{summary}");
    assert!(!f.words(newer).0.contains("comes first"), "{}", f.words(newer).0);
    f.end(large[0], EndResult::Succeeded);
    assert_eq!(
        f.phases(&[older, newer, small]),
        [Some(Phase::Pending), Some(Phase::Running), Some(Phase::Running)]
    );
    // Without shares age decides, and the words say so.
    let mut f = cohort(false);
    let runs = [f.submit_to("a", "a-0", 4, None), f.submit_to("b", "b-0", 4, None)];
    f.settle();
    let (older, newer) = (f.submit_to("a", "older", 2, None), f.submit_to("b", "newer", 2, None));
    f.settle();
    assert!(
        f.words(newer).0.ends_with(
            "; `default/older` of cluster queue `team-a` comes first for what comes free: it is older"
        ),
        "{}",
        f.words(newer).0
    );
    f.end(runs[0], EndResult::Succeeded);
    assert_eq!(f.phase(older), Some(Phase::Running));
}

#[test]
fn a_head_that_never_fits_is_named_by_those_behind_it() {
    let mut f = Fleet::regions();
    f.apply(vec![cluster_queue("cq", 3, &json!({"queueingStrategy": "StrictFIFO"}))]);
    let (huge, small, smaller) = (f.submit("huge", 4), f.submit("small", 3), f.submit("smaller", 1));
    f.settle();
    assert_eq!((f.places(huge).0, f.places(small).0, f.places(smaller).0), ((1, 3), (2, 3), (3, 3)));
    let head = "waits: cluster queue `cq` keeps strict order, and its head `default/huge` can't start: asks for 4 `nvidia.com/gpu`, the queue could never use more than 3 of flavor `any`, even borrowed";
    assert_eq!(f.words(small), (head.to_owned(), "the start or deletion of `default/huge`; the deletion of `default/huge` alone would do; or to submit it again with a priority above 0 alone would do".to_owned()));
    assert_eq!(
        f.words(smaller),
        (
            head.to_owned(),
            "the start or deletion of `default/huge`; one more comes before it; to submit it again with a priority above 0 alone would do".to_owned()
        )
    );
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "huge"), uid: None }]);
    f.settle();
    assert_eq!(f.phases(&[small, smaller]), [Some(Phase::Running), Some(Phase::Pending)]);
}

/// Of those who are alike the first and the last are known without counting; the others are counted while they aren't too many.
#[test]
fn where_too_many_wait_to_be_counted_a_place_is_told_about() {
    let mut f = Fleet::new(EU);
    let small = |f: &mut Fleet, stops: &str| {
        f.apply(vec![cluster_queue("small", 1, &json!({"stopPolicy": stops})), local_queue("a", "small")])
    };
    small(&mut f, "None");
    let first = f.submit_to("a", "w", 2, None);
    let submitted = f.records.iter().find_map(|(_, record)| match record {
        Record::Workload { uid, fact: WorkloadFact::Submitted(one) } if *uid == first => Some(one.clone()),
        _ => None,
    });
    let submitted = submitted.expect("it was submitted");
    let uid = |at: usize| Uid(1_000_000 + u128::try_from(at).unwrap());
    let submit = |f: &mut Fleet, at: usize| {
        let one = Submission { name: Arc::from(format!("w-{at}")), ..(*submitted).clone() };
        f.world.absorb(
            f.world.state.last().next(),
            &Record::Workload { uid: uid(at), fact: WorkloadFact::Submitted(Box::new(one)) },
        );
    };
    let place = |f: &Fleet, of: Uid| {
        let position = f.why(of)["position"].clone();
        (
            position["place"].as_u64().unwrap(),
            position["of"].as_u64().unwrap(),
            position.get("about").is_some(),
        )
    };
    let mut next = 2;
    // One of them was looked at and stands aside; the rest are counted together.
    for last in [COUNTED_MAX, COUNTED_MAX + 2] {
        (next..=last).for_each(|at| submit(&mut f, at));
        next = last + 1;
        let n = u64::try_from(last).unwrap();
        let counted = last == COUNTED_MAX;
        for stops in ["Hold", "None"] {
            small(&mut f, stops);
            assert_eq!((place(&f, first), place(&f, uid(last))), ((1, n, false), (n, n, false)), "{stops}");
            assert_eq!(
                place(&f, uid(8)),
                if counted { (8, n, false) } else { (n / 2 + 1, n, true) },
                "{stops}"
            );
        }
    }
}

#[test]
fn who_rests_says_so_and_says_it_for_nobody_else() {
    let mut f = Fleet::new(EU);
    // The cluster isn't heard when it is asked: the question lapses, and the job rests.
    f.cut.push("eu".into());
    let rests = f.submit("rests", 3);
    f.pass(Millis::secs(30));
    f.cut.clear();
    let rested =
        |f: &Fleet| f.words(rests).0.starts_with("waits: waits a moment before the next attempt, for ");
    assert!(f.phase(rests) == Some(Phase::Pending), "{:#}", f.why(rests));
    if rested(&f) {
        let other = f.submit("other", 3);
        assert!(!f.words(other).0.contains("a moment"), "{:#}", f.why(other));
    }
    f.pass(Millis::secs(30));
    assert_eq!(f.phase(rests), Some(Phase::Running));
}

#[test]
fn a_queue_on_hold_keeps_its_order_and_says_what_stops_it() {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_queue("cq", 4, &json!({"stopPolicy": "Hold"}))]);
    let [first, second] = ["first", "second"].map(|name| f.submit(name, 4));
    f.settle();
    assert_eq!((f.places(first).0, f.places(second).0), ((1, 2), (2, 2)));
    let stopped = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "lq", "namespace": "default"}, "spec": {"clusterQueue": "cq", "stopPolicy": "Hold"}});
    assert_eq!(
        f.words(first),
        (
            "waits: cluster queue `cq` is stopped".to_owned(),
            "set the stopPolicy of cluster queue `cq` to `None`".to_owned()
        )
    );
    f.apply(vec![stopped]);
    let both = "set the stopPolicy of local queue `default/lq` and of cluster queue `cq` to `None`";
    assert_eq!(
        f.words(first),
        (
            "waits: local queue `default/lq` is stopped, and cluster queue `cq` too".to_owned(),
            both.to_owned()
        )
    );
    f.apply(vec![cluster_queue("cq", 4, &json!({})), local_queue("lq", "cq")]);
    f.settle();
    assert_eq!(f.phases(&[first, second]), [Some(Phase::Running), Some(Phase::Pending)]);
}

#[test]
fn a_queue_that_admits_nothing_says_what_it_lacks() {
    let mut f = Fleet::new(EU);
    let mut queue = cluster_queue("cq", 4, &json!({}));
    queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = json!("rare");
    f.apply(vec![queue]);
    let uid = f.submit("job", 2);
    f.settle();
    let words = (
        "waits: cluster queue `cq` admits nothing: there is no resource flavor `rare`".to_owned(),
        "create resource flavor `rare`, or take it out of cluster queue `cq`".to_owned(),
    );
    assert_eq!(f.words(uid), words);
    f.apply(vec![json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "rare"}})]);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
}

#[test]
fn nobody_passes_by_who_starves_and_those_behind_it_say_so() {
    let mut f = Fleet::new(EU);
    f.world.config.starvation_guard = Some(Millis::secs(30));
    let [a, b] = ["a", "b"].map(|name| f.submit(name, 2));
    f.settle();
    let gang = f.submit("gang", 4);
    f.pass(Millis::secs(62));
    let small = f.submit("small", 2);
    f.end(a, EndResult::Succeeded);
    assert_eq!((f.places(gang).0, f.places(small).0), ((1, 2), (2, 2)));
    let (summary, helps) = f.words(small);
    assert_eq!(
        summary,
        "waits: `default/gang` at the head of cluster queue `cq` has waited so long that nobody passes it by"
    );
    assert_eq!(
        helps,
        "the start or deletion of `default/gang`; the deletion of `default/gang` alone would do"
    );
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "gang"), uid: None }]);
    f.settle();
    assert_eq!(f.phases(&[small, b]), [Some(Phase::Running); 2]);
}

#[test]
fn who_lacks_quota_and_room_is_told_of_both() {
    let mut f = Fleet::new(EU);
    f.apply(vec![
        cluster_queue("other", 4, &json!({})),
        local_queue("other", "other"),
        cluster_queue("cq", 1, &json!({})),
    ]);
    let there = f.submit_to("other", "there", 4, None);
    f.settle();
    let uid = f.submit("job", 2);
    f.settle();
    let (summary, helps) = f.words(uid);
    assert!(
        summary
            .ends_with("; and then: the only cluster can't start it now: room for 0 of 2 pods of `main` now"),
        "{summary}"
    );
    assert_eq!(
        helps,
        "no single change is known to start it; first: raise the queue's nominal quota of `nvidia.com/gpu` in flavor `any` to 2, or ask for less; then: at `eu`: the end of `default/there` there"
    );
    f.apply(vec![cluster_queue("cq", 2, &json!({}))]);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Pending));
    f.end(there, EndResult::Succeeded);
    assert_eq!(f.phase(uid), Some(Phase::Running));
}

/// The last flavor that was looked at has too little quota, and the first, which has enough, is full.
#[test]
fn who_only_lacks_room_is_not_told_of_the_quota_of_another_flavor() {
    let mut f = Fleet::new(EU);
    let flavor = |name: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}});
    let of = |name: &str, nominal: u32| json!({"name": name, "resources": [{"name": GPU, "nominalQuota": nominal}]});
    let mut queue = cluster_queue("cq", 1, &json!({}));
    queue["spec"]["resourceGroups"][0]["flavors"] = json!([of("f1", 28), of("f2", 1)]);
    f.apply(vec![flavor("f1"), flavor("f2"), queue]);
    let (first, second) = (f.submit("first", 2), f.submit("second", 2));
    f.settle();
    let waits = f.submit("waits", 2);
    f.settle();
    let (summary, helps) = f.words(waits);
    assert!(summary.contains("the only cluster can't start it now") && !summary.contains("f2"), "{summary}");
    assert!(helps.contains("the end of") && !helps.contains("no single change"), "{helps}");
    // Nor in lists, conditions and the numbers of who isn't admitted.
    let shown =
        f.world.render(&Key::namespaced(Kind::Job, "default", "waits"), &f.bodies, now(f.now)).unwrap();
    assert!(!shown.to_string().contains("f2"), "{shown:#}");
    let (blocked, clusters) = f.world.reasons(&f.world.state.workloads()[&waits]);
    assert!(blocked.is_none() && clusters.is_some_and(|by| by.len() == 1), "{blocked:?} {clusters:?}");
    assert_eq!((f.phase(first), f.phase(waits)), (Some(Phase::Running), Some(Phase::Pending)));
    f.end(second, EndResult::Succeeded);
    assert_eq!(f.phase(waits), Some(Phase::Running), "{helps}");
}

#[test]
fn what_comes_after_the_first_obstacle_is_told_with_it_in_order() {
    let mut f = Fleet::new(EU);
    let on_hold = json!({"stopPolicy": "Hold"});
    f.apply(vec![
        cluster_queue("other", 4, &json!({})),
        local_queue("other", "other"),
        cluster_queue("cq", 1, &on_hold),
    ]);
    let there = f.submit_to("other", "there", 4, None);
    f.settle();
    let uid = f.submit("job", 2);
    f.settle();
    let why = f.why(uid);
    let obstacles: Vec<(&str, &str)> = why["obstacles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["reason"].as_str().unwrap(), one["wouldHelp"].as_str().unwrap()))
        .collect();
    assert_eq!(
        obstacles,
        [
            ("cluster queue `cq` is stopped", "set the stopPolicy of cluster queue `cq` to `None`"),
            (
                "asks for 2 `nvidia.com/gpu`, cluster queue `cq` could never use more than 1 of flavor `any`",
                "raise the queue's nominal quota of `nvidia.com/gpu` in flavor `any` to 2, or ask for less"
            ),
            (
                "the only cluster can't start it now: room for 0 of 2 pods of `main` now",
                "at `eu`: the end of `default/there` there"
            ),
        ]
    );
    assert!(
        why["summary"]
            .as_str()
            .unwrap()
            .starts_with("waits: cluster queue `cq` is stopped; and then: asks for 2"),
        "{why:#}"
    );
    assert!(
        why["wouldHelp"]
            .as_str()
            .unwrap()
            .starts_with("no single change is known to start it; first: set the stopPolicy"),
        "{why:#}"
    );
    // In every cluster's line is what that cluster says, not what comes before it.
    assert_eq!(why["clusters"][0]["reason"], "room for 0 of 2 pods of `main` now");
    // Each change leaves what was told to come next.
    f.apply(vec![cluster_queue("cq", 1, &json!({}))]);
    f.settle();
    assert!(
        f.words(uid).0.starts_with(
            "waits: asks for 2 `nvidia.com/gpu`, cluster queue `cq` could never use more than 1"
        ),
        "{}",
        f.words(uid).0
    );
    f.apply(vec![cluster_queue("cq", 2, &json!({}))]);
    f.settle();
    assert_eq!(f.words(uid), (format!("waits: {}", obstacles[2].0), obstacles[2].1.to_owned()));
    f.end(there, EndResult::Succeeded);
    assert_eq!(f.phase(uid), Some(Phase::Running));
    assert_eq!(f.why(uid)["obstacles"], json!([]));
}

#[test]
fn a_strict_queue_on_hold_says_who_will_stand_in_the_way() {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_queue("cq", 3, &json!({"stopPolicy": "Hold", "queueingStrategy": "StrictFIFO"}))]);
    let (huge, uid) = (f.submit("huge", 4), f.submit("job", 2));
    f.settle();
    let (summary, helps) = f.words(uid);
    let then = "; and then: cluster queue `cq` keeps strict order, and `default/huge`, which comes first there, can't start: asks for 4 ";
    assert!(summary.contains(then), "{summary}");
    assert_eq!(
        helps,
        "no single change is known to start it; first: set the stopPolicy of cluster queue `cq` to `None`; then: the start or deletion of `default/huge`"
    );
    f.apply(vec![cluster_queue("cq", 3, &json!({"queueingStrategy": "StrictFIFO"}))]);
    f.settle();
    assert_eq!(f.phases(&[huge, uid]), [Some(Phase::Pending); 2]);
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "huge"), uid: None }]);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
}

#[test]
fn nobody_is_named_who_could_not_take_what_comes_free() {
    let mut f = Fleet::new(EU);
    let there = f.submit("there", 4);
    f.settle();
    // The first can never start here: it is ahead, and no rival.
    let (_, second) = (f.submit("huge", 9), f.submit("second", 3));
    f.settle();
    assert_eq!(f.words(second).1, "at `eu`: the end of `default/there` there");
    let third = f.submit("third", 3);
    f.settle();
    let condition = "; `default/second`, which waits too, may take it first, unless it is submitted again with a priority above 0";
    assert_eq!(f.words(third).1, format!("at `eu`: the end of `default/there` there{condition}"));
    f.end(there, EndResult::Succeeded);
    assert_eq!(f.phases(&[second, third]), [Some(Phase::Running), Some(Phase::Pending)]);
}

#[test]
fn nobody_is_named_who_may_not_go_there() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    let bound = |f: &mut Fleet, name: &str, region: &str| {
        let mut job = job("default", name, 4, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
        job["metadata"]["annotations"] = json!({"meridian.dev/region": region});
        let uid = claims::send(f, job);
        f.settle();
        uid
    };
    for region in ["europe-west4", "us-east4"] {
        bound(&mut f, &format!("fills-{region}"), region);
    }
    let (elsewhere, here) = (bound(&mut f, "elsewhere", "us-east4"), bound(&mut f, "here", "europe-west4"));
    assert_eq!(f.phases(&[elsewhere, here]), [Some(Phase::Pending); 2]);
    assert_eq!(
        f.words(here).1,
        "at `eu`: the end of `default/fills-europe-west4` there",
        "the other one is ahead and goes elsewhere"
    );
}

#[test]
fn a_rack_that_could_never_hold_a_gang_is_no_matter_of_whose_end() {
    const RACK: &str = "rack";
    const HOST: &str = "kubernetes.io/hostname";
    let mut f = Fleet::new(EU);
    claims::nodes(
        &mut f,
        "eu",
        &[
            ("h0", 4, &[("pool", "a"), (RACK, "r0"), (HOST, "h0")]),
            ("h1", 4, &[("pool", "a"), (RACK, "r1"), (HOST, "h1")]),
        ],
    );
    let topology = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "default"}, "spec": {"levels": [
        {"nodeLabel": RACK}, {"nodeLabel": HOST}]}});
    let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {
        "nodeLabels": {"pool": "a"}, "topologyName": "default"}});
    f.apply(vec![topology, flavor]);
    let near = |name: &str, pods: u32| {
        let mut job = job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
        job["spec"]["template"]["metadata"] =
            json!({"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}});
        job
    };
    let there = claims::send(&mut f, near("there", 4));
    let (rack, wide) = (claims::send(&mut f, near("rack", 4)), claims::send(&mut f, near("wide", 5)));
    assert_eq!(
        f.phases(&[there, rack, wide]),
        [Some(Phase::Running), Some(Phase::Running), Some(Phase::Pending)]
    );
    let help = "at `eu`: more room within one `rack` there, or fewer or smaller pods, or a topology that is preferred instead of required";
    assert_eq!(f.words(wide).1, format!("{help} and more room that comes free there"), "{:#}", f.why(wide));
    f.end(there, EndResult::Succeeded);
    f.end(rack, EndResult::Succeeded);
    f.pass(Millis::secs(60));
    assert_eq!((f.phase(wide), f.words(wide).1), (Some(Phase::Pending), help.to_owned()));
}

#[test]
fn of_full_clusters_the_one_where_the_fewest_have_to_end_is_the_nearest() {
    let mut f = Fleet::new(&[("asia", "asia-southeast1", "SG"), ("eu", "europe-west4", "EU")]);
    f.apply(vec![cluster_queue("wide", 100, &json!({})), local_queue("wide", "wide")]);
    // The emptiest cluster is taken, and of those that are as empty the first by name.
    for (name, pods) in [("one", 2), ("most", 3), ("two", 2)] {
        f.submit_to("wide", name, pods, None);
        f.settle();
    }
    let waits = f.submit_to("wide", "waits", 4, None);
    f.settle();
    let (summary, help) = f.words(waits);
    assert!(summary.contains("nearest is `eu`: "), "{summary}");
    assert!(help.starts_with("at `eu`: the end of `default/most` there"), "{help}");
}

#[test]
fn limits_that_keep_quota_from_a_queue_are_named_and_lifted_they_keep_nothing() {
    let limited = |name: &str, nominal: i64, limits: Value| {
        let mut queue = cluster_queue(name, nominal, &json!({"cohortName": "ml"}));
        for (limit, value) in limits.as_object().unwrap() {
            queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0][limit] = value.clone();
        }
        queue
    };
    let cohort = |limits: Value| {
        let mut resource = json!({"name": GPU, "nominalQuota": 0});
        resource.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        let groups =
            json!([{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [resource]}]}]);
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "ml"}, "spec": {"parentName": "all", "resourceGroups": groups}})
    };
    // What each object is declared as, what is said of it, and the same object without the limit.
    let cases = [
        (
            [
                limited("mine", 1, json!({"borrowingLimit": 1})),
                limited("theirs", 5, json!({})),
                cohort(json!({})),
            ],
            "cluster queue `mine` could never use more than 2 of flavor `any`, even borrowed (its borrowingLimit is 1, without it 4 more)",
            limited("mine", 1, json!({})),
        ),
        (
            [
                limited("mine", 1, json!({})),
                limited("theirs", 5, json!({"lendingLimit": 1})),
                cohort(json!({})),
            ],
            "cluster queue `mine` could never use more than 2 of flavor `any`, even borrowed (cluster queue `theirs`'s lendingLimit is 1, without it 4 more)",
            limited("theirs", 5, json!({})),
        ),
        (
            [
                limited("mine", 1, json!({})),
                limited("theirs", 0, json!({})),
                cohort(json!({"borrowingLimit": 2})),
            ],
            "cluster queue `mine` could never use more than 3 of flavor `any`, even borrowed (cohort `ml`'s borrowingLimit is 2, without it 6 more)",
            cohort(json!({})),
        ),
        (
            [
                limited("mine", 2, json!({})),
                limited("theirs", 3, json!({"lendingLimit": 1})),
                cohort(json!({})),
            ],
            "cluster queue `mine` has 2 of 2 free in flavor `any`, cohort `ml` lends 0 (cluster queue `theirs`'s lendingLimit is 1, without it 2 more)",
            limited("theirs", 3, json!({})),
        ),
    ];
    for (at, (objects, expect, lifted)) in cases.into_iter().enumerate() {
        let mut f = Fleet::new(EU);
        f.apply(objects.to_vec());
        let beside = if at == 2 { 8 } else { 0 };
        let root = cluster_queue("beside", beside, &json!({"cohortName": "all"}));
        f.apply(vec![root, local_queue("mine", "mine"), local_queue("beside", "beside")]);
        if at == 3 {
            f.submit_to("beside", "borrows", 1, None);
            f.settle();
        }
        let uid = f.submit_to("mine", "asks", if at == 3 { 3 } else { 4 }, None);
        f.settle();
        let (summary, _) = f.words(uid);
        assert!(summary.contains(expect), "{at}: {summary}");
        f.apply(vec![lifted]);
        f.settle();
        assert_eq!(f.phase(uid), Some(Phase::Running), "{at}: {}", f.words(uid).0);
    }
}

#[test]
fn the_fewest_that_do_wait_for_ends_though_all_of_them_never_fit() {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_queue("small", 4, &json!({})), local_queue("a", "small")]);
    claims::nodes(&mut f, "eu", &[("eu-1", 64, &[])]);
    let there = f.submit_to("a", "there", 3, None);
    f.settle();
    let mut asks = job("default", "asks", 10, &json!({"kueue.x-k8s.io/queue-name": "a"}), "");
    asks["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    let uid = claims::send(&mut f, asks);
    f.settle();
    let (summary, help) = f.words(uid);
    assert!(
        summary.contains(
            "could never use more than 4 of flavor `any` (it makes do with 2, of which 1 are free now)"
        ),
        "{summary}"
    );
    assert!(help.contains("; the end of workloads with 1 `nvidia.com/gpu` alone would do for the fewest pods that it makes do with; or a nominal"), "{help}");
    f.end(there, EndResult::Succeeded);
    assert_eq!(f.phase(uid), Some(Phase::Running));
}
