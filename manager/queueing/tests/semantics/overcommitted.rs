//! Preemption in cohorts that use more than they have, with lending limits: Kueue's classical search, written
//! a second time over plain numbers, finds the same victims.

use super::stage::{self, id, queue};
use meridian_queueing::capacity_model::UnlimitedCapacity;
use meridian_queueing::cycle;
use meridian_queueing::model::{ClusterQueuePreemption, PodSetAdmission, PreemptionRule, QueueSetup};
use meridian_queueing::quota::{CohortSetup, Quota, Quotas};
use meridian_queueing::{Amount, QueueState};
use meridian_shared::backoff::splitmix;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A cohort or a queue. The first node is the root; parents come before their children.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    parent: Option<usize>,
    is_queue: bool,
    nominal: i64,
    borrow: Option<i64>,
    lend: Option<i64>,
}

#[derive(Clone, Debug)]
struct Holder {
    name: String,
    at: usize,
    asks: i64,
    priority: i64,
    since: i64,
    reserved: i64,
}

/// One pending workload in the first queue, and what it meets.
#[derive(Clone, Debug)]
struct World {
    nodes: Vec<Node>,
    holders: Vec<Holder>,
    /// Node of the preemptor's queue.
    at: usize,
    asks: i64,
    priority: i64,
    since: i64,
    rules: ClusterQueuePreemption,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    ByHierarchy,
    WhileBorrowing,
    WithoutBorrowing,
    Own,
}

type Candidate = (usize, Option<usize>, Kind);

impl World {
    fn children(&self, of: usize) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(move |at| self.nodes[*at].parent == Some(of))
    }

    fn ancestors(&self, of: usize) -> Vec<usize> {
        std::iter::successors(self.nodes[of].parent, |at| self.nodes[*at].parent).collect()
    }

    fn subtree(&self, at: usize) -> i64 {
        self.nodes[at].nominal + self.children(at).map(|of| self.subtree(of) - self.local(of)).sum::<i64>()
    }

    fn local(&self, at: usize) -> i64 {
        self.nodes[at].lend.map_or(0, |lend| (self.subtree(at) - lend).max(0))
    }

    fn usage(&self, at: usize, gone: &BTreeSet<usize>) -> i64 {
        if self.nodes[at].is_queue {
            let held =
                self.holders.iter().enumerate().filter(|(of, holder)| holder.at == at && !gone.contains(of));
            return held.map(|(_, holder)| holder.asks).sum();
        }
        self.children(at).map(|of| (self.usage(of, gone) - self.local(of)).max(0)).sum()
    }

    fn local_available(&self, at: usize, gone: &BTreeSet<usize>) -> i64 {
        (self.local(at) - self.usage(at, gone)).max(0)
    }

    fn available(&self, at: usize, gone: &BTreeSet<usize>) -> i64 {
        let Some(parent) = self.nodes[at].parent else { return self.subtree(at) - self.usage(at, gone) };
        let mut above = self.available(parent, gone);
        if let Some(limit) = self.nodes[at].borrow {
            let stored = self.subtree(at) - self.local(at);
            let used = (self.usage(at, gone) - self.local(at)).max(0);
            above = above.min(stored - used + limit);
        }
        self.local_available(at, gone) + above
    }

    fn potential(&self, at: usize) -> i64 {
        let Some(parent) = self.nodes[at].parent else { return self.subtree(at) };
        let most = self.local(at) + self.potential(parent);
        self.nodes[at].borrow.map_or(most, |limit| most.min(self.subtree(at) + limit))
    }

    fn may_reclaim(&self) -> bool {
        let none = BTreeSet::new();
        if self.nodes[self.at].nominal >= self.usage(self.at, &none) + self.asks {
            return true;
        }
        let mut left = self.asks - self.local_available(self.at, &none);
        for at in self.ancestors(self.at) {
            if self.subtree(at) >= self.usage(at, &none) + left {
                return self.nodes[at].parent.is_some();
            }
            left -= self.local_available(at, &none);
        }
        false
    }

    fn fits(&self, may_borrow: bool, gone: &BTreeSet<usize>) -> bool {
        let within = self.usage(self.at, gone) + self.asks <= self.nodes[self.at].nominal;
        (may_borrow || within) && self.asks <= self.available(self.at, gone).max(0)
    }

    fn within_nominal(&self, at: usize, gone: &BTreeSet<usize>) -> bool {
        self.usage(at, gone) <= self.subtree(at)
    }

    fn satisfies(&self, rule: PreemptionRule, holder: &Holder) -> bool {
        let lower = holder.priority < self.priority;
        match rule {
            PreemptionRule::Any => true,
            PreemptionRule::LowerPriority => lower,
            PreemptionRule::LowerOrNewerEqualPriority => {
                lower || (holder.priority == self.priority && self.since < holder.since)
            }
            PreemptionRule::Never | PreemptionRule::Unset => false,
        }
    }

    fn kind(&self, advantage: bool, holder: &Holder) -> Kind {
        let below = |most: Option<i32>| most.is_none_or(|most| holder.priority <= i64::from(most));
        match self.rules.borrow_within_cohort {
            _ if advantage => Kind::ByHierarchy,
            Some(most) if holder.priority < self.priority && below(most) => Kind::WhileBorrowing,
            _ => Kind::WithoutBorrowing,
        }
    }

    fn collect(
        &self,
        at: usize,
        common: usize,
        below: Option<usize>,
        advantage: bool,
        all: &mut Vec<Candidate>,
    ) {
        let none = BTreeSet::new();
        for child in self.children(at) {
            if Some(child) == below || child == self.at || self.within_nominal(child, &none) {
                continue;
            }
            if !self.nodes[child].is_queue {
                self.collect(child, common, below, advantage, all);
                continue;
            }
            for (of, holder) in self.holders.iter().enumerate().filter(|(_, holder)| holder.at == child) {
                if self.satisfies(self.rules.reclaim_within_cohort, holder) {
                    all.push((of, Some(common), self.kind(advantage, holder)));
                }
            }
        }
    }

    /// Candidates by hierarchy, by priority, and of the own queue, each in its order.
    fn candidates(&self) -> [Vec<Candidate>; 3] {
        let none = BTreeSet::new();
        let (mut hierarchy, mut priority) = (Vec::new(), Vec::new());
        let own = self.holders.iter().enumerate().filter(|(_, holder)| holder.at == self.at);
        let own = own.filter(|(_, holder)| self.satisfies(self.rules.within_queue, holder));
        let own: Vec<Candidate> = own.map(|(of, _)| (of, None, Kind::Own)).collect();
        if self.rules.reclaim_within_cohort != PreemptionRule::Never {
            let (mut left, mut advantage, mut below) = (self.asks, false, None);
            let mut holds = |at: usize| {
                let holds = self.subtree(at) >= self.usage(at, &none) + left;
                left = (left - self.local_available(at, &none)).max(0);
                holds
            };
            advantage |= holds(self.at);
            for at in self.ancestors(self.at) {
                self.collect(
                    at,
                    at,
                    below,
                    advantage,
                    if advantage { &mut hierarchy } else { &mut priority },
                );
                advantage |= holds(at);
                below = Some(at);
            }
        }
        let mut all = [hierarchy, priority, own];
        let order = |candidate: &Candidate| {
            let holder = &self.holders[candidate.0];
            (holder.priority, Reverse(holder.reserved))
        };
        all.iter_mut().for_each(|kind| kind.sort_by_key(order));
        all
    }

    fn is_valid(&self, (of, common, kind): Candidate, may_borrow: bool, gone: &BTreeSet<usize>) -> bool {
        let at = self.holders[of].at;
        if at == self.at {
            return true;
        }
        if (may_borrow && kind == Kind::WithoutBorrowing) || self.within_nominal(at, gone) {
            return false;
        }
        let between = self.ancestors(at).into_iter().take_while(|above| Some(*above) != common);
        !between.into_iter().any(|above| self.within_nominal(above, gone))
    }

    /// The victims by Kueue's classical preemption.
    fn victims(&self) -> BTreeSet<String> {
        let none = BTreeSet::new();
        let [hierarchy, priority, own] = self.candidates();
        let forbidden = self.rules.borrow_within_cohort.is_none();
        let under_nominal = self.usage(self.at, &none) < self.nodes[self.at].nominal;
        let tries: &[bool] = if (hierarchy.is_empty() && priority.is_empty()) || (forbidden && !under_nominal)
        {
            &[true]
        } else if forbidden && hierarchy.is_empty() {
            &[false, true]
        } else {
            &[true, false]
        };
        let all: Vec<Candidate> = [hierarchy, priority, own].concat();
        for may_borrow in tries {
            let (mut gone, mut targets) = (BTreeSet::new(), Vec::new());
            for candidate in &all {
                if !self.is_valid(*candidate, *may_borrow, &gone) {
                    continue;
                }
                gone.insert(candidate.0);
                targets.push(candidate.0);
                if self.fits(*may_borrow, &gone) {
                    return self.filled_back(targets, *may_borrow);
                }
            }
        }
        BTreeSet::new()
    }

    fn filled_back(&self, mut targets: Vec<usize>, may_borrow: bool) -> BTreeSet<String> {
        for at in (0..targets.len() - 1).rev() {
            let others = targets.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, of)| *of);
            if self.fits(may_borrow, &others.collect()) {
                targets.swap_remove(at);
            }
        }
        targets.into_iter().map(|of| self.holders[of].name.clone()).collect()
    }

    /// The victims of the decision, with the checks before the search.
    fn expected(&self) -> BTreeSet<String> {
        let free = self.available(self.at, &BTreeSet::new()).max(0);
        let may_search = self.asks <= self.nodes[self.at].nominal
            || self.may_reclaim()
            || self.rules.borrow_within_cohort.is_some();
        match self.asks > self.potential(self.at) || self.asks <= free || !may_search {
            true => BTreeSet::new(),
            false => self.victims(),
        }
    }

    /// The victims of one cycle.
    fn decided(&self) -> BTreeSet<String> {
        let mut state = QueueState::default();
        let cell = (state.flavor_id("any"), state.resource("gpu"));
        let quota_of = |node: &Node| Quota {
            nominal: Amount(node.nominal),
            borrowing_limit: node.borrow.map(Amount),
            lending_limit: node.lend.map(Amount),
        };
        let parent = |node: &Node| node.parent.map(|of| Arc::from(self.nodes[of].name.as_str()));
        let cohorts = self.nodes.iter().filter(|node| !node.is_queue).map(|node| {
            let quotas = Quotas::from([(cell, quota_of(node))]);
            (
                Arc::from(node.name.as_str()),
                CohortSetup { parent: parent(node), quotas, ..Default::default() },
            )
        });
        let cohorts: BTreeMap<Arc<str>, CohortSetup> = cohorts.collect();
        let mut queues = Vec::new();
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_queue) {
            let groups: &[&[(&str, stage::Amounts<'_>)]] = &[&[("any", &[("gpu", node.nominal)])]];
            let setup = queue(&mut state, &node.name, None, groups);
            let preemption = if at == self.at { self.rules } else { ClusterQueuePreemption::default() };
            let quotas = Quotas::from([(cell, quota_of(node))]);
            queues.push(QueueSetup { cohort: parent(node), quotas, preemption, ..setup });
        }
        state.configure(&cohorts, queues);
        for holder in &self.holders {
            let at = id(&state, &self.nodes[holder.at].name);
            let asks = [("gpu", holder.asks)];
            let mut new = stage::new(&mut state, &holder.name, at, holder.priority, &asks);
            new.since = holder.since;
            let usage = vec![(cell.1, holder.asks)];
            let flavors = vec![(cell.1, cell.0)].into_iter().collect();
            let given = PodSetAdmission { flavors, usage, count: 1, ..PodSetAdmission::default() };
            state.add_holder(new, vec![given], holder.reserved, false, true);
        }
        let at = id(&state, &self.nodes[self.at].name);
        let mut new = stage::new(&mut state, "preemptor", at, self.priority, &[("gpu", self.asks)]);
        new.since = self.since;
        state.add_pending(new);
        let report = cycle::run_once(&mut state, &mut UnlimitedCapacity, false);
        let key = |of| state.workload(of).expect("a victim holds quota").key.to_string();
        report.preempted.iter().map(|(victim, ..)| key(*victim)).collect()
    }
}

fn random(seed: u64) -> World {
    let mut turn = 0;
    let mut below = |most: u64| {
        turn += 1;
        i64::try_from(splitmix(seed << 16 ^ turn) % most).unwrap()
    };
    let cohort = |name: &str, parent, nominal, lend| Node {
        name: name.into(),
        parent,
        is_queue: false,
        nominal,
        borrow: None,
        lend,
    };
    let mut nodes = vec![cohort("all", None, below(3), None)];
    if below(2) == 0 {
        let lend = [None, None, Some(0)][usize::try_from(below(3)).unwrap()];
        nodes.push(cohort("team", Some(0), below(4), lend));
    }
    let (cohorts, at) = (u64::try_from(nodes.len()).unwrap(), nodes.len());
    for number in 0..2 + below(3) {
        let parent = Some(usize::try_from(below(cohorts)).unwrap());
        let lend = [None, Some(0), Some(0), Some(1)][usize::try_from(below(4)).unwrap()];
        let borrow = [None, None, Some(0), Some(2)][usize::try_from(below(4)).unwrap()];
        nodes.push(Node {
            name: format!("q{number}"),
            parent,
            is_queue: true,
            nominal: below(7),
            borrow,
            lend,
        });
    }
    let queues = u64::try_from(nodes.len() - at).unwrap();
    let holders = (0..below(9)).map(|number| Holder {
        name: format!("w{number}"),
        at: at + usize::try_from(below(queues)).unwrap(),
        asks: 1 + below(4),
        priority: below(4),
        since: below(10),
        reserved: 100 + number,
    });
    let holders = holders.collect();
    let reclaim =
        [PreemptionRule::Never, PreemptionRule::LowerPriority, PreemptionRule::Any, PreemptionRule::Any];
    let within = [
        PreemptionRule::Never,
        PreemptionRule::LowerPriority,
        PreemptionRule::LowerPriority,
        PreemptionRule::LowerOrNewerEqualPriority,
    ];
    let borrows = [None, None, Some(None), Some(Some(1))];
    let rules = ClusterQueuePreemption {
        within_queue: within[usize::try_from(below(4)).unwrap()],
        reclaim_within_cohort: reclaim[usize::try_from(below(4)).unwrap()],
        borrow_within_cohort: borrows[usize::try_from(below(4)).unwrap()],
    };
    let (asks, priority, since) = (1 + below(6), below(5), below(10));
    World { nodes, holders, at, asks, priority, since, rules }
}

#[test]
fn the_same_victims_as_kueue_in_overcommitted_cohorts_with_lending_limits() {
    let (mut overcommitted, mut several) = (0, 0);
    for seed in 0..20_000 {
        let world = random(seed);
        let expected = world.expected();
        assert_eq!(world.decided(), expected, "seed {seed}: {world:#?}");
        let is_over = world.available(0, &BTreeSet::new()) < 0;
        let keeps_all = world.nodes[world.at].lend == Some(0);
        overcommitted += u32::from(is_over && keeps_all && !expected.is_empty());
        several += u32::from(is_over && keeps_all && expected.len() >= 3);
    }
    assert!(overcommitted >= 100 && several >= 10, "{overcommitted} {several}");
}

/// The queue lends nothing, and others use more of the cohort than it has: what the queue's own workloads
/// free locally first makes up for that.
#[test]
fn a_queue_that_lends_nothing_needs_three_victims_of_its_own_in_an_overcommitted_cohort() {
    let node = |name: &str, parent, nominal, lend| Node {
        name: name.into(),
        parent,
        is_queue: parent.is_some(),
        nominal,
        borrow: None,
        lend,
    };
    let holder = |name: &str, at, asks, reserved| Holder {
        name: name.into(),
        at,
        asks,
        priority: 0,
        since: 1,
        reserved,
    };
    let world = World {
        nodes: vec![
            node("all", None, 0, None),
            node("ours", Some(0), 6, Some(0)),
            node("theirs", Some(0), 2, None),
        ],
        holders: vec![
            holder("one", 1, 2, 1),
            holder("two", 1, 2, 2),
            holder("three", 1, 2, 3),
            holder("over", 2, 4, 4),
        ],
        at: 1,
        asks: 4,
        priority: 1,
        since: 0,
        rules: ClusterQueuePreemption {
            within_queue: PreemptionRule::LowerPriority,
            reclaim_within_cohort: PreemptionRule::Never,
            borrow_within_cohort: None,
        },
    };
    assert_eq!(world.available(1, &BTreeSet::new()), -2, "two are over the cohort's quota");
    let three = ["one", "two", "three"].map(str::to_owned);
    assert_eq!((world.expected(), world.decided()), (three.clone().into(), three.into()));
}
