//! Pods that need nothing any more, failed pods, and scale-downs.

use super::*;

#[test]
fn succeeded_pods_need_no_new_node() {
    let mut bench = Bench::new();
    bench.run(1, plain(12));
    assert_eq!((bench.places(1).as_str(), bench.free()), ("b0-r0-h0=4 b0-r0-h1=4 b0-r0-h2=4", 12));
    // All pods of the first host, and two of the second.
    bench.succeed(1, &[0, 1, 2, 3, 4, 5]);
    assert_eq!(bench.free(), 18);
    bench.nodes(without(&["b0-r0-h0"]));
    assert_eq!(bench.moved(1), None, "the node has no pods any more");
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h1"]));
    let (number, placement) = bench.moved(1).unwrap();
    assert_eq!((number, placement.len()), (1, 12), "pods keep their indexes");
    let moved: Vec<u32> =
        placement.iter().filter(|pod| pod.node.starts_with("b0-r1")).map(|pod| pod.index).collect();
    assert_eq!(moved, [6, 7]);
    bench.confirm(1, 1);
    assert_eq!(bench.free(), 10);
    // A pod that succeeds during its move frees the new node at once, and the old one when it was seen ended.
    bench.nodes(without(&["b0-r0-h0", "b0-r0-h1", "b0-r0-h2"]));
    assert_eq!(bench.moved(1).unwrap().0, 2);
    bench.succeed(1, &[8]);
    assert_eq!(bench.free(), 7);
    bench.confirm(1, 2);
    assert_eq!(bench.free(), 7);
}

#[test]
fn a_topology_applies_to_the_remaining_pods_only() {
    let mut bench = Bench::new();
    bench.run(1, near(12, "rack"));
    bench.nodes(fleet());
    // The rack is full: all twelve pods would not fit without the host.
    bench.succeed(1, &[0, 1, 2, 3]);
    bench.nodes(unready(&["b0-r0-h1"]));
    assert_eq!(bench.moved(1).map(|(number, _)| number), Some(1));
    bench.confirm(1, 1);
    assert_eq!(bench.places(1), "b0-r0-h0=8 b0-r0-h2=4", "four of the eight have succeeded");
    assert_eq!(bench.free(), 12);
}

#[test]
fn pod_failures_are_reported_while_the_job_runs() {
    let mut bench = Bench::new();
    bench.run(1, plain(3));
    let fail = |bench: &mut Bench, failures: u32| {
        bench.apply(Input::Runner(RunnerEvent::PodsFailed { uid: Uid(1), fence: fence(1), failures }));
        let request = bench.agent.compose(at(bench.now), Lane::News);
        bench.exchange(None);
        request.spare.iter().map(|report| report.failures).collect::<Vec<_>>()
    };
    assert_eq!(fail(&mut bench, 1), [1]);
    assert_eq!(fail(&mut bench, 1), [0; 0], "a repeated report is no news");
    assert_eq!(fail(&mut bench, 3), [3]);
    assert_eq!(fail(&mut bench, 2), [0; 0], "the number never decreases");
}

#[test]
fn reclaimable_pods_are_reported_until_acknowledged() {
    let mut bench = Bench::new();
    bench.run(1, plain(3));
    let reported = |pods: u32| vec![(Uid(1), BTreeMap::from([("main".to_owned(), pods)]))];
    bench.succeed(1, &[2]);
    assert!(bench.effects.contains(&Effect::SendNews));
    let unanswered = bench.agent.compose(at(bench.now), Lane::News);
    assert_eq!(unanswered.spare.len(), 1);
    assert_eq!(bench.reclaimable_reported(), reported(1), "the first report was not answered");
    assert_eq!(bench.reclaimable_reported(), []);
    bench.succeed(1, &[2]);
    assert_eq!(bench.reclaimable_reported(), [], "a repeated report is no news");
    bench.restart();
    bench.nodes(fleet());
    assert_eq!(bench.free(), 22);
    // A new session begins with a complete inventory.
    let inventory = bench.agent.compose(at(bench.now), Lane::News).inventory.unwrap();
    assert_eq!(inventory.runs[0].spare, BTreeMap::from([("main".to_owned(), 1)]));
    bench.exchange(None);
    bench.succeed(1, &[2, 0]);
    assert_eq!(bench.reclaimable_reported(), reported(2));
    // A stopping run frees nothing before its end.
    bench.exchange(Some(Command::Stop { uid: Uid(1), fence: fence(1), reason: StopReason::Evicted }));
    bench.succeed(1, &[1]);
    assert_eq!((bench.free(), bench.reclaimable_reported()), (23, Vec::new()));
    bench.ends(1);
    assert_eq!(bench.free(), 24);
}

#[test]
fn a_scale_down_frees_resources_after_the_pods_ended() {
    let mut bench = Bench::new();
    bench.run(1, plain(6));
    let size = |parallelism| Size { parallelism, completions: Some(parallelism) };
    let scale_down = |fence, size| Some(Command::ScaleDown { uid: Uid(1), fence, size });
    let ordered = |bench: &mut Bench| {
        let sizes =
            |effect| if let Effect::ScaleDown { size, .. } = effect { Some(size.parallelism) } else { None };
        std::mem::take(&mut bench.effects).into_iter().filter_map(sizes).collect::<Vec<_>>()
    };
    bench.exchange(scale_down(fence(9), size(1)));
    assert_eq!(ordered(&mut bench), [0_u32; 0], "another attempt");
    bench.exchange(scale_down(fence(1), size(4)));
    assert_eq!((ordered(&mut bench), bench.free()), (vec![4], 18), "the pods still run");
    assert!(
        bench.store["run/00000000-0000-0000-0000-000000000001"]
            .contains("\"size\":{\"parallelism\":4,\"completions\":4}")
    );
    bench.exchange(scale_down(fence(1), size(4)));
    bench.exchange(scale_down(fence(1), size(5)));
    assert_eq!(ordered(&mut bench), [0_u32; 0], "a repeated or larger size changes nothing");
    // The next session orders it again, and ended pods are reported like succeeded ones.
    bench.restart();
    assert_eq!(ordered(&mut bench), [4]);
    bench.nodes(fleet());
    bench.succeed(1, &[4, 5]);
    assert_eq!(
        (bench.free(), bench.reclaimable_reported()),
        (20, vec![(Uid(1), BTreeMap::from([("main".to_owned(), 2)]))])
    );
    bench.exchange(scale_down(fence(1), size(1)));
    assert_eq!(ordered(&mut bench), [1]);
    bench.exchange(Some(Command::Stop { uid: Uid(1), fence: fence(1), reason: StopReason::Evicted }));
    bench.exchange(scale_down(fence(1), size(0)));
    assert!(
        !bench.effects.iter().any(|effect| matches!(effect, Effect::ScaleDown { .. })),
        "a stopping run is stopped whole"
    );
    bench.ends(1);
    assert_eq!(bench.free(), 24);
}
