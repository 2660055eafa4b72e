//! The watches of one cluster, and the tasks that wait for their events.

use crate::connection;
use crate::facts::{JobFacts, NodeFacts, PodFacts, RequestFacts, WorkloadFacts};
use crate::labels::{self, RunKey};
use crate::view::{Change, PodWatch, Touched, View};
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event};
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

mod lists;

use lists::ObjectWatch;

pub use crate::view::NodeSettings;

/// The pods that use a node: those that were bound to one and haven't ended.
const USING_A_NODE: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
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
    /// Offers whose gang was started: the runner deletes their placeholder pods one by one.
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
        for kind in JobKind::all() {
            tasks.spawn(Arc::clone(&hub).follow_jobs(connection.clone(), kind));
        }
        for watch in [PodWatch::Marked, PodWatch::Others] {
            let selected = selection(watch);
            tasks.spawn(Arc::clone(&hub).follow(connection.clone(), pods(), selected, move |hub, change| {
                let change = mapped(without_ended(change), |pod| readable(pod, PodFacts::read(pod)));
                hub.view().apply_pod(watch, change)
            }));
        }
        tasks.spawn(Arc::clone(&hub).follow(
            connection.clone(),
            resource("", "v1", "Node", "nodes"),
            watcher::Config::default(),
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
        // The agent has the rights to this kind: without them it would not have started.
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
        self.follow(connection, jobs(kind), ours, move |hub, change| {
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
        tasks.spawn(Arc::clone(self).follow(connection.clone(), resource, ours, |hub, change| {
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
        tasks.spawn(Arc::clone(self).follow(connection.clone(), resource, ours, |hub, change| {
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

    /// Waits for a change of objects that hold capacity.
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
        connection: Connection,
        resource: ApiResource,
        config: watcher::Config,
        apply: impl Fn(&Self, Change<&DynamicObject>) -> BTreeSet<Touched> + Send,
    ) {
        // Every list, streamed or in pages, shows the server's current state: an object that it lacks is
        // gone.
        let streams = connection::streams_lists(connection.version());
        let mut events = ObjectWatch::new(connection.client, streams, &resource, config);
        let mut logged: Option<Instant> = None;
        loop {
            match events.next().await {
                Some(Ok(event)) => {
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
                None => return,
                Some(Err(error)) => {
                    if logged.is_none_or(|at| at.elapsed() >= LOG_AGAIN) {
                        logged = Some(Instant::now());
                        let error = lists::words(&error);
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

fn change(event: &Event<DynamicObject>) -> Change<&DynamicObject> {
    match event {
        Event::Init => Change::ListBegins,
        Event::InitApply(object) => Change::Listed(object),
        Event::InitDone => Change::ListEnds,
        Event::Apply(object) => Change::Applied(object),
        Event::Delete(object) => Change::Deleted(object),
    }
}

/// The pods of a watch. Each pod that counts is in one of the two. Neither gets pods of others that have
/// ended, of which a cluster may keep thousands, or that have no node.
fn selection(watch: PodWatch) -> watcher::Config {
    match watch {
        PodWatch::Marked => watcher::Config::default().labels(&labels::marked()),
        PodWatch::Others => watcher::Config::default().labels(&labels::unmarked()).fields(USING_A_NODE),
    }
}

/// Drops ended pods with the mark of other clusters' agents before they are parsed: they use nothing. Ended
/// pods of this agent's gangs and holds stay, since their ends are reported.
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

/// An event with its parsed object. An object that can't be parsed is left out and logged.
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
    fn each_pod_that_counts_is_in_one_watch() {
        let (marked, others) = (selection(PodWatch::Marked), selection(PodWatch::Others));
        let mark = "app.kubernetes.io/managed-by";
        // `!=` selects the pods without the label as well, and those that another program manages.
        assert_eq!(marked.label_selector, Some(format!("{mark}=meridian")));
        assert_eq!(others.label_selector, Some(format!("{mark}!=meridian")));
        assert_eq!(marked.field_selector, None, "the end of a gang's pod is reported");
        let in_use = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
        assert_eq!(others.field_selector.as_deref(), Some(in_use));
    }

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
