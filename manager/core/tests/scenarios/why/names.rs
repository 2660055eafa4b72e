//! What `why` names is what keeps a workload now: the numbers, the rule, the object, and whose end or which change lets it start.

use super::*;

/// A cluster queue with one kind of quota in cohort `co`.
fn member(name: &str, nominal: i64, more: Value) -> Value {
    let mut all = json!({"cohortName": "co"});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    cluster_queue(name, nominal, &all)
}

/// Two queues of a cohort, each with a local queue of its name, and nodes enough for everybody.
fn two(first: &Value, second: &Value) -> Fleet {
    let mut f = Fleet::new(EU);
    claims::nodes(&mut f, "eu", &[("eu-1", 64, &[])]);
    let names = [first, second].map(|queue| queue["metadata"]["name"].as_str().unwrap().to_owned());
    f.apply(vec![first.clone(), second.clone()]);
    f.apply(names.iter().map(|name| local_queue(name, name)).collect());
    f
}

fn start(f: &mut Fleet, queue: &str, name: &str, pods: u32) -> Uid {
    let uid = f.submit_to(queue, name, pods, None);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    uid
}

fn wait(f: &mut Fleet, queue: &str, name: &str, pods: u32) -> Uid {
    let uid = f.submit_to(queue, name, pods, None);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Pending), "{:#}", f.why(uid));
    uid
}

fn delete(f: &mut Fleet, name: &str) {
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", name), uid: None }]);
    f.settle();
}

#[test]
fn numbers_are_those_of_now_whoever_came_since_it_was_looked_at() {
    let mut f = two(&member("q1", 10, json!({})), &member("q2", 2, json!({})));
    start(&mut f, "q1", "own", 5);
    let big = wait(&mut f, "q2", "big", 9);
    assert!(
        f.words(big).0.contains("has 2 of 2 free in flavor `any`, cohort `co` lends 5"),
        "{}",
        f.words(big).0
    );
    let small = start(&mut f, "q2", "small", 6);
    let (summary, help) = f.words(big);
    assert!(summary.contains("asks for 9 `nvidia.com/gpu`; cluster queue `q2` has 0 of 2 free in flavor `any`, cohort `co` lends 1"), "{summary}");
    assert!(help.starts_with("the end of workloads with 8 `nvidia.com/gpu`, or "), "{help}");
    f.end(small, EndResult::Succeeded);
    assert!(
        f.words(big).0.contains("has 2 of 2 free in flavor `any`, cohort `co` lends 5"),
        "{}",
        f.words(big).0
    );
    // Who waits behind is told so of its head.
    f.apply(vec![member("q2", 2, json!({"queueingStrategy": "StrictFIFO"}))]);
    let behind = wait(&mut f, "q2", "behind", 1);
    start(&mut f, "q1", "more", 3);
    let (summary, _) = f.words(behind);
    assert!(
        summary.contains("its head `default/big` can't start: asks for 9 `nvidia.com/gpu`; the queue has 2 of 2 free in flavor `any`, cohort `co` lends 2"),
        "{summary}"
    );
}

#[test]
fn who_had_quota_and_no_room_is_told_when_others_took_the_quota() {
    let mut f = two(&member("a", 3, json!({})), &member("b", 3, json!({})));
    claims::nodes(&mut f, "eu", &[("eu-1", 4, &[])]);
    start(&mut f, "a", "there", 2);
    let waits = wait(&mut f, "b", "waits", 3);
    assert!(
        f.words(waits).0.starts_with("waits: the only cluster can't start it now: room for 2 of 3 pods"),
        "{}",
        f.words(waits).0
    );
    start(&mut f, "a", "took", 2);
    let (summary, help) = f.words(waits);
    let lacks = "waits: asks for 3 `nvidia.com/gpu`; cluster queue `b` has 2 of 3 free in flavor `any` (others have borrowed 1 of it), cohort `co` lends 0; ";
    assert!(summary.starts_with(lacks), "{summary}");
    assert!(
        summary
            .ends_with("; and then: the only cluster can't start it now: room for 0 of 3 pods of `main` now"),
        "{summary}"
    );
    assert!(help.contains("first: the end of workloads with 1 `nvidia.com/gpu`, or raise"), "{help}");
}

#[test]
fn where_more_is_used_than_there_is_quota_for_so_much_more_has_to_end() {
    let mut f = Fleet::new(EU);
    claims::nodes(&mut f, "eu", &[("eu-1", 64, &[])]);
    let quota = |f: &mut Fleet, nominal: i64| f.apply(vec![cluster_queue("cq", nominal, &json!({}))]);
    quota(&mut f, 8);
    let [five, one, two] =
        [("five", 5), ("one", 1), ("two", 2)].map(|(name, pods)| start(&mut f, "lq", name, pods));
    quota(&mut f, 4);
    let waits = wait(&mut f, "lq", "waits", 1);
    assert!(
        f.words(waits).1.starts_with("the end of workloads with 5 `nvidia.com/gpu`, or "),
        "{}",
        f.words(waits).1
    );
    f.end(one, EndResult::Succeeded);
    assert!(
        f.words(waits).1.starts_with("the end of workloads with 4 `nvidia.com/gpu`, or "),
        "{}",
        f.words(waits).1
    );
    f.end(two, EndResult::Succeeded);
    assert_eq!(f.phase(waits), Some(Phase::Pending), "five of four are used");
    f.end(five, EndResult::Succeeded);
    assert_eq!(f.phase(waits), Some(Phase::Running));
}

#[test]
fn no_policy_is_blamed_where_none_would_allow_it() {
    for policy in ["Never", "Any"] {
        let mut f = two(
            &member("q1", 10, json!({})),
            &member("q2", 2, json!({"preemption": {"reclaimWithinCohort": policy}})),
        );
        start(&mut f, "q1", "own", 5);
        let big = wait(&mut f, "q2", "big", 9);
        let words = "; it would fit if `default/own` (priority 0) were preempted, which no policy allows, as cluster queue `q1` uses no more than its own quota";
        assert!(f.words(big).0.contains(words), "{policy}: {}", f.words(big).0);
    }
    // Who borrows may be displaced by a policy, and it's that which forbids it.
    let mut f = two(&member("q1", 4, json!({})), &member("q2", 4, json!({})));
    start(&mut f, "q1", "borrows", 8);
    let waits = wait(&mut f, "q2", "waits", 4);
    assert!(
        f.words(waits).0.contains("were preempted, which `reclaimWithinCohort: Never` forbids"),
        "{}",
        f.words(waits).0
    );
}

#[test]
fn a_victim_in_a_stopped_queue_is_out_of_reach_until_it_isnt() {
    let reclaims = json!({"preemption": {"reclaimWithinCohort": "Any"}});
    let mut f = two(&member("a", 4, json!({})), &member("b", 4, reclaims));
    let holds = start(&mut f, "a", "holds", 8);
    f.apply(vec![member("a", 4, json!({"stopPolicy": "Hold"}))]);
    let waits = wait(&mut f, "b", "waits", 4);
    let (summary, help) = f.words(waits);
    let words = "were preempted, which `reclaimWithinCohort: Any` would allow if cluster queue `a` admitted anybody: it is stopped";
    assert!(summary.contains(words), "{summary}");
    let alone = "to set the stopPolicy of cluster queue `a` to `None` alone would do: it would displace `default/holds`";
    assert!(help.contains(alone), "{help}");
    // Who waits behind the stop would come along.
    let along = wait(&mut f, "a", "along", 4);
    assert!(!f.words(waits).1.contains("stopPolicy"), "{}", f.words(waits).1);
    delete(&mut f, "along");
    assert_eq!(f.phase(along), None);
    f.apply(vec![member("a", 4, json!({}))]);
    f.settle();
    f.settle();
    assert_eq!(f.phases(&[waits, holds]), [Some(Phase::Running), Some(Phase::Pending)]);
}

#[test]
fn to_uncordon_a_cluster_alone_does_where_others_are_displaced_then() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    claims::nodes(&mut f, "eu", &[("eu-1", 8, &[])]);
    claims::nodes(&mut f, "us", &[("us-1", 4, &[])]);
    let reclaims = json!({"preemption": {"reclaimWithinCohort": "Any"}});
    f.apply(vec![
        member("a", 4, reclaims),
        member("b", 4, json!({})),
        local_queue("a", "a"),
        local_queue("b", "b"),
    ]);
    let run = [start(&mut f, "b", "b0", 4), start(&mut f, "b", "b1", 4)];
    for cluster in ["eu", "us"] {
        f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon(cluster.into()) });
    }
    let waits = wait(&mut f, "a", "waits", 4);
    let (_, help) = f.words(waits);
    assert!(help.contains("; to uncordon `eu` alone would do: it would displace `default/b"), "{help}");
    assert!(!help.contains("no single change"), "{help}");
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
    f.settle();
    f.settle();
    assert_eq!(f.phase(waits), Some(Phase::Running), "{:#}", f.why(waits));
    assert_eq!(run.iter().filter(|uid| f.phase(**uid) == Some(Phase::Running)).count(), 1);
}

#[test]
fn who_is_overtaken_in_every_round_is_told_by_whom() {
    let strict =
        json!({"queueingStrategy": "StrictFIFO", "preemption": {"reclaimWithinCohort": "LowerPriority"}});
    let mut f = two(&member("s", 2, strict), &member("p", 0, json!({})));
    f.apply(vec![json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "co"}, "spec": {"resourceGroups": [
        {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 2}]}]}]}})]);
    start(&mut f, "s", "s0", 3);
    let head = wait(&mut f, "s", "head", 2);
    let part = wait(&mut f, "p", "part", 1);
    let (summary, help) = f.words(part);
    assert!(summary.starts_with("waits: another workload of its cohort came first; `default/head` of cluster queue `s` comes first"), "{summary}");
    assert!(help.starts_with("the start or deletion of `default/head`"), "{help}");
    assert!(help.ends_with("; the deletion of `default/head` alone would do"), "{help}");
    delete(&mut f, "head");
    assert_eq!((f.phase(head), f.phase(part)), (None, Some(Phase::Running)));
}

#[test]
fn a_list_of_clusters_that_isnt_there_is_named_and_its_queue_is_inactive() {
    let mut f = Fleet::regions();
    let check = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "mk"}, "spec": {
        "controllerName": "kueue.x-k8s.io/multikueue", "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "nope"}}});
    let config = |clusters: &[&str]| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig", "metadata": {"name": "nope"}, "spec": {"clusters": clusters}});
    let budget = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "budget"}, "spec": {"controllerName": "example.com/budget"}});
    f.apply(vec![
        check,
        budget,
        cluster_queue("cq", 4, &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}})),
    ]);
    let active = |f: &Fleet, kind: Kind, name: &str| {
        let shown = f.world.render(&Key::global(kind, name), &f.bodies, now(f.now)).unwrap();
        let condition = &shown["status"]["conditions"][0];
        ["status", "reason"].map(|field| condition[field].as_str().unwrap().to_owned()).join(" ")
    };
    assert_eq!(active(&f, Kind::AdmissionCheck, "mk"), "False BadConfig");
    assert_eq!(active(&f, Kind::AdmissionCheck, "budget"), "False NoController");
    assert_eq!(active(&f, Kind::ClusterQueue, "cq"), "False AdmissionCheckInactive");
    let uid = f.submit("job", 2);
    f.settle();
    let missing = "there is no MultiKueueConfig `nope`, which admission check `mk` names";
    let help = "create MultiKueueConfig `nope`; what comes next depends on the clusters that it lists";
    assert_eq!(
        f.words(uid),
        (format!("waits: cluster queue `cq` admits nothing: {missing}"), help.to_owned())
    );
    assert_eq!(f.why(uid)["clusters"][0]["reason"], missing);
    // Some clusters are enough, and where none is there the check says so.
    f.cut.push("us".into());
    f.apply(vec![config(&["moon"])]);
    assert_eq!(active(&f, Kind::AdmissionCheck, "mk"), "False NoUsableClusters");
    f.apply(vec![config(&["moon", "us"])]);
    assert_eq!(active(&f, Kind::AdmissionCheck, "mk"), "True SomeActiveClusters");
    f.apply(vec![config(&["us"])]);
    assert_eq!(
        (active(&f, Kind::AdmissionCheck, "mk"), active(&f, Kind::ClusterQueue, "cq")),
        ("True Active".to_owned(), "True Ready".to_owned())
    );
    f.cut.clear();
    f.pass(Millis::secs(60));
    assert_eq!((f.phase(uid), f.at(uid).as_deref()), (Some(Phase::Running), Some("us")));
    // A run goes on without the list, and nothing new starts.
    f.write(vec![Change::Delete { key: Key::global(Kind::MultiKueueConfig, "nope"), uid: None }]);
    let next = wait(&mut f, "lq", "next", 1);
    assert!(
        f.phase(uid) == Some(Phase::Running) && f.words(next).1.starts_with("create MultiKueueConfig `nope`"),
        "{}",
        f.words(next).1
    );
}

/// It may take fewer pods, for which there is quota: that is kept for who displaces others (simulation seed 1795574448503493).
#[test]
fn who_could_start_with_what_another_displaces_others_for_is_told_of_that() {
    let reclaims = json!({"preemption": {"reclaimWithinCohort": "LowerPriority"}});
    let mut f = two(&member("a", 4, reclaims.clone()), &member("b", 4, reclaims));
    f.apply(vec![member("c", 0, json!({})), local_queue("c", "c")]);
    let classes = [("low", 0), ("mid", 10), ("high", 1_000)];
    f.apply(
        classes
            .map(|(name, value)| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}))
            .into(),
    );
    let stay = f.submit_to("c", "stay", 4, Some("high"));
    let victim = f.submit_to("c", "victim", 2, Some("low"));
    f.settle();
    assert_eq!(f.phases(&[stay, victim]), [Some(Phase::Running); 2]);
    // The victim's cluster isn't heard: it doesn't stop yet.
    f.cut.push("eu".into());
    let owner = f.submit_to("a", "owner", 4, Some("mid"));
    let mut fewer = job(
        "default",
        "fewer",
        4,
        &json!({"kueue.x-k8s.io/queue-name": "b", "kueue.x-k8s.io/priority-class": "mid"}),
        "",
    );
    fewer["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    let Reply::Written(written) = f.apply(vec![fewer]) else { panic!("refused") };
    let fewer = written[0].uid;
    assert_eq!(
        f.phases(&[victim, owner, fewer]),
        [Some(Phase::Stopping), Some(Phase::Pending), Some(Phase::Pending)]
    );
    let (summary, help) = f.words(fewer);
    assert!(summary.starts_with("waits: another workload of its cohort came first; `default/owner` of cluster queue `a` comes first"), "{summary}");
    assert!(
        summary.ends_with("others are stopping for it")
            && help.starts_with("the start or deletion of `default/owner`"),
        "{summary}: {help}"
    );
    f.cut.clear();
    f.settle();
    delete(&mut f, "owner");
    f.settle();
    assert_eq!(f.phase(fewer), Some(Phase::Running), "{:#}", f.why(fewer));
}

#[test]
fn who_selects_another_flavor_is_no_rival_for_this_one() {
    let mut f = Fleet::new(EU);
    let labelled = |color: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": color}, "spec": {"nodeLabels": {"color": color}}});
    claims::nodes(&mut f, "eu", &[("eu-1", 64, &[("color", "red")]), ("eu-2", 64, &[("color", "blue")])]);
    let flavor = |name: &str| json!({"name": name, "resources": [{"name": GPU, "nominalQuota": 1}]});
    let spec = json!({"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU], "flavors": [flavor("red"), flavor("blue")]}]});
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "colors"}, "spec": spec});
    f.apply(vec![labelled("red"), labelled("blue"), queue, local_queue("colors", "colors")]);
    let selects = |name: &str, pods: u32, color: &str| {
        let mut job = job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": "colors"}), "");
        job["spec"]["template"]["spec"]["nodeSelector"] = json!({"color": color});
        job
    };
    let submit = |f: &mut Fleet, job: Value| {
        let Reply::Written(written) = f.apply(vec![job]) else { panic!("refused") };
        f.settle();
        written[0].uid
    };
    // Those before it fit nowhere in what there is of the other flavor.
    submit(&mut f, selects("blue-1", 5, "blue"));
    submit(&mut f, selects("blue-2", 6, "blue"));
    let red = submit(&mut f, selects("red", 2, "red"));
    let (summary, help) = f.words(red);
    assert!(help.contains("nominal quota of `nvidia.com/gpu` in flavor `red` to 2"), "{summary}; {help}");
    submit(&mut f, selects("red-too", 3, "red"));
    let last = submit(&mut f, selects("red-last", 4, "red"));
    let (summary, help) = f.words(last);
    assert!(
        help.contains("nominal quota of `nvidia.com/gpu` in flavor `red` to 9"),
        "with those who select the same: {summary}; {help}"
    );
}
