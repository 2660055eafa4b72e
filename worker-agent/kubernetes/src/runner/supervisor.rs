//! All runs of one cluster, in one task. It takes orders, events of watches and answers, and sends requests
//! and reports.

use super::perform::{Performer, Target};
use super::request::{Answer, Request};
use super::run::{Cause, Run};
use super::{GuardSettings, RunnerParts, Shown, guard, jobs_by_run, manifest};
use crate::copies::Copies;
use crate::facts::JobFacts;
use crate::hub::{Hub, TouchedRuns};
use crate::labels::RunKey;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use meridian_agent_core::runtime::{Found, PodPlacement, RunnerEvent, Start};
use meridian_shared::protocol::{EndResult, Size};
use meridian_shared::time::{Millis, Mono, Now};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Interval at which timers are checked.
const TICK: Duration = Duration::from_millis(250);
/// Interval at which a repeated error of a run is logged again.
const LOG_AGAIN: Duration = Duration::from_secs(60);

/// A request of the agent's core or of a log reader.
#[derive(Debug)]
pub(super) enum Order {
    Adopt { reply: oneshot::Sender<Vec<Found>> },
    Start { start: Box<Start>, decided: Now },
    Renew { key: RunKey, deadline: Mono, decided: Now },
    Place { key: RunKey, number: u32, placement: Vec<PodPlacement>, size: Option<Size> },
    ScaleDown { key: RunKey, size: Size },
    Stop { key: RunKey },
    Settle { key: RunKey },
    Forget { key: RunKey },
    Show { key: RunKey, reply: oneshot::Sender<Option<Shown>> },
}

type Answered = (RunKey, Request, Answer);

pub(super) struct Supervisor {
    hub: Arc<Hub>,
    performer: Performer,
    cluster: String,
    guard: GuardSettings,
    copies: Option<Copies>,
    clock: super::NowSource,
    runs: BTreeMap<RunKey, Run>,
    orders: mpsc::UnboundedReceiver<Order>,
    touched: TouchedRuns,
    open: FuturesUnordered<BoxFuture<'static, Answered>>,
    events: mpsc::Sender<RunnerEvent>,
    /// Reports that wait for a place in the channel.
    outbox: VecDeque<RunnerEvent>,
    logged: BTreeMap<RunKey, (String, Instant)>,
    adopted: bool,
}

impl Supervisor {
    pub(super) fn new(
        parts: RunnerParts,
        performer: Performer,
        orders: mpsc::UnboundedReceiver<Order>,
    ) -> Self {
        let RunnerParts { connection: _, hub, touched, leader: _, cluster, guard, copies, events, clock } =
            parts;
        Self {
            hub,
            performer,
            cluster,
            guard,
            copies,
            clock,
            runs: BTreeMap::new(),
            orders,
            touched,
            open: FuturesUnordered::new(),
            events,
            outbox: VecDeque::new(),
            logged: BTreeMap::new(),
            adopted: false,
        }
    }

    /// Serves until the runner is dropped.
    pub(super) async fn serve(mut self) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let events = self.events.clone();
        loop {
            let mut changed = BTreeSet::new();
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(order) => changed.extend(self.take(order).await),
                    None => return,
                },
                Some(key) = self.touched.recv() => {
                    changed.insert(key);
                    while let Ok(key) = self.touched.try_recv() {
                        changed.insert(key);
                    }
                    self.observe(&changed);
                }
                Some((key, request, answer)) = self.open.next() => {
                    self.answered(key, &request, answer);
                    changed.insert(key);
                }
                permit = events.reserve(), if !self.outbox.is_empty() => {
                    let (Ok(permit), Some(event)) = (permit, self.outbox.pop_front()) else { return };
                    permit.send(event);
                }
                _ = ticks.tick() => changed.extend(self.tick()),
            }
            self.proceed(&changed);
        }
    }

    async fn take(&mut self, order: Order) -> Option<RunKey> {
        match order {
            Order::Adopt { reply } => {
                // The caller may be gone, and then the answer isn't needed.
                let _ = reply.send(self.adopt().await);
                None
            }
            Order::Start { start, decided } => Some(self.start(*start, decided)),
            Order::Renew { key, deadline, decided } => {
                let now = (self.clock)();
                let lapses = counted(deadline, decided, now);
                self.with(key, |run| run.renew(lapses))
            }
            Order::Place { key, number, placement, size } => {
                self.with(key, |run| run.place_anew(number, placement, size))
            }
            Order::ScaleDown { key, size } => self.with(key, |run| run.scale_down(size)),
            Order::Stop { key } => {
                let run = self.runs.entry(key).or_insert_with(|| Run::unknown(key));
                run.stop(Cause::Ordered);
                // The report of an end may have been lost with an earlier session.
                self.outbox.extend(run.end().cloned());
                Some(key)
            }
            Order::Settle { key } => {
                let now = (self.clock)().wall;
                self.with(key, |run| run.settle(now))
            }
            Order::Forget { key } => self.with(key, Run::forget),
            Order::Show { key, reply } => {
                let shown = self.runs.get(&key).map(|run| Shown {
                    namespace: run.namespace.clone(),
                    pods: run.pods(),
                    has_ended: run.has_ended(),
                });
                let _ = reply.send(shown);
                None
            }
        }
    }

    fn with(&mut self, key: RunKey, change: impl FnOnce(&mut Run)) -> Option<RunKey> {
        change(self.runs.get_mut(&key)?);
        Some(key)
    }

    /// Takes over the jobs that agents made, once the watches have listed everything.
    async fn adopt(&mut self) -> Vec<Found> {
        self.hub.complete().await;
        let jobs = jobs_by_run(self.hub.view().jobs().cloned());
        for (key, job) in jobs {
            let mut run = Run::adopted(key, job);
            run.count_leases_on(&self.guard.clock);
            self.runs.insert(key, run);
        }
        self.adopted = true;
        let keys: BTreeSet<RunKey> = self.runs.keys().copied().collect();
        self.observe(&keys);
        self.runs.values().map(Run::found).collect()
    }

    fn start(&mut self, start: Start, decided: Now) -> RunKey {
        let key = (start.uid, start.fence);
        if let Some(run) = self.runs.get(&key) {
            self.outbox.extend(run.end().cloned());
            return key;
        }
        self.hub.set_granted(start.offer);
        let booking = self.hub.bookings().get(&start.offer).cloned();
        let start = match booking.as_ref().and_then(|booking| booking.ends) {
            Some(end) => manifest::within(start, end.since((self.clock)().wall)),
            None => start,
        };
        let mut built = manifest::build(&start, &self.cluster, booking.as_ref());
        if let (Ok(job), Some(copies)) = (&mut built, &self.copies) {
            copies.mark(job.kind, &mut job.manifest);
        }
        let mut is_guarded = false;
        if let (Ok(job), Some(image)) = (&mut built, &self.guard.image) {
            match guard::add(job, &start, image) {
                Ok(done) => is_guarded = done,
                Err(why) => built = Err(why),
            }
        }
        match built {
            Ok(job) => {
                let now = (self.clock)();
                let deadline = start.deadline.map(|at| counted(at, decided, now));
                let mut run = Run::granted(&Start { deadline, ..start }, job);
                run.count_leases_on(&self.guard.clock);
                if is_guarded {
                    run.put_under_guards();
                }
                self.runs.insert(key, run);
            }
            Err(why) => self.outbox.push_back(RunnerEvent::Ended {
                uid: key.0,
                fence: key.1,
                result: EndResult::Failed {
                    reason: "InvalidJob".to_owned(),
                    message: format!("the job can't be read: {why}"),
                },
                pod_failures: start.pod_failures,
                ran: Millis(0),
            }),
        }
        key
    }

    /// Applies the watched state of some runs. A job that belongs to no known run is stopped: another replica
    /// made it, or an agent that ended before it noted the run.
    fn observe(&mut self, keys: &BTreeSet<RunKey>) {
        if !self.adopted {
            return;
        }
        for key in keys {
            let view = self.hub.view();
            let (job, pods) = match self.runs.get(key) {
                Some(run) => {
                    (view.job(run.kind.kind(), &run.namespace, &run.name).cloned(), view.pods_of(*key))
                }
                None => (view.jobs().find(|job| job.run == Some(*key)).cloned(), view.pods_of(*key)),
            };
            if !self.runs.contains_key(key) {
                let Some(job) = job.clone().filter(|job: &JobFacts| !job.deleting) else { continue };
                tracing::warn!(
                    uid = %key.0, fence = %key.1, job = job.name,
                    "the agent doesn't know the attempt of a job: the job is stopped and deleted"
                );
                let mut stray = Run::adopted(*key, job);
                stray.stop(Cause::Ordered);
                stray.forget();
                self.runs.insert(*key, stray);
            }
            let Some(run) = self.runs.get_mut(key) else { continue };
            let events = run.observe(job.as_ref(), &pods, &|node| view.answers_for_its_pods(node));
            self.outbox.extend(events);
        }
    }

    fn answered(&mut self, key: RunKey, request: &Request, answer: Answer) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        let now = (self.clock)();
        let view = self.hub.view();
        let events =
            run.answered(now.mono, now.wall, request, answer, &|node| view.answers_for_its_pods(node));
        self.outbox.extend(events);
    }

    fn tick(&mut self) -> Vec<RunKey> {
        let now = (self.clock)();
        self.runs.retain(|_, run| !run.is_over());
        self.logged.retain(|key, _| self.runs.contains_key(key));
        for run in self.runs.values_mut() {
            run.observe_time(now);
        }
        self.runs.keys().copied().collect()
    }

    /// Sends the requests that are due.
    fn proceed(&mut self, keys: &BTreeSet<RunKey>) {
        if !self.adopted {
            return;
        }
        let now = (self.clock)().mono;
        for key in keys {
            let Some(run) = self.runs.get_mut(key) else { continue };
            log_trouble(&mut self.logged, run);
            let Some(request) = run.next(now) else { continue };
            let target = Target {
                key: *key,
                namespace: run.namespace.clone(),
                kind: run.kind,
                name: run.name.clone(),
                offer: run.offer,
                group: run.group_name().map(str::to_owned),
            };
            let performer = self.performer.clone();
            self.open.push(Box::pin(async move {
                let answer = performer.perform(&target, &request).await;
                (target.key, request, answer)
            }));
        }
    }
}

/// A deadline as counted now: a pause of the machine between decision and arrival shortens the lease.
fn counted(deadline: Mono, decided: Now, now: Now) -> Mono {
    let by_wall = now.wall.since(decided.wall);
    let by_mono = now.mono.since(decided.mono);
    deadline - by_wall.saturating_sub(by_mono)
}

fn log_trouble(logged: &mut BTreeMap<RunKey, (String, Instant)>, run: &mut Run) {
    let Some(trouble) = run.trouble.take() else { return };
    let (uid, fence) = run.key();
    let known = logged.get(&(uid, fence));
    if known.is_some_and(|(text, at)| *text == trouble && at.elapsed() < LOG_AGAIN) {
        return;
    }
    tracing::warn!(%uid, %fence, job = run.name, trouble, "a run waits for the API server or a node");
    logged.insert((uid, fence), (trouble, Instant::now()));
}
