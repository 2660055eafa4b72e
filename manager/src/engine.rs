//! The engine: one thread that owns the world, a second thread that commits, and the handles by which other
//! code reaches them.
//!
//! ```text
//!  many callers ──ask──▶ queue ──▶ select ─▶ apply ─┐  the engine's thread
//!                                  all that   the core │
//!                                  arrived    decides  ▼
//!                                                    commit ─▶ publish ─▶ reply   the committer's thread
//!                                                    one sync   readers    callers
//!                                                    of records            and agents
//! ```
//!
//! All inputs that have arrived go into one batch, so that one sync of the disk serves all of them. While the
//! disk is busy, a batch collects inputs for longer. Then `Turn` is applied (timers and one scheduling pass).
//! Answers to agents come last, including parked polls, so that they carry the decisions of the batch. The
//! engine must not know HTTP, TLS, or what a record means: the core decides. Everything that needs neither
//! threads nor clocks is in [`host`](crate::host), which the simulator drives too.
//!
//! | file | owns |
//! |---|---|
//! | `turns` | the loop: batches, timers, heartbeats |
//! | `queries` | answers to questions about committed state |
//! | `inputs` | how inputs are distinguished before they are applied |
//! | `periodic` | when to repeat a periodic task |
//! | `committer` | what follows a decision: the commit, readers, callers, counts |
//! | `leading` | the waits around a leadership's start and a reload |
//! | `reads` | committed objects for readers and watchers |
//! | `publish` | which objects changed, in the form that `reads` stores |
//! | `scrub` | slow reads of everything stored, to find damage |
//! | `health` | what is wrong although this manager leads |
//! | `bodies` | large bodies: in the journal, behind a bounded cache |
//! | `clock` | boot time and wall time |
//! | `snapshots` | when a snapshot is due, and its encoding |
//! | `telemetry`, `dashboards` | metrics and traces, from committed facts |
//!
//! Invariants:
//! - No result of a batch leaves the engine before its commit returned.
//! - While one batch is being committed, the next one is decided. If the commit fails, both are dropped.
//! - A reader sees committed state only.
//! - After a failed commit, the world in memory is dropped and read again from the journal.
//! - An answer to a sync leaves only while the claim is valid.

pub mod clock;

mod bodies;
mod committer;
mod dashboards;
mod event_log;
mod fleet_gauges;
mod health;
mod inputs;
mod leading;
mod periodic;
mod publish;
mod queries;
mod races;
mod reads;
mod scrub;
mod shared_mark;
mod snapshots;
mod telemetry;
mod turns;

pub use crate::host::leadership::StartMode;
pub use crate::host::replies::Unavailable;
pub use reads::{Gone, Listing, Reads, View, Watch, WatchEvent, WatchEventType};

use crate::host::replay::{self, ReplayError};
use crate::journal::mark::BootId;
use crate::journal::{self, AuditCut, Journal};
use crate::metrics::Metrics;
use crate::random;
use bodies::BodyStore;
use clock::Clock;
use health::Health;
use meridian_manager_core::Config;
use meridian_manager_core::facts::input::Input;
use meridian_manager_core::facts::outcome::Reply;
use meridian_shared::ids::ClusterName;
use meridian_views::asker::Asker;
use scrub::ScrubThread;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Most inputs that wait for the engine. Inputs for a full queue are refused at once, so that callers back
/// off instead of piling up.
pub const QUEUE_MAX: usize = 4_096;

/// The parameters of [`start`].
#[derive(Debug)]
pub struct Options {
    pub config: Config,
    pub start: StartMode,
    pub clock: Arc<dyn Clock>,
    /// Directory of the mark (normally [`journal::mark::SHARED_MEMORY`]) and the id of this boot. With
    /// `None`, every start waits for an earlier claim to expire.
    pub marks: Option<(PathBuf, BootId)>,
    pub metrics: Metrics,
    /// Whether spans are exported. The state that they need is kept only then.
    pub traces: bool,
}

/// Why the engine can't start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(
        "another process has written to the journal: this manager no longer leads; stop the other one, then \
         start this one again"
    )]
    Foreign,
    #[error(transparent)]
    Random(#[from] random::Error),
    #[error("the engine's thread can't be started")]
    Thread(#[source] std::io::Error),
    /// The engine's thread panicked, which is a bug.
    #[error("the engine's thread stopped unexpectedly; see the log")]
    Broken,
}

/// The caller that waits for a reply.
type Caller = oneshot::Sender<Result<Reply, Unavailable>>;

/// A message to the engine's thread.
#[derive(Debug)]
enum Message {
    Ask {
        input: Box<Input>,
        reply: Caller,
    },
    Explain {
        namespace: String,
        name: String,
        asker: Asker,
        reply: oneshot::Sender<Option<serde_json::Value>>,
    },
    Recovery {
        asker: Asker,
        reply: oneshot::Sender<serde_json::Value>,
    },
    CutAudit(PendingCut),
    PollOver {
        cluster: ClusterName,
        transmission: u64,
    },
    Stop,
}

/// A cut of the audit log that waits for a commit. A dropped channel tells the caller that it failed.
#[derive(Debug)]
struct PendingCut {
    cut: AuditCut,
    done: oneshot::Sender<()>,
}

/// State that the engine's threads and its handles share.
#[derive(Debug)]
struct Shared {
    reads: Reads,
    metrics: Metrics,
    leading: watch::Sender<bool>,
    bodies: Arc<BodyStore>,
    health: Health,
}

impl Shared {
    /// Sets whether this manager leads; returns the previous value.
    fn lead(&self, leads: bool) -> bool {
        self.leading.send_replace(leads)
    }
}

/// Access to the engine. Clones share the engine.
#[derive(Clone, Debug)]
pub struct Handle {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
}

impl Handle {
    /// Applies `input`, and returns the reply after the commit that it depends on.
    ///
    /// # Errors
    /// If this manager doesn't lead, is overloaded or stopping, or the commit failed.
    pub async fn ask(&self, input: Input) -> Result<Reply, Unavailable> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Ask { input: Box::new(input), reply })?;
        answer.await.unwrap_or(Err(Unavailable::Stopping))
    }

    /// Explains the state of a job, from committed state; `None` if there is no such job.
    ///
    /// # Errors
    /// If this manager doesn't lead, is overloaded or is stopping.
    pub async fn explain(
        &self,
        namespace: &str,
        name: &str,
        asker: Asker,
    ) -> Result<Option<serde_json::Value>, Unavailable> {
        let (reply, answer) = oneshot::channel();
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.send(Message::Explain { namespace, name, asker, reply })?;
        // an engine that doesn't lead drops the sender
        answer.await.map_err(|_| Unavailable::NotLeading)
    }

    /// Commits a cut of the audit log. If that fails, the cut may be durable or not.
    ///
    /// # Errors
    /// If this manager doesn't lead, is overloaded or stopping, the disk is full, or the commit failed.
    pub async fn cut_audit(&self, cut: AuditCut) -> Result<(), Unavailable> {
        let (done, committed) = oneshot::channel();
        self.send(Message::CutAudit(PendingCut { cut, done }))?;
        committed.await.map_err(|_| Unavailable::NotCommitted)
    }

    /// Whether recovery is open, what it waits for, orphans, and whether rules are in doubt. Null if
    /// unavailable.
    pub async fn recovery(&self, asker: Asker) -> serde_json::Value {
        let (reply, answer) = oneshot::channel();
        match self.send(Message::Recovery { asker, reply }) {
            Ok(()) => answer.await.unwrap_or_default(),
            Err(_) => serde_json::Value::Null,
        }
    }

    pub fn reads(&self) -> &Reads {
        &self.shared.reads
    }

    /// Reads committed audit lines and bodies.
    pub fn journal(&self) -> Arc<dyn journal::Reader> {
        self.shared.bodies.reader()
    }

    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Whether this manager leads. For readiness checks only, not for decisions.
    pub fn leading(&self) -> bool {
        *self.shared.leading.borrow()
    }

    /// Problems of a manager that leads: a full disk, damage. One line each.
    pub fn problems(&self) -> Vec<String> {
        self.shared.health.problems()
    }

    /// Reports the segments of the audit log that can't be verified, by number, and whether the statement on
    /// removed ones is damaged.
    pub fn report_segments(&self, damaged: BTreeSet<u64>, statement_damaged: bool) {
        self.shared.health.set_segments(damaged, statement_damaged);
    }

    /// Explains why this manager doesn't lead, and what continues without a leader.
    pub fn pause(&self) -> String {
        self.shared.health.pause()
    }

    /// Work that a healthy leader holds back, and the events that it waits for. One line each.
    pub fn holds(&self) -> Vec<String> {
        self.shared.health.holds()
    }

    /// Waits until this manager leads, without a time limit.
    pub async fn led(&self) {
        // the sender is in `shared`, so it outlives this call
        let _ = self.shared.leading.subscribe().wait_for(|leads| *leads).await;
    }

    /// Ends a parked poll, which is answered at once. Fails if the engine is overloaded or stopping.
    pub fn end_poll(&self, cluster: &ClusterName, transmission: u64) -> Result<(), Unavailable> {
        self.send(Message::PollOver { cluster: cluster.clone(), transmission })
    }

    fn send(&self, message: Message) -> Result<(), Unavailable> {
        self.queue.try_send(message).map_err(|error| match error {
            TrySendError::Full(_) => Unavailable::Busy,
            TrySendError::Disconnected(_) => Unavailable::Stopping,
        })
    }
}

/// A running engine.
#[derive(Debug)]
pub struct Running {
    thread: JoinHandle<Result<(), Error>>,
    queue: Arc<SyncSender<Message>>,
    ended: CancellationToken,
    scrub: ScrubThread,
}

impl Running {
    /// Cancelled when the thread has ended, for whatever reason.
    pub fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// Commits all inputs that have arrived, then ends the thread. Blocks until then. Fails if the engine had
    /// failed.
    pub fn stop(self) -> Result<(), Error> {
        // waits while the queue is full; a thread that has ended needs no message
        let _ = self.queue.send(Message::Stop);
        let result = self.thread.join().unwrap_or(Err(Error::Broken));
        self.scrub.stop();
        result
    }
}

/// Reads the journal and starts the engine's thread. Blocks during replay. The thread then waits until a
/// predecessor's claim has expired; meanwhile callers get [`Unavailable::NotLeading`].
///
/// # Errors
/// If the journal can't be read or replayed, or a thread can't be started.
pub fn start(mut journal: Box<dyn Journal>, options: Options) -> Result<(Handle, Running), Error> {
    let (queue, inbox) = sync_channel(QUEUE_MAX);
    // check the mark now: the journal is locked from here on, so the proof stays valid however long the
    // replay takes
    let vouched = shared_mark::is_vouched_for(&*journal, &options);
    if shared_mark::is_rolled_back(&*journal, &options) {
        tracing::warn!(
            "the journal is older than the last manager on this machine left it, so it is a restored copy"
        );
        journal.distrust();
    }
    let world = replay::replay(&*journal, options.config.clone())?;
    let bodies = Arc::new(BodyStore::new(journal.reader()));
    let (suspects, requests) = sync_channel(scrub::SUSPECTS_MAX);
    let shared = Arc::new(Shared {
        reads: Reads::new(Arc::clone(&bodies), world.state().last(), suspects.clone()),
        health: Health::new(options.metrics.clone()),
        metrics: options.metrics.clone(),
        leading: watch::channel(false).0,
        bodies,
    });
    let ended = CancellationToken::new();
    let mut engine = turns::Engine::new(journal, world, inbox, Arc::clone(&shared), options, vouched)?;
    // readers get committed state from the start
    engine.publish_all();
    let on_end = ended.clone();
    let run = move || {
        // cancels also if the thread panics
        let _cancel = on_end.drop_guard();
        let shared = engine.shared();
        let result = engine.run();
        shared.lead(false);
        if let Err(error) = &result {
            tracing::error!(%error, "the engine ended");
        }
        result
    };
    let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(run).map_err(Error::Thread)?;
    let handle = Handle { queue: queue.clone(), shared: Arc::clone(&shared) };
    let queue = Arc::new(queue);
    let scrub = ScrubThread::start(shared, Arc::downgrade(&queue), (suspects, requests), ended.clone())
        .map_err(Error::Thread)?;
    Ok((handle, Running { thread, queue, ended, scrub }))
}
