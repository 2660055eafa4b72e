//! Syncs with the manager: when each lane sends, and what follows a missing answer.
//!
//! Owns the requests in flight, the pause after a failure and the timeouts. Knows nothing of gangs, and
//! composes no transmission: the loop does that at the moment of sending, because leases count from that
//! moment.
//!
//! ```text
//! lane   sent when                               answered
//! Poll   nothing is parked and the link works    when there is something to send, or after the poll time
//! News   there is news, or the link was broken   at once
//! ```
//!
//! Invariants: at most one request per lane is in flight; no request is ever sent twice (the next one has a
//! new number); a broken link is probed on the News lane only, so that a manager that is back answers at
//! once.

use meridian_shared::backoff;
use meridian_shared::ids::Leadership;
use meridian_shared::protocol::{BODY_BYTES_MAX, Lane, SyncAnswer, SyncRefusal, SyncRequest, SyncResponse};
use meridian_shared::time::Millis;
use meridian_telemetry::with_causes;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

#[cfg(feature = "kubernetes")]
pub mod cluster_objects;
#[cfg(feature = "kubernetes")]
pub mod copies;
pub mod link;
pub mod renewal;

pub use link::Link;

/// Path of syncs at the manager.
pub const SYNC_PATH: &str = "/agent/v1/sync";

/// First pause after a failure.
const PAUSE_FIRST: Millis = Millis(100);
/// The longest pause is the poll time within these bounds: after an outage of the manager, every agent must
/// reach it well before leases end.
const PAUSE_MAX_LEAST: Millis = Millis(500);
const PAUSE_MAX_MOST: Millis = Millis::secs(10);
/// The pause is also at most this part of the time until a gang must stop. A manager that is back renews with
/// its first answer, so an outage ends a gang only if it lasts about as long as the lease.
const PAUSES_PER_LEASE: u64 = 16;
/// How much longer than its parking time a poll may take: half the poll time within these bounds.
const MARGIN_LEAST: Millis = Millis::secs(1);
const MARGIN_MOST: Millis = Millis::secs(10);
/// Shortest time between two polls with nothing new, so that a manager that answers every poll at once causes
/// no busy loop.
const EMPTY_POLL_LEAST: Duration = Duration::from_millis(20);

/// Errors of one request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed or broke.
    #[error("cannot reach the manager")]
    Unreachable(#[source] reqwest::Error),
    /// The answer didn't come in time.
    #[error("the manager did not answer within {0}")]
    Silent(Millis),
    #[error("the manager answered with HTTP status {status}: {text}")]
    Status {
        status: u16,
        /// The message of a Kubernetes `Status`, or the beginning of the body, without control characters.
        text: String,
    },
    /// The certificate isn't accepted. The manager says how to join again.
    #[error("the manager refuses this agent, and its gangs stop when their leases end: {0}")]
    Locked(String),
    #[error("{what} is longer than {bytes_max} bytes")]
    TooLong {
        /// The request or the answer.
        what: &'static str,
        bytes_max: usize,
    },
    #[error("the manager's answer can't be read")]
    Unreadable(#[source] serde_json::Error),
    /// The identity gives no client.
    #[error("cannot make a connection")]
    Settings(#[from] crate::identity::Error),
}

/// A finished request.
#[derive(Debug)]
pub struct Landed {
    pub lane: Lane,
    pub took: Duration,
    pub result: Result<SyncAnswer, Error>,
}

/// The previous answer, to recognize an answer without news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AnswerState {
    leadership: Leadership,
    events_through: u64,
    capacity: u64,
}

#[derive(Debug)]
pub struct Uplink {
    link: Link,
    flights: JoinSet<Landed>,
    poll_out: bool,
    news_out: bool,
    news: bool,
    failures: u32,
    pause: Option<Instant>,
    poll: Millis,
    seed: u64,
    last_answer: Option<AnswerState>,
    synced: bool,
}

impl Uplink {
    /// Both lanes over `link`. `seed` spreads the pauses of agents that lost the manager at the same time.
    pub fn new(link: Link, seed: u64) -> Self {
        Self {
            link,
            flights: JoinSet::new(),
            poll_out: false,
            news_out: false,
            news: true, // the first request is answered at once, not after a poll
            failures: 0,
            pause: None,
            poll: Millis::default(),
            seed,
            last_answer: None,
            synced: false,
        }
    }

    /// Sends on the News lane as soon as possible.
    pub fn want_news(&mut self) {
        self.news = true;
    }

    /// Whether the last finished sync succeeded.
    pub fn is_well(&self) -> bool {
        self.synced && self.failures == 0
    }

    /// The lane to send on now, if any.
    pub fn due(&self, now: Instant) -> Option<Lane> {
        if self.pause.is_some_and(|until| now < until) {
            return None;
        }
        let probing = self.failures > 0 || !self.synced;
        if (self.news || probing) && !self.news_out {
            return Some(Lane::News);
        }
        (!probing && !self.poll_out).then_some(Lane::Poll)
    }

    /// When [`Self::due`] may change without an event.
    pub fn pause(&self) -> Option<Instant> {
        self.pause
    }

    /// Sends a transmission that was composed now. `poll` is how long it may be parked.
    pub fn send(&mut self, request: SyncRequest, poll: Millis) {
        let lane = request.lane;
        self.pause = None;
        self.poll = poll;
        match lane {
            Lane::Poll => self.poll_out = true,
            Lane::News => (self.news_out, self.news) = (true, false),
        }
        let (link, limit) = (self.link.clone(), limit(poll, lane));
        self.flights.spawn(async move {
            let began = Instant::now();
            let result =
                match tokio::time::timeout(Duration::from_millis(limit.0), post(&link, &request)).await {
                    Ok(result) => result,
                    Err(_) => {
                        // The path may be dead in one direction, so the next request uses a new connection.
                        link.reconnect();
                        Err(Error::Silent(limit))
                    }
                };
            Landed { lane, took: began.elapsed(), result }
        });
    }

    /// Waits for the next finished request; never returns if none is in flight. Safe to drop.
    pub async fn landed(&mut self) -> Landed {
        match self.flights.join_next().await {
            None => std::future::pending().await,
            Some(Ok(landed)) => landed,
            // Nothing aborts a task of the set, so it panicked, which is our own bug.
            Some(Err(broken)) => std::panic::resume_unwind(broken.into_panic()),
        }
    }

    /// Notes a finished request, before its answer is applied. `lease_left` is the time until the first gang
    /// must stop unless its lease is renewed.
    pub fn note(&mut self, landed: &Landed, now: Instant, lease_left: Option<Millis>) {
        match landed.lane {
            Lane::Poll => self.poll_out = false,
            Lane::News => self.news_out = false,
        }
        match &landed.result {
            Ok(SyncAnswer::Ok(response)) => self.note_success(response, landed, now),
            Ok(SyncAnswer::Refused(refusal)) => self.note_failure(&refusal_message(refusal), now, lease_left),
            Err(error) => self.note_failure(&with_causes(error), now, lease_left),
        }
    }

    fn note_success(&mut self, response: &SyncResponse, landed: &Landed, now: Instant) {
        if self.failures > 0 {
            tracing::info!(failures = self.failures, leadership = %response.leadership, "the manager answers \
                                                                                         again");
        }
        (self.failures, self.synced) = (0, true);
        self.news |= response.want_inventory && landed.lane == Lane::News;
        let state = AnswerState {
            leadership: response.leadership,
            events_through: response.events_through,
            capacity: response.capacity_acknowledged,
        };
        let empty = self.last_answer == Some(state)
            && response.commands.is_empty()
            && response.ends_acknowledged.is_empty();
        self.last_answer = Some(state);
        self.pause = (empty && landed.took < EMPTY_POLL_LEAST).then(|| now + EMPTY_POLL_LEAST);
    }

    fn note_failure(&mut self, why: &str, now: Instant, lease_left: Option<Millis>) {
        let most = lease_left.map_or(self.poll.0, |left| self.poll.0.min(left.0 / PAUSES_PER_LEASE));
        let longest = Millis(most.clamp(PAUSE_MAX_LEAST.0, PAUSE_MAX_MOST.0));
        let wait = backoff::wait(PAUSE_FIRST, longest, self.failures, self.seed);
        self.failures = self.failures.saturating_add(1);
        self.pause = Some(now + Duration::from_millis(wait.0));
        // Logs the first failure and every doubling, so that a long outage does not fill the disk.
        if self.failures.is_power_of_two() {
            tracing::warn!(failures = self.failures, "a sync failed, trying again: {why}");
        }
    }
}

/// Timeout of one request.
fn limit(poll: Millis, lane: Lane) -> Millis {
    let margin = Millis((poll.0 / 2).clamp(MARGIN_LEAST.0, MARGIN_MOST.0));
    match lane {
        Lane::Poll => poll + margin,
        // Twice the margin, because the manager commits the news before it answers.
        Lane::News => margin + margin,
    }
}

async fn post(link: &Link, request: &SyncRequest) -> Result<SyncAnswer, Error> {
    let body = serde_json::to_vec(request).expect("a request is plain data");
    if body.len() > BODY_BYTES_MAX {
        return Err(Error::TooLong { what: "the sync", bytes_max: BODY_BYTES_MAX });
    }
    let sending = link
        .client()
        .post(link.url(SYNC_PATH))
        .header(reqwest::header::CONTENT_TYPE, "application/json")
        .body(body);
    let body = link::body(sending.send().await.map_err(Error::Unreachable)?, BODY_BYTES_MAX).await?;
    serde_json::from_slice(&body).map_err(Error::Unreadable)
}

fn refusal_message(refusal: &SyncRefusal) -> String {
    match refusal {
        SyncRefusal::Version { oldest, newest } => {
            let ours = meridian_shared::protocol::VERSION;
            format!(
                "the manager speaks versions {oldest} to {newest} of the protocol, this agent speaks {ours}: \
                 use an agent of a fitting version"
            )
        }
        SyncRefusal::Superseded { by } => format!("the manager accepts only session {by} of this store"),
        SyncRefusal::NewerLeadership { follows } => {
            format!(
                "this agent follows leadership {follows}, which is newer than the manager's; the manager \
                 will take over with a higher epoch"
            )
        }
        SyncRefusal::LedgerLost => {
            "this store was replaced or declared lost: all its runs are stopped; join again with \
             `--replace`"
                .to_owned()
        }
        SyncRefusal::UnknownCluster => {
            "the manager does not know this cluster, or has revoked its certificate: join again with \
             `meridian cluster join`"
                .to_owned()
        }
        SyncRefusal::NotLeading => "the manager does not lead now".to_owned(),
        SyncRefusal::Malformed(why) => format!(
            "the manager refuses the sync as malformed: \
                                                {}",
            link::printable(why)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::ids::{JournalId, RecordNumber, Session};
    use meridian_shared::protocol::{Receipt, VERSION};

    fn uplink() -> Uplink {
        Uplink::new(Link::plain("http://127.0.0.1:1", reqwest::Client::new), 7)
    }

    fn response(events_through: u64) -> SyncAnswer {
        let leadership = Leadership { epoch: 1, id: 1 };
        SyncAnswer::Ok(Box::new(SyncResponse {
            version: VERSION,
            leadership,
            session: Session { counter: 1, id: 1 },
            transmission: 1,
            receipt: Receipt {
                journal: JournalId(1),
                leadership,
                record: RecordNumber(1),
                rules: RecordNumber(1),
                audit_head: None,
                mac: None,
            },
            members: Vec::new(),
            events_through,
            ends_acknowledged: Vec::new(),
            commands: Vec::new(),
            commands_from: 1,
            renewals: Vec::new(),
            want_inventory: false,
            capacity_acknowledged: 0,
            ranges: Vec::new(),
            poll: Millis::secs(1),
        }))
    }

    fn land(up: &mut Uplink, lane: Lane, took: Duration, result: Result<SyncAnswer, Error>, now: Instant) {
        match lane {
            Lane::Poll => up.poll_out = true,
            Lane::News => (up.news_out, up.news) = (true, false),
        }
        up.note(&Landed { lane, took, result }, now, None);
    }

    #[test]
    fn an_outage_shorter_than_the_lease_ends_no_gang() {
        crate::install_crypto();
        let (term, second) = (Millis::secs(30), Duration::from_secs(1));
        let poll = meridian_shared::lease::poll(term);
        // The lease counts from a poll that was sent two poll times before the outage began.
        let stop = term.saturating_sub(meridian_shared::lease::stop_budget(term)).saturating_sub(poll + poll);
        for seed in 0..40 {
            let (mut up, began) = (uplink(), Instant::now());
            (up.seed, up.poll) = (seed, poll);
            let stop_at = began + Duration::from_millis(stop.0);
            // The manager leads again shortly before the stop; until then every request fails at once.
            let back = stop_at - second;
            let mut now = began;
            while now < back {
                let left = Millis(u64::try_from((stop_at - now).as_millis()).unwrap());
                let refused = Ok(SyncAnswer::Refused(SyncRefusal::NotLeading));
                up.note(&Landed { lane: Lane::News, took: Duration::ZERO, result: refused }, now, Some(left));
                now = up.pause().unwrap();
            }
            assert!(now < stop_at, "seed {seed}: the next request is {:?} after the stop", now - stop_at);
        }
    }

    #[test]
    fn news_does_not_wait_for_the_poll() {
        crate::install_crypto();
        let (mut up, now) = (uplink(), Instant::now());
        assert_eq!(up.due(now), Some(Lane::News), "the first is answered at once");
        land(&mut up, Lane::News, Duration::from_secs(1), Ok(response(0)), now);
        assert_eq!(up.due(now), Some(Lane::Poll));
        up.poll_out = true;
        assert_eq!(up.due(now), None);
        up.want_news();
        assert_eq!(up.due(now), Some(Lane::News));
        up.news_out = true;
        assert_eq!(up.due(now), None);
    }

    #[test]
    fn a_broken_link_is_probed_on_the_news_lane() {
        crate::install_crypto();
        let (mut up, mut now) = (uplink(), Instant::now());
        land(&mut up, Lane::News, Duration::from_secs(1), Ok(response(0)), now);
        let mut last = Duration::ZERO;
        for failure in 0..8 {
            let result = if failure % 2 == 0 {
                Err(Error::Silent(Millis(1)))
            } else {
                Ok(SyncAnswer::Refused(SyncRefusal::NotLeading))
            };
            land(&mut up, Lane::News, Duration::ZERO, result, now);
            assert_eq!((up.due(now), up.is_well()), (None, false));
            let pause = up.pause().unwrap() - now;
            assert!(
                pause <= Duration::from_millis(PAUSE_MAX_MOST.0) && (failure > 2 || pause >= last / 2),
                "{pause:?} after {last:?}"
            );
            last = pause;
            now += pause;
            assert_eq!(up.due(now), Some(Lane::News));
        }
        land(&mut up, Lane::News, Duration::from_secs(1), Ok(response(0)), now);
        assert_eq!((up.due(now), up.is_well()), (Some(Lane::Poll), true));
    }

    #[test]
    fn empty_answers_cause_no_busy_loop() {
        crate::install_crypto();
        let (mut up, now) = (uplink(), Instant::now());
        land(&mut up, Lane::News, Duration::ZERO, Ok(response(1)), now);
        assert_eq!(up.due(now), Some(Lane::Poll));
        land(&mut up, Lane::Poll, Duration::ZERO, Ok(response(1)), now);
        assert_eq!(up.due(now), None);
        assert_eq!(up.due(now + EMPTY_POLL_LEAST), Some(Lane::Poll));
        land(&mut up, Lane::Poll, Duration::ZERO, Ok(response(2)), now);
        assert_eq!(up.due(now), Some(Lane::Poll), "the answer acknowledged news");
    }

    #[test]
    fn a_poll_times_out_soon_after_its_parking_time() {
        assert_eq!(limit(Millis::secs(1), Lane::Poll), Millis::secs(2));
        assert_eq!(limit(Millis::secs(112), Lane::Poll), Millis::secs(122));
        assert_eq!(limit(Millis::secs(1), Lane::News), Millis::secs(2));
    }
}
