//! A manager for tests: answers syncs, and loses, repeats or refuses answers on demand.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use meridian_shared::ids::{Fence, JournalId, Leadership, OfferId, RecordNumber, Session, Uid};
use meridian_shared::logs::LogRequest;
use meridian_shared::protocol::*;
use meridian_shared::time::Millis;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// Longer than any step of these tests takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer to a poll may be parked.
const POLL: Millis = Millis::secs(1);

#[derive(Debug)]
pub(super) struct ManagerState {
    pub(super) leadership: Leadership,
    pub(super) session: Option<Session>,
    pub(super) events: Vec<Event>,
    pub(super) inventories: Vec<Inventory>,
    pub(super) transmissions: Vec<u64>,
    pub(super) requests: Vec<SyncRequest>,
    pub(super) logs: BTreeMap<u64, (String, String)>,
    pub(super) log_requests: Vec<LogRequest>,
    /// Leases that every answer renews.
    pub(super) renewals: Vec<(Uid, Fence)>,
    /// Number of answers to lose after the request was taken.
    pub(super) lose: u32,
    /// Number of requests that get the previous answer instead.
    pub(super) repeat: u32,
    /// Number of requests to refuse, and the refusal.
    pub(super) refuse: Option<(u32, SyncRefusal)>,
    commands: Vec<Command>,
    taken: u64,
    capacity: u64,
    record: u64,
    ends: Vec<(Uid, Fence, RecordNumber)>,
    last: Option<SyncAnswer>,
    inventory_wanted: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Manager {
    state: Arc<Mutex<ManagerState>>,
    changed: watch::Sender<u64>,
    pub(super) address: String,
}

impl Manager {
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = ManagerState {
            leadership: Leadership { epoch: 1, id: 7 },
            session: None,
            events: Vec::new(),
            inventories: Vec::new(),
            transmissions: Vec::new(),
            requests: Vec::new(),
            logs: BTreeMap::new(),
            log_requests: Vec::new(),
            renewals: Vec::new(),
            lose: 0,
            repeat: 0,
            refuse: None,
            commands: Vec::new(),
            taken: 0,
            capacity: 0,
            record: 0,
            ends: Vec::new(),
            last: None,
            inventory_wanted: true,
        };
        let this = Self {
            state: Arc::new(Mutex::new(state)),
            changed: watch::Sender::new(0),
            address: format!("http://{}", listener.local_addr().unwrap()),
        };
        let app = Router::new()
            .route(crate::uplink::SYNC_PATH, post(sync))
            .route(meridian_shared::logs::REQUESTS_PATH, get(log_requests))
            .route("/agent/v1/logs/{id}", post(log))
            .with_state(this.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        this
    }

    /// Reads or changes the state; parked polls are woken.
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut ManagerState) -> T) -> T {
        let result = f(&mut self.state.lock().unwrap());
        self.changed.send_modify(|n| *n += 1);
        result
    }

    pub(super) fn command(&self, command: Command) {
        self.with(|state| state.commands.push(command));
    }

    /// Starts a new leadership, without commands and events of the previous one.
    pub(super) fn lead(&self, leadership: Leadership) {
        self.with(|state| {
            state.leadership = leadership;
            (state.session, state.inventory_wanted, state.capacity) = (None, true, 0);
            (state.commands, state.ends) = (Vec::new(), Vec::new());
        });
    }

    /// Waits until `found` returns something.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        mut found: impl FnMut(&mut ManagerState) -> Option<T>,
    ) -> T {
        let mut changes = self.changed.subscribe();
        let waiting = async {
            loop {
                changes.borrow_and_update();
                if let Some(it) = found(&mut self.state.lock().unwrap()) {
                    return it;
                }
                changes.changed().await.unwrap();
            }
        };
        let found = tokio::time::timeout(PATIENCE, waiting).await;
        found.unwrap_or_else(|_| {
            panic!("never happened: {what}; the manager has {:#?}", self.state.lock().unwrap())
        })
    }

    pub(super) async fn event(&self, what: &str, is: impl Fn(&Event) -> bool) -> Event {
        self.until(what, |state| state.events.iter().find(|e| is(e)).cloned()).await
    }
}

impl ManagerState {
    /// Takes a request, as the engine of a manager does in one turn.
    fn take(&mut self, request: &SyncRequest) {
        if self.session != Some(request.session) {
            (self.session, self.taken) = (Some(request.session), 0);
        }
        assert!(
            !self.transmissions.contains(&request.transmission)
                || self.requests.iter().any(|r| r.session != request.session),
            "a number was used twice"
        );
        self.transmissions.push(request.transmission);
        self.requests.push(request.clone());
        for (number, event) in (request.events_from..).zip(&request.events) {
            if number > self.taken {
                self.taken = number;
                self.events.push(event.clone());
                if let Event::Ended(end) = event {
                    self.record += 1;
                    self.ends.push((end.uid, end.fence, RecordNumber(self.record)));
                }
            }
        }
        if let Some(inventory) =
            request.inventory.clone().filter(|i| i.for_leadership == Some(self.leadership))
        {
            self.inventories.push(inventory);
            self.inventory_wanted = false;
        }
        if let Some(capacity) = &request.capacity {
            self.capacity = capacity.version;
        }
    }

    fn compose(&self, request: &SyncRequest) -> SyncAnswer {
        let through = if request.follows == Some(self.leadership) { request.commands_through } else { 0 };
        SyncAnswer::Ok(Box::new(SyncResponse {
            version: VERSION,
            leadership: self.leadership,
            session: request.session,
            transmission: request.transmission,
            receipt: Receipt {
                journal: JournalId(1),
                leadership: self.leadership,
                record: RecordNumber(self.record),
                rules: RecordNumber(1),
                audit_head: None,
                mac: None,
            },
            members: vec!["eu".into()],
            events_through: self.taken,
            ends_acknowledged: self.ends.clone(),
            commands: self.commands.iter().skip(usize::try_from(through).unwrap()).cloned().collect(),
            commands_from: through + 1,
            renewals: self.renewals.clone(),
            want_inventory: self.inventory_wanted,
            capacity_acknowledged: self.capacity,
            ranges: vec![(self.leadership, RecordNumber(1), RecordNumber(u64::MAX))],
            poll: POLL,
        }))
    }

    fn has_news_for(&self, request: &SyncRequest) -> bool {
        self.inventory_wanted
            || request.follows != Some(self.leadership)
            || (self.commands.len() as u64) > request.commands_through
    }
}

async fn sync(
    State(manager): State<Manager>,
    axum::Json(request): axum::Json<SyncRequest>,
) -> Result<axum::Json<SyncAnswer>, StatusCode> {
    let refused = manager.with(|state| match &mut state.refuse {
        Some((left, why)) if *left > 0 => {
            *left -= 1;
            Some(why.clone())
        }
        _ => None,
    });
    if let Some(why) = refused {
        return Ok(axum::Json(SyncAnswer::Refused(why)));
    }
    manager.with(|state| state.take(&request));
    let mut changes = manager.changed.subscribe();
    let parked = tokio::time::timeout(Duration::from_millis(POLL.0), async {
        while request.lane == Lane::Poll && !manager.state.lock().unwrap().has_news_for(&request) {
            changes.changed().await.unwrap();
        }
    });
    // After the parking time the poll is answered with the present news.
    let _ = parked.await;
    manager.with(|state| {
        let answer = state.compose(&request);
        let previous = state.last.replace(answer.clone());
        if state.lose > 0 {
            state.lose -= 1;
            return Err(StatusCode::BAD_GATEWAY);
        }
        match previous {
            Some(previous) if state.repeat > 0 => {
                state.repeat -= 1;
                Ok(axum::Json(previous))
            }
            _ => Ok(axum::Json(answer)),
        }
    })
}

async fn log_requests(State(manager): State<Manager>) -> axum::Json<Vec<LogRequest>> {
    let requested = manager.until("a log request", |state| {
        (!state.log_requests.is_empty()).then(|| std::mem::take(&mut state.log_requests))
    });
    axum::Json(tokio::time::timeout(Duration::from_secs(1), requested).await.unwrap_or_default())
}

async fn log(
    State(manager): State<Manager>,
    Path(id): Path<u64>,
    headers: axum::http::HeaderMap,
    body: String,
) -> StatusCode {
    let kind = headers["content-type"].to_str().unwrap().to_owned();
    manager.with(|state| state.logs.insert(id, (kind, body)));
    StatusCode::OK
}

/// An offer of `pods` pods with one GPU each.
pub(super) fn offer(number: u64, uid: Uid, pods: u32) -> Command {
    use meridian_shared::gang::{Amounts, Gang, PodSet};
    let set = PodSet {
        name: "main".into(),
        count: pods,
        per_pod: Amounts::from([("nvidia.com/gpu".into(), 1)]),
        ..PodSet::default()
    };
    Command::Offer(Box::new(Offer {
        offer: offer_id(number),
        uid,
        namespace: "default".into(),
        kind: "Job".into(),
        gang: Arc::new(Gang { pod_sets: vec![set], ..Gang::default() }),
        hold: Millis::mins(1),
        requires_guarded: false,
        container_needs: None,
        without_image: None,
        references: Vec::new(),
    }))
}

pub(super) fn offer_id(counter: u64) -> OfferId {
    OfferId { epoch: 1, leadership: 7, counter }
}

pub(super) fn fence(counter: u64) -> Fence {
    Fence { epoch: 1, leadership: 7, counter }
}

/// A grant of the offer with the same number.
pub(super) fn grant(number: u64, uid: Uid) -> Command {
    Command::Grant(Box::new(Grant {
        offer: offer_id(number),
        uid,
        fence: fence(number),
        attempt: 1,
        namespace: "default".into(),
        name: "job".into(),
        spec: r#"{"spec":{"template":{"spec":{"containers":[{"command":["true"]}]}}}}"#.into(),
        term: Millis::mins(1),
        on_loss: OnLoss::Fence,
        start_within: Millis::mins(1),
        run_left: None,
        pod_failures: 0,
        completed: meridian_shared::indexes::Indexes::default(),
        priority: 0,
        mac: None,
    }))
}
