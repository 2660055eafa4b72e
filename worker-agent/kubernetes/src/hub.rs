//! The watches of one cluster, and the tasks that wait for their events.

use crate::connection;
use crate::error;
use crate::facts::{JobFacts, NodeFacts, PodFacts, RequestFacts, WorkloadFacts};
use crate::labels::{self, RunKey};
use crate::view::{Change, Touched, View};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch_objects};
use kube::{Api, Client};
use meridian_kubernetes::Connection;
use meridian_objects::job::JobKind;
use meridian_shared::ids::OfferId;
use meridian_shared::time::Wall;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

pub use crate::view::NodeSettings;

/// Number of objects in one page of a list.
const PAGE: u32 = 500;
/// Pause before the API server is asked again for a kind of jobs, after a failure.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Pause before the API server is asked again for a kind of jobs that the cluster lacked.
const ASK_FOR_KIND_AGAIN: Duration = Duration::from_secs(30);
/// A watch that fails again is logged this often.
const LOG_AGAIN: Duration = Duration::from_secs(60);

/// The state of the cluster as its watches show it, shared by the inventory and the runner.
#[derive(Debug)]
pub struct Hub {
    view: Mutex<View>,
    /// The cluster's name at the manager.
    cluster: String,
    /// The kinds of jobs that the cluster can't run, each with the reason.
    unavailable_kinds: watch::Sender<BTreeMap<String, String>>,
    inventory_changed: Notify,
    /// Nodes, pods or provisioning requests changed.
    provisioning_changed: Notify,
    holds_changed: Notify,
    /// Offers whose gang was started: its placeholder pods make room for it.
    granted: Mutex<BTreeSet<OfferId>>,
    bookings: Mutex<BTreeMap<OfferId, Booking>>,
    /// A list was completed.
    listed: Notify,
    touched: mpsc::UnboundedSender<RunKey>,
}

/// The nodes that were provisioned for an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Booking {
    /// Name of the provisioning request.
    pub(crate) request: String,
    pub(crate) class: String,
    /// The pod sets that the nodes are for.
    pub(crate) pod_sets: BTreeSet<String>,
    /// When the provider takes the nodes back, if they have a maximum run time.
    pub(crate) ends: Option<Wall>,
}

/// The attempts whose objects changed, for the runner.
pub type TouchedRuns = mpsc::UnboundedReceiver<RunKey>;

/// The resource `name` of the core group or of `group`, as the client needs it.
pub(crate) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// The resource of the objects that the agent creates and watches for jobs of a kind.
pub(crate) fn jobs(kind: &JobKind) -> ApiResource {
    let of = kind.cluster_kind();
    resource(of.group(), of.storage_version(), of.name(), of.plural())
}

/// The resource Pod of the core group.
pub(crate) fn pods() -> ApiResource {
    resource("", "v1", "Pod", "pods")
}

impl Hub {
    /// Starts the watches as tasks of `tasks`, and returns without waiting for their first lists.
    pub fn start(
        connection: &Connection,
        cluster: &str,
        settings: NodeSettings,
        tasks: &mut JoinSet<()>,
    ) -> (Arc<Self>, TouchedRuns) {
        let (touched, runs) = mpsc::unbounded_channel();
        let hub = Arc::new(Self {
            view: Mutex::new(View::new(settings)),
            cluster: cluster.to_owned(),
            unavailable_kinds: watch::channel(BTreeMap::new()).0,
            inventory_changed: Notify::new(),
            provisioning_changed: Notify::new(),
            holds_changed: Notify::new(),
            granted: Mutex::default(),
            bookings: Mutex::default(),
            listed: Notify::new(),
            touched,
        });
        let client = || connection.client.clone();
        for kind in JobKind::all() {
            tasks.spawn(Arc::clone(&hub).follow_jobs(connection.clone(), kind));
        }
        let all = watcher::Config::default();
        tasks.spawn(Arc::clone(&hub).follow(client(), pods(), all.clone(), |hub, change| {
            hub.view().apply_pod(mapped(without_ended(change), |pod| readable(pod, PodFacts::read(pod))))
        }));
        tasks.spawn(Arc::clone(&hub).follow(
            client(),
            resource("", "v1", "Node", "nodes"),
            all,
            |hub, change| {
                hub.view().apply_node(mapped(change, |node| readable(node, NodeFacts::read(node, now()))))
            },
        ));
        (hub, runs)
    }

    /// The kinds of jobs that the cluster can't run, by name, each with the reason.
    pub fn unavailable_kinds(&self) -> watch::Receiver<BTreeMap<String, String>> {
        self.unavailable_kinds.subscribe()
    }

    /// Follows the jobs of one kind that agents made. Asks for the kind until the cluster has it.
    async fn follow_jobs(self: Arc<Self>, connection: Connection, kind: &'static JobKind) {
        // The agent has the rights to this kind, or it would not have started.
        while kind.kind() != JobKind::usual().kind() {
            let (missing, pause) = match connection::lacks(&connection, kind).await {
                Ok(None) => break,
                Ok(Some(why)) => (Some(why), ASK_FOR_KIND_AGAIN),
                Err(error) => {
                    tracing::warn!(kind = kind.name(), %error, "a kind of jobs can't be asked for");
                    (None, ASK_AGAIN)
                }
            };
            if let Some(why) = missing {
                self.set_unavailable(kind, Some(why));
            }
            tokio::time::sleep(pause).await;
        }
        self.set_unavailable(kind, None);
        let ours = watcher::Config::default().labels(&labels::of_kind(labels::all(&self.cluster), kind));
        let client = connection.client.clone();
        self.follow(client, jobs(kind), ours, move |hub, change| {
            hub.view().apply_job(kind.kind(), mapped(change, |job| Some(JobFacts::read(kind, job))))
        })
        .await;
    }

    fn set_unavailable(&self, kind: &JobKind, why: Option<String>) {
        self.view().set_served(kind.kind(), why.is_none());
        self.unavailable_kinds.send_if_modified(|kinds| match why {
            Some(why) => kinds.insert(kind.name().to_owned(), why.clone()) != Some(why),
            None => kinds.remove(kind.name()).is_some(),
        });
        self.listed.notify_waiters();
    }

    /// The cluster's name at the manager.
    pub(crate) fn cluster(&self) -> &str {
        &self.cluster
    }

    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything was listed once.
    pub(crate) async fn complete(&self) {
        loop {
            let listed = self.listed.notified();
            if self.view().is_complete() {
                return;
            }
            listed.await;
        }
    }

    /// Waits for a change of the inventory.
    pub(crate) async fn inventory_changed(&self) {
        self.inventory_changed.notified().await;
    }

    /// Starts to watch the provisioning requests that agents made.
    pub(crate) fn watch_requests(
        self: &Arc<Self>,
        connection: &Connection,
        resource: ApiResource,
        tasks: &mut JoinSet<()>,
    ) {
        let ours = watcher::Config::default().labels(&labels::all(&self.cluster));
        let client = connection.client.clone();
        tasks.spawn(Arc::clone(self).follow(client, resource, ours, |hub, change| {
            hub.view().apply_request(mapped(change, |request| Some(RequestFacts::read(request))))
        }));
    }

    /// Waits until the provisioning requests were listed once.
    pub(crate) async fn requests_listed(&self) {
        loop {
            let listed = self.listed.notified();
            if self.view().requests().is_some() {
                return;
            }
            listed.await;
        }
    }

    /// Waits for a change of nodes, pods or provisioning requests.
    pub(crate) async fn provisioning_changed(&self) {
        self.provisioning_changed.notified().await;
    }

    /// Starts to watch the Workloads that agents made.
    pub(crate) fn watch_workloads(
        self: &Arc<Self>,
        connection: &Connection,
        resource: ApiResource,
        tasks: &mut JoinSet<()>,
    ) {
        let ours = watcher::Config::default().labels(&labels::all(&self.cluster));
        let client = connection.client.clone();
        tasks.spawn(Arc::clone(self).follow(client, resource, ours, |hub, change| {
            hub.view().apply_workload(mapped(change, |workload| Some(WorkloadFacts::read(workload))))
        }));
    }

    /// Waits until the Workloads were listed once.
    pub(crate) async fn workloads_listed(&self) {
        loop {
            let listed = self.listed.notified();
            if self.view().workloads_are_listed() {
                return;
            }
            listed.await;
        }
    }

    /// Waits for a change of what holds room.
    pub(crate) async fn holds_changed(&self) {
        self.holds_changed.notified().await;
    }

    fn granted(&self) -> MutexGuard<'_, BTreeSet<OfferId>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_granted(&self, offer: OfferId) {
        self.granted().insert(offer);
    }

    pub(crate) fn is_granted(&self, offer: OfferId) -> bool {
        self.granted().contains(&offer)
    }

    pub(crate) fn forget_granted(&self, offer: OfferId) {
        self.granted().remove(&offer);
    }

    /// The nodes that were provisioned, by offer.
    pub(crate) fn bookings(&self) -> MutexGuard<'_, BTreeMap<OfferId, Booking>> {
        self.bookings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows one kind of objects for ever. A watch that breaks starts again with a complete list.
    async fn follow(
        self: Arc<Self>,
        client: Client,
        resource: ApiResource,
        config: watcher::Config,
        apply: impl Fn(&Self, Change<&DynamicObject>) -> BTreeSet<Touched> + Send,
    ) {
        let api: Api<DynamicObject> = Api::all_with(client, &resource);
        // Lists in pages are of the server's current state. kube's streaming lists ask for any state of its
        // cache, and an object that such a list lacks may exist.
        let mut events = watch_objects(api, config.page_size(PAGE)).default_backoff().boxed();
        let mut logged: Option<Instant> = None;
        loop {
            match events.try_next().await {
                Ok(Some(event)) => {
                    let event = event.modify(|object| {
                        labels::disown_other(&mut object.metadata, &self.cluster);
                    });
                    if logged.take().is_some() {
                        tracing::info!(resource = resource.plural, "the API server answers again");
                    }
                    let is_listed = matches!(event, Event::InitDone);
                    self.notify(apply(&self, change(&event)));
                    if is_listed {
                        self.listed.notify_waiters();
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    if logged.is_none_or(|at| at.elapsed() >= LOG_AGAIN) {
                        logged = Some(Instant::now());
                        let error = watch_words(&error);
                        tracing::warn!(
                            resource = resource.plural,
                            error,
                            "the API server can't be watched: the last known state stays in use"
                        );
                    }
                }
            }
        }
    }

    fn notify(&self, touched: BTreeSet<Touched>) {
        for touched in touched {
            match touched {
                Touched::Inventory => {
                    self.inventory_changed.notify_one();
                    self.provisioning_changed.notify_one();
                }
                Touched::ProvisioningRequest => self.provisioning_changed.notify_one(),
                Touched::Hold => self.holds_changed.notify_one(),
                // Fails only when the runner was closed.
                Touched::Run(key) => drop(self.touched.send(key)),
            }
        }
    }
}

fn watch_words(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(e)
        | watcher::Error::WatchStartFailed(e)
        | watcher::Error::WatchFailed(e) => error::words(e),
        other => other.to_string(),
    }
}

fn change(event: &Event<DynamicObject>) -> Change<&DynamicObject> {
    match event {
        Event::Init => Change::ListBegins,
        Event::InitApply(object) => Change::Listed(object),
        Event::InitDone => Change::ListEnds,
        Event::Apply(object) => Change::Applied(object),
        Event::Delete(object) => Change::Deleted(object),
    }
}

/// Leaves out ended pods of other workloads before they are read: they use nothing, and a cluster may keep
/// thousands of them. Ended pods of gangs and of holds stay, since their ends are reported.
fn without_ended(change: Change<&DynamicObject>) -> Change<&DynamicObject> {
    let is_left_out = |pod: &DynamicObject| {
        let phase = pod.data.pointer("/status/phase").and_then(Value::as_str);
        let is_own =
            |all: &BTreeMap<String, String>| labels::run_of(all).is_some() || labels::hold_of(all).is_some();
        matches!(phase, Some("Succeeded" | "Failed")) && !pod.metadata.labels.as_ref().is_some_and(is_own)
    };
    match change {
        Change::Listed(pod) if is_left_out(pod) => Change::Nothing,
        Change::Applied(pod) if is_left_out(pod) => Change::Deleted(pod),
        other => other,
    }
}

/// An event with its object read. An object that can't be read is left out, which was logged.
fn mapped<T>(change: Change<&DynamicObject>, read: impl Fn(&DynamicObject) -> Option<T>) -> Change<T> {
    let or_nothing = |read: Option<T>, make: fn(T) -> Change<T>| read.map(make);
    match change {
        Change::ListBegins => Some(Change::ListBegins),
        Change::ListEnds => Some(Change::ListEnds),
        Change::Nothing => None,
        Change::Listed(object) => or_nothing(read(object), Change::Listed),
        Change::Applied(object) => or_nothing(read(object), Change::Applied),
        Change::Deleted(object) => or_nothing(read(object), Change::Deleted),
    }
    .unwrap_or(Change::Nothing)
}

fn readable<T>(object: &DynamicObject, read: Result<T, String>) -> Option<T> {
    read.map_err(|why| {
        let name = object.metadata.name.as_deref().unwrap_or("");
        tracing::warn!(name, why, "an object of the cluster can't be read, and is left out");
    })
    .ok()
}

pub(crate) fn now() -> Wall {
    Wall(Timestamp::now().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_of_others_are_forgotten_when_they_have_ended() {
        let ours = json!({
            "app.kubernetes.io/managed-by": "meridian",
            "meridian.dev/uid": meridian_shared::ids::Uid(7).to_string(),
            "meridian.dev/fence": "1-2-3",
        });
        let hold = json!({
            "app.kubernetes.io/managed-by": "meridian", "meridian.dev/hold": "placeholder",
            "meridian.dev/offer": "2-7-1",
        });
        let pod = |labels: &Value, phase: &str| -> DynamicObject {
            let pod = json!({
                "metadata": {"name": "p", "namespace": "ml", "uid": "u", "labels": labels},
                "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
                "status": {"phase": phase},
            });
            serde_json::from_value(pod).unwrap()
        };
        for phase in ["Succeeded", "Failed"] {
            let others = pod(&json!({"app": "web"}), phase);
            assert_eq!(without_ended(Change::Listed(&others)), Change::Nothing);
            assert_eq!(without_ended(Change::Applied(&others)), Change::Deleted(&others), "it ran before");
            for own in [pod(&ours, phase), pod(&hold, phase)] {
                assert_eq!(without_ended(Change::Listed(&own)), Change::Listed(&own));
                assert_eq!(without_ended(Change::Applied(&own)), Change::Applied(&own));
            }
        }
        let running = pod(&json!({}), "Running");
        assert_eq!(without_ended(Change::Applied(&running)), Change::Applied(&running));
    }
}
