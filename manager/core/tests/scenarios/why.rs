//! What `why` reports about a pending workload: queue position, obstacles, and what would help.
//!
//! [`every_reason`], [`suggestions`], [`nominal_quota`] and [`promises`] try what `why` suggests.
//! [`obstacles`], [`queue_order`] and [`rivals`] check what it names.

#[path = "why/capacity_fleets.rs"]
mod capacity_fleets;
#[path = "why/every_reason.rs"]
mod every_reason;
#[path = "why/nominal_quota.rs"]
mod nominal_quota;
#[path = "why/obstacles.rs"]
mod obstacles;
#[path = "why/promises.rs"]
mod promises;
#[path = "why/queue_order.rs"]
mod queue_order;
#[path = "why/reason_fleets.rs"]
mod reason_fleets;
#[path = "why/rivals.rs"]
mod rivals;
#[path = "why/row_names.rs"]
mod row_names;
#[path = "why/suggestions.rs"]
mod suggestions;

use super::*;

impl Fleet {
    fn summary_and_help(&self, uid: Uid) -> (String, String) {
        let why = self.why(uid);
        (why["summary"].as_str().unwrap().to_owned(), why["wouldHelp"].as_str().unwrap().to_owned())
    }

    /// Position and number of pending workloads, in the local queue and, if it has other local queues, the
    /// cluster queue.
    fn positions(&self, uid: Uid) -> ((u64, u64), Option<(u64, u64)>) {
        let position = self.why(uid)["position"].clone();
        let place_of = |value: &Value| (value["place"].as_u64().unwrap(), value["of"].as_u64().unwrap());
        (place_of(&position), position.get("clusterQueue").map(place_of))
    }
}

#[test]
fn only_the_workload_that_backs_off_has_the_backoff_as_reason() {
    let mut f = Fleet::new(EU);
    // The cluster is disconnected, so the offer expires, and the job backs off.
    f.disconnected.push("eu".into());
    let uid = f.submit("rests", 3);
    f.advance(Millis::secs(30));
    f.disconnected.clear();
    assert!(f.phase(uid) == Some(Phase::Pending), "{:#}", f.why(uid));
    if f.summary_and_help(uid).0.starts_with("pending: backing off before the next attempt, ") {
        let other = f.submit("other", 3);
        assert!(!f.summary_and_help(other).0.contains("backing off"), "{:#}", f.why(other));
        f.write(vec![Change::Delete {
            key: Key::namespaced(Kind::Job, "default", "other"),
            uid: None,
            force: false,
        }]);
    }
    f.advance(Millis::secs(30));
    assert_eq!(f.phase(uid), Some(Phase::Running));
}

#[test]
fn an_inactive_queue_names_the_missing_flavor() {
    let mut f = Fleet::new(EU);
    let mut queue = cluster_queue("cq", 4, &json!({}));
    queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = json!("rare");
    f.apply(vec![queue]);
    let uid = f.submit("job", 2);
    f.settle();
    let expected = (
        "pending: cluster queue `cq` is inactive: resource flavor `rare` doesn't exist".to_owned(),
        "create resource flavor `rare`, or remove it from cluster queue `cq`".to_owned(),
    );
    assert_eq!(f.summary_and_help(uid), expected);
    f.apply(vec![resource_flavor("rare")]);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
}

#[test]
fn a_shortage_of_quota_and_capacity_names_both() {
    let mut f = Fleet::new(EU);
    f.apply(vec![
        cluster_queue("other", 4, &json!({})),
        local_queue("other", "other"),
        cluster_queue("cq", 1, &json!({})),
    ]);
    let running = f.submit_to("other", "there", 4, None);
    f.settle();
    let uid = f.submit("job", 2);
    f.settle();
    let (summary, help) = f.summary_and_help(uid);
    assert!(
        summary.ends_with("; and then: the only cluster, `eu`, has no room: 0 of 2 pods of `main` fit now"),
        "{summary}"
    );
    assert_eq!(
        help,
        "no single change is known to start it; first: raise the queue's nominal quota of `nvidia.com/gpu` \
         in flavor `any` to 2, or request less; then: in cluster `eu`: wait until workload `default/there` \
         ends"
    );
    f.apply(vec![cluster_queue("cq", 2, &json!({}))]);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Pending));
    f.end(running, EndResult::Succeeded);
    assert_eq!(f.phase(uid), Some(Phase::Running));
}

/// The first flavor has enough quota and no capacity. The last one has too little quota.
#[test]
fn a_quota_shortage_in_another_flavor_is_not_named() {
    let mut f = Fleet::new(EU);
    let mut queue = cluster_queue("cq", 1, &json!({}));
    queue["spec"]["resourceGroups"][0]["flavors"] = json!([flavor_quota("f1", 28), flavor_quota("f2", 1)]);
    f.apply(vec![resource_flavor("f1"), resource_flavor("f2"), queue]);
    let (first, second) = (f.submit("first", 2), f.submit("second", 2));
    f.settle();
    let pending = f.submit("waits", 2);
    f.settle();
    let (summary, help) = f.summary_and_help(pending);
    assert!(summary.contains("the only cluster, `eu`, has no room") && !summary.contains("f2"), "{summary}");
    assert!(help.contains("wait until workload ") && !help.contains("no single change"), "{help}");
    // Nor in lists and conditions.
    let rendered = f.object_at(&Key::namespaced(Kind::Job, "default", "waits")).unwrap();
    assert!(!rendered.to_string().contains("f2"), "{rendered:#}");
    let (blocked, clusters) = f.world.reasons(&f.world.state().workloads()[&pending]);
    assert!(blocked.is_none() && clusters.is_some_and(|by| by.len() == 1), "{blocked:?} {clusters:?}");
    assert_eq!((f.phase(first), f.phase(pending)), (Some(Phase::Running), Some(Phase::Pending)));
    f.end(second, EndResult::Succeeded);
    assert_eq!(f.phase(pending), Some(Phase::Running), "{help}");
}

#[test]
fn all_obstacles_are_named_in_order() {
    let mut f = Fleet::new(EU);
    let on_hold = json!({"stopPolicy": "Hold"});
    f.apply(vec![
        cluster_queue("other", 4, &json!({})),
        local_queue("other", "other"),
        cluster_queue("cq", 1, &on_hold),
    ]);
    let running = f.submit_to("other", "there", 4, None);
    f.settle();
    let uid = f.submit("job", 2);
    f.settle();
    let why = f.why(uid);
    let obstacles: Vec<(&str, &str)> = why["obstacles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|obstacle| (obstacle["reason"].as_str().unwrap(), obstacle["wouldHelp"].as_str().unwrap()))
        .collect();
    assert_eq!(
        obstacles,
        [
            ("cluster queue `cq` is stopped", "set the stopPolicy of cluster queue `cq` to `None`"),
            (
                "needs 2 nvidia.com/gpu, but cluster queue `cq` can use at most 1 in flavor `any`",
                "raise the queue's nominal quota of `nvidia.com/gpu` in flavor `any` to 2, or request less"
            ),
            (
                "the only cluster, `eu`, has no room: 0 of 2 pods of `main` fit now",
                "in cluster `eu`: wait until workload `default/there` ends"
            ),
        ]
    );
    assert!(
        why["summary"]
            .as_str()
            .unwrap()
            .starts_with("pending: cluster queue `cq` is stopped; and then: needs 2"),
        "{why:#}"
    );
    assert!(
        why["wouldHelp"]
            .as_str()
            .unwrap()
            .starts_with("no single change is known to start it; first: set the stopPolicy"),
        "{why:#}"
    );
    // The reason of each cluster is its own, without the obstacles before it.
    assert_eq!(why["clusters"][0]["reason"], "0 of 2 pods of `main` fit now");
    // After each change, the next of these obstacles is the first.
    f.apply(vec![cluster_queue("cq", 1, &json!({}))]);
    f.settle();
    assert!(
        f.summary_and_help(uid)
            .0
            .starts_with("pending: needs 2 nvidia.com/gpu, but cluster queue `cq` can use at most 1"),
        "{}",
        f.summary_and_help(uid).0
    );
    f.apply(vec![cluster_queue("cq", 2, &json!({}))]);
    f.settle();
    assert_eq!(f.summary_and_help(uid), (format!("pending: {}", obstacles[2].0), obstacles[2].1.to_owned()));
    f.end(running, EndResult::Succeeded);
    assert_eq!(f.phase(uid), Some(Phase::Running));
    assert_eq!(f.why(uid)["obstacles"], json!([]));
}

#[test]
fn no_end_is_suggested_if_a_gang_never_fits_in_a_rack() {
    const RACK: &str = "rack";
    const HOST: &str = "kubernetes.io/hostname";
    let mut f = Fleet::new(EU);
    suggestions::nodes(
        &mut f,
        "eu",
        &[
            ("h0", 4, &[("pool", "a"), (RACK, "r0"), (HOST, "h0")]),
            ("h1", 4, &[("pool", "a"), (RACK, "r1"), (HOST, "h1")]),
        ],
    );
    let levels = json!([{"nodeLabel": RACK}, {"nodeLabel": HOST}]);
    let topology = kueue_object("Topology", "default", json!({"levels": levels}));
    let flavor = kueue_object(
        "ResourceFlavor",
        "any",
        json!({"nodeLabels": {"pool": "a"}, "topologyName": "default"}),
    );
    f.apply(vec![topology, flavor]);
    let near = |name: &str, pods: u32| {
        let mut job = job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
        job["spec"]["template"]["metadata"] =
            json!({"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}});
        job
    };
    let [first, second, wide] = [("there", 4), ("rack", 4), ("wide", 5)]
        .map(|(name, pods)| suggestions::send(&mut f, near(name, pods)));
    assert_eq!(
        f.phases(&[first, second, wide]),
        [Some(Phase::Running), Some(Phase::Running), Some(Phase::Pending)]
    );
    let help = "in cluster `eu`: add nodes to one `rack` there, or use fewer or smaller pods, \
                or prefer the topology instead of requiring it";
    let with_ends = format!("{help} and wait for free capacity there");
    assert_eq!(f.summary_and_help(wide).1, with_ends, "{:#}", f.why(wide));
    f.end(first, EndResult::Succeeded);
    f.end(second, EndResult::Succeeded);
    f.advance(Millis::secs(60));
    assert_eq!((f.phase(wide), f.summary_and_help(wide).1), (Some(Phase::Pending), help.to_owned()));
}

#[test]
fn the_closest_cluster_is_the_one_with_the_fewest_ends_needed() {
    let mut f = Fleet::new(&[("asia", "asia-southeast1", "SG"), ("eu", "europe-west4", "EU")]);
    f.apply(vec![cluster_queue("wide", 100, &json!({})), local_queue("wide", "wide")]);
    // Each job goes to the emptiest cluster, and among equally empty ones to the first by name.
    for (name, pods) in [("one", 2), ("most", 3), ("two", 2)] {
        f.submit_to("wide", name, pods, None);
        f.settle();
    }
    let pending = f.submit_to("wide", "waits", 4, None);
    f.settle();
    let (summary, help) = f.summary_and_help(pending);
    assert!(summary.contains("no cluster has room. Closest: `eu` ("), "{summary}");
    assert!(help.starts_with("in cluster `eu`: wait until workload `default/most` ends"), "{help}");
}

/// A cluster queue in the cohort `ml` with these limits.
fn limited(name: &str, nominal: i64, limits: Value) -> Value {
    let mut queue = cluster_queue(name, nominal, &json!({"cohortName": "ml"}));
    for (limit, value) in limits.as_object().unwrap() {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0][limit] = value.clone();
    }
    queue
}

/// The cohort `ml` with these limits, in the cohort `all`.
fn cohort(limits: Value) -> Value {
    let mut resource = json!({"name": GPU, "nominalQuota": 0});
    resource.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
    let groups = json!([{"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [resource]}]}]);
    kueue_object("Cohort", "ml", json!({"parentName": "all", "resourceGroups": groups}))
}

#[test]
fn borrowing_and_lending_limits_that_block_a_workload_are_named() {
    // The objects, the expected reason, and the object without its limit.
    let cases = [
        (
            [
                limited("mine", 1, json!({"borrowingLimit": 1})),
                limited("theirs", 5, json!({})),
                cohort(json!({})),
            ],
            "cluster queue `mine` can use at most 2 in flavor `any`, even with borrowing \
             (its borrowingLimit of 1 withholds 4 more)",
            limited("mine", 1, json!({})),
        ),
        (
            [
                limited("mine", 1, json!({})),
                limited("theirs", 5, json!({"lendingLimit": 1})),
                cohort(json!({})),
            ],
            "cluster queue `mine` can use at most 2 in flavor `any`, even with borrowing \
             (cluster queue `theirs`'s lendingLimit of 1 withholds 4 more)",
            limited("theirs", 5, json!({})),
        ),
        (
            [
                limited("mine", 1, json!({})),
                limited("theirs", 0, json!({})),
                cohort(json!({"borrowingLimit": 2})),
            ],
            "cluster queue `mine` can use at most 3 in flavor `any`, even with borrowing \
             (cohort `ml`'s borrowingLimit of 2 withholds 6 more)",
            cohort(json!({})),
        ),
        (
            [
                limited("mine", 2, json!({})),
                limited("theirs", 3, json!({"lendingLimit": 1})),
                cohort(json!({})),
            ],
            "cluster queue `mine` has 2 of 2 free in flavor `any` and can borrow 0 from cohort `ml` \
             (cluster queue `theirs`'s lendingLimit of 1 withholds 2 more)",
            limited("theirs", 3, json!({})),
        ),
    ];
    for (at, (objects, expected, lifted)) in cases.into_iter().enumerate() {
        let mut f = Fleet::new(EU);
        f.apply(objects.to_vec());
        let root = cluster_queue("beside", if at == 2 { 8 } else { 0 }, &json!({"cohortName": "all"}));
        f.apply(vec![root, local_queue("mine", "mine"), local_queue("beside", "beside")]);
        if at == 3 {
            f.submit_to("beside", "borrows", 1, None);
            f.settle();
        }
        let uid = f.submit_to("mine", "asks", if at == 3 { 3 } else { 4 }, None);
        f.settle();
        let (summary, _) = f.summary_and_help(uid);
        assert!(summary.contains(expected), "{at}: {summary}");
        f.apply(vec![lifted]);
        f.settle();
        assert_eq!(f.phase(uid), Some(Phase::Running), "{at}: {}", f.summary_and_help(uid).0);
    }
}

#[test]
fn help_for_partial_admission_is_given_if_the_full_gang_never_fits() {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_queue("small", 4, &json!({})), local_queue("a", "small")]);
    suggestions::nodes(&mut f, "eu", &[("eu-1", 64, &[])]);
    let running = f.submit_to("a", "there", 3, None);
    f.settle();
    let mut manifest = job("default", "asks", 10, &json!({"kueue.x-k8s.io/queue-name": "a"}), "");
    manifest["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    let uid = suggestions::send(&mut f, manifest);
    f.settle();
    let (summary, help) = f.summary_and_help(uid);
    assert!(
        summary.contains("can use at most 4 in flavor `any` (its minimum pod count needs 2, 1 free)"),
        "{summary}"
    );
    let expected = "; wait until workloads that use 1 nvidia.com/gpu end, to start with its minimum pod \
                    count (enough by itself); or raise the nominal quota to ";
    assert!(help.contains(expected), "{help}");
    f.end(running, EndResult::Succeeded);

    assert_eq!(f.phase(uid), Some(Phase::Running));
}

#[test]
fn uncordoning_is_no_help_where_the_cluster_is_too_small() {
    let mut f = Fleet::new(EU);
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("eu".into()) });
    let too_many = f.submit("many", 90);
    let fits = f.submit("few", 1);
    f.settle();
    let help = |f: &Fleet, uid: Uid| f.why(uid)["clusters"][0]["wouldHelp"].as_str().unwrap().to_owned();
    assert_eq!(help(&f, fits), "uncordon the cluster");
    let larger = help(&f, too_many);
    assert!(larger.len() > 30 && larger.starts_with("uncordon the cluster, and "), "{larger}");
}

#[test]
fn a_queue_without_a_selector_should_select_namespaces() {
    let mut f = Fleet::new(EU);
    let mut queue = cluster_queue("cq", 9, &json!({}));
    queue["spec"].as_object_mut().unwrap().remove("namespaceSelector");
    let Reply::Written(written) = f.apply(vec![queue]) else { panic!("refused") };
    assert!(written[0].warnings[0].contains("selects no namespace"), "{:?}", written[0].warnings);
    let uid = f.submit("waits", 1);
    f.settle();
    let (summary, help) = f.summary_and_help(uid);
    assert!(summary.contains("cluster queue `cq` has no namespaceSelector"), "{summary}");
    assert_eq!(help, "write `namespaceSelector: {}` into cluster queue `cq` to select all namespaces");
}
