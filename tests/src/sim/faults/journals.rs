//! Journals that are copied, replaced by an older copy, or deleted.

use crate::sim::context::event::SimEvent;
use crate::sim::scenario::Fault;
use crate::sim::world::Simulation;
use meridian_manager::host::leadership::StartMode;

/// Most copies of the journal that are kept; the oldest are dropped.
const BACKUPS_MAX: usize = 5;

impl Simulation {
    /// Copies the journal now and then, if a copy may be needed.
    pub(crate) fn back_up(&mut self) {
        if self.cx.healed || !self.cx.scenario.faults.contains_key(&Fault::JournalRestore) {
            return;
        }
        if let Some(manager) = self.managers.iter().find(|manager| manager.leading && !manager.cut) {
            self.faults.backups.push(manager.disk.image());
            if self.faults.backups.len() > BACKUPS_MAX {
                self.faults.backups.remove(0);
            }
        }
        let at = self.cx.now + self.cx.random.faults.between(2_000, 9_000);
        self.cx.schedule(at, SimEvent::Backup);
    }

    /// The manager on the true journal, if its process runs.
    fn journal_owner(&self) -> Option<usize> {
        let owns = |m: &usize| {
            let manager = &self.managers[*m];
            manager.is_up() && !manager.cut && !manager.clock.is_frozen()
        };
        (0..self.managers.len()).find(owns)
    }

    /// Stops the manager and replaces its journal by an older copy.
    pub(super) fn restore_journal(&mut self) {
        let Some(m) = self.journal_owner() else { return };
        let Some(image) = self.cx.random.faults.pick(&self.faults.backups).cloned() else { return };
        self.cx.log(|| format!("manager {m}: is stopped, its journal is replaced by an older copy"));
        self.cx.counters.one("restores");
        self.end_manager(m, false, 400);
        // Without a mark, only agents can show that the same file has an older content.
        let in_place = self.cx.random.restores.permille(400) && self.managers[m].mark.is_some();
        self.replace_journal(m, image, in_place);
        self.cut_off_during_restore();
    }

    /// In half of the restores a cluster with running gangs can't be reached, so that its inventory is
    /// missing for a while.
    fn cut_off_during_restore(&mut self) {
        let runs = |a: &usize| self.machines[self.agents[*a].machine].runner.alive().next().is_some();
        let busy: Vec<usize> = (0..self.agents.len()).filter(runs).collect();
        let random = &mut self.cx.random.restores;
        let (cuts, a) = (random.permille(500), random.pick(&busy).copied());
        let until = self.cx.now + random.between(8_000, 40_000);
        if let Some(a) = a.filter(|_| cuts) {
            self.cx.log(|| format!("network: agent {} is cut off until {until} ms", self.agents[a].name));
            let link = self.network.link_mut(a);
            link.up_cut_until = link.up_cut_until.max(until);
        }
    }

    /// Replaces a journal, in the same file or by another one. The operator makes sure that no other manager
    /// runs: the old one of a takeover is stopped, too.
    fn replace_journal(&mut self, m: usize, image: Vec<u8>, in_place: bool) {
        for other in 0..self.managers.len() {
            if self.managers[other].cut && self.managers[other].is_up() {
                self.end_manager(other, false, 0);
            }
        }
        self.managers[m].disk = if in_place {
            self.cx.counters.one("journals rolled back in place");
            self.managers[m].disk.rolled_back(image, self.cx.random.disk.bits())
        } else {
            self.new_disk(image)
        };
        self.managers[m].forget_expected_state();
        self.faults.faulty_disks.remove(&m);
        self.faults.history_is_lost = true;
        self.faults.history += 1;
    }

    /// Stops the manager and deletes its journal; the next process makes a new one with `init --recover`.
    pub(super) fn delete_journal(&mut self) {
        let Some(m) = self.journal_owner() else { return };
        self.cx.log(|| format!("manager {m}: is stopped, its journal is deleted"));
        self.cx.counters.one("journals deleted");
        self.end_manager(m, false, 400);
        self.replace_journal(m, Vec::new(), false);
        self.faults.backups.clear();
        self.managers[m].life += 1;
        let life = self.managers[m].life;
        let event = SimEvent::ManagerStarts { manager: m, life, mode: StartMode::InitRecover };
        self.cx.schedule(self.cx.now + 1_000, event);
    }
}
