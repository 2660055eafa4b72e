//! An engine on a faulty disk, and agents made of the real agent core.

use meridian_agent_core::durable::Durable;
use meridian_agent_core::runtime::NodeSpec;
use meridian_agent_core::{
    Agent, Config as AgentConfig, Effect, HoldSettings, Input as AgentInput, RunnerEvent,
};
use meridian_manager::engine::clock::{BootClock, Clock};
use meridian_manager::engine::{self, Handle, Options, Running, StartMode, Unavailable, View};
use meridian_manager::journal::faulty::{Faults, FaultyDisk};
use meridian_manager::journal::mark::BootId;
use meridian_manager::journal::{Journal, RedbJournal};
use meridian_manager::metrics::Metrics;
use meridian_manager_core::Config;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Change, Input, PutMode, Write};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::{Reply, Written};
use meridian_objects::{Kind, Object};
use meridian_queueing::settings::AdmissionFairSharing;
use meridian_shared::gang::Amounts;
use meridian_shared::ids::{ClusterName, Fence, JournalId, LedgerId, Uid};
use meridian_shared::mac::ReceiptKey;
use meridian_shared::managed::ManagedResources;
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{EndResult, Lane, RunnerKind, SyncAnswer};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use meridian_views::asker::Asker;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(crate) const GPU: &str = "nvidia.com/gpu";
/// Long enough for anything here; reached only if a test fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
const JOURNAL: JournalId = JournalId(42);

/// A clock that runs several times as fast as real time.
#[derive(Debug)]
pub(crate) struct FastClock {
    from: Instant,
    speed: u32,
}

impl FastClock {
    pub(crate) fn of(speed: u32) -> Arc<Self> {
        Arc::new(Self { from: Instant::now(), speed })
    }
}

impl Clock for FastClock {
    fn now(&self) -> Now {
        let passed = u64::try_from((self.from.elapsed() * self.speed).as_millis()).unwrap();
        Now { mono: Mono(1_000_000 + passed), wall: Wall(1_800_000_000_000 + i64::try_from(passed).unwrap()) }
    }

    fn real(&self, span: Millis) -> Duration {
        Duration::from_millis(span.0) / self.speed
    }
}

/// An engine, its disk and the directory of its mark.
pub(crate) struct Rig {
    pub(crate) disk: FaultyDisk,
    pub(crate) handle: Handle,
    pub(crate) running: Running,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) marks: Arc<tempfile::TempDir>,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with_clock(Arc::new(BootClock)).await
    }

    pub(crate) async fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let disk = FaultyDisk::new(1, 7, Faults::default());
        let journal = RedbJournal::init_on(disk.clone(), JOURNAL, Wall(0)).unwrap();
        let marks = Arc::new(tempfile::tempdir().unwrap());
        let rig = Self::on(disk, Box::new(journal), StartMode::Init, clock, marks);
        rig.led().await;
        rig
    }

    /// An engine on the journal on `disk`. It may not lead yet.
    pub(crate) fn open(disk: FaultyDisk, clock: Arc<dyn Clock>, marks: Arc<tempfile::TempDir>) -> Self {
        let journal = RedbJournal::open_on(disk.clone()).unwrap();
        Self::on(disk, Box::new(journal), StartMode::Open, clock, marks)
    }

    fn on(
        disk: FaultyDisk,
        journal: Box<dyn Journal>,
        start: StartMode,
        clock: Arc<dyn Clock>,
        marks: Arc<tempfile::TempDir>,
    ) -> Self {
        // the usage history is on, so that it is displayed; without a half-life it stays empty
        let fair_sharing = AdmissionFairSharing {
            half_life_ms: 0,
            sampling_ms: AdmissionFairSharing::SAMPLING_USUAL_MS,
            resource_weights: Vec::new(),
        };
        let options = Options {
            config: Config {
                start_timeout: Millis::mins(5),
                admission_fair_sharing: Some(fair_sharing),
                ..Config::new(ReceiptKey([7; 32]))
            },
            start,
            clock: Arc::clone(&clock),
            marks: Some((PathBuf::from(marks.path()), BootId(7))),
            metrics: Metrics::new("test"),
            traces: false,
        };
        let (handle, running) = engine::start(journal, options).unwrap();
        Self { disk, handle, running, clock, marks }
    }

    pub(crate) async fn led(&self) {
        tokio::time::timeout(DEADLINE, self.handle.led()).await.expect("it leads");
    }

    /// Creates queues, and clusters with these names.
    pub(crate) async fn create_queues(&self, clusters: &[&str]) {
        let mut objects = vec![
            json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"},
            }),
            json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"},
                "spec": {"namespaceSelector": {}, "resourceGroups": [{
                    "coveredResources": [GPU],
                    "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 1_000}]}],
                }]},
            }),
            json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
                "metadata": {"name": "lq", "namespace": "default"}, "spec": {"clusterQueue": "cq"},
            }),
        ];
        for name in clusters {
            objects.push(json!({
                "apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
                "spec": {"region": "europe-west4", "jurisdiction": "EU"},
            }));
        }
        put(&self.handle, objects).await.unwrap();
    }

    pub(crate) fn job(&self, name: &str) -> Option<Arc<View>> {
        self.handle.reads().get(&Key::namespaced(Kind::Job, "default", name), &Asker::unlimited())
    }

    pub(crate) fn state_of(&self, name: &str) -> Option<String> {
        Some(self.job(name)?.value["status"]["meridian"]["state"].as_str()?.to_owned())
    }

    /// Ends the engine without a last write: its old disk fails from now on.
    pub(crate) async fn die(self, disk: FaultyDisk) -> (FaultyDisk, Arc<dyn Clock>, Arc<tempfile::TempDir>) {
        let Self { running, clock, marks, .. } = self;
        // the old disk fails already, so this writes nothing
        let _ = tokio::task::spawn_blocking(move || running.stop()).await.unwrap();
        (disk, clock, marks)
    }

    pub(crate) async fn stop(self) -> (FaultyDisk, Arc<dyn Clock>, Arc<tempfile::TempDir>) {
        let Self { disk, running, clock, marks, handle } = self;
        tokio::task::spawn_blocking(move || running.stop()).await.unwrap().unwrap();
        // Its readers keep the journal open.
        drop(handle);
        (disk.kill(), clock, marks)
    }
}

fn new_uid() -> Uid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Uid(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64 | 0xbeef)
}

pub(crate) fn write(changes: Vec<Change>) -> Input {
    Input::Write(Box::new(Write::new(Actor::user("test"), changes, false)))
}

/// The input that applies objects.
pub(crate) fn apply(objects: Vec<Value>) -> Input {
    let change = |value| {
        let object = Box::new(Object::from_value(value).expect("the test's own objects are right").0);
        Change::Put { object, scope: None, uid: new_uid(), mode: PutMode::Apply }
    };
    write(objects.into_iter().map(change).collect())
}

/// Applies objects, all of which must be accepted.
pub(crate) async fn put(handle: &Handle, objects: Vec<Value>) -> Result<Vec<Written>, Unavailable> {
    match handle.ask(apply(objects)).await? {
        Reply::Written(written) => Ok(written),
        other => panic!("rejected: {other:?}"),
    }
}

pub(crate) fn job(name: &str, pods: u32) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {
            "parallelism": pods, "completions": pods,
            "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "c", "image": "i", "resources": {"requests": {GPU: 1}, "limits": {GPU: 1}}},
                ],
            }},
        },
    })
}

pub(crate) async fn submit(handle: &Handle, name: &str) -> Result<Uid, Unavailable> {
    Ok(put(handle, vec![job(name, 1)]).await?[0].uid)
}

pub(crate) async fn delete(handle: &Handle, name: &str) -> Result<Reply, Unavailable> {
    handle
        .ask(write(vec![Change::Delete {
            key: Key::namespaced(Kind::Job, "default", name),
            uid: None,
            force: false,
        }]))
        .await
}

/// Repeats `holds` until it is true. Each try does something or waits for the engine, so this never spins
/// idly.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < DEADLINE, "timeout: {what}");
        tokio::task::yield_now().await;
    }
}

/// An agent made of the real core, with a runner that starts and stops gangs at once.
pub(crate) struct Worker {
    name: ClusterName,
    agent: Agent,
    clock: Arc<dyn Clock>,
    /// Gangs that the runner runs now.
    pub(crate) runs: Vec<(Uid, Fence)>,
    pub(crate) starts: usize,
    pub(crate) refused: usize,
}

impl Worker {
    pub(crate) fn new(name: &str, ledger: u128, gpus: i64, clock: Arc<dyn Clock>) -> Self {
        let config = AgentConfig {
            cluster: name.into(),
            runner: RunnerKind::Simulated,
            guarded: true,
            located: None,
            boot: 1,
            replacement_wait: Millis(0),
            holds: HoldSettings::default(),
            managed: ManagedResources::default(),
            planted: Planted::NONE,
        };
        let (mut agent, _) = Agent::start(config, Durable::new(LedgerId(ledger)), Vec::new(), 1, clock.now());
        let node = NodeSpec {
            name: format!("{name}-1"),
            capacity: Amounts::from([(GPU.into(), gpus)]),
            ..NodeSpec::default()
        };
        agent.apply(clock.now(), AgentInput::Nodes { nodes: vec![node], pools: Vec::new() });
        Self { name: name.into(), agent, clock, runs: Vec::new(), starts: 0, refused: 0 }
    }

    pub(crate) fn compose(&mut self, lane: Lane) -> meridian_shared::protocol::SyncRequest {
        let tick = self.agent.apply(self.clock.now(), AgentInput::Tick);
        self.perform(tick.into_effects());
        self.agent.compose(self.clock.now(), lane)
    }

    /// One sync. Fails if the manager is unavailable.
    pub(crate) async fn exchange(&mut self, handle: &Handle) -> Result<(), Unavailable> {
        let request = self.compose(Lane::News);
        let input = Input::Sync { cluster: self.name.clone(), request: Box::new(request), may_park: false };
        match handle.ask(input).await? {
            Reply::Sync(answer) => self.receive(answer),
            other => panic!("not answered: {other:?}"),
        }
        Ok(())
    }

    pub(crate) fn receive(&mut self, answer: Box<SyncAnswer>) {
        self.refused += usize::from(matches!(*answer, SyncAnswer::Refused(_)));
        let out = self.agent.apply(self.clock.now(), AgentInput::Answer(answer));
        self.perform(out.into_effects());
        self.agent.check().unwrap();
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let event = match effect {
                Effect::Start(s) => {
                    assert!(!self.runs.iter().any(|(uid, _)| *uid == s.uid), "twice");
                    self.runs.push((s.uid, s.fence));
                    self.starts += 1;
                    RunnerEvent::Running { uid: s.uid, fence: s.fence }
                }
                Effect::Stop { uid, fence } => {
                    self.runs.retain(|run| *run != (uid, fence));
                    RunnerEvent::Ended {
                        uid,
                        fence,
                        result: EndResult::Stopped,
                        pod_failures: 0,
                        ran: Millis(1),
                    }
                }
                _ => continue,
            };
            let more = self.agent.apply(self.clock.now(), AgentInput::Runner(event));
            self.perform(more.into_effects());
        }
    }

    /// Ends all running gangs with success.
    pub(crate) fn finish(&mut self) {
        for (uid, fence) in std::mem::take(&mut self.runs) {
            let ended = RunnerEvent::Ended {
                uid,
                fence,
                result: EndResult::Succeeded,
                pod_failures: 0,
                ran: Millis(1),
            };
            let out = self.agent.apply(self.clock.now(), AgentInput::Runner(ended));
            self.perform(out.into_effects());
        }
    }

    /// Syncs until `holds` is true.
    pub(crate) async fn until(&mut self, handle: &Handle, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let started = Instant::now();
        while !holds(self) {
            assert!(started.elapsed() < DEADLINE, "timeout: {what}");
            // an unavailable manager refuses at once, so the exchange is repeated
            if self.exchange(handle).await.is_err() {
                tokio::task::yield_now().await;
            }
        }
    }
}
