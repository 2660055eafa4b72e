//! The Lease that lets one of several replicas act while the others wait.
//!
//! A Lease by itself doesn't keep a holder that was paused from acting late. So a write needs a recent
//! renewal, or the Lease is read again ([`Leader::may_write`]). Before a start the Lease is always read again
//! ([`Leader::still_leads`]); the server refuses the start if the job was changed or deleted in between.

use crate::connection::{Connection, within};
use crate::error::{Error, Failure, classify};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::PostParams;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a Lease is valid after its last renewal. Its holder stops writing some seconds before.
pub const DURATION: Duration = Duration::from_secs(15);
/// Pause between renewals, and between reads of another holder's Lease.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// Time without a renewal after which a holder writes nothing. Shorter than [`DURATION`], so that it stops
/// before another replica may take the Lease.
const FRESH: Duration = Duration::from_secs(10);
/// How often the log repeats that a Lease can't be renewed.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Identity of this replica and its Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionSettings {
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identifies the store of this replica. Only one process at a time uses a store, so after a restart the
    /// replica takes its own Lease without waiting.
    pub replica: String,
    /// Unique for each process of a replica.
    pub life: String,
}

impl ElectionSettings {
    fn holder(&self) -> String {
        format!("{}_{}", self.replica, self.life)
    }

    fn is_own(&self, holder: &str) -> bool {
        holder.strip_prefix(&self.replica).is_some_and(|rest| rest.starts_with('_'))
    }
}

/// The replica that holds the Lease.
#[derive(Clone)]
pub struct Leader {
    leases: Api<Lease>,
    settings: Arc<ElectionSettings>,
    /// When the Lease was last taken or renewed. This is the time before the request, to be on the safe side.
    renewed: Arc<Mutex<Moment>>,
}

/// A time on both clocks. Both are needed, because only the calendar advances while a virtual machine is
/// paused.
#[derive(Clone, Copy, Debug)]
struct Moment {
    clock: Instant,
    calendar: Timestamp,
}

impl Moment {
    fn now() -> Self {
        Self { clock: Instant::now(), calendar: Timestamp::now() }
    }

    /// Whether less than `span` has passed on both clocks, and the calendar was not set back.
    fn is_within(&self, span: Duration) -> bool {
        let passed = Timestamp::now().duration_since(self.calendar);
        self.clock.elapsed() < span && Duration::try_from(passed).is_ok_and(|passed| passed < span)
    }
}

impl std::fmt::Debug for Leader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leader").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Waits for the Lease, or returns `None` when `stop` is cancelled first. Calls `held` once if another
/// replica holds it. Fails if the server refuses Leases to this account.
pub async fn acquire(
    connection: &Connection,
    settings: ElectionSettings,
    stop: &CancellationToken,
    held: impl Fn(),
) -> Result<Option<Leader>, Error> {
    let leases = Api::namespaced(connection.client.clone(), &settings.namespace);
    let renewed = Arc::new(Mutex::new(Moment::now()));
    let leader = Leader { leases, settings: Arc::new(settings), renewed };
    // The other holder's Lease as last seen, and when this machine first saw it so. The holder's own times
    // aren't used, because the clocks of two machines can't be compared.
    let mut seen: Option<(String, Instant)> = None;
    let mut logged = false;
    loop {
        let asked = Moment::now();
        match leader.try_acquire(&mut seen).await {
            Ok(true) => {
                leader.set_renewed(asked);
                return Ok(Some(leader));
            }
            Ok(false) if !logged => {
                logged = true;
                held();
                let (name, holder) = (&leader.settings.name, leader.holder().await.unwrap_or_default());
                tracing::info!(name, holder, "another replica holds the Lease: waiting for it");
            }
            Ok(false) => {}
            Err(Error::Request { doing, source }) if classify(&source) == Failure::Refused => {
                return Err(Error::Request { doing, source });
            }
            Err(error) => tracing::warn!(%error, "cannot ask for the Lease: trying again"),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(RENEW_EVERY) => {}
        }
    }
}

impl Leader {
    /// Renews the Lease until another replica holds it, and then returns why. While the API server doesn't
    /// answer, no other replica can take the Lease: this replica continues, and writes nothing until the
    /// server answers.
    pub async fn keep(&self) -> String {
        self.keep_unless(|| std::future::ready(Ok(None))).await
    }

    /// Like [`Self::keep`], but also ends when `lost` says why this replica may no longer act. If `lost`
    /// fails, the Lease isn't renewed, so a fresh Lease proves that this replica may act.
    pub async fn keep_unless<F>(&self, lost: impl Fn() -> F) -> String
    where
        F: Future<Output = Result<Option<String>, Error>>,
    {
        let mut logged: Option<Instant> = None;
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            let asked = Moment::now();
            let renewed = async {
                match lost().await? {
                    Some(why) => Ok(Some(why)),
                    None => self.renew().await,
                }
            };
            match renewed.await {
                Ok(None) => {
                    logged = None;
                    self.set_renewed(asked);
                }
                Ok(Some(why)) => return why,
                Err(error) => {
                    if logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
                        logged = Some(Instant::now());
                        tracing::warn!(
                            %error,
                            "cannot renew the Lease: nothing is written to the cluster until it is"
                        );
                    }
                }
            }
        }
    }

    /// Gives up the Lease, so that another replica needn't wait until it expires. A failure costs only that
    /// wait.
    pub async fn release(&self) {
        let read = within("read the Lease".to_owned(), self.leases.get(&self.settings.name)).await;
        let Ok(lease) = read else { return };
        let spec = lease.spec.clone().unwrap_or_default();
        if spec.holder_identity == Some(self.settings.holder()) {
            let spec = LeaseSpec { holder_identity: None, ..spec };
            drop(self.replace(Lease { spec: Some(spec), ..lease }).await);
        }
    }

    /// Whether the Lease was renewed so recently that no other replica can hold it, by this machine's clock.
    pub fn is_fresh(&self) -> bool {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner).is_within(FRESH)
    }

    /// Whether this replica may write: by its own clocks or, if the last renewal is too long ago, by the
    /// Lease on the server. Fails if the server doesn't answer.
    pub async fn may_write(&self) -> Result<bool, Error> {
        if self.is_fresh() { Ok(true) } else { self.still_leads().await }
    }

    fn set_renewed(&self, at: Moment) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// Whether the Lease on the server still names this replica as the holder. Fails if the server doesn't
    /// answer.
    pub async fn still_leads(&self) -> Result<bool, Error> {
        Ok(self.holder().await? == self.settings.holder())
    }

    async fn holder(&self) -> Result<String, Error> {
        let lease = within("read the Lease".to_owned(), self.leases.get(&self.settings.name)).await?;
        Ok(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default())
    }

    /// Takes a Lease that is free, or whose holder hasn't renewed it for its duration.
    async fn try_acquire(&self, seen: &mut Option<(String, Instant)>) -> Result<bool, Error> {
        let name = &self.settings.name;
        let Some(lease) = within("read the Lease".to_owned(), self.leases.get_opt(name)).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
                spec: Some(self.spec(None)),
            };
            let params = PostParams::default();
            return taken(within("create the Lease".to_owned(), self.leases.create(&params, &lease)).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let is_free = holder.is_empty() || self.settings.is_own(&holder);
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let since = match seen {
            Some((known, since)) if *known == version => *since,
            _ => seen.insert((version, Instant::now())).1,
        };
        if !is_free && since.elapsed() < DURATION {
            return Ok(false);
        }
        self.replace(Lease { spec: Some(self.spec(Some(&spec))), ..lease }).await
    }

    /// Returns why the Lease is lost; `None` if it was renewed.
    async fn renew(&self) -> Result<Option<String>, Error> {
        let lost = || Some(format!("another replica took the Lease `{}`", self.settings.name));
        let lease = within("read the Lease".to_owned(), self.leases.get(&self.settings.name)).await?;
        let spec = lease.spec.clone().unwrap_or_default();
        if spec.holder_identity != Some(self.settings.holder()) {
            return Ok(lost());
        }
        let is_ours = self.replace(Lease { spec: Some(self.spec(Some(&spec))), ..lease }).await?;
        Ok(if is_ours { None } else { lost() })
    }

    /// Writes the Lease, unless another client has written it since it was read.
    async fn replace(&self, lease: Lease) -> Result<bool, Error> {
        let (name, params) = (&self.settings.name, PostParams::default());
        taken(within("write the Lease".to_owned(), self.leases.replace(name, &params, &lease)).await)
    }

    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = Some(MicroTime(Timestamp::now()));
        let is_ours = before.is_some_and(|spec| spec.holder_identity == Some(self.settings.holder()));
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.settings.holder()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: if is_ours {
                before.and_then(|spec| spec.acquire_time.clone())
            } else {
                now.clone()
            },
            renew_time: now,
            lease_transitions: Some(if is_ours { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }
}

/// Whether a write was carried out; false if another writer came first.
fn taken(written: Result<Lease, Error>) -> Result<bool, Error> {
    match written {
        Ok(_) => Ok(true),
        Err(Error::Request { source, .. })
            if matches!(classify(&source), Failure::Conflict | Failure::Exists) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
