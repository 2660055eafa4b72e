//! The engine: one thread that owns the world and the journal, and everything others need to reach them.
//!
//! ```text
//!  many callers ──ask──▶ queue ──▶ select ─▶ apply ─┐  the engine's thread
//!                                  all that   the core │
//!                                  arrived    decides  ▼
//!                                                    commit ─▶ publish ─▶ reply   the scribe's thread
//!                                                    one sync   readers    callers
//!                                                    of records            and agents
//! ```
//!
//! What arrived is taken into one batch, for longer while the disk is busy, and one flush of it serves all of them. `Turn` (timers and one
//! scheduling pass) follows what arrived, and last come the answers to agents, parked polls among them: what a batch decides
//! leaves with it. What the room must not know: HTTP, TLS, or what any record means; decisions are the core's.
//!
//! | file | owns |
//! |---|---|
//! | `turns` | the loop: batches, timers, heartbeats |
//! | `pending` | what one batch will write, and whom it will answer |
//! | `scribe` | what follows a decision: the commit, readers, callers, counts |
//! | `leading` | how a leadership starts, and what follows a failed commit |
//! | `reads` | committed objects for readers and watchers |
//! | `publish` | which views changed, and the facts that they are made of |
//! | `bodies` | big bodies: the journal's, behind a bounded cache |
//! | `clock` | boot time and wall time |
//! | `calls` | syncs that wait for their answers, parked polls among them |
//! | `seen`, `dashboards` | metrics and traces, from committed facts |
//!
//! Invariants: nothing that a batch says leaves this room before its commit returned; one batch at most is under way while the
//! next is decided, which falls with it; a reader sees committed state only;
//! after a commit failed the world in memory is thrown away and read again from what is durable; an answer to a sync leaves
//! only while the claim is valid.

pub mod clock;

mod bodies;
mod calls;
mod dashboards;
mod leading;
mod pending;
mod publish;
mod reads;
mod scribe;
mod seen;
mod snapshots;
mod turns;

pub use reads::{Change, Event, Gone, Reads, View, Watch};

use crate::journal::mark::BootId;
use crate::journal::{self, Journal};
use crate::metrics::Metrics;
use bodies::BodyStore;
use clock::Clock;
use meridian_manager_core::Config;
use meridian_manager_core::facts::input::Input;
use meridian_manager_core::facts::outcome::Reply;
use meridian_shared::ids::ClusterName;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Inputs that may wait for the engine. A full queue is answered at once, so that callers back off instead of piling up.
pub const QUEUE_MAX: usize = 4_096;

/// How the journal that the engine gets came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// It was there before.
    Open,
    /// It was made just now, and whoever made it asserts that nothing ran before.
    Init,
    /// It was made just now in place of a lost one: what runs, and where, is unknown.
    InitRecover,
}

/// What an engine is started with.
#[derive(Debug)]
pub struct Options {
    /// For the core.
    pub config: Config,
    /// How the journal came to be.
    pub start: StartMode,
    /// Both clocks.
    pub clock: Arc<dyn Clock>,
    /// Where the mark goes (normally [`journal::mark::SHARED_MEMORY`]), with this boot's identity; `None` never takes the
    /// short cut.
    pub marks: Option<(PathBuf, BootId)>,
    /// What is counted.
    pub metrics: Metrics,
    /// Whether spans are exported; what they need is kept only then.
    pub traces: bool,
}

/// Why the engine can't start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal can't be used.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// What the journal holds isn't understood.
    #[error(
        "the journal can't be replayed: {0}; use the version that wrote it, or bring a copy back with `journal restore`"
    )]
    Replay(String),
    /// Somebody else wrote.
    #[error(
        "another process has written to the journal: this manager no longer leads; stop the other one, then start this one again"
    )]
    Foreign,
    /// The system's random source failed.
    #[error("the system's random source failed: {0}")]
    Random(String),
    /// The thread can't be made.
    #[error("the engine's thread can't be started")]
    Thread(#[source] std::io::Error),
    /// The thread panicked: a bug of ours.
    #[error("the engine's thread broke down; its log says why")]
    Broken,
}

/// Why there is no reply. To be answered with 503, and with `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// No leadership yet, or none at the moment.
    #[error("the manager doesn't lead yet, or not at the moment: try again in a few seconds")]
    NotLeading,
    /// It is going away.
    #[error("the manager is shutting down: try again in a moment")]
    Stopping,
    /// An agent has one poll.
    #[error("a newer poll of this agent took this one's place")]
    Replaced,
    /// The queue is full.
    #[error("the manager has more requests than it can take: try again in a moment")]
    Busy,
    /// The commit failed.
    #[error("the change could not be made durable: it is most likely not made; try again in a moment")]
    NotCommitted,
    /// The disk is full.
    #[error(
        "the disk of the manager's journal is full: new work is refused while ends and deletions are taken; free some space on it and try again"
    )]
    Full,
}

/// What reaches the engine's thread.
#[derive(Debug)]
enum Message {
    Ask { input: Box<Input>, reply: oneshot::Sender<Result<Reply, Unavailable>> },
    Explain { namespace: String, name: String, reply: oneshot::Sender<Option<serde_json::Value>> },
    Recovery { reply: oneshot::Sender<serde_json::Value> },
    PollOver { cluster: ClusterName, transmission: u64 },
    Stop,
}

/// What the thread and its callers share.
#[derive(Debug)]
struct Shared {
    reads: Reads,
    metrics: Metrics,
    leading: watch::Sender<bool>,
    bodies: Arc<BodyStore>,
}

impl Shared {
    /// Says whether this manager leads from now on; returns what was said before.
    fn lead(&self, leads: bool) -> bool {
        self.leading.send_replace(leads)
    }
}

/// A way to the engine; clones are ways to the same one.
#[derive(Clone, Debug)]
pub struct Handle {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
}

impl Handle {
    /// Asks, and waits for the commit of whatever follows.
    pub async fn ask(&self, input: Input) -> Result<Reply, Unavailable> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Ask { input: Box::new(input), reply })?;
        answer.await.unwrap_or(Err(Unavailable::Stopping))
    }

    /// Where a job is and why, on committed state; `None` when there is no such job.
    pub async fn explain(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<serde_json::Value>, Unavailable> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Explain { namespace: namespace.to_owned(), name: name.to_owned(), reply })?;
        // Who doesn't lead lets go of it.
        answer.await.map_err(|_| Unavailable::NotLeading)
    }

    /// Whether recovery is open, what it waits for, orphans, and whether rules are doubted. Null while the engine can't say.
    pub async fn recovery(&self) -> serde_json::Value {
        let (reply, answer) = oneshot::channel();
        match self.send(Message::Recovery { reply }) {
            Ok(()) => answer.await.unwrap_or_default(),
            Err(_) => serde_json::Value::Null,
        }
    }

    /// Committed objects.
    pub fn reads(&self) -> &Reads {
        &self.shared.reads
    }

    /// Committed audit lines and bodies.
    pub fn journal(&self) -> Arc<dyn journal::Reader> {
        self.shared.bodies.reader()
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Whether this manager leads: for readiness, not for decisions.
    pub fn leading(&self) -> bool {
        *self.shared.leading.borrow()
    }

    /// Returns as soon as this manager leads; waits for ever where it doesn't come to that.
    pub async fn led(&self) {
        // The sender lives in what this handle shares.
        let _ = self.shared.leading.subscribe().wait_for(|leads| *leads).await;
    }

    /// A poll was parked for long enough: it is answered with whatever there is.
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
    queue: SyncSender<Message>,
    ended: CancellationToken,
}

impl Running {
    /// Cancelled when the thread has ended, asked or not.
    pub fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// Lets what has arrived be committed, then ends. Blocks until then.
    pub fn stop(self) -> Result<(), Error> {
        // Waits while the queue is full; a thread that is gone needs no telling.
        let _ = self.queue.send(Message::Stop);
        self.thread.join().unwrap_or(Err(Error::Broken))
    }
}

/// Reads the journal and starts the engine's thread. Blocks while it replays; a wait for claims of a predecessor to expire
/// is spent in the thread, where callers get [`Unavailable::NotLeading`].
pub fn start(journal: Box<dyn Journal>, options: Options) -> Result<(Handle, Running), Error> {
    let (queue, inbox) = sync_channel(QUEUE_MAX);
    // The lock is held from here on, so what the mark shows now stays true however long the replay takes.
    let vouched = leading::is_vouched_for(&*journal, &options);
    let world = leading::load(&*journal, options.config.clone())?;
    let bodies = Arc::new(BodyStore::new(journal.reader()));
    let shared = Arc::new(Shared {
        reads: Reads::new(Arc::clone(&bodies), world.state.last),
        metrics: options.metrics.clone(),
        leading: watch::channel(false).0,
        bodies,
    });
    let ended = CancellationToken::new();
    let mut engine = turns::Engine::new(journal, world, inbox, Arc::clone(&shared), options, vouched)?;
    // What is committed can be read from the first moment on.
    engine.publish_all();
    let on_end = ended.clone();
    let run = move || {
        // Also where the thread panics.
        let _told = on_end.drop_guard();
        let shared = engine.shared();
        let result = engine.run();
        shared.lead(false);
        if let Err(error) = &result {
            tracing::error!(%error, "the engine ended");
        }
        result
    };
    let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(run).map_err(Error::Thread)?;
    Ok((Handle { queue: queue.clone(), shared }, Running { thread, queue, ended }))
}
