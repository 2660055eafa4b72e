//! Runs the watches and the workers, and stops them.

mod acting;
mod holds;
mod hosting;

use crate::copies::{self, CopyReader};
use crate::decide::{self, Action, Memory, Next, Pair};
use crate::events::{self, EventText};
use crate::hosting::Hosting;
use crate::perform::{NotDone, Performer};
use crate::queue::{Queue, STUBBORN};
use crate::resources::{self, Flow, Resource};
use crate::sides::{News, ObjectKey, Side, Sides};
use crate::webhook::{self, WebhookSettings};
use futures::{StreamExt as _, TryStreamExt as _};
use holds::Unwatched;
use kube::api::{DynamicObject, TypeMeta};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use meridian_kubernetes::election::Leader;
use meridian_kubernetes::{Connection, ConnectionSettings, Error};
use meridian_objects::Kind;
use meridian_objects::job::QUEUE_LABEL;
use meridian_shared::protocol::ReferenceKind;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use acting::{Absences, Installation};

/// Number of objects that are processed at the same time.
const WORKERS: usize = 16;
/// Number of objects in one page of a list.
const PAGE: u32 = 500;
/// How often the manager looks for kinds that the management cluster didn't serve before.
const KINDS_EVERY: Duration = Duration::from_secs(30);
/// Pause before a job is tried again while settings are still being written to the manager.
const SETTINGS_WAIT: Duration = Duration::from_millis(50);
/// How often the webhook's configuration is written again, in case somebody changed it.
const WEBHOOK_EVERY: Duration = Duration::from_secs(60);
/// How often the controller looks whether the manager doubts its rules.
const RULES_EVERY: Duration = Duration::from_secs(2);
/// How often a repeated failure of a watch is logged.
const LOG_AGAIN: Duration = Duration::from_secs(60);

/// Settings of the management cluster to connect to, and of the Lease to hold there.
#[derive(Clone, Debug)]
pub struct ManagementSettings {
    pub connection: ConnectionSettings,
    /// Name of the Lease, whose holder is the one manager that acts.
    pub lease: String,
    /// Kinds of objects that worker clusters may get copies of.
    pub copied: BTreeSet<ReferenceKind>,
}

/// Optional duties of the controllers.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// The validating webhook, by which API servers ask the manager before they store a job.
    pub webhook: Option<WebhookSettings>,
    /// The manager runs the agents of MultiKueueClusters in its own process.
    pub hosting: Option<Hosting>,
}

/// A checked connection to the management cluster.
#[derive(Clone, Debug)]
pub struct Management {
    connection: Connection,
    settings: ManagementSettings,
}

impl Management {
    /// Connects. Fails if the settings can't be used, the server doesn't answer or is too old, or a
    /// permission is missing.
    pub async fn open(settings: ManagementSettings) -> Result<Self, Error> {
        let connection = Connection::open(&settings.connection, &crate::MANAGER).await?;
        tracing::info!(
            server = connection.server(),
            version = connection.version(),
            "connected to the management cluster"
        );
        connection.check_permissions(&copies::permissions(&settings.copied)).await?;
        Ok(Self { connection, settings })
    }

    /// The URL of the API server, for messages.
    pub fn server(&self) -> &str {
        self.connection.server()
    }

    /// Identity of the cluster, if it has one. Fails if the API server refuses or doesn't answer.
    pub async fn cluster_uid(&self) -> Result<Option<String>, Error> {
        self.connection.cluster_uid().await
    }

    /// Reads the objects that worker clusters may get copies of; `None` if nothing is copied.
    pub fn copies(&self) -> Option<CopyReader> {
        let kinds = self.settings.copied.clone();
        (!kinds.is_empty()).then(|| CopyReader::new(self.connection.client.clone(), kinds))
    }
}

/// State that the watches and the workers share.
struct Shared {
    performer: Performer,
    leader: Leader,
    sides: Mutex<Sides>,
    resources: Mutex<BTreeMap<Kind, Arc<Resource>>>,
    memories: Mutex<BTreeMap<ObjectKey, Kept>>,
    queue: Queue,
    unwatched: Mutex<Unwatched>,
}

/// Earlier writes for an object, with their times.
#[derive(Clone, Debug, Default)]
struct Kept {
    memory: Memory,
    sent_at: Option<Instant>,
    applied_at: Option<Instant>,
    status_at: Option<Instant>,
    explained_at: Option<Instant>,
    refused_at: Option<Instant>,
    first_look: Option<Instant>,
    /// The last refusal that was reported, so that each is reported once.
    refusal: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn new(performer: Performer, leader: Leader) -> Self {
        Self {
            performer,
            leader,
            sides: Mutex::default(),
            resources: Mutex::default(),
            memories: Mutex::default(),
            queue: Queue::default(),
            unwatched: Mutex::default(),
        }
    }

    /// Follows every kind that both sides serve, and looks for more of them from time to time.
    async fn follow_kinds(self: Arc<Self>, cluster: Client, manager: Client) {
        let mut tasks = JoinSet::new();
        loop {
            match resources::served(&cluster).await {
                Ok(served) => {
                    for resource in served {
                        let resource = Arc::new(resource);
                        let is_new = !lock(&self.resources).contains_key(&resource.kind);
                        if !is_new {
                            continue;
                        }
                        tracing::info!(
                            kind = resource.kind.name(),
                            version = resource.api.version,
                            "following"
                        );
                        lock(&self.resources).insert(resource.kind, Arc::clone(&resource));
                        for (side, client) in [(Side::Cluster, &cluster), (Side::Manager, &manager)] {
                            // the cluster has no PodGroup objects, only pods of groups
                            if side == Side::Cluster && resource.flow == Flow::Group {
                                continue;
                            }
                            tasks.spawn(Arc::clone(&self).follow(
                                side,
                                client.clone(),
                                Arc::clone(&resource),
                            ));
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, "the kinds of the management cluster are not known"),
            }
            tokio::time::sleep(KINDS_EVERY).await;
        }
    }

    /// Follows one kind on one side, without end.
    async fn follow(self: Arc<Self>, side: Side, client: Client, resource: Arc<Resource>) {
        let api: Api<DynamicObject> = Api::all_with(client, &resource.api);
        let config = Config::default().page_size(PAGE);
        let config = match (side, resource.kind) {
            // only pods with a queue: most pods have none, and kubelets write their statuses often
            (Side::Cluster, Kind::Pod) => config.labels(QUEUE_LABEL),
            _ => config,
        };
        let watch = || watcher(api.clone(), config.clone()).default_backoff().boxed();
        let is_rule = side == Side::Cluster && holds::is_rule(resource.kind);
        // jobs wait until these kinds have been listed
        let is_awaited = side == Side::Cluster && matches!(resource.flow, Flow::Settings | Flow::Workload);
        let mut events = watch();
        let mut logged: Option<Instant> = None;
        loop {
            match events.try_next().await {
                Ok(Some(event)) => {
                    logged = None;
                    if let Some(news) = news(event, &resource) {
                        if is_awaited && !matches!(news, News::ListBegins | News::Listed(_)) {
                            lock(&self.unwatched).works(resource.kind);
                        }
                        // Both under one lock, so that a list doesn't look complete before its objects are
                        // queued.
                        let mut sides = lock(&self.sides);
                        self.queue.push(sides.take(side, resource.kind, news));
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    if logged.is_none_or(|at| at.elapsed() >= LOG_AGAIN) {
                        logged = Some(Instant::now());
                        let kind = resource.kind.name();
                        let side = side.name();
                        tracing::warn!(side, kind, %error, "can't be watched: the last known state is used");
                    }
                    if is_awaited {
                        lock(&self.unwatched).failed(resource.kind, error.to_string());
                    }
                    if is_rule {
                        // A watch that continues reports nothing until something changes, but a new watch
                        // starts with a list.
                        tokio::time::sleep(RULES_EVERY).await;
                        events = watch();
                    }
                }
            }
        }
    }

    /// Processes objects, one after the other.
    async fn work(self: Arc<Self>) {
        loop {
            let key = self.queue.take().await;
            // Yield, because thousands of objects that need no write would block other tasks of this thread.
            tokio::task::yield_now().await;
            match self.look(&key).await {
                Ok(again) => self.queue.done(key, again),
                Err(error) => {
                    let object = key.to_string();
                    let failures = self.queue.failed(key.clone());
                    if failures == STUBBORN && holds::is_rule(key.kind) && self.leader.is_fresh() {
                        self.tell_of_stuck(&key, &error).await;
                    }
                    if failures == 1 || failures.is_multiple_of(10) {
                        tracing::warn!(
                            object,
                            error,
                            failures,
                            "an object doesn't match the management cluster yet: trying again"
                        );
                    }
                }
            }
        }
    }

    /// Makes all writes that an object needs now. Returns when to look again.
    async fn look(&self, key: &ObjectKey) -> Result<Option<Duration>, String> {
        let Some(resource) = lock(&self.resources).get(&key.kind).cloned() else { return Ok(None) };
        let Some(view) = lock(&self.sides).view(key) else { return Ok(None) };
        let memory = self.memory(key, resource.flow);
        let pair = Pair {
            cluster: view.cluster.as_deref(),
            manager: view.manager.as_deref(),
            members: &view.members,
            group: view.group.as_deref(),
            existed: view.existed,
            is_stopped: view.is_stopped,
            awaits_job: view.awaits_job,
        };
        let action = match decide::next(&resource, pair, &memory) {
            Next::Nothing => {
                if pair.is_empty() {
                    lock(&self.memories).remove(key);
                }
                return Ok(None);
            }
            Next::LookIn(pause) => return Ok(Some(pause)),
            Next::Do(action) => action,
        };
        if !self.leader.is_fresh() {
            return Err("the Lease may be another manager's".to_owned());
        }
        let is_job = matches!(resource.flow, Flow::Job | Flow::Group);
        let is_submission = is_job && matches!(action, Action::Submit { .. });
        if is_submission && let Some(hold) = self.hold_of(key) {
            return Ok(Some(self.hold(key, hold, pair, &memory).await));
        }
        match self.performer.perform(&resource, key, &action).await {
            Ok(()) => {
                self.remember(key, &action);
                self.tell(&action, pair).await;
                // writes of an unchanged object or an event trigger no watch event; all other writes do
                let is_silent = matches!(action, Action::Change { .. } | Action::Explain { .. });
                Ok(is_silent.then_some(Duration::ZERO))
            }
            Err(NotDone::Later(error)) => Err(error),
            Err(NotDone::Refused(error))
                if !memory.start_is_fixed && decide::changes_start(&action, pair.cluster) =>
            {
                tracing::debug!(object = %key.name, error, "the job keeps the start time that it has");
                lock(&self.memories).entry(key.clone()).or_default().memory.start_is_fixed = true;
                Ok(Some(Duration::ZERO))
            }
            Err(NotDone::Refused(error)) => {
                // a job whose change is refused still gets its status
                let change = match &action {
                    Action::Change { manifest } if is_job => Some(decide::fingerprint(manifest)),
                    _ => None,
                };
                if self.is_new_refusal(key, change, &error) {
                    self.write_events(pair, &events::of_refusal(&error)).await;
                }
                change.map(|_| Some(Duration::ZERO)).ok_or(error)
            }
        }
    }

    /// Notes a refusal. `change` is the fingerprint of the refused manifest of a changed job. Returns whether
    /// the refusal hasn't been reported yet.
    fn is_new_refusal(&self, key: &ObjectKey, change: Option<u64>, error: &str) -> bool {
        let mut memories = lock(&self.memories);
        let kept = memories.entry(key.clone()).or_default();
        let Some(change) = change else {
            return std::mem::replace(&mut kept.refusal, error.to_owned()) != error;
        };
        kept.refused_at = Some(Instant::now());
        kept.memory.refused.replace((change, Duration::ZERO)).is_none_or(|(before, _)| before != change)
    }

    /// Earlier writes for an object, with the time since each.
    fn memory(&self, key: &ObjectKey, flow: Flow) -> Memory {
        let mut memories = lock(&self.memories);
        if flow == Flow::Group {
            memories.entry(key.clone()).or_default().first_look.get_or_insert_with(Instant::now);
        }
        let kept = memories.get(key).cloned().unwrap_or_default();
        let aged = |known: Option<(u64, Duration)>, at: Option<Instant>| {
            known.zip(at).map(|((hash, _), at)| (hash, at.elapsed()))
        };
        Memory {
            sent: aged(kept.memory.sent, kept.sent_at),
            applied: aged(kept.memory.applied, kept.applied_at),
            status: aged(kept.memory.status, kept.status_at),
            explained: aged(kept.memory.explained, kept.explained_at),
            known: kept.first_look.map(|at| at.elapsed()).unwrap_or_default(),
            start_is_fixed: kept.memory.start_is_fixed,
            refused: aged(kept.memory.refused, kept.refused_at),
        }
    }

    /// Keeps the webhook registered, so that the API server asks this manager about jobs.
    async fn keep_webhook(self: Arc<Self>, webhook: WebhookSettings) {
        let mut is_set = false;
        loop {
            let wanted = webhook::configuration(&webhook, &lock(&self.resources));
            let pause = if wanted.is_some() { WEBHOOK_EVERY } else { RULES_EVERY };
            if let Some(object) = wanted.filter(|_| self.leader.is_fresh()) {
                match self.performer.apply_webhook(&object).await {
                    Ok(()) if is_set => {}
                    Ok(()) => {
                        is_set = true;
                        tracing::info!("the cluster's API server asks before it stores a job");
                    }
                    Err(error) => tracing::warn!(error, "the admission webhook could not be set up"),
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn remember(&self, key: &ObjectKey, action: &Action) {
        let mut memories = lock(&self.memories);
        let kept = memories.entry(key.clone()).or_default();
        kept.refusal.clear();
        match action {
            Action::Submit { manifest, .. } | Action::Change { manifest } => {
                kept.memory.sent = Some((decide::fingerprint(manifest), Duration::ZERO));
                kept.sent_at = Some(Instant::now());
                kept.memory.refused = None;
            }
            Action::ApplyWorkload { object } | Action::CreateWorkload { object } => {
                kept.memory.applied = Some((decide::fingerprint(object), Duration::ZERO));
                kept.applied_at = Some(Instant::now());
            }
            Action::WriteStatus { status } => {
                kept.memory.status = Some((decide::fingerprint(status), Duration::ZERO));
                kept.status_at = Some(Instant::now());
            }
            Action::Explain { text } => {
                kept.memory.explained =
                    Some((decide::fingerprint(&text.message.as_str().into()), Duration::ZERO));
                kept.explained_at = Some(Instant::now());
            }
            Action::Remove { .. } | Action::RemoveWorkload { .. } => *kept = Kept::default(),
            Action::SetActive(_) | Action::Deactivate { .. } => {}
        }
    }

    /// Writes the event that belongs to an action: an explanation, or a change of a Workload's status.
    async fn tell(&self, action: &Action, pair: Pair<'_>) {
        let text = match (action, pair.cluster) {
            (Action::Explain { text }, _) => Some(text.clone()),
            (Action::WriteStatus { status }, Some(object)) if object["kind"] == Kind::Workload.name() => {
                events::of_workload(&object["status"], status)
            }
            _ => None,
        };
        if let Some(text) = text {
            self.write_events(pair, &text).await;
        }
    }

    async fn write_events(&self, pair: Pair<'_>, text: &EventText) {
        for object in pair.subjects() {
            self.performer.event(object, text.clone()).await;
        }
    }
}

fn news(event: Event<DynamicObject>, resource: &Resource) -> Option<News> {
    let value = |mut object: DynamicObject| {
        // objects of a list lack apiVersion and kind
        object.types.get_or_insert_with(|| TypeMeta {
            api_version: resource.api.api_version.clone(),
            kind: resource.api.kind.clone(),
        });
        serde_json::to_value(object).ok()
    };
    Some(match event {
        Event::Init => News::ListBegins,
        Event::InitDone => News::ListEnds,
        Event::InitApply(object) => News::Listed(value(object)?),
        Event::Apply(object) => News::Applied(value(object)?),
        Event::Delete(object) => News::Deleted(value(object)?),
    })
}
