//! Keeps the orders of all offers, and deletes requests and templates that belong to none.

use super::losses;
use super::manifest;
use super::order::{Action, Order};
use super::ownership::{self, RequestKey};
use super::perform::{Performer, template_names};
use super::settings::{ProvisioningParts, ProvisioningSettings};
use crate::facts::RequestFacts;
use crate::hub::{Booking, Hub};
use crate::objects::Answer;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::api::ApiResource;
use meridian_agent_core::runtime::{NodeRequest, ProviderEvent};
use meridian_shared::ids::OfferId;
use meridian_shared::time::Now;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How often waiting orders are checked.
const TICK: Duration = Duration::from_secs(1);
/// How often the supervisor looks for objects that belong to no offer and to no run.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// How long after the start requests of an earlier agent are kept for gangs that are offered again.
const ADOPT_WITHIN: Duration = Duration::from_secs(60);

/// The orders of the agent's core.
#[derive(Debug)]
pub(super) enum Command {
    Request(NodeRequest),
    Cancel(OfferId),
}

/// A request to the API server that has ended.
enum Finished {
    Acted { offer: OfferId, action: Action, answer: Answer },
    GivenBack { request: String, answer: Answer },
    Templates(Result<Vec<(String, String, Option<OfferId>)>, String>),
}

pub(super) struct Supervisor {
    settings: Arc<ProvisioningSettings>,
    hub: Arc<Hub>,
    performer: Performer,
    /// API group and version of ProvisioningRequests, such as `autoscaling.x-k8s.io/v1`.
    api_version: String,
    cluster: String,
    commands: mpsc::UnboundedReceiver<Command>,
    events: mpsc::UnboundedSender<ProviderEvent>,
    clock: Arc<dyn Fn() -> Now + Send + Sync>,
    orders: BTreeMap<OfferId, Order>,
    /// The offer that each node was made for.
    claims: BTreeMap<String, OfferId>,
    /// Offers whose nodes were reported as lost.
    lost: BTreeSet<OfferId>,
    /// Requests of an earlier agent that a gang can continue with, until [`ADOPT_WITHIN`] is over.
    left: BTreeSet<RequestKey>,
    open: FuturesUnordered<BoxFuture<'static, Finished>>,
    started: Instant,
    swept: Instant,
}

impl Supervisor {
    pub(super) fn new(
        settings: Arc<ProvisioningSettings>,
        parts: ProvisioningParts,
        resource: ApiResource,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let ProvisioningParts { connection, hub, cluster, events, clock } = parts;
        Self {
            settings,
            hub,
            api_version: resource.api_version.clone(),
            performer: Performer::new(connection.client, resource, cluster.clone()),
            cluster,
            commands,
            events,
            clock,
            orders: BTreeMap::new(),
            claims: BTreeMap::new(),
            lost: BTreeSet::new(),
            left: BTreeSet::new(),
            open: FuturesUnordered::new(),
            started: Instant::now(),
            swept: Instant::now(),
        }
    }

    /// Serves until the provider is dropped.
    pub(super) async fn serve(mut self) {
        self.hub.complete().await;
        self.hub.requests_listed().await;
        self.claims = {
            let view = self.hub.view();
            ownership::inherited_claims(view.jobs(), |node| view.is_outside_pools(node))
        };
        self.left = self.unused().iter().filter(|r| r.uid.is_some()).map(RequestFacts::key).collect();
        self.started = Instant::now();
        self.sweep();
        let hub = Arc::clone(&self.hub);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Request(request)) => self.request(request),
                    Some(Command::Cancel(offer)) => self.cancel(offer),
                    None => return,
                },
                () = hub.provisioning_changed() => {}
                Some(finished) = self.open.next() => self.finished(finished),
                _ = ticks.tick() => {
                    let is_late = !self.left.is_empty() && self.started.elapsed() >= ADOPT_WITHIN;
                    if is_late || self.swept.elapsed() >= SWEEP_EVERY {
                        self.sweep();
                    }
                }
            }
            self.proceed();
        }
    }

    fn request(&mut self, request: NodeRequest) {
        if self.orders.contains_key(&request.offer) {
            return;
        }
        let offer = request.offer;
        let refused = |reason: String| ProviderEvent::Failed { offer, reason };
        // If the objects can't be built for one attempt, they can't be built for any.
        let objects = match self.objects(&request, &manifest::name(offer, 1)) {
            Ok(objects) => objects,
            Err(why) => return self.report(refused(why)),
        };
        let retry = self.settings.config.retry.clone();
        if let Some(name) = self.adopt(&request, &objects.fingerprint) {
            let uid = request.uid;
            tracing::info!(request = name, %uid, "a provisioning request of an earlier agent is used");
            self.orders.insert(offer, Order::adopting(request, retry, name));
            return;
        }
        let most = self.settings.requests_max;
        if self.open_requests() >= most {
            return self.report(refused(format!("the maximum of {most} requests are open")));
        }
        self.orders.insert(offer, Order::new(request, retry));
    }

    /// The request of an earlier agent that a gang continues with, so that it keeps its place in the
    /// provider's queue. Other requests for the workload are given back.
    fn adopt(&mut self, request: &NodeRequest, fingerprint: &str) -> Option<String> {
        let mut of_workload = self.requests();
        of_workload.retain(|left| left.uid == Some(request.uid) && self.left.remove(&left.key()));
        let adopted = ownership::adoptable(of_workload.iter(), request, fingerprint).map(RequestFacts::key);
        of_workload.iter().filter(|left| adopted != Some(left.key())).for_each(|left| self.give_back(left));
        adopted.map(|(_, name)| name)
    }

    /// The requests in the cluster, each with the offer that it belongs to now.
    fn requests(&self) -> Vec<RequestFacts> {
        let view = self.hub.view();
        let consumed = ownership::consumed(view.jobs());
        ownership::assigned(view.requests().into_iter().flatten(), &self.orders, &consumed)
    }

    /// Requests without an order that follows them and without a run on their nodes.
    fn unused(&self) -> Vec<RequestFacts> {
        let view = self.hub.view();
        let (consumed, followed) = (ownership::consumed(view.jobs()), ownership::followed(&self.orders));
        let is_unused = |request: &&RequestFacts| {
            let key = request.key();
            !request.deleting && !followed.contains_key(&key) && !consumed.contains_key(&key)
        };
        view.requests().into_iter().flatten().filter(is_unused).cloned().collect()
    }

    fn open_requests(&self) -> usize {
        let view = self.hub.view();
        ownership::open_requests(&self.orders, view.requests().into_iter().flatten())
    }

    fn objects(&self, request: &NodeRequest, name: &str) -> Result<manifest::Objects, String> {
        manifest::build(request, name, &self.settings.config, &self.api_version, &self.cluster)
    }

    fn cancel(&mut self, offer: OfferId) {
        self.hub.bookings().remove(&offer);
        self.claims.retain(|_, claimed| *claimed != offer);
        match self.orders.get_mut(&offer) {
            Some(order) => order.cancel(),
            // It was made by an earlier agent, for a run that has ended now.
            None => {
                let mut inherited = self.requests();
                inherited.retain(|request| request.offer == Some(offer));
                inherited.iter().for_each(|request| self.give_back(request));
            }
        }
    }

    fn report(&self, event: ProviderEvent) {
        // Fails only when the agent ends; offers end with it.
        let _ = self.events.send(event);
    }

    fn finished(&mut self, finished: Finished) {
        match finished {
            Finished::Acted { offer, action, answer } => {
                let now = (self.clock)().mono;
                let Some(order) = self.orders.get_mut(&offer) else { return };
                let event = order.answered(now, action, answer);
                if let Some(event) = event {
                    self.report(event);
                }
            }
            Finished::GivenBack { request, answer } => {
                if let Answer::Refused(why) | Answer::Unknown(why) = answer {
                    tracing::warn!(request, why, "an unused provisioning request is not deleted yet");
                }
            }
            Finished::Templates(Ok(found)) => self.sweep_templates(found),
            Finished::Templates(Err(why)) => {
                tracing::warn!(why, "pod templates can't be listed, so unused ones stay");
            }
        }
    }

    /// Follows every order, and sends the actions that are due.
    fn proceed(&mut self) {
        let now = (self.clock)();
        let requests: BTreeMap<RequestKey, RequestFacts> =
            self.requests().into_iter().map(|request| (request.key(), request)).collect();
        let nodes = self.hub.view().pool_nodes();
        let offers: Vec<OfferId> = self.orders.keys().copied().collect();
        for offer in offers {
            let order = &self.orders[&offer];
            let name = order.name();
            let facts = requests.get(&(order.request.namespace.to_string(), name.clone()));
            let config = &self.settings.config;
            let own = |facts| ownership::own_nodes(order, facts, &nodes, &self.claims, config);
            let own = facts.map(own).unwrap_or_default();
            let order = self.orders.get_mut(&offer).expect("its key was read above");
            if let Some(event) = order.observe(now, facts, &own) {
                if let ProviderEvent::Ready { nodes, .. } = &event {
                    self.claims.extend(nodes.iter().map(|node| (node.name.clone(), offer)));
                    let class = self.settings.config.class_name.clone();
                    let pod_sets = order.request.gang.pod_sets.iter().map(|set| set.name.clone()).collect();
                    let provisioned = facts.and_then(|facts| facts.holds("Provisioned")?.since);
                    let time = manifest::machine_time(&order.request, &self.settings.config);
                    let ends = time.map(|time| provisioned.unwrap_or(now.wall) + time);
                    self.hub.bookings().insert(offer, Booking { request: name, class, pod_sets, ends });
                }
                self.report(event);
            }
            self.act(offer, now);
        }
        self.orders.retain(|_, order| !order.is_over());
        let losses = {
            let view = self.hub.view();
            let needed = view.needed_nodes();
            let loss = |node: &str| view.loss_of(node, now.wall).filter(|_| needed.contains(node));
            let followed = ownership::followed(&self.orders);
            let is_current = |request: &&RequestFacts| {
                let has_order = request.offer.is_some_and(|offer| self.orders.contains_key(&offer));
                !has_order || followed.contains_key(&request.key())
            };
            losses::report(&self.claims, &mut self.lost, requests.values().filter(is_current), loss)
        };
        losses.into_iter().for_each(|event| self.report(event));
    }

    fn act(&mut self, offer: OfferId, now: Now) {
        let Some(order) = self.orders.get_mut(&offer) else { return };
        let Some(action) = order.next(now.mono) else { return };
        let (request, name) = (order.request.clone(), order.name());
        let performer = self.performer.clone();
        let objects = self.objects(&request, &name);
        self.open.push(Box::pin(async move {
            let answer = match (action, objects) {
                (_, Err(why)) => Answer::Refused(why),
                (Action::Create { .. }, Ok(objects)) => performer.create(&request.namespace, &objects).await,
                (Action::Delete { .. }, Ok(objects)) => {
                    let templates = template_names(&name, objects.templates.len());
                    performer.delete(&request.namespace, &name, &templates).await
                }
            };
            Finished::Acted { offer, action, answer }
        }));
    }

    /// Deletes requests that belong to no offer and to no run: an earlier agent made them, or the API server
    /// carried out a create after the agent had stopped waiting for the answer.
    fn sweep(&mut self) {
        self.swept = Instant::now();
        if self.started.elapsed() >= ADOPT_WITHIN {
            self.left.clear();
        }
        for request in self.unused().into_iter().filter(|request| !self.left.contains(&request.key())) {
            tracing::warn!(
                namespace = request.namespace,
                request = request.name,
                "no offer and no run uses a provisioning request: it is deleted"
            );
            self.give_back(&request);
        }
        let performer = self.performer.clone();
        self.open.push(Box::pin(async move { Finished::Templates(performer.list_templates().await) }));
    }

    /// Deletes templates without a request.
    fn sweep_templates(&mut self, found: Vec<(String, String, Option<OfferId>)>) {
        let used: BTreeSet<(String, String)> = {
            let view = self.hub.view();
            let of = |request: &RequestFacts| {
                let namespace = request.namespace.clone();
                request
                    .templates
                    .iter()
                    .map(move |name| (namespace.clone(), name.clone()))
                    .collect::<Vec<_>>()
            };
            view.requests().into_iter().flatten().flat_map(of).collect()
        };
        for (namespace, name, offer) in found {
            let is_known = offer.is_some_and(|offer| self.orders.contains_key(&offer));
            if is_known || used.contains(&(namespace.clone(), name.clone())) {
                continue;
            }
            let performer = self.performer.clone();
            self.open.push(Box::pin(async move {
                let answer = performer.delete_template(&namespace, &name).await;
                Finished::GivenBack { request: name, answer }
            }));
        }
    }

    fn give_back(&self, request: &RequestFacts) {
        let performer = self.performer.clone();
        let RequestFacts { namespace, name, templates, .. } = request.clone();
        self.open.push(Box::pin(async move {
            let answer = performer.delete(&namespace, &name, &templates).await;
            Finished::GivenBack { request: name, answer }
        }));
    }
}
