//! Serves the agent's orders about offers in a task of its own.

use super::lookups::{Finding, Lookups, Need, Step, Verdict};
use super::order::{Action, Order, Seen};
use super::perform::Performer;
use super::{HoldParts, Method, placeholders, workload};
use crate::copies::Copies;
use crate::hub::{self, Hub};
use crate::objects::Answer;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::api::ApiResource;
use meridian_agent_core::runtime::{HoldEvent, HoldOrder, ReferenceCheck};
use meridian_shared::copies::{CopyAnswer, CopyRequest};
use meridian_shared::ids::OfferId;
use meridian_shared::time::{Mono, Now};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How often waiting work is checked.
const TICK: Duration = Duration::from_millis(500);
/// How often the supervisor looks for objects that belong to no offer and to no run.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// The orders of the agent's core.
#[derive(Debug)]
pub(super) enum Command {
    Check(ReferenceCheck),
    Secure(HoldOrder),
    Release(OfferId),
}

/// A request to the API server that has ended.
enum Finished {
    Found { need: Need, finding: Finding },
    Asked { request: CopyRequest, answer: Result<CopyAnswer, String> },
    Acted { offer: OfferId, action: Action, answer: Answer },
    Swept { names: String, answer: Answer },
}

/// An order and the names of its objects that the watches have shown.
struct Kept {
    order: Order,
    known: BTreeSet<String>,
}

/// Objects of one resource and namespace.
struct Objects {
    resource: ApiResource,
    namespace: String,
    names: Vec<String>,
}

pub(super) struct Supervisor {
    method: Method,
    hub: Arc<Hub>,
    performer: Performer,
    /// The agent's own namespace.
    namespace: String,
    cluster: String,
    commands: mpsc::UnboundedReceiver<Command>,
    events: mpsc::UnboundedSender<HoldEvent>,
    clock: Arc<dyn Fn() -> Now + Send + Sync>,
    lookups: Lookups,
    /// `None`: nothing is copied.
    copies: Option<Copies>,
    orders: BTreeMap<OfferId, Kept>,
    open: FuturesUnordered<BoxFuture<'static, Finished>>,
    swept: Instant,
}

impl Supervisor {
    pub(super) fn new(method: Method, parts: HoldParts, commands: mpsc::UnboundedReceiver<Command>) -> Self {
        let HoldParts { connection, hub, cluster, copies, events, clock } = parts;
        Self {
            method,
            hub,
            namespace: connection.namespace().to_owned(),
            performer: Performer::new(connection.client),
            cluster,
            commands,
            events,
            clock,
            lookups: Lookups::new(copies.as_ref().map(Copies::kinds).unwrap_or_default()),
            copies,
            orders: BTreeMap::new(),
            open: FuturesUnordered::new(),
            swept: Instant::now(),
        }
    }

    /// Serves until the interface is dropped.
    pub(super) async fn serve(mut self) {
        self.hub.complete().await;
        if let Method::Kueue { .. } = self.method {
            self.hub.workloads_listed().await;
        }
        self.sweep();
        let hub = Arc::clone(&self.hub);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.take(command),
                    None => return,
                },
                () = hub.holds_changed() => {}
                Some(finished) = self.open.next() => self.finished(finished),
                _ = ticks.tick() => {
                    if self.swept.elapsed() >= SWEEP_EVERY {
                        self.sweep();
                    }
                }
            }
            self.proceed();
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Check(check) => {
                let verdict = self.lookups.check((self.clock)().mono, check);
                self.report_verdicts(verdict);
            }
            Command::Secure(hold) => {
                let patience = match self.method {
                    Method::Placeholders(_) => Some(placeholders::PATIENCE),
                    Method::Ledger | Method::Kueue { .. } => None,
                };
                let kept = || Kept { order: Order::new(hold.clone(), patience), known: BTreeSet::new() };
                self.orders.entry(hold.offer).or_insert_with(kept);
            }
            Command::Release(offer) => self.release(offer),
        }
    }

    fn release(&mut self, offer: OfferId) {
        self.lookups.forget(offer);
        self.hub.forget_granted(offer);
        match self.orders.get_mut(&offer) {
            Some(kept) => kept.order.release(),
            // An earlier agent made it, for a run that has ended now.
            None => {
                let objects = self.left_behind(|of| of == Some(offer));
                objects.into_iter().for_each(|objects| self.give_back(objects));
            }
        }
    }

    fn finished(&mut self, finished: Finished) {
        let now = (self.clock)().mono;
        match finished {
            Finished::Found { need, finding } => {
                if let Some(unchecked) = self.lookups.says(&need, &finding) {
                    tracing::warn!("{unchecked}");
                }
                for step in self.lookups.answered(now, &need, finding) {
                    match step {
                        Step::Over(verdict) => self.report_verdicts([verdict]),
                        Step::Ask(request) => self.ask(request),
                    }
                }
            }
            Finished::Asked { request, answer } => {
                let verdict = self.lookups.asked(&request, answer);
                self.report_verdicts(verdict);
            }
            Finished::Acted { offer, action, answer } => {
                let event =
                    self.orders.get_mut(&offer).and_then(|kept| kept.order.answered(now, action, answer));
                self.report(event);
            }
            Finished::Swept { names, answer } => {
                if let Answer::Refused(why) | Answer::Unknown(why) = answer {
                    tracing::warn!(names, why, "objects that hold room for no offer are not deleted yet");
                }
            }
        }
    }

    /// Asks the manager which objects it may copy.
    fn ask(&self, request: CopyRequest) {
        let Some(copies) = self.copies.clone() else { return };
        self.open.push(Box::pin(async move {
            let answer = copies.ask(request.clone()).await.map_err(|why| why.to_string());
            Finished::Asked { request, answer }
        }));
    }

    fn report_verdicts(&self, verdicts: impl IntoIterator<Item = Verdict>) {
        self.report(verdicts.into_iter().map(|(offer, verdict)| match verdict {
            Ok(()) => HoldEvent::Checked { offer },
            Err(reason) => HoldEvent::Failed { offer, reason },
        }));
    }

    fn report(&self, events: impl IntoIterator<Item = HoldEvent>) {
        for event in events {
            // Fails only when the agent ends; offers end with it.
            let _ = self.events.send(event);
        }
    }

    /// Follows every order, and sends the requests that are due.
    fn proceed(&mut self) {
        let now = (self.clock)().mono;
        while let Some(need) = self.lookups.next(now) {
            let performer = self.performer.clone();
            self.open.push(Box::pin(async move {
                let finding = performer.find(&need).await;
                Finished::Found { need, finding }
            }));
        }
        let offers: Vec<OfferId> = self.orders.keys().copied().collect();
        for offer in offers {
            self.follow(offer, now);
            self.act(offer, now);
        }
        self.orders.retain(|_, kept| !kept.order.is_over());
    }

    fn follow(&mut self, offer: OfferId, now: Mono) {
        let Some(Kept { order, known }) = self.orders.get_mut(&offer) else { return };
        let seen = match self.method {
            Method::Ledger => return,
            // The runner deletes the placeholders one by one.
            Method::Placeholders(_) if self.hub.is_granted(offer) => return,
            Method::Placeholders(_) => {
                let pods = self.hub.view().placeholders_of(offer);
                placeholders::seen(&order.hold, &pods, known)
            }
            Method::Kueue { .. } => {
                let view = self.hub.view();
                let name = workload::name(offer);
                let facts = view.workload(&order.hold.namespace, &name);
                let mut is_known = known.contains(&name);
                let seen: Seen = workload::seen(facts, &mut is_known);
                if is_known {
                    known.insert(name);
                }
                seen
            }
        };
        let event = order.observe(now, seen);
        self.report(event);
    }

    fn act(&mut self, offer: OfferId, now: Mono) {
        let Some(kept) = self.orders.get_mut(&offer) else { return };
        let Some(action) = kept.order.next(now) else { return };
        let hold = kept.order.hold.clone();
        let performer = self.performer.clone();
        let Some(Objects { resource, namespace, names }) = self.objects(&hold) else { return };
        let manifests = match action {
            Action::Create => self.manifests(&hold),
            Action::Delete => Ok(Vec::new()),
        };
        self.open.push(Box::pin(async move {
            let answer = match (action, manifests) {
                (_, Err(why)) => Answer::Refused(why),
                (Action::Create, Ok(manifests)) => performer.create(&resource, &namespace, manifests).await,
                (Action::Delete, Ok(_)) => performer.delete(&resource, &namespace, names).await,
            };
            Finished::Acted { offer, action, answer }
        }));
    }

    /// The objects that hold the capacity of an order; `None` where the ledger alone holds it.
    fn objects(&self, hold: &HoldOrder) -> Option<Objects> {
        Some(match &self.method {
            Method::Ledger => return None,
            Method::Placeholders(_) => Objects {
                resource: hub::pods(),
                namespace: self.namespace.clone(),
                names: placeholders::names(hold),
            },
            Method::Kueue { resource, .. } => Objects {
                resource: resource.clone(),
                namespace: hold.namespace.to_string(),
                names: vec![workload::name(hold.offer)],
            },
        })
    }

    fn manifests(&self, hold: &HoldOrder) -> Result<Vec<Value>, String> {
        match &self.method {
            Method::Ledger => Ok(Vec::new()),
            Method::Placeholders(settings) => {
                placeholders::build(hold, settings, &self.namespace, &self.cluster)
            }
            Method::Kueue { queue, resource } => {
                let nodes = self.hub.view().node_labels(hold.placement.iter().map(|at| at.node.as_str()));
                Ok(vec![workload::build(hold, queue, &resource.api_version, &self.cluster, &nodes)])
            }
        }
    }

    /// Deletes objects that belong to no offer and to no run: an earlier agent made them, or the API server
    /// carried out a create after the agent had stopped waiting for the answer. A Workload under a run is
    /// followed again.
    fn sweep(&mut self) {
        self.swept = Instant::now();
        let of_jobs: BTreeSet<OfferId> = self.hub.view().jobs().filter_map(|job| job.offer).collect();
        if let Method::Kueue { .. } = self.method {
            let under_runs = self.hub.view().workload_offers();
            for (namespace, offer) in under_runs.into_iter().filter(|(_, offer)| of_jobs.contains(offer)) {
                let kept = || Kept {
                    order: Order::inherited(offer, namespace.as_str().into()),
                    known: BTreeSet::from([workload::name(offer)]),
                };
                self.orders.entry(offer).or_insert_with(kept);
            }
        }
        let is_unused = |offer: Option<OfferId>| {
            offer.is_none_or(|offer| !self.orders.contains_key(&offer) && !of_jobs.contains(&offer))
        };
        for objects in self.left_behind(is_unused) {
            tracing::warn!(
                namespace = objects.namespace,
                names = objects.names.join(", "),
                "an object holds capacity for an offer that is over: it is deleted"
            );
            self.give_back(objects);
        }
    }

    /// The objects in the cluster with an offer that `is_one` accepts. `None` is a damaged label.
    fn left_behind(&self, is_one: impl Fn(Option<OfferId>) -> bool) -> Vec<Objects> {
        let view = self.hub.view();
        let mut found: BTreeMap<(bool, String), Vec<String>> = BTreeMap::new();
        for pod in view.placeholders().filter(|pod| is_one(pod.holds) && !pod.deleting) {
            found.entry((false, pod.namespace.clone())).or_default().push(pod.name.clone());
        }
        for workload in view.workloads().filter(|workload| is_one(workload.offer) && !workload.deleting) {
            found.entry((true, workload.namespace.clone())).or_default().push(workload.name.clone());
        }
        let objects = |((of_kueue, namespace), names): ((bool, String), Vec<String>)| {
            let resource = match &self.method {
                Method::Kueue { resource, .. } if of_kueue => resource.clone(),
                _ => hub::pods(),
            };
            Objects { resource, namespace, names }
        };
        found.into_iter().map(objects).collect()
    }

    fn give_back(&self, objects: Objects) {
        let performer = self.performer.clone();
        self.open.push(Box::pin(async move {
            let Objects { resource, namespace, names } = objects;
            let listed = names.join(", ");
            let answer = performer.delete(&resource, &namespace, names).await;
            Finished::Swept { names: listed, answer }
        }));
    }
}
