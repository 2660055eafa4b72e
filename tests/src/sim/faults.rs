//! Faults, and the operators who put things right afterwards.

use super::manager::Begin;
use super::people::{LIAR, PLACES, Wish};
use super::plan::Fault;
use super::store::StoreDisk;
use super::worker::AgentHost;
use super::{Happening, Sim, people};
use meridian_manager_core::facts::input::Operator;
use meridian_manager_core::facts::key::Key;
use meridian_objects::Kind;
use meridian_shared::ids::{ClusterName, LedgerId, Uid};
use meridian_shared::lease;
use meridian_shared::protocol::OnLoss;

/// Copies of the journal that are kept.
const BACKUPS_MAX: usize = 5;
/// A hold and the longest term, with drift: after this no grant of a dead manager can be accepted any more.
const LATE_GRANTS_MS: u64 = 10_000 + people::TERM_LONGEST.0 + 2_000;

impl Sim {
    /// One fault happens, and its kind again later.
    pub(super) fn strike(&mut self, fault: Fault) {
        if self.healed {
            return;
        }
        let mean = self.plan.faults.get(&fault).copied().unwrap_or(60_000);
        let at = self.now + self.chance.faults.between(mean / 2, mean * 3 / 2);
        self.at(at, Happening::Strike(fault));
        match fault {
            Fault::NetCut => self.cut_net(),
            Fault::NetSlow => {
                let a = self.chance.faults.index(self.agents.len());
                self.counters.one("slow ways");
                self.ways[a].slow_until = self.now + self.chance.faults.between(1_000, 8_000);
            }
            Fault::ManagerKill | Fault::ManagerPower => {
                if let Some(m) = self.some_manager() {
                    self.counters.one(if fault == Fault::ManagerPower {
                        "power losses"
                    } else {
                        "manager kills"
                    });
                    self.trace.say(self.now, || format!("{fault:?} of manager {m}"));
                    let pause = self.chance.faults.between(20, 3_000);
                    self.end_process(m, fault == Fault::ManagerPower, pause);
                }
            }
            Fault::ManagerPause | Fault::ManagerFreeze => {
                if let Some(m) = self.some_manager() {
                    let long = self.chance.faults.of_1000(400);
                    let takes = if long {
                        self.chance.faults.between(8_000, 25_000)
                    } else {
                        self.chance.faults.between(300, 4_000)
                    };
                    self.stall_manager(m, fault == Fault::ManagerFreeze, takes);
                }
            }
            Fault::DiskFailSync | Fault::DiskFull | Fault::DiskSlow => self.spoil_disk(fault),
            Fault::JournalRestore => self.restore(),
            Fault::JournalDelete => self.lose_journal(),
            Fault::Takeover => self.take_over(),
            Fault::AgentKill
            | Fault::AgentPause
            | Fault::MachineFreeze
            | Fault::MachineReboot
            | Fault::StoreLost
            | Fault::StoreFull
            | Fault::StoreFailSync
            | Fault::Clone
            | Fault::Rival => {
                self.strike_worker(fault);
            }
            Fault::WallJump => self.jump(),
            Fault::GuardKill => self.kill_guard(),
        }
    }

    fn cut_net(&mut self) {
        let a = self.chance.faults.index(self.agents.len());
        let until = self.now
            + if self.chance.faults.of_1000(300) {
                self.chance.faults.between(12_000, 30_000)
            } else {
                self.chance.faults.between(300, 9_000)
            };
        let which = self.chance.faults.below(3);
        self.trace.say(self.now, || {
            format!(
                "agent {a} is cut off ({}) until {until}",
                ["both ways", "up", "down"][usize::try_from(which).unwrap_or(0)]
            )
        });
        self.counters.one("partitions");
        if which != 2 {
            self.ways[a].up_cut_until = until;
        }
        if which != 1 {
            self.ways[a].down_cut_until = until;
        }
    }

    fn some_manager(&mut self) -> Option<usize> {
        let up: Vec<usize> = (0..self.managers.len())
            .filter(|m| self.managers[*m].up() && !self.managers[*m].clock.is_frozen())
            .collect();
        self.chance.faults.pick(&up).copied()
    }

    fn stall_manager(&mut self, m: usize, machine: bool, takes: u64) {
        let until = self.now + takes;
        let machine = machine && !self.managers[m].unseen_back;
        self.trace
            .say(self.now, || format!("manager {m} stands still until {until}, its clock too: {machine}"));
        self.counters.one("manager stalls");
        self.managers[m].paused_until = until;
        if machine {
            self.managers[m].clock.freeze(self.now);
            self.at(until, Happening::ThawManager { manager: m });
        }
    }

    fn spoil_disk(&mut self, fault: Fault) {
        let Some(m) = self.some_manager().filter(|m| !self.managers[*m].cut) else { return };
        self.trace.say(self.now, || format!("{fault:?} at manager {m}"));
        match fault {
            Fault::DiskFailSync => {
                self.counters.one("failed syncs");
                self.disk_faults.insert(m);
                self.managers[m].disk.fail_syncs(1);
            }
            Fault::DiskFull => {
                self.counters.one("full disks");
                self.disk_faults.insert(m);
                let spare = self.chance.faults.between(0, 64 * 1_024);
                let disk = &self.managers[m].disk;
                disk.set_capacity(disk.used_bytes() + spare);
            }
            _ => {
                self.managers[m].slow_until = self.now + self.chance.faults.between(1_000, 6_000);
                return;
            }
        }
        let at = self.now + self.chance.faults.between(2_000, 8_000);
        self.at(at, Happening::DiskHeals { manager: m });
    }

    /// The disk is good again.
    pub(super) fn disk_heals(&mut self, m: usize) {
        let disk = &self.managers[m].disk;
        disk.set_capacity(u64::MAX);
        disk.fail_syncs(0);
        self.disk_faults.remove(&m);
        self.kick(m, self.now);
    }

    /// Takes a copy of the journal now and then.
    pub(super) fn back_up(&mut self) {
        if self.healed || !self.plan.faults.contains_key(&Fault::JournalRestore) {
            return;
        }
        if let Some(m) =
            (0..self.managers.len()).find(|m| self.managers[*m].leading && !self.managers[*m].cut)
        {
            self.backups.push(self.managers[m].disk.image());
            if self.backups.len() > BACKUPS_MAX {
                self.backups.remove(0);
            }
        }
        let at = self.now + self.chance.faults.between(2_000, 9_000);
        self.at(at, Happening::Backup);
    }

    /// The manager on the true journal, if its process is there.
    fn owner(&self) -> Option<usize> {
        (0..self.managers.len()).find(|m| {
            self.managers[*m].up() && !self.managers[*m].cut && !self.managers[*m].clock.is_frozen()
        })
    }

    fn restore(&mut self) {
        let Some(m) = self.owner() else { return };
        let Some(image) = self.chance.faults.pick(&self.backups).cloned() else { return };
        self.trace
            .say(self.now, || format!("manager {m} is stopped, its journal is replaced by an older copy"));
        self.counters.one("restores");
        self.end_process(m, false, 400);
        self.replace_journal(m, image);
    }

    fn replace_journal(&mut self, m: usize, image: Vec<u8>) {
        // The operator sees to it that no other manager lives: the old one of a takeover is stopped, too.
        for other in 0..self.managers.len() {
            if self.managers[other].cut && self.managers[other].up() {
                self.end_process(other, false, 0);
            }
        }
        self.managers[m].disk = self.new_disk(image);
        self.managers[m].forget_expected();
        self.disk_faults.remove(&m);
        self.gone = true;
        self.history += 1;
    }

    fn lose_journal(&mut self) {
        let Some(m) = self.owner() else { return };
        self.trace.say(self.now, || format!("the journal of manager {m} is deleted"));
        self.counters.one("journals deleted");
        self.end_process(m, false, 400);
        self.replace_journal(m, Vec::new());
        self.backups.clear();
        self.managers[m].life += 1;
        let life = self.managers[m].life;
        self.at(self.now + 1_000, Happening::Boot { manager: m, life, begin: Begin::Recover });
    }

    /// The volume is attached to another machine while the old manager lives on, often frozen.
    fn take_over(&mut self) {
        let owner = (0..self.managers.len()).find(|m| self.managers[*m].up() && !self.managers[*m].cut);
        let Some(old) = owner else { return };
        if self.managers.len() > 1 && self.managers[1 - old].up() {
            return;
        }
        self.counters.one("takeovers");
        self.trace.say(self.now, || format!("the volume of manager {old} is attached elsewhere"));
        let elsewhere = self.managers[old].disk.attach_elsewhere();
        let manager = self.new_manager(elsewhere);
        self.disk_heals(old);
        self.managers[old].cut = true;
        let new = if self.managers.len() > 1 {
            let (life, turns) = self.managers[1 - old].generation();
            self.managers[1 - old] = manager;
            self.managers[1 - old].continue_from(life + 1, turns);
            1 - old
        } else {
            self.managers.push(manager);
            1
        };
        let life = self.managers[new].life;
        self.at(self.now + 10, Happening::Boot { manager: new, life, begin: Begin::Open });
        if self.chance.faults.of_1000(700) && self.managers[old].paused_until <= self.now {
            let machine = self.chance.faults.of_1000(600);
            let takes = if self.chance.faults.of_1000(500) {
                self.chance.faults.between(2_500, 6_500)
            } else {
                self.chance.faults.between(300, 20_000)
            };
            self.stall_manager(old, machine, takes);
        }
        // Some can reach only the old one for a while.
        for way in &mut self.ways {
            if self.chance.faults.of_1000(350) {
                (way.pinned, way.pinned_until) =
                    (Some(old), self.now + self.chance.faults.between(3_000, 15_000));
            }
        }
        for agent in &mut self.agents {
            agent.route = if self.chance.faults.of_1000(500) { old } else { new };
        }
    }

    fn strike_worker(&mut self, fault: Fault) {
        let candidates: Vec<usize> = (0..self.agents.len())
            .filter(|a| {
                let host = &self.agents[*a];
                let machine = &self.machines[host.machine];
                // Supervised gangs are stopped by their agent alone, so that one must live.
                (machine.guarded || fault == Fault::MachineReboot)
                    && !machine.clock.is_frozen()
                    && !host.gone
                    && host.agent.is_some()
                    && !host.lies
            })
            .collect();
        let Some(a) = self.chance.faults.pick(&candidates).copied() else { return };
        let machine = self.agents[a].machine;
        self.trace.say(self.now, || format!("{fault:?} of agent {a} on machine {machine}"));
        match fault {
            Fault::AgentKill => {
                self.counters.one("agent kills");
                self.end_agent(a, true);
            }
            Fault::AgentPause => {
                let long = self.chance.faults.of_1000(400);
                self.counters.one("agents paused");
                self.agents[a].paused_until = self.now
                    + if long {
                        self.chance.faults.between(5_000, 20_000)
                    } else {
                        self.chance.faults.between(200, 5_000)
                    };
            }
            Fault::MachineFreeze => self.freeze(machine),
            Fault::MachineReboot => self.reboot(machine),
            Fault::StoreLost => {
                self.counters.one("stores lost");
                self.end_agent(a, true);
                self.agents[a].lose_store();
            }
            Fault::StoreFull => self.fill_store(a),
            Fault::StoreFailSync => self.spoil_store(a),
            Fault::Clone => self.clone_agent(a),
            Fault::Rival => self.rival(a),
            _ => {}
        }
    }

    fn freeze(&mut self, machine: usize) {
        let long = self.chance.faults.of_1000(500);
        let until = self.now
            + if long {
                self.chance.faults.between(6_000, 30_000)
            } else {
                self.chance.faults.between(200, 6_000)
            };
        if self.unseen_back(machine) {
            return;
        }
        self.counters.one("machines frozen");
        self.machines[machine].clock.freeze(self.now);
        self.machines[machine].paused_until = until;
        self.at(until, Happening::Thaw { machine });
    }

    /// A frozen machine goes on: its guards look at the clocks before anything else happens there.
    pub(super) fn thaw(&mut self, machine: usize) {
        self.trace.say(self.now, || format!("machine {machine} goes on"));
        self.machines[machine].clock.thaw(self.now);
        self.gangs(machine, None);
        let alive: Vec<Uid> = self.machines[machine].runner.alive().map(|(uid, _)| uid).collect();
        for uid in alive {
            self.judge_alone(uid);
        }
        for a in 0..self.agents.len() {
            if self.agents[a].machine == machine {
                self.rouse(a, self.now);
            }
        }
    }

    fn reboot(&mut self, machine: usize) {
        self.counters.one("machines rebooted");
        let mono = self.chance.faults.between(1_000, 60_000);
        let boot = self.chance.faults.wide();
        let mac = &mut self.machines[machine];
        mac.runner.reboot();
        mac.clock.reboot(self.now, mono);
        mac.boot = boot;
        self.forget_stays(machine);
        for a in 0..self.agents.len() {
            if self.agents[a].machine == machine && self.agents[a].agent.is_some() {
                self.end_agent(a, true);
            }
        }
    }

    /// A second process with a copy of the store, over the same runner: two deployments for one cluster.
    fn clone_agent(&mut self, a: usize) {
        if self.agents.iter().filter(|h| !h.gone && h.cluster == self.agents[a].cluster).count() > 1 {
            return;
        }
        self.counters.one("clones");
        self.forgetful.insert(self.agents[a].machine);
        let mut twin = AgentHost::new(self.agents[a].cluster.clone(), self.agents[a].machine);
        twin.store = self.agents[a].store.clone();
        twin.copy_of = Some(a);
        let twin = self.add_agent(twin);
        let at = self.now + self.chance.faults.between(10, 3_000);
        self.at(at, Happening::AgentStart { agent: twin, life: 0 });
    }

    /// A second agent of the same name, with a machine and a store of its own.
    fn rival(&mut self, a: usize) {
        if self.agents.iter().filter(|h| !h.gone && h.cluster == self.agents[a].cluster).count() > 1 {
            return;
        }
        self.counters.one("rivals");
        let place =
            PLACES.iter().position(|p| p.0 == self.agents[a].cluster.as_str()).expect("agents are of places");
        let rival = self.new_worker(place);
        // Whoever loses its name has nobody left who would stop supervised gangs.
        let machine = self.agents[rival].machine;
        self.machines[machine].guard();
        let at = self.now + self.chance.faults.between(10, 3_000);
        self.at(at, Happening::AgentStart { agent: rival, life: 0 });
    }

    /// A wall clock is set. Never back while its machine stands still: a pause during which that was done can't be seen.
    fn jump(&mut self) {
        let chance = &mut self.chance.faults;
        let by = i64::try_from(chance.between(0, 20_000)).expect("small");
        let which = chance.index(self.machines.len() + self.managers.len());
        let back = chance.of_1000(500);
        let manager = which.checked_sub(self.machines.len());
        let clock = match manager {
            None => &mut self.machines[which].clock,
            Some(m) => &mut self.managers[m].clock,
        };
        let back = back && !clock.is_frozen();
        clock.jump(if back { -by } else { by });
        self.counters.one("wall jumps");
        match manager {
            Some(m) => self.managers[m].unseen_back |= back,
            None => {
                self.machines[which].unseen_back |= back;
                self.agents
                    .iter_mut()
                    .filter(|host| host.machine == which)
                    .for_each(|host| host.unseen_back |= back);
            }
        }
        self.counters.add("wall clocks set back", u64::from(back));
    }

    /// Whether somebody on this machine has yet to see that its wall clock was set back: each of them looks once a second, and a
    /// pause before that can't be told from none.
    fn unseen_back(&self, machine: usize) -> bool {
        let mac = &self.machines[machine];
        let guards = mac.unseen_back && mac.runner.alive().next().is_some();
        guards || self.agents.iter().any(|host| host.machine == machine && !host.gone && host.unseen_back)
    }

    /// What operators do when they look.
    pub(super) fn operators(&mut self) {
        let Some(m) = (0..self.managers.len()).find(|m| self.managers[*m].leading && !self.managers[*m].cut)
        else {
            return;
        };
        if self.needs_fleet && !self.people.requests.values().any(|r| matches!(r.wish, Wish::Objects(_))) {
            self.needs_fleet = false;
            let fleet = people::fleet(&self.people.declared, &self.places());
            return self.ask(Wish::Objects(fleet));
        }
        let busy = |wanted: &Operator, sim: &Self| {
            sim.people.requests.values().any(|r| matches!(&r.wish, Wish::Operate(o) if o == wanted))
        };
        let mut actions = Vec::new();
        let world = self.managers[m].world.as_ref().expect("it leads");
        let now = self.managers[m].clock.now(self.now).mono;
        let led_for = now.since(world.live.led_at).0;
        if let Some(recovery) = &world.state.recovery
            && (recovery.restored || recovery.members_unknown || world.state.behind)
            && led_for > LATE_GRANTS_MS
            && self.nothing_unknown_runs(m)
        {
            actions.push(Operator::ConfirmRecovery);
        }
        if world.state.rules_doubted.is_some() && led_for > 3_000 {
            actions.push(Operator::ConfirmRules);
        }
        // Half of the orphans get their jobs back, from whoever still has the file.
        let wanted = |uid: &Uid| uid.0.is_multiple_of(2) && !self.oracle.is_unwanted(*uid);
        if led_for > 2_000 && world.state.recovery.is_none() {
            let adopted = world.state.orphans.iter().filter(|((uid, _), _)| wanted(uid)).filter_map(
                |((uid, fence), orphan)| {
                    let job = people::written_job(self.oracle.jobs.get(uid)?, *uid, orphan.run.spec);
                    Some(Operator::AdoptOrphan { uid: *uid, fence: *fence, job })
                },
            );
            actions.extend(adopted);
        }
        if self.healed || led_for > 20_000 {
            actions.extend(
                world
                    .state
                    .orphans
                    .keys()
                    .map(|(uid, fence)| Operator::StopOrphan { uid: *uid, fence: *fence }),
            );
        }
        actions.extend(
            self.lost_ledgers(m)
                .into_iter()
                .map(|(cluster, ledger)| Operator::DeclareLost { cluster, ledger: Some(ledger) }),
        );
        // What was repeated may arrive after its contrary: in the end somebody looks and corrects it.
        let mut extra = false;
        if self.healed {
            let cordoned = world
                .state
                .catalog
                .clusters()
                .filter(|(name, c)| c.cordoned && name.as_str() != PLACES[LIAR].0);
            actions.extend(cordoned.map(|(name, _)| Operator::Uncordon(name)));
            let key = Key::global(Kind::ResidencyPolicy, "extra");
            extra = world.state.catalog.get(&key).is_some()
                && !self.people.requests.values().any(|r| matches!(r.wish, Wish::Remove(_)));
        }
        let asked = |sim: &Self| sim.people.requests.values().any(|r| matches!(r.wish, Wish::Objects(_)));
        let wrong: Vec<_> =
            if self.healed && !asked(self) { self.people.declared.changeable() } else { Vec::new() };
        let catalog = &world.state.catalog;
        let wrong: Vec<_> = wrong
            .into_iter()
            .filter(|m| {
                catalog.get(&people::key_of(m)).is_none_or(|s| s.object.stored != people::object(m).stored)
            })
            .collect();
        if extra {
            self.ask(Wish::Remove(Key::global(Kind::ResidencyPolicy, "extra")));
        }
        if !wrong.is_empty() {
            self.ask(Wish::Objects(wrong));
        }
        for action in actions {
            if !busy(&action, self) {
                self.ask(Wish::Operate(action));
            }
        }
    }

    /// Whether every gang that really runs is known to this manager as what it is: only then an operator may say so.
    fn nothing_unknown_runs(&self, m: usize) -> bool {
        let world = self.managers[m].world.as_ref().expect("it leads");
        let unknown =
            |(uid, fence)| world.state.workloads.get(&uid).is_some_and(|w| w.leg_of(fence).is_none());
        !self.machines.iter().filter(|mac| mac.honest).any(|mac| mac.runner.alive().any(unknown))
    }

    /// Ledgers that hold the right to run something and are gone for good, with everything that ran under them.
    fn lost_ledgers(&self, m: usize) -> Vec<(ClusterName, LedgerId)> {
        let world = self.managers[m].world.as_ref().expect("it leads");
        let exists = |ledger: LedgerId| self.agents.iter().any(|h| !h.gone && h.ledger() == Some(ledger));
        let mut lost = Vec::new();
        for (uid, w) in
            world.state.workloads.iter().filter(|(_, w)| w.on_loss == OnLoss::Wait || w.finished.is_none())
        {
            for leg in w.legs.values().filter(|l| l.state.granted() && !exists(l.ledger)) {
                let runs = self
                    .machines
                    .iter()
                    .filter(|mac| mac.honest)
                    .any(|mac| mac.runner.alive().any(|(u, f)| u == *uid && Some(f) == leg.fence));
                let liar = leg.cluster.as_str() == PLACES[LIAR].0;
                if !runs
                    && (w.on_loss == OnLoss::Wait || liar)
                    && !lost.contains(&(leg.cluster.clone(), leg.ledger))
                {
                    lost.push((leg.cluster.clone(), leg.ledger));
                }
            }
        }
        // A person looks at all that runs on the cluster's machines before declaring a ledger lost, also at what this journal
        // doesn't know.
        let still = |cluster: &ClusterName, ledger: LedgerId| {
            let of_another = |(uid, fence): (Uid, _)| {
                world
                    .state
                    .workloads
                    .get(&uid)
                    .and_then(|w| w.leg_of(fence))
                    .is_some_and(|(_, l)| l.ledger != ledger)
            };
            let machines =
                self.agents.iter().filter(|h| h.cluster == *cluster).map(|h| &self.machines[h.machine]);
            machines.filter(|mac| mac.honest).any(|mac| mac.runner.alive().any(|run| !of_another(run)))
        };
        lost.retain(|(cluster, ledger)| !still(cluster, *ledger));
        // Who will never come back is not waited for.
        if self.healed && world.state.recovery.is_some() {
            let awaited = world
                .live
                .awaited
                .iter()
                .filter_map(|c| world.state.members.get(c).map(|m| (c.clone(), m.ledger)));
            lost.extend(awaited.filter(|(cluster, ledger)| !exists(*ledger) && !still(cluster, *ledger)));
        }
        lost
    }

    /// All faults are over.
    pub(super) fn heal(&mut self) {
        self.trace.say(self.now, || "all faults are over".into());
        self.healed = true;
        self.heal_nodes();
        for way in &mut self.ways {
            *way = super::Way::default();
        }
        for m in 0..self.managers.len() {
            self.managers[m].slow_until = 0;
            self.disk_heals(m);
        }
        for a in 0..self.agents.len() {
            self.agents[a].paused_until = 0;
            self.agents[a].disk = StoreDisk::default();
            if self.agents[a].lies {
                // Its owner is found out: it is cordoned and switched off.
                self.end_agent(a, false);
                self.agents[a].gone = true;
                self.agents[a].lose_store();
            }
        }
        self.people_heal();
        if self.plan.liar {
            self.ask(Wish::Operate(Operator::Cordon(ClusterName::new(PLACES[LIAR].0))));
        }
        self.at(self.now + lease::claim(self.plan.term_min).0, Happening::Look);
    }
}
