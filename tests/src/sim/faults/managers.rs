//! Faults of managers: kills, pauses, disks, and a volume that is taken over.

use crate::sim::context::event::SimEvent;
use crate::sim::scenario::Fault;
use crate::sim::world::Simulation;
use meridian_manager::host::leadership::StartMode;

impl Simulation {
    /// A manager with a process on a machine that isn't frozen.
    pub(super) fn some_manager(&mut self) -> Option<usize> {
        let up: Vec<usize> = (0..self.managers.len())
            .filter(|m| self.managers[*m].is_up() && !self.managers[*m].clock.is_frozen())
            .collect();
        self.cx.random.faults.pick(&up).copied()
    }

    /// Kills a manager's process, or cuts its power.
    pub(super) fn kill_manager(&mut self, fault: Fault) {
        let Some(m) = self.some_manager() else { return };
        let power = fault == Fault::ManagerPower;
        self.cx.counters.one(if power { "power losses" } else { "manager kills" });
        self.cx.log(|| format!("manager {m}: {}", if power { "loses power" } else { "is killed" }));
        let pause = self.cx.random.faults.between(20, 3_000);
        self.end_manager(m, power, pause);
    }

    /// Pauses a manager's process, or freezes its machine and boot time with it.
    pub(super) fn stall_manager(&mut self, m: usize, machine: bool, duration: u64) {
        let until = self.cx.now + duration;
        let machine = machine && !self.managers[m].unseen_back;
        self.cx.log(|| {
            let what = if machine { "its machine is frozen" } else { "is paused" };
            format!("manager {m}: {what} until {until} ms")
        });
        self.cx.counters.one("manager stalls");
        self.managers[m].paused_until = until;
        if machine {
            self.managers[m].clock.freeze(self.cx.now);
            self.cx.schedule(until, SimEvent::ManagerThaws { manager: m });
        }
    }

    /// A frozen machine continues.
    pub(crate) fn thaw_manager(&mut self, m: usize) {
        self.managers[m].clock.thaw(self.cx.now);
        self.wake_manager(m, self.cx.now);
    }

    /// Makes a manager's disk fail, full or slow for a while.
    pub(super) fn spoil_disk(&mut self, fault: Fault) {
        let Some(m) = self.some_manager().filter(|m| !self.managers[*m].cut) else { return };
        self.cx.log(|| format!("manager {m}: {fault:?}"));
        let now = self.cx.now;
        match fault {
            Fault::DiskFailSync => {
                self.cx.counters.one("failed syncs");
                self.faults.faulty_disks.insert(m);
                self.managers[m].disk.fail_syncs(1);
            }
            Fault::DiskFull => {
                self.cx.counters.one("full disks");
                self.faults.faulty_disks.insert(m);
                let free = self.cx.random.faults.between(0, 64 * 1_024);
                let disk = &self.managers[m].disk;
                disk.set_capacity(disk.used_bytes() + free);
            }
            _ => {
                self.managers[m].slow_until = now + self.cx.random.faults.between(1_000, 6_000);
                return;
            }
        }
        let at = now + self.cx.random.faults.between(2_000, 8_000);
        self.cx.schedule(at, SimEvent::DiskHeals { manager: m });
    }

    /// The disk works again.
    pub(crate) fn heal_disk(&mut self, m: usize) {
        let disk = &self.managers[m].disk;
        disk.set_capacity(u64::MAX);
        disk.fail_syncs(0);
        self.faults.faulty_disks.remove(&m);
        self.wake_manager(m, self.cx.now);
    }

    /// Attaches the volume to another machine while the old manager keeps running, often paused.
    pub(super) fn take_over_volume(&mut self) {
        let Some(old) = self.managers.iter().position(|manager| manager.is_up() && !manager.cut) else {
            return;
        };
        if self.managers.len() > 1 && self.managers[1 - old].is_up() {
            return;
        }
        self.cx.counters.one("takeovers");
        self.cx.log(|| format!("manager {old}: its volume is attached to another machine"));
        let elsewhere = self.managers[old].disk.attach_elsewhere();
        let mut manager = self.new_manager(elsewhere);
        self.heal_disk(old);
        self.managers[old].cut = true;
        let new = if self.managers.len() > 1 {
            manager.succeed(&self.managers[1 - old]);
            self.managers[1 - old] = manager;
            1 - old
        } else {
            self.managers.push(manager);
            1
        };
        let life = self.managers[new].life;
        let event = SimEvent::ManagerStarts { manager: new, life, mode: StartMode::Open };
        self.cx.schedule(self.cx.now + 10, event);
        if self.cx.random.faults.permille(700) && self.managers[old].paused_until <= self.cx.now {
            let machine = self.cx.random.faults.permille(600);
            let duration = if self.cx.random.faults.permille(500) {
                self.cx.random.faults.between(2_500, 6_500)
            } else {
                self.cx.random.faults.between(300, 20_000)
            };
            self.stall_manager(old, machine, duration);
        }
        // Some agents can reach only the old manager for a while.
        for link in self.network.links_mut() {
            if self.cx.random.faults.permille(350) {
                let until = self.cx.now + self.cx.random.faults.between(3_000, 15_000);
                link.pinned = Some((old, until));
            }
        }
        for agent in &mut self.agents {
            agent.route = if self.cx.random.faults.permille(500) { old } else { new };
        }
    }
}
