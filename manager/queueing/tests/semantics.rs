//! Small points of Kueue's semantics, each with the smallest world that shows it.

use meridian_queueing::cycle::{Outcome, Requeued};
use meridian_queueing::flavors::{Assignment, Mode};
use meridian_queueing::model::{
    Displaces, Flavor, Given, Group, Inactive, Marks, PodSet, Preemption, QueueId, QueueSetup, Shape,
    Workload, WorkloadId,
};
use meridian_queueing::places::{Anywhere, Places};
use meridian_queueing::preempt::{Right, Target};
use meridian_queueing::reason::Obstacle;
use meridian_queueing::settings::{AdmissionFairSharing, FairSharing, Gates, Settings};
use meridian_queueing::share::Share;
use meridian_queueing::tree::{CohortSetup, Forest, Leaf, Quota, Quotas, WEIGHT_ONE};
use meridian_queueing::{Amount, Brain, NewWorkload, parts};
use meridian_shared::gang::{Taint, TaintEffect};
use meridian_shared::topology::TopologyRequest;
use meridian_topology::Node;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Amounts by resource.
type Amounts<'a> = &'a [(&'a str, i64)];

/// A queue with groups of flavors and quotas: per group the quotas of each flavor by resource.
fn queue(
    brain: &mut Brain,
    name: &str,
    cohort: Option<&str>,
    groups: &[&[(&str, Amounts<'_>)]],
) -> QueueSetup {
    let mut setup =
        QueueSetup { name: Arc::from(name), cohort: cohort.map(Arc::from), ..QueueSetup::default() };
    for flavors in groups {
        let mut group = Group::default();
        for (flavor, quotas) in *flavors {
            let flavor = brain.flavor_id(flavor);
            brain.set_flavor(flavor, Some(Flavor::default()));
            group.flavors.push(flavor);
            for (resource, nominal) in *quotas {
                let resource = brain.resource(resource);
                if !group.resources.contains(&resource) {
                    group.resources.push(resource);
                }
                setup
                    .quotas
                    .insert((flavor, resource), Quota { nominal: Amount(*nominal), ..Quota::default() });
            }
        }
        setup.groups.push(group);
    }
    setup
}

fn new(brain: &mut Brain, name: &str, queue: QueueId, priority: i64, asks: Amounts<'_>) -> NewWorkload {
    let asks: BTreeMap<String, i64> =
        asks.iter().map(|(resource, amount)| ((*resource).to_owned(), *amount)).collect();
    let set =
        PodSet { name: Arc::from("main"), count: 1, per_pod: brain.requests(&asks), ..Default::default() };
    let shape = brain.intern(Shape { pod_sets: vec![set], priority, ..Shape::default() });
    NewWorkload {
        key: Arc::from(name),
        uid: Arc::from(name),
        queue,
        local_queue: Arc::from("n/q"),
        shape,
        since: 0,
        marks: None,
    }
}

fn wait(brain: &mut Brain, name: &str, queue: QueueId, priority: i64, asks: Amounts<'_>) -> WorkloadId {
    let new = new(brain, name, queue, priority, asks);
    brain.wait(new)
}

fn hold(brain: &mut Brain, name: &str, queue: QueueId, flavor: &str, asks: Amounts<'_>) -> WorkloadId {
    hold_as(brain, name, queue, flavor, 0, asks)
}

fn hold_as(
    brain: &mut Brain,
    name: &str,
    queue: QueueId,
    flavor: &str,
    priority: i64,
    asks: Amounts<'_>,
) -> WorkloadId {
    let new = new(brain, name, queue, priority, asks);
    let flavor = brain.flavor_id(flavor);
    let usage: BTreeMap<String, i64> =
        asks.iter().map(|(resource, amount)| ((*resource).to_owned(), *amount)).collect();
    let usage = brain.requests(&usage);
    let given = Given {
        flavors: usage.iter().map(|(resource, _)| (*resource, flavor)).collect(),
        usage,
        count: 1,
        ..Given::default()
    };
    brain.hold(new, vec![given], 0, false, true)
}

fn world(settings: Settings, make: impl FnOnce(&mut Brain) -> Vec<QueueSetup>) -> Brain {
    let mut brain = Brain::new(settings);
    let queues = make(&mut brain);
    brain.configure(&BTreeMap::new(), queues);
    brain
}

fn id(brain: &Brain, name: &str) -> QueueId {
    brain.queue_id(name).expect("the queue is declared")
}

#[test]
fn where_groups_overlap_the_later_one_decides() {
    let mut brain = world(Settings::default(), |brain| {
        vec![queue(brain, "q", None, &[&[("small", &[("cpu", 9)])], &[("large", &[("cpu", 9), ("gpu", 9)])]])]
    });
    let q = id(&brain, "q");
    let w = wait(&mut brain, "w", q, 0, &[("cpu", 1), ("gpu", 1)]);
    let report = brain.cycle(&mut Anywhere, false);
    assert_eq!(report.entries[0].outcome, Outcome::Admitted);
    let held = brain.workload(w).and_then(|w| w.holding.as_ref()).expect("it was admitted");
    let flavors: Vec<&str> =
        held.given[0].flavors.values().map(|flavor| &**brain.flavor_name(*flavor)).collect();
    assert_eq!(flavors, ["large", "large"], "what must come from one flavor does");
}

#[test]
fn a_queue_that_admits_nothing_loses_nobody() {
    for stopped in [false, true] {
        let mut brain = world(Settings::default(), |brain| {
            let mut lender = queue(brain, "lender", Some("c"), &[&[("f", &[("cpu", 4)])]]);
            lender.preemption = Preemption { reclaim_within_cohort: Displaces::Any, ..Preemption::default() };
            let mut borrower = queue(brain, "borrower", Some("c"), &[&[("f", &[("cpu", 0)])]]);
            borrower.inactive = stopped.then_some(Inactive::Stopped);
            vec![lender, borrower]
        });
        let (lender, borrower) = (id(&brain, "lender"), id(&brain, "borrower"));
        let victim = hold(&mut brain, "victim", borrower, "f", &[("cpu", 4)]);
        let asks = wait(&mut brain, "asks", lender, 0, &[("cpu", 4)]);
        let report = brain.cycle(&mut Anywhere, false);
        if stopped {
            assert_eq!(
                (report.preempted.as_slice(), report.entries[0].outcome),
                (&[][..], Outcome::NoCandidates)
            );
        } else {
            assert_eq!(report.preempted, [(victim, asks, Right::InCohortReclamation)]);
        }
    }
}

#[test]
fn a_holder_runs_once_every_check_is_stated_and_ready() {
    let check = |marks: Marks| {
        let mut brain = world(Settings::default(), |brain| {
            let mut setup = queue(brain, "q", None, &[&[("f", &[("cpu", 9)])]]);
            setup.checks = vec![(Arc::from("ask"), Vec::new())];
            vec![setup]
        });
        let q = id(&brain, "q");
        let new = NewWorkload { marks: Some(Box::new(marks)), ..new(&mut brain, "w", q, 0, &[("cpu", 1)]) };
        let w = brain.wait(new);
        brain.cycle(&mut Anywhere, false);
        brain.workload(w).and_then(|w| w.holding.as_ref()).is_some_and(|h| h.admitted)
    };
    let stated = |name: &str, ready: bool| Marks {
        checks: vec![Arc::from(name)],
        checks_ready: ready,
        ..Marks::default()
    };
    assert!(check(stated("ask", true)));
    assert!(!check(stated("ask", false)), "it says that it isn't ready");
    assert!(!check(stated("other", true)), "the queue's own check says nothing");
    assert!(!check(Marks::default()));
}

#[test]
fn a_check_for_all_flavors_asks_nothing_of_who_has_none() {
    for (asks, runs) in [(&[("cpu", 1)][..], false), (&[], true)] {
        let mut brain = world(Settings::default(), |brain| {
            let mut setup = queue(brain, "q", None, &[&[("f", &[("cpu", 9)])]]);
            setup.checks = vec![(Arc::from("ask"), Vec::new())];
            vec![setup]
        });
        let q = id(&brain, "q");
        let w = wait(&mut brain, "w", q, 0, asks);
        brain.cycle(&mut Anywhere, false);
        assert_eq!(brain.workload(w).and_then(|w| w.holding.as_ref()).map(|h| h.admitted), Some(runs));
    }
}

#[test]
fn of_a_strict_queue_only_who_is_told_that_its_namespace_is_wrong_is_parked() {
    for (checks_failed, wanted) in [(false, Requeued::Parked), (true, Requeued::Awake)] {
        let mut brain = world(Settings::default(), |brain| {
            let setup = queue(brain, "q", None, &[&[("f", &[("cpu", 9)])]]);
            vec![QueueSetup { strict: true, ..setup }]
        });
        let q = id(&brain, "q");
        let marks = Marks {
            checks_failed,
            unfit: Some(Arc::from("its namespace isn't chosen")),
            wrong_namespace: true,
            ..Marks::default()
        };
        let new = NewWorkload { marks: Some(Box::new(marks)), ..new(&mut brain, "w", q, 0, &[("cpu", 1)]) };
        brain.wait(new);
        let entry = &brain.cycle(&mut Anywhere, false).entries[0];
        assert_eq!(
            (entry.outcome, entry.requeued),
            (Outcome::Rejected, Some(wanted)),
            "failed checks: {checks_failed}"
        );
    }
}

#[test]
fn who_could_not_be_told_to_stop_goes_on() {
    let mut brain =
        world(Settings::default(), |brain| vec![queue(brain, "q", None, &[&[("f", &[("cpu", 9)])]])]);
    let q = id(&brain, "q");
    let w = hold(&mut brain, "w", q, "f", &[("cpu", 1)]);
    brain.evict(w);
    brain.spare(w);
    assert!(brain.workload(w).is_some_and(|w| w.holding.is_some() && !w.evicted()));
}

#[test]
fn cycles_of_other_trees_do_not_age_a_scan() {
    let mut brain = world(Settings::default(), |brain| {
        let both: &[(&str, Amounts<'_>)] = &[("first", &[("cpu", 0)]), ("second", &[("cpu", 5)])];
        let here = queue(brain, "here", Some("c"), &[both]);
        let beside = queue(brain, "beside", Some("c"), &[&[("first", &[("cpu", 4)])]]);
        let elsewhere = queue(brain, "elsewhere", Some("a"), &[&[("third", &[("cpu", 9)])]]);
        vec![here, beside, elsewhere]
    });
    let (here, beside, elsewhere) = (id(&brain, "here"), id(&brain, "beside"), id(&brain, "elsewhere"));
    let small = hold(&mut brain, "small", here, "second", &[("cpu", 1)]);
    let asks = wait(&mut brain, "asks", here, 0, &[("cpu", 4)]);
    let other = wait(&mut brain, "other", beside, 0, &[("cpu", 4)]);
    let report = brain.cycle(&mut Anywhere, false);
    let outcome =
        |w: WorkloadId| report.entries.iter().find(|entry| entry.workload == w).map(|entry| entry.outcome);
    assert_eq!(
        (outcome(asks), outcome(other)),
        (Some(Outcome::Skipped), Some(Outcome::Admitted)),
        "it would have borrowed the first flavor"
    );
    // The first flavor is free again, and a lot is decided elsewhere before it is its turn.
    brain.remove(other);
    brain.remove(small);
    for round in 0..3 {
        wait(&mut brain, &format!("passing-{round}"), elsewhere, 0, &[("cpu", 1)]);
    }
    brain.run(&mut Anywhere, |_, _| true);
    let held = brain.workload(asks).and_then(|w| w.holding.as_ref()).expect("it was admitted");
    let flavors: Vec<&str> =
        held.given[0].flavors.values().map(|flavor| &**brain.flavor_name(*flavor)).collect();
    assert_eq!(flavors, ["second"], "the scan went on where it was");
}

#[test]
fn a_run_that_is_ended_early_leaves_no_tree_behind() {
    let names = ["a", "b", "c"];
    let mut brain = world(Settings::default(), |brain| {
        names.iter().map(|name| queue(brain, name, Some(name), &[&[("any", &[("gpu", 9)])]])).collect()
    });
    for name in names {
        let queue = id(&brain, name);
        for n in 0..2 {
            wait(&mut brain, &format!("{name}-{n}"), queue, 0, &[("gpu", 1)]);
        }
    }
    let mut order = Vec::new();
    let mut next = |brain: &mut Brain| {
        let mut admitted = Vec::new();
        brain.run(&mut Anywhere, |brain, report| {
            admitted.extend(
                report.entries.iter().map(|entry| brain.workload(entry.workload).unwrap().key.to_string()),
            );
            false
        });
        order.extend(admitted);
    };
    (0..2).for_each(|_| next(&mut brain));
    // Whatever comes in the first tree waits for its turn.
    let first = id(&brain, "a");
    wait(&mut brain, "a-2", first, 0, &[("gpu", 1)]);
    while brain.changed_trees().next().is_some() {
        next(&mut brain);
    }
    assert_eq!(order, ["a-0", "b-0", "c-0", "a-1", "b-1", "c-1", "a-2"]);
}

#[test]
fn of_equal_shares_the_resource_named_first_dominates() {
    let mut brain = Brain::default();
    let (cpu, memory, flavor) = (brain.resource("cpu"), brain.resource("memory"), brain.flavor_id("f"));
    // The cells of the tree come in the order in which quotas are met: the borrower's own, memory alone, come first here.
    let quotas = |of: &[(meridian_queueing::names::ResourceId, i64)]| -> Quotas {
        of.iter()
            .map(|(resource, nominal)| {
                ((flavor, *resource), Quota { nominal: Amount(*nominal), ..Quota::default() })
            })
            .collect()
    };
    let leaf = |name: &str, quotas: Quotas| Leaf {
        name: Arc::from(name),
        cohort: Some(Arc::from("c")),
        quotas,
        weight: WEIGHT_ONE,
    };
    let leaves = [leaf("borrower", quotas(&[(memory, 0)])), leaf("lender", quotas(&[(cpu, 8), (memory, 8)]))];
    let (mut forest, places) = Forest::build(&BTreeMap::new(), &leaves);
    let borrower = places[0].expect("it is in no cycle");
    let lender = places[1].expect("it is in no cycle");
    let tree = forest.node(lender).tree;
    for resource in [memory, cpu] {
        let cell = forest.cell_id(tree, (flavor, resource));
        forest.add(lender, cell, Amount(10));
    }
    assert_eq!(forest.share(lender).dominant, Some(cpu));
    assert_eq!(forest.share(borrower), Share::none(WEIGHT_ONE));
}

#[test]
fn flavors_are_chosen_for_who_only_asks() {
    struct Nobody;
    impl meridian_queueing::flavors::Oracle for Nobody {
        fn simulate(
            &mut self,
            _: &mut Brain,
            _: WorkloadId,
            _: (meridian_queueing::names::FlavorId, meridian_queueing::names::ResourceId),
            _: Amount,
        ) -> (meridian_queueing::flavors::Possibility, u32) {
            (meridian_queueing::flavors::Possibility::NoCandidates, 0)
        }
    }
    let mut brain =
        world(Settings::default(), |brain| vec![queue(brain, "q", None, &[&[("f", &[("cpu", 4)])]])]);
    let q = id(&brain, "q");
    hold(&mut brain, "holder", q, "f", &[("cpu", 3)]);
    let w = wait(&mut brain, "w", q, 0, &[("cpu", 2)]);
    let assignment = brain.assign_flavors(w, q, &mut Nobody, None);
    assert_eq!(assignment.mode(), Mode::Preempt);
    assert!(brain.victims(&mut Anywhere, w, &assignment).is_empty(), "its queue displaces nobody");
}

/// Ends a holder and decides until nothing changes. Says who holds quota then.
fn after_the_end_of(brain: &mut Brain, holder: WorkloadId) -> Vec<String> {
    brain.remove(holder);
    brain.run(&mut Anywhere, |_, _| true);
    let mut held: Vec<String> =
        brain.workloads().filter(|(_, w)| w.holding.is_some()).map(|(_, w)| w.key.to_string()).collect();
    held.sort();
    held
}

#[test]
fn who_starves_is_not_passed_by_in_its_queue() {
    for guarded in [false, true] {
        let mut brain =
            world(Settings::default(), |brain| vec![queue(brain, "q", None, &[&[("any", &[("gpu", 4)])]])]);
        let q = id(&brain, "q");
        let holders: Vec<_> =
            ["a", "b"].iter().map(|name| hold(&mut brain, name, q, "any", &[("gpu", 2)])).collect();
        let gang = wait(&mut brain, "gang", q, 0, &[("gpu", 4)]);
        brain.run(&mut Anywhere, |_, _| true);
        wait(&mut brain, "small", q, 0, &[("gpu", 2)]);
        assert_eq!(brain.first_waiting(q, |_| true), Some(gang), "asleep or not");
        brain.set_starving(q, guarded.then_some(gang));
        let first = after_the_end_of(&mut brain, holders[0]);
        assert_eq!(first, if guarded { vec!["b"] } else { vec!["b", "small"] });
        if guarded {
            assert_eq!(after_the_end_of(&mut brain, holders[1]), ["gang"]);
            assert_eq!(brain.starving(q), None, "it got what it waited for");
            assert_eq!(after_the_end_of(&mut brain, gang), ["small"]);
        }
    }
}

#[test]
fn what_who_starves_asks_for_is_lent_to_nobody() {
    let mut brain = world(Settings::default(), |brain| {
        let quota: &[(&str, Amounts<'_>)] = &[("any", &[("gpu", 4)])];
        vec![queue(brain, "mine", Some("all"), &[quota]), queue(brain, "theirs", Some("all"), &[quota])]
    });
    let (mine, theirs) = (id(&brain, "mine"), id(&brain, "theirs"));
    let holders: Vec<_> =
        (0..4).map(|n| hold(&mut brain, &format!("held-{n}"), theirs, "any", &[("gpu", 2)])).collect();
    let gang = wait(&mut brain, "gang", mine, 0, &[("gpu", 4)]);
    brain.set_starving(mine, Some(gang));
    for n in 0..4 {
        wait(&mut brain, &format!("next-{n}"), theirs, 0, &[("gpu", 2)]);
    }
    assert_eq!(
        after_the_end_of(&mut brain, holders[0]),
        ["held-1", "held-2", "held-3"],
        "it would be borrowed"
    );
    assert_eq!(after_the_end_of(&mut brain, holders[1]), ["gang", "held-2", "held-3"]);
    assert_eq!(after_the_end_of(&mut brain, holders[2]), ["gang", "held-3", "next-0"], "their own is theirs");
}

#[test]
fn nothing_is_kept_for_who_can_never_be_admitted() {
    let mut brain =
        world(Settings::default(), |brain| vec![queue(brain, "q", None, &[&[("any", &[("gpu", 4)])]])]);
    let q = id(&brain, "q");
    let holder = hold(&mut brain, "a", q, "any", &[("gpu", 4)]);
    let huge = wait(&mut brain, "huge", q, 9, &[("gpu", 5)]);
    wait(&mut brain, "small", q, 0, &[("gpu", 2)]);
    brain.set_starving(q, Some(huge));
    assert_eq!(after_the_end_of(&mut brain, holder), ["small"]);
    assert_eq!(brain.starving(q), None);
}

#[test]
fn nobody_stops_for_another_where_who_starves_would_take_the_room() {
    for guarded in [false, true] {
        let settings = Settings { fair_sharing: Some(FairSharing::default()), ..Settings::default() };
        let mut brain = world(settings, |brain| {
            let policy = |reclaim_within_cohort| Preemption {
                within_queue: Displaces::LowerPriority,
                reclaim_within_cohort,
                ..Preemption::default()
            };
            let mut mine =
                queue(brain, "mine", Some("all"), &[&[("any", &[("gpu", 0)]), ("other", &[("gpu", 2)])]]);
            let mut theirs = queue(brain, "theirs", Some("all"), &[&[("other", &[("gpu", 0)])]]);
            (mine.preemption, theirs.preemption) = (policy(Displaces::Any), policy(Displaces::LowerPriority));
            let lender =
                queue(brain, "lender", Some("all"), &[&[("any", &[("gpu", 4)]), ("other", &[("gpu", 4)])]]);
            vec![mine, theirs, lender]
        });
        let (mine, theirs, lender) = (id(&brain, "mine"), id(&brain, "theirs"), id(&brain, "lender"));
        hold(&mut brain, "all of any", lender, "any", &[("gpu", 4)]);
        let ends = hold(&mut brain, "ends", lender, "other", &[("gpu", 2)]);
        hold(&mut brain, "own", mine, "other", &[("gpu", 2)]);
        let low = hold(&mut brain, "low", theirs, "other", &[("gpu", 2)]);
        // Its room is kept in the first flavor; half of the second is its queue's, and is held by who may be displaced for it.
        let gang = wait(&mut brain, "gang", mine, 9, &[("gpu", 4)]);
        let second = wait(&mut brain, "second", theirs, 9, &[("gpu", 2)]);
        brain.set_starving(mine, guarded.then_some(gang));
        let report = brain.cycle(&mut Anywhere, false);
        let outcome = |report: &meridian_queueing::cycle::Report, of| {
            report.entries.iter().find(|entry| entry.workload == of).map(|entry| entry.outcome)
        };
        assert_eq!(outcome(&report, gang), Some(Outcome::NoCandidates));
        assert_eq!(
            outcome(&report, second),
            Some(if guarded { Outcome::GivesWay } else { Outcome::Preempting })
        );
        assert_eq!(report.preempted.iter().any(|(victim, ..)| *victim == low), !guarded);
        if guarded {
            brain.remove(ends);
            let report = brain.cycle(&mut Anywhere, false);
            assert_eq!(
                outcome(&report, gang),
                Some(Outcome::Preempting),
                "what came free and its own are enough"
            );
        }
    }
}

#[test]
fn what_a_cohort_has_of_its_own_is_taken_back_once_in_a_cycle() {
    for first_comes in [false, true] {
        let gates = Gates { prioritize_preemptors: true, ..Gates::default() };
        let mut brain = Brain::new(Settings { gates, ..Settings::default() });
        let reclaims = Preemption { reclaim_within_cohort: Displaces::Any, ..Preemption::default() };
        let ours = |brain: &mut Brain, name| QueueSetup {
            preemption: reclaims,
            ..queue(brain, name, Some("team"), &[&[("any", &[("gpu", 0)])]])
        };
        let (one, two) = (ours(&mut brain, "one"), ours(&mut brain, "two"));
        let borrower = queue(&mut brain, "borrower", Some("all"), &[&[("any", &[("gpu", 1)])]]);
        let cell = (brain.flavor_id("any"), brain.resource("gpu"));
        let team = CohortSetup {
            parent: Some(Arc::from("all")),
            quotas: Quotas::from([(cell, Quota { nominal: Amount(6), ..Quota::default() })]),
            ..CohortSetup::default()
        };
        brain.configure(&BTreeMap::from([(Arc::from("team"), team)]), vec![one, two, borrower]);
        let (one, two, borrower) = (id(&brain, "one"), id(&brain, "two"), id(&brain, "borrower"));
        let victim = hold(&mut brain, "borrows", borrower, "any", &[("gpu", 6)]);
        if first_comes {
            let small = wait(&mut brain, "small", one, 0, &[("gpu", 1)]);
            brain.set_starving(one, Some(small));
        }
        // All that the cohort has of its own; one more is free in the cohort above.
        wait(&mut brain, "gang", two, 0, &[("gpu", 6)]);
        let report = brain.cycle(&mut Anywhere, false);
        let displaced: Vec<WorkloadId> = report.preempted.iter().map(|(victim, ..)| *victim).collect();
        assert_eq!(displaced, if first_comes { vec![] } else { vec![victim] });
        // Nor later, as long as the first one is there: nobody stopped in vain.
        assert!(brain.cycle(&mut Anywhere, false).preempted.is_empty());
    }
}

#[test]
fn who_made_others_stop_waits_for_them_though_its_right_is_used_up() {
    // With more than one flavor to choose from, and where only decisions count, what it isn't given is worked out later.
    for brief in [false, true] {
        let gates = Gates { prioritize_preemptors: true, ..Gates::default() };
        let mut brain = Brain::new(Settings { gates, brief, ..Settings::default() });
        let reclaims = Preemption { reclaim_within_cohort: Displaces::Any, ..Preemption::default() };
        let none: (&str, Amounts<'_>) = ("any", &[("gpu", 0)]);
        let flavors = if brief { vec![none, ("other", &[("gpu", 0)])] } else { vec![none] };
        let ours = |brain: &mut Brain, name| QueueSetup {
            preemption: reclaims,
            ..queue(brain, name, Some("team"), &[&flavors])
        };
        let (one, two) = (ours(&mut brain, "one"), ours(&mut brain, "two"));
        let borrower = queue(&mut brain, "borrower", Some("all"), &[&[("any", &[("gpu", 1)])]]);
        let cell = (brain.flavor_id("any"), brain.resource("gpu"));
        let quotas = Quotas::from([(cell, Quota { nominal: Amount(6), ..Quota::default() })]);
        let team = CohortSetup { parent: Some(Arc::from("all")), quotas, ..CohortSetup::default() };
        brain.configure(&BTreeMap::from([(Arc::from("team"), team)]), vec![one, two, borrower]);
        let (one, two, borrower) = (id(&brain, "one"), id(&brain, "two"), id(&brain, "borrower"));
        let victim = hold(&mut brain, "borrows", borrower, "any", &[("gpu", 4)]);
        // Three are free. With the victim's four it is enough for the gang and for one more.
        let gang = wait(&mut brain, "gang", two, 0, &[("gpu", 6)]);
        assert_eq!(brain.cycle(&mut Anywhere, false).preempted, [(victim, gang, Right::InCohortReclamation)]);
        let small = wait(&mut brain, "small", one, 0, &[("gpu", 1)]);
        let behind = wait(&mut brain, "behind", two, -1, &[("gpu", 2)]);
        let outcome = |brain: &mut Brain, of| {
            brain
                .cycle(&mut Anywhere, false)
                .entries
                .iter()
                .find(|entry| entry.workload == of)
                .map(|entry| entry.outcome)
        };
        assert_eq!(outcome(&mut brain, small), Some(Outcome::Admitted));
        // The cohort no longer holds the gang by its own quota. Who is behind it doesn't get what it waits for all the same.
        for _ in 0..3 {
            assert_eq!(outcome(&mut brain, gang), Some(Outcome::Preempting), "brief: {brief}");
        }
        brain.remove(victim);
        assert_eq!(outcome(&mut brain, gang), Some(Outcome::Admitted));
        assert!(brain.workload(behind).is_some_and(|behind| behind.holding.is_none()));
    }
}

/// One of them has room in a cluster only once two others have ended.
struct Crowded(Option<WorkloadId>);

impl Places for Crowded {
    fn fits(&mut self, _: &Brain, workload: WorkloadId, victims: &[Target]) -> bool {
        self.0 != Some(workload) || victims.len() >= 2
    }

    fn has_room(&mut self, _: &Brain, workload: WorkloadId) -> bool {
        self.0 != Some(workload)
    }

    fn take(&mut self, _: &Brain, _: WorkloadId, _: &Assignment) -> bool {
        true
    }
}

#[test]
fn nobody_counts_on_victims_of_who_was_overtaken_by_who_starves() {
    let gates = Gates { prioritize_preemptors: true, ..Gates::default() };
    let mut brain = world(Settings { gates, ..Settings::default() }, |brain| {
        let mut queue = |name, nominal| queue(brain, name, Some("all"), &[&[("any", &[("gpu", nominal)])]]);
        let (mut first, mut second, starved) = (queue("first", 6), queue("second", 4), queue("starved", 4));
        first.preemption.reclaim_within_cohort = Displaces::Any;
        let lower = Displaces::LowerPriority;
        second.preemption = Preemption {
            within_queue: lower,
            reclaim_within_cohort: lower,
            borrow_within_cohort: Some(None),
        };
        vec![first, second, starved]
    });
    let [first, second, starved] = ["first", "second", "starved"].map(|name| id(&brain, name));
    hold_as(&mut brain, "stays", starved, "any", 20, &[("gpu", 4)]);
    let victim = hold(&mut brain, "victim", starved, "any", &[("gpu", 2)]);
    hold(&mut brain, "own", first, "any", &[("gpu", 2)]);
    let low = hold(&mut brain, "low", second, "any", &[("gpu", 2)]);
    hold_as(&mut brain, "high", second, "any", 20, &[("gpu", 1)]);
    let gang = wait(&mut brain, "gang", first, 100, &[("gpu", 4)]);
    assert_eq!(brain.cycle(&mut Anywhere, false).preempted, [(victim, gang, Right::InCohortReclamation)]);
    // The last three that are free go to who starves, so that the gang has to wait for its victim, and more.
    let starves = wait(&mut brain, "starves", starved, 10, &[("gpu", 3)]);
    brain.set_starving(starved, Some(starves));
    let other = wait(&mut brain, "other", second, 10, &[("gpu", 4)]);
    let report = brain.cycle(&mut Crowded(Some(other)), false);
    let outcome = |of| report.entries.iter().find(|entry| entry.workload == of).map(|entry| entry.outcome);
    assert_eq!([starves, gang].map(outcome), [Some(Outcome::Admitted), Some(Outcome::Skipped)]);
    // The victim's room and that of its own would be enough for the other one, if the gang didn't wait for the victim.
    assert_eq!(report.preempted, [], "{low:?} would stop in vain for {other:?}");
}

#[test]
fn who_starves_looks_at_all_its_flavors_in_every_cycle() {
    let mut brain = world(Settings::default(), |brain| {
        let quota: &[(&str, Amounts<'_>)] = &[("any", &[("gpu", 4)]), ("other", &[("gpu", 0)])];
        let mut mine = queue(brain, "mine", Some("all"), &[quota]);
        mine.preemption = Preemption { reclaim_within_cohort: Displaces::Any, ..Preemption::default() };
        vec![mine, queue(brain, "theirs", Some("all"), &[&[("any", &[("gpu", 0)])]])]
    });
    let (mine, theirs) = (id(&brain, "mine"), id(&brain, "theirs"));
    let gang = wait(&mut brain, "gang", mine, 0, &[("gpu", 4)]);
    let first = wait(&mut brain, "first", theirs, 9, &[("gpu", 4)]);
    brain.set_starving(mine, Some(gang));
    brain.set_starving(theirs, Some(first));
    let outcomes = |report: &meridian_queueing::cycle::Report| {
        report.entries.iter().map(|e| (e.workload, e.outcome)).collect::<Vec<_>>()
    };
    assert_eq!(
        outcomes(&brain.cycle(&mut Anywhere, false)),
        [(first, Outcome::Admitted), (gang, Outcome::Skipped)]
    );
    let report = brain.cycle(&mut Anywhere, false);
    assert_eq!(outcomes(&report), [(gang, Outcome::Preempting)], "it doesn't go on with the other flavor");
    assert_eq!(report.preempted, [(first, gang, Right::InCohortReclamation)]);
}

#[test]
fn of_those_who_starve_the_one_for_whom_others_stop_comes_first() {
    let mut brain = world(Settings::default(), |brain| {
        let mut mine = queue(brain, "mine", Some("all"), &[&[("any", &[("gpu", 4)])]]);
        mine.preemption = Preemption { within_queue: Displaces::LowerPriority, ..Preemption::default() };
        vec![mine, queue(brain, "theirs", Some("all"), &[&[("any", &[("gpu", 0)])]])]
    });
    brain.settings.gates.prioritize_preemptors = true;
    let (mine, theirs) = (id(&brain, "mine"), id(&brain, "theirs"));
    let victim = hold(&mut brain, "victim", mine, "any", &[("gpu", 2)]);
    let gang = wait(&mut brain, "gang", mine, 5, &[("gpu", 4)]);
    brain.set_starving(mine, Some(gang));
    let report = brain.cycle(&mut Anywhere, false);
    assert_eq!(report.preempted, [(victim, gang, Right::InClusterQueue)]);
    let small = wait(&mut brain, "small", theirs, 9, &[("gpu", 2)]);
    brain.set_starving(theirs, Some(small));
    let report = brain.cycle(&mut Anywhere, false);
    let outcomes: Vec<_> = report.entries.iter().map(|e| (e.workload, e.outcome)).collect();
    assert_eq!(
        outcomes,
        [(gang, Outcome::Preempting), (small, Outcome::Skipped)],
        "what is free was counted on"
    );
}

#[test]
fn what_another_who_starves_took_first_is_made_up_for_before_anybody_behind() {
    for starves in [false, true] {
        let mut brain = world(Settings::default(), |brain| {
            let mut own = queue(brain, "own", Some("all"), &[&[("any", &[("gpu", 7)])]]);
            own.preemption = Preemption { within_queue: Displaces::LowerPriority, ..Preemption::default() };
            vec![
                own,
                queue(brain, "first", Some("all"), &[&[("any", &[("gpu", 0)])]]),
                queue(brain, "second", Some("all"), &[&[("any", &[("gpu", 0)])]]),
            ]
        });
        let [own, first, second] = ["own", "first", "second"].map(|name| id(&brain, name));
        let victim = hold(&mut brain, "victim", own, "any", &[("gpu", 4)]);
        let high = wait(&mut brain, "high", first, 100, &[("gpu", 1)]);
        let gang = wait(&mut brain, "gang", second, 10, &[("gpu", 3)]);
        let other = wait(&mut brain, "other", own, 5, &[("gpu", 6)]);
        brain.set_starving(first, Some(high));
        brain.set_starving(second, starves.then_some(gang));
        // One of the three that are free goes to the first; with the two that are left and the victim's four there is enough for
        // the other one, but then the gang comes first and takes three of them.
        let report = brain.cycle(&mut Anywhere, false);
        let outcome =
            |of| report.entries.iter().find(|entry| entry.workload == of).map(|entry| entry.outcome);
        assert_eq!([high, gang].map(outcome), [Some(Outcome::Admitted), Some(Outcome::Skipped)]);
        let wanted = if starves { vec![] } else { vec![(victim, other, Right::InClusterQueue)] };
        assert_eq!(report.preempted, wanted, "with the gang starving: {starves}");
    }
}

#[test]
fn who_displaces_stays_awake_only_where_that_puts_it_first() {
    for first in [false, true] {
        let mut brain = world(Settings::default(), |brain| {
            let mut mine = queue(brain, "mine", Some("all"), &[&[("any", &[("gpu", 4)])]]);
            mine.preemption = Preemption { within_queue: Displaces::LowerPriority, ..Preemption::default() };
            vec![mine, queue(brain, "theirs", Some("all"), &[&[("any", &[("gpu", 0)])]])]
        });
        brain.settings.gates.prioritize_preemptors = first;
        let (mine, theirs) = (id(&brain, "mine"), id(&brain, "theirs"));
        let victim = hold(&mut brain, "victim", mine, "any", &[("gpu", 2)]);
        let gang = wait(&mut brain, "gang", mine, 5, &[("gpu", 4)]);
        assert_eq!(brain.cycle(&mut Anywhere, false).preempted, [(victim, gang, Right::InClusterQueue)]);
        hold(&mut brain, "lucky", theirs, "any", &[("gpu", 1)]);
        let report = brain.cycle(&mut Anywhere, false);
        let entry = &report.entries[0];
        let wanted = if first { Requeued::Awake } else { Requeued::Parked };
        assert_eq!(
            (entry.workload, entry.outcome, entry.requeued),
            (gang, Outcome::NoCandidates, Some(wanted))
        );
    }
}

/// A brain in which past use orders what waits, and whom to displace: per local queue what it used.
fn by_past_use(used: &[(&str, i64)], make: impl FnOnce(&mut Brain) -> Vec<QueueSetup>) -> Brain {
    let fair = AdmissionFairSharing { half_life_ms: 1_000, sampling_ms: 1_000, resource_weights: Vec::new() };
    let mut brain = world(Settings { admission_fair_sharing: Some(fair), ..Settings::default() }, make);
    let gpu = brain.resource("gpu");
    for (local_queue, used) in used {
        brain.recall(Arc::from(*local_queue), [(gpu, parts("gpu", *used))].into(), 1.0);
    }
    brain
}

#[test]
fn victims_are_found_where_past_use_and_priority_contradict_each_other() {
    for fair in [false, true] {
        for seed in 0..50 {
            let mut brain =
                by_past_use(&[("n/heavy0", 9), ("n/light0", 1), ("n/heavy1", 5), ("n/light1", 2)], |brain| {
                    let mut mine = queue(brain, "mine", Some("all"), &[&[("any", &[("gpu", 80)])]]);
                    mine.preemption =
                        Preemption { reclaim_within_cohort: Displaces::Any, ..Preemption::default() };
                    let theirs = (0..2).map(|at| {
                        let theirs =
                            queue(brain, &format!("theirs{at}"), Some("all"), &[&[("any", &[("gpu", 0)])]]);
                        QueueSetup { usage_based: true, ..theirs }
                    });
                    theirs.chain([mine]).collect::<Vec<_>>()
                });
            brain.settings.fair_sharing = fair.then(Default::default);
            let (mine, any, gpu) = (id(&brain, "mine"), brain.flavor_id("any"), brain.resource("gpu"));
            for at in 0..80_u64 {
                let dice = meridian_shared::backoff::splitmix(seed << 32 ^ at);
                let theirs = id(&brain, &format!("theirs{}", dice % 2));
                let heavy = dice >> 8 & 3 == 0;
                let priority =
                    i64::try_from(dice >> 16 & 15).expect("it is small") + if heavy { 4 } else { 0 };
                let holder = new(&mut brain, &format!("w{at}"), theirs, priority, &[("gpu", 1)]);
                let local_queue =
                    Arc::from(format!("n/{}{}", if heavy { "heavy" } else { "light" }, dice % 2));
                let given = Given {
                    flavors: [(gpu, any)].into(),
                    usage: vec![(gpu, 1)],
                    count: 1,
                    ..Given::default()
                };
                brain.hold(NewWorkload { local_queue, ..holder }, vec![given], 0, false, true);
            }
            let asks = wait(&mut brain, "asks", mine, 0, &[("gpu", 5)]);
            let report = brain.cycle(&mut Anywhere, false);
            assert_eq!(report.preempted.len(), 5);
            for (victim, by, _) in report.preempted {
                let of = brain.workload(victim).expect("it is still there");
                let goes_on = |w: &Workload| w.holding.as_ref().is_some_and(|h| !h.evicted);
                let spared = brain
                    .workloads()
                    .any(|(_, w)| w.queue == of.queue && w.local_queue.starts_with("n/heavy") && goes_on(w));
                assert!(
                    by == asks && (of.local_queue.starts_with("n/heavy") || !spared),
                    "seed {seed}: {} ends",
                    of.local_queue
                );
            }
        }
    }
}

#[test]
fn who_is_passed_by_is_told_of_flavors_that_it_could_have() {
    let brief = Settings { brief: true, ..Settings::default() };
    let mut brain = world(brief, |brain| {
        let mut setup = queue(brain, "q", None, &[&[("spot", &[("gpu", 2)]), ("plain", &[("gpu", 4)])]]);
        setup.preemption = Preemption { reclaim_within_cohort: Displaces::Any, ..Preemption::default() };
        vec![setup]
    });
    brain.settings.gates.topology = false;
    let taint = |brain: &mut Brain, flavor: &str| {
        let id = brain.flavor_id(flavor);
        let taint = Taint { key: "only".into(), value: String::new(), effect: TaintEffect::NoSchedule };
        brain.set_flavor(id, Some(Flavor { taints: vec![taint], ..Flavor::default() }));
    };
    taint(&mut brain, "spot");
    let q = id(&brain, "q");
    hold(&mut brain, "holds", q, "plain", &[("gpu", 3)]);
    wait(&mut brain, "waits", q, 0, &[("gpu", 2)]);
    let passed = brain.looked_at_in_vain(q).expect("one of two is free, and nobody may give way");
    let short: Vec<(&str, i64)> =
        passed.short.iter().map(|(flavor, _, missing)| (&**brain.flavor_name(*flavor), missing.0)).collect();
    assert_eq!(short, [("plain", 1)]);
    taint(&mut brain, "plain");
    assert_eq!(brain.looked_at_in_vain(q), None, "that no flavor suits is another obstacle");
}

/// The flavors that were tried for the first pod set in a cycle, and the obstacle that is told of the only head.
fn told(brain: &mut Brain) -> (Vec<String>, Option<Obstacle>) {
    let report = brain.cycle(&mut Anywhere, false);
    let [entry] = report.entries.as_slice() else { panic!("there is one head: {report:?}") };
    let tried = entry.assignment.pod_sets[0]
        .attempts
        .iter()
        .map(|attempt| brain.flavor_name(attempt.flavor).to_string())
        .collect();
    (tried, entry.obstacle)
}

#[test]
fn of_several_groups_in_which_nothing_fits_the_one_that_kueue_looks_at_first_is_told() {
    let tried = |asks: Amounts<'_>| {
        let mut brain = world(Settings::default(), |brain| {
            vec![queue(
                brain,
                "q",
                None,
                &[&[("cores", &[("cpu", 4)])], &[("dimms", &[("memory", 4)])], &[("cards", &[("gpu", 4)])]],
            )]
        });
        let q = id(&brain, "q");
        wait(&mut brain, "w", q, 0, asks);
        told(&mut brain)
    };
    let exceeds = Some(Obstacle::ExceedsMaxQuota);
    assert_eq!(
        tried(&[("cpu", 5), ("memory", 5)]),
        (vec!["dimms".to_owned()], exceeds),
        "memory comes before cpu"
    );
    assert_eq!(tried(&[("cpu", 5), ("gpu", 5)]), (vec!["cards".to_owned()], exceeds), "so does gpu");
    assert_eq!(
        tried(&[("cpu", 5), ("gpu", 4)]),
        (vec!["cards".to_owned(), "cores".to_owned()], exceeds),
        "what fits is tried too"
    );
}

#[test]
fn a_resource_that_nothing_gives_has_kueues_word_of_what_was_tried_and_bars_all_the_same() {
    let words = |small: i64| {
        let mut brain = world(Settings::default(), |brain| {
            vec![queue(brain, "q", None, &[&[("small", &[("gpu", small)]), ("large", &[("gpu", 9)])]])]
        });
        let q = id(&brain, "q");
        let w = wait(&mut brain, "w", q, 0, &[("cpu", 1), ("gpu", 5)]);
        let report = brain.cycle(&mut Anywhere, false);
        assert_eq!((report.entries[0].workload, report.entries[0].outcome), (w, Outcome::NoFit));
        (report.entries[0].obstacle, report.entries[0].assignment.barrier)
    };
    let nothing = Some(Obstacle::NoMatchingFlavor);
    assert_eq!(words(4), (Some(Obstacle::ExceedsMaxQuota), nothing), "of one flavor it asks for too much");
    assert_eq!(words(9), (nothing, nothing), "every flavor that was tried fits");
}

#[test]
fn who_may_shrink_has_kueues_word_of_all_its_pods_and_is_barred_by_what_the_fewest_lack() {
    let mut brain =
        world(Settings::default(), |brain| vec![queue(brain, "q", None, &[&[("f", &[("cpu", 4)])]])]);
    let q = id(&brain, "q");
    hold(&mut brain, "holder", q, "f", &[("cpu", 4)]);
    let mut barred = |name: &str, least: u32| {
        let new = new(&mut brain, name, q, 0, &[("cpu", 1)]);
        let mut shape = (**brain.shape_of(new.shape)).clone();
        (shape.pod_sets[0].count, shape.pod_sets[0].min_count) = (9, Some(least));
        let shape = brain.intern(shape);
        let waits = brain.wait(NewWorkload { shape, ..new });
        let report = brain.cycle(&mut Anywhere, false);
        let entry = report.entries.iter().find(|entry| entry.workload == waits).expect("it is a head");
        (entry.obstacle, entry.assignment.barrier)
    };
    let exceeds = Some(Obstacle::ExceedsMaxQuota);
    assert_eq!(
        barred("modest", 4),
        (exceeds, Some(Obstacle::WaitingForQuota)),
        "four pods may start some day"
    );
    assert_eq!(barred("stubborn", 5), (exceeds, exceeds));
}

#[test]
fn pod_sets_of_one_group_have_no_place_together() {
    let host = "kubernetes.io/hostname";
    let mut brain = world(Settings::default(), |brain| {
        let setup = queue(brain, "q", None, &[&[("f", &[("cpu", 9)])]]);
        let topology = Flavor { topology: Some(Arc::from("dc")), ..Flavor::default() };
        brain.set_flavor(setup.groups[0].flavors[0], Some(topology));
        vec![setup]
    });
    let labels = BTreeMap::from([(host.to_owned(), "h".to_owned())]);
    let allocatable = BTreeMap::from([("cpu".to_owned(), 2), ("pods".to_owned(), 9)]);
    let node = Node {
        name: "h".to_owned(),
        labels,
        taints: Vec::new(),
        ready: true,
        unschedulable: false,
        allocatable,
    };
    brain.set_nodes(&[(Arc::from("dc"), vec![host.to_owned()])].into(), &[node], &[]);
    let q = id(&brain, "q");
    let new = new(&mut brain, "w", q, 0, &[("cpu", 1)]);
    let mut shape = (**brain.shape_of(new.shape)).clone();
    shape.pod_sets[0].on_node = [("cpu".to_owned(), 1)].into();
    shape.pod_sets[0].topology = Some(TopologyRequest::required(host));
    shape.pod_sets[0].group = Some("together".to_owned());
    shape.pod_sets.push(PodSet { name: Arc::from("workers"), count: 2, ..shape.pod_sets[0].clone() });
    let shape = brain.intern(shape);
    brain.wait(NewWorkload { shape, ..new });
    let report = brain.cycle(&mut Anywhere, false);
    let entry = &report.entries[0];
    assert_eq!((entry.outcome, entry.obstacle), (Outcome::NoFit, Some(Obstacle::TopologyPlacementFailed)));
    for set in &entry.assignment.pod_sets {
        let modes: Vec<Mode> = set.flavors.iter().map(|(_, choice)| choice.mode).collect();
        let tried: Vec<(Mode, Option<Obstacle>)> =
            set.attempts.iter().map(|attempt| (attempt.mode, attempt.obstacle)).collect();
        assert_eq!(
            (modes, tried),
            (vec![Mode::NoFit], vec![(Mode::NoFit, Some(Obstacle::TopologyPlacementFailed))])
        );
    }
}
