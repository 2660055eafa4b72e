//! Rivals: pending workloads that may take freed quota or capacity first. `why` names only those that can
//! start.

use super::*;

#[test]
fn a_workload_that_never_fits_is_no_rival() {
    let mut f = Fleet::new(EU);
    let running = f.submit("there", 4);
    f.settle();
    // `huge` can never start here. It is first in the queue, but no rival.
    let (_, second) = (f.submit("huge", 9), f.submit("second", 3));
    f.settle();
    assert_eq!(f.summary_and_help(second).1, "in cluster `eu`: wait until workload `default/there` ends");
    let third = f.submit("third", 3);
    f.settle();
    assert_eq!(
        f.summary_and_help(third).1,
        "in cluster `eu`: wait until workload `default/there` ends; workload `default/second` may take it \
         first, unless this job is submitted again with a priority above 0"
    );
    f.end(running, EndResult::Succeeded);
    assert_eq!(f.phases(&[second, third]), [Some(Phase::Running), Some(Phase::Pending)]);
}

#[test]
fn a_workload_for_nodes_that_no_cluster_has_is_no_rival() {
    let mut f = Fleet::new(EU);
    let mut nowhere = job("default", "nowhere", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    nowhere["spec"]["template"]["spec"]["nodeSelector"] = json!({"room": "none"});
    suggestions::send(&mut f, nowhere);
    f.settle();
    let waits = f.submit("waits", 9);
    f.settle();
    let help = f.summary_and_help(waits).1;
    assert!(help.contains("add or enlarge nodes there") && !help.contains("default/nowhere"), "{help}");
}

#[test]
fn a_workload_for_another_region_is_no_rival() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    let submit_for_region = |f: &mut Fleet, name: &str, region: &str| {
        let mut job = job("default", name, 4, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
        job["metadata"]["annotations"] = json!({"meridian.dev/region": region});
        let uid = suggestions::send(f, job);
        f.settle();
        uid
    };
    for region in ["europe-west4", "us-east4"] {
        submit_for_region(&mut f, &format!("fills-{region}"), region);
    }
    let elsewhere = submit_for_region(&mut f, "elsewhere", "us-east4");
    let here = submit_for_region(&mut f, "here", "europe-west4");
    assert_eq!(f.phases(&[elsewhere, here]), [Some(Phase::Pending); 2]);
    assert_eq!(
        f.summary_and_help(here).1,
        "in cluster `eu`: wait until workload `default/fills-europe-west4` ends",
        "`elsewhere` is first, and can only start in the other region"
    );
}

/// A full cohort, and a workload in each of its queues, ahead of `waits`, that may run in no cluster.
fn behind_workloads_for_nowhere() -> (Fleet, Uid, Uid) {
    let mut f = Fleet::regions();
    teams(&mut f, [2, 2], &json!({}));
    let holder = f.submit_to("a", "holds", 4, None);
    f.settle();
    for queue in ["a", "b"] {
        let labels = json!({"kueue.x-k8s.io/queue-name": queue, "data": "secret"});
        f.create(job("default", &format!("nowhere-{queue}"), 1, &labels, ""));
    }
    let waits = f.submit_to("a", "waits", 1, None);
    let secret = json!({"workloadSelector": {"matchLabels": {"data": "secret"}}});
    let nowhere = json!({"applies": secret, "allow": {"jurisdictions": ["CH"]}});
    f.apply(vec![meridian_object("ResidencyPolicy", "secret", nowhere)]);
    f.settle();
    (f, holder, waits)
}

#[test]
fn a_workload_that_no_cluster_may_run_is_no_rival_for_quota() {
    let (mut f, holder, waits) = behind_workloads_for_nowhere();
    let why = f.why(waits);
    assert_eq!(
        why["wouldHelp"],
        "wait until workloads that use 1 nvidia.com/gpu end, or raise the queue's nominal quota of \
         `nvidia.com/gpu` in flavor `any` to 3; wait until workload `default/holds` ends (enough by itself)",
        "{why:#}"
    );
    f.end(holder, EndResult::Succeeded);
    assert_eq!(f.phase(waits), Some(Phase::Running));
}

#[test]
fn a_workload_that_only_containers_can_run_is_no_rival_where_processes_run() {
    let mut f = Fleet::without_agents(EU);
    f.runner = RunnerKind::Process;
    f.add_agent("eu", 1_000);
    f.quota(2);
    let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
    let mut create = |name: &str, pods: u32, command: &Value| {
        let mut job = job("default", name, pods, &labels, "");
        job["spec"]["template"]["spec"]["containers"][0]["command"] = command.clone();
        let uid = f.create(job);
        f.settle();
        uid
    };
    create("holds", 2, &json!(["true"]));
    create("of-image", 1, &json!([]));
    let waits = create("waits", 1, &json!(["true"]));
    let help = f.summary_and_help(waits).1;
    assert!(help.contains("in flavor `any` to 3;") && !help.contains("of-image"), "{help}");
}

#[test]
fn a_workload_larger_than_the_cohort_is_no_rival() {
    let mut f = Fleet::regions();
    teams(&mut f, [2, 0], &json!({}));
    let holder = f.submit_to("a", "holds", 2, None);
    f.settle();
    // `huge` and `vast` request more than the whole cohort has.
    f.submit_to("a", "huge", 3, None);
    f.submit_to("b", "vast", 4, None);
    let pending = f.submit_to("a", "waits", 1, None);
    f.settle();
    let why = f.why(pending);
    let help = "wait until workloads that use 1 nvidia.com/gpu end, or raise the queue's nominal quota of \
                `nvidia.com/gpu` in flavor `any` to 3; wait until workload `default/holds` ends (enough by \
                itself)";
    assert_eq!(why["wouldHelp"], help, "{why:#}");
    f.end(holder, EndResult::Succeeded);
    assert_eq!(f.phase(pending), Some(Phase::Running));
}

#[test]
fn a_workload_that_fits_in_a_quota_raised_for_others_is_a_rival() {
    let mut f = Fleet::regions();
    teams(&mut f, [2, 0], &json!({}));
    f.submit_to("a", "holds", 2, None);
    f.settle();
    f.submit_to("a", "huge", 3, None);
    f.submit_to("a", "first", 2, None);
    let pending = f.submit_to("a", "waits", 1, None);
    f.settle();
    // A quota that is enough for the other two is enough for `huge` too, which comes before them.
    let help = f.why(pending)["wouldHelp"].as_str().unwrap().to_owned();
    assert!(
        help.contains("in flavor `any` to 8, which is enough for the 2 workloads that may come first too"),
        "{help}"
    );
    assert!(
        help.starts_with("wait until workloads that use 3 nvidia.com/gpu end, or "),
        "no end frees enough quota for `huge`: {help}"
    );
}

#[test]
fn a_workload_that_selects_another_flavor_is_no_rival() {
    let mut f = Fleet::new(EU);
    let color_flavor =
        |color: &str| kueue_object("ResourceFlavor", color, json!({"nodeLabels": {"color": color}}));
    suggestions::nodes(
        &mut f,
        "eu",
        &[("eu-1", 64, &[("color", "red")]), ("eu-2", 64, &[("color", "blue")])],
    );
    let flavors = [flavor_quota("red", 1), flavor_quota("blue", 1)];
    let groups = json!([{"coveredResources": [GPU], "flavors": flavors}]);
    let queue = cluster_queue("colors", 0, &json!({"resourceGroups": groups}));
    f.apply(vec![color_flavor("red"), color_flavor("blue"), queue, local_queue("colors", "colors")]);
    let selects = |name: &str, pods: u32, color: &str| {
        let mut job = job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": "colors"}), "");
        job["spec"]["template"]["spec"]["nodeSelector"] = json!({"color": color});
        job
    };
    let submit = suggestions::send;
    // Two workloads come first, but they don't fit in the quota of their flavor.
    submit(&mut f, selects("blue-1", 5, "blue"));
    submit(&mut f, selects("blue-2", 6, "blue"));
    let red = submit(&mut f, selects("red", 2, "red"));
    let (summary, help) = f.summary_and_help(red);
    assert!(help.contains("nominal quota of `nvidia.com/gpu` in flavor `red` to 2"), "{summary}; {help}");
    submit(&mut f, selects("red-too", 3, "red"));
    let last = submit(&mut f, selects("red-last", 4, "red"));
    let (summary, help) = f.summary_and_help(last);
    assert!(
        help.contains("nominal quota of `nvidia.com/gpu` in flavor `red` to 9"),
        "the workloads before it in flavor `red` count: {summary}; {help}"
    );
}
