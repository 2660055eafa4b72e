//! Faults, and how everything heals at their end.

mod journals;
mod managers;
mod workers;

use crate::sim::clusters::{CLUSTERS, HOSTILE};
use crate::sim::context::event::SimEvent;
use crate::sim::hosts::agent::StoreDisk;
use crate::sim::network::Link;
use crate::sim::requests::request::RequestBody;
use crate::sim::scenario::Fault;
use crate::sim::world::Simulation;
use meridian_manager_core::facts::input::Operator;
use meridian_shared::ids::ClusterName;
use meridian_shared::lease;

impl Simulation {
    /// One fault strikes, and faults of its kind again later.
    pub(crate) fn strike(&mut self, fault: Fault) {
        if self.cx.healed {
            return;
        }
        let mean = self.cx.scenario.faults.get(&fault).copied().unwrap_or(60_000);
        let at = self.cx.now + self.cx.random.faults.between(mean / 2, mean * 3 / 2);
        self.cx.schedule(at, SimEvent::FaultStrikes(fault));
        match fault {
            Fault::NetCut => self.cut_link(),
            Fault::NetSlow => {
                let a = self.cx.random.faults.index(self.agents.len());
                self.cx.counters.one("slow links");
                let until = self.cx.now + self.cx.random.faults.between(1_000, 8_000);
                self.network.link_mut(a).slow_until = until;
            }
            Fault::ManagerKill | Fault::ManagerPower => self.kill_manager(fault),
            Fault::ManagerPause | Fault::ManagerFreeze => {
                if let Some(m) = self.some_manager() {
                    let long = self.cx.random.faults.permille(400);
                    let duration = self.short_or_long(long, (300, 4_000), (8_000, 25_000));
                    self.stall_manager(m, fault == Fault::ManagerFreeze, duration);
                }
            }
            Fault::DiskFailSync | Fault::DiskFull | Fault::DiskSlow => self.spoil_disk(fault),
            Fault::JournalRestore => self.restore_journal(),
            Fault::JournalDelete => self.delete_journal(),
            Fault::Takeover => self.take_over_volume(),
            Fault::AgentKill
            | Fault::AgentPause
            | Fault::MachineFreeze
            | Fault::MachineReboot
            | Fault::StoreLost
            | Fault::StoreFull
            | Fault::StoreFailSync
            | Fault::Clone
            | Fault::Rival => self.strike_worker(fault),
            Fault::WallJump => self.jump_wall_clock(),
            Fault::GuardKill => self.kill_guard(),
        }
    }

    /// A random duration from one of two ranges, in milliseconds.
    fn short_or_long(&mut self, is_long: bool, short: (u64, u64), long: (u64, u64)) -> u64 {
        let (from, to) = if is_long { long } else { short };
        self.cx.random.faults.between(from, to)
    }

    /// Cuts the link of an agent: up, down or both.
    fn cut_link(&mut self) {
        let a = self.cx.random.faults.index(self.agents.len());
        let long = self.cx.random.faults.permille(300);
        let until = self.cx.now + self.short_or_long(long, (300, 9_000), (12_000, 30_000));
        let which = self.cx.random.faults.below(3);
        self.cx.log(|| {
            let direction = ["both ways", "up", "down"][usize::try_from(which).unwrap_or(0)];
            format!("network: agent {} is cut off ({direction}) until {until} ms", self.agents[a].name)
        });
        self.cx.counters.one("partitions");
        let link = self.network.link_mut(a);
        if which != 2 {
            link.up_cut_until = until;
        }
        if which != 1 {
            link.down_cut_until = until;
        }
    }

    /// Sets a wall clock, but never back while its machine is frozen: the pause could not be seen then.
    fn jump_wall_clock(&mut self) {
        let random = &mut self.cx.random.faults;
        let by = i64::try_from(random.between(0, 20_000)).expect("small");
        let which = random.index(self.machines.len() + self.managers.len());
        let back = random.permille(500);
        let manager = which.checked_sub(self.machines.len());
        let clock = match manager {
            None => &mut self.machines[which].clock,
            Some(m) => &mut self.managers[m].clock,
        };
        let back = back && !clock.is_frozen();
        clock.jump(if back { -by } else { by });
        self.cx.counters.one("wall jumps");
        match manager {
            Some(m) => self.managers[m].unseen_back |= back,
            None => {
                self.machines[which].unseen_back |= back;
                let here = self.agents.iter_mut().filter(|host| host.machine == which);
                here.for_each(|host| host.unseen_back |= back);
            }
        }
        self.cx.counters.add("wall clocks set back", u64::from(back));
    }

    /// All faults are over.
    pub(crate) fn end_faults(&mut self) {
        self.cx.log(|| "all faults are over".into());
        self.cx.healed = true;
        self.heal_nodes();
        self.network.links_mut().for_each(|link| *link = Link::default());
        for m in 0..self.managers.len() {
            self.managers[m].slow_until = 0;
            self.heal_disk(m);
        }
        for a in 0..self.agents.len() {
            self.agents[a].paused_until = 0;
            self.agents[a].disk = StoreDisk::default();
            if self.agents[a].hostile {
                // Operators notice the hostile agent, cordon its cluster and switch the agent off.
                self.end_agent(a, false);
                self.agents[a].gone = true;
                self.agents[a].lose_store();
            }
        }
        self.restore_declarations();
        if self.cx.scenario.hostile_cluster {
            let cluster = ClusterName::new(CLUSTERS[HOSTILE].0);
            self.request(RequestBody::Operate(Operator::Cordon(cluster)));
        }
        let at = self.cx.now + lease::claim(self.cx.scenario.term_min).0;
        self.cx.schedule(at, SimEvent::EndCheck);
    }
}
