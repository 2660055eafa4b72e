//! Users change the number of pods of jobs, elastic or not.

use crate::sim::fleet::objects::job_manifest;
use crate::sim::random::Random;
use crate::sim::requests::request::RequestBody;
use crate::sim::world::Simulation;
use meridian_shared::ids::Uid;

impl Simulation {
    /// Sometimes gives a job another number of pods, at most its first one. The draw uses a separate random
    /// stream.
    pub(super) fn resize_some_job(&mut self) {
        let mut random = Random::new(self.cx.scenario.seed, &format!("size at {}", self.cx.now));
        if !random.permille(400) {
            return;
        }
        let jobs = &self.invariants.jobs;
        let candidates = self.invariants.submissions.without_deletion();
        let is_elastic = |uid: &Uid| jobs[uid].elastic && self.is_unfinished(*uid);
        let elastic: Vec<Uid> = candidates.into_iter().filter(is_elastic).collect();
        // Half of the time a job that runs with fewer pods gets all of them again.
        let is_small = |uid: &Uid| jobs[uid].sizes.last().is_some_and(|pods| *pods < jobs[uid].pods);
        let small: Vec<Uid> =
            elastic.iter().copied().filter(|uid| is_small(uid) && self.runs_somewhere(*uid)).collect();
        let larger = !small.is_empty() && random.permille(500);
        let Some(uid) = random.pick(if larger { &small } else { &elastic }).copied() else { return };
        let job = self.invariants.jobs.get_mut(&uid).expect("just listed");
        let pods = if larger { job.pods } else { 1 + random.index(job.pods) };
        job.sizes.push(pods);
        let manifest = job_manifest(job, pods);
        self.request(RequestBody::Resize { uid, pods, manifest });
    }

    /// Sometimes gives a job that isn't elastic another number of pods, at most its first one. The draw uses
    /// a separate random stream.
    pub(super) fn change_some_rigid_job(&mut self) {
        let mut random = Random::new(self.cx.scenario.seed, &format!("rigid size at {}", self.cx.now));
        if !random.permille(100) {
            return;
        }
        let jobs = &self.invariants.jobs;
        let candidates = self.invariants.submissions.without_deletion();
        let is_rigid = |uid: &Uid| {
            let job = &jobs[uid];
            !job.elastic && job.pods > 1 && job.min_pods.is_none() && self.is_unfinished(*uid)
        };
        let rigid: Vec<Uid> = candidates.into_iter().filter(is_rigid).collect();
        let Some(uid) = random.pick(&rigid).copied() else { return };
        let runs = self.runs_somewhere(uid);
        self.cx.counters.add("other sizes of gangs that run and are not elastic", u64::from(runs));
        let job = self.invariants.jobs.get_mut(&uid).expect("just listed");
        let pods = 1 + random.index(job.pods);
        if job.sizes.is_empty() {
            job.sizes.push(job.pods);
        }
        job.sizes.push(pods);
        let manifest = job_manifest(job, pods);
        self.request(RequestBody::Resize { uid, pods, manifest });
    }

    fn runs_somewhere(&self, uid: Uid) -> bool {
        self.machines.iter().any(|machine| machine.runner.alive().any(|(other, _)| other == uid))
    }

    /// A request was acknowledged.
    pub(super) fn resize_acknowledged(&mut self, uid: Uid, id: u64, pods: usize) {
        let is_same =
            |body: &RequestBody| matches!(body, RequestBody::Resize { uid: other, .. } if *other == uid);
        if !self.users.has_open(is_same) {
            self.users.resizes.acknowledged(uid, id, pods);
        }
    }
}
