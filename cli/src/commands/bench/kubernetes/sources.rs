//! The API servers whose requests are counted, and their counts at one moment.

use super::requests::{Counts, Request};
use crate::commands::api_servers::refused;
use crate::error::Error;
use jiff::Timestamp;
use meridian_kubernetes::Client;
use meridian_kubernetes::connection::within;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait for the metrics behind a URL.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// How often the counts are compared while writes end.
const SETTLE_EVERY: Duration = Duration::from_secs(2);
/// Longest wait for the last write.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
/// Up to this number of writes between two looks the server counts as idle: leases are renewed all the time.
const LEASE_WRITES: f64 = 8.0;

/// One API server's metrics.
pub(super) enum Source {
    /// Asked with the rights of a context.
    Server { name: String, client: Client },
    /// Asked without any rights, such as a proxy's.
    Page { url: String, http: reqwest::Client },
}

impl Source {
    /// A page of metrics. Fails if the program can't make a client.
    pub(super) fn page(url: String) -> Result<Self, Error> {
        // rustls needs one provider per process; an error only says that one is installed already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let http = reqwest::Client::builder().timeout(ANSWER_WITHIN).build();
        let http = http.map_err(|error| Error::Refused(format!("can't ask `{url}`: {error}")))?;
        Ok(Self::Page { url, http })
    }

    fn name(&self) -> &str {
        match self {
            Self::Server { name, .. } => name,
            Self::Page { url, .. } => url,
        }
    }

    async fn counts(&self) -> Result<Counts, Error> {
        let text = match self {
            Self::Server { name, client } => {
                let request = http::Request::get("/metrics").body(Vec::new());
                let request = request.map_err(|error| Error::Refused(error.to_string()))?;
                let doing =
                    format!("read the metrics of `{name}`, which needs the right to get the path `/metrics`");
                within(doing, client.request_text(request)).await.map_err(refused)?
            }
            Self::Page { url, http } => {
                let failed = |error: reqwest::Error| Error::Refused(format!("cannot read `{url}`: {error}"));
                let answer = http.get(url).send().await.and_then(reqwest::Response::error_for_status);
                answer.map_err(failed)?.text().await.map_err(failed)?
            }
        };
        Counts::read(&text).ok_or_else(|| {
            let name = self.name();
            Error::Refused(format!("`{name}` has no request counts of a Kubernetes API server"))
        })
    }
}

/// All counts at one moment.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) at: Instant,
    pub(super) clock: Timestamp,
    /// Counts by the name of the server.
    counts: BTreeMap<String, Counts>,
}

impl Snapshot {
    fn writes_since(&self, before: &Self) -> f64 {
        let servers = self.counts.iter();
        servers.filter_map(|(name, now)| Some(now.since(before.counts.get(name)?).writes())).sum()
    }
}

/// The time between two snapshots.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) from: Snapshot,
    pub(super) to: Snapshot,
}

impl Interval {
    fn seconds(&self) -> f64 {
        self.to.at.duration_since(self.from.at).as_secs_f64()
    }

    fn writes_per_second(&self) -> f64 {
        self.to.writes_since(&self.from) / self.seconds().max(f64::MIN_POSITIVE)
    }

    /// Requests for each job by server, without those of an idle time.
    pub(super) fn per_job(&self, idle: Option<&Self>, jobs: u32) -> BTreeMap<String, BTreeMap<Request, f64>> {
        let counts_of = |interval: &Self, name: &str| {
            let (from, to) = (interval.from.counts.get(name), interval.to.counts.get(name));
            to.zip(from).map(|(to, from)| to.since(from)).unwrap_or_default()
        };
        let share = idle.map_or(0.0, |idle| self.seconds() / idle.seconds().max(f64::MIN_POSITIVE));
        let servers = self.to.counts.keys().map(|name| {
            let anyway = idle.map(|idle| counts_of(idle, name)).unwrap_or_default();
            (name.clone(), counts_of(self, name).per_job(&anyway, share, jobs))
        });
        servers.collect()
    }
}

/// All API servers whose requests are counted.
pub(super) struct Sources(pub(super) Vec<Source>);

impl Sources {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The counts now. Fails if a server can't be asked.
    pub(super) async fn snapshot(&self) -> Result<Snapshot, Error> {
        let (at, clock) = (Instant::now(), Timestamp::now());
        let counts = futures::future::try_join_all(self.0.iter().map(Source::counts)).await?;
        let names = self.0.iter().map(|source| source.name().to_owned());
        Ok(Snapshot { at, clock, counts: names.zip(counts).collect() })
    }

    /// Counts over a time in which nothing is created.
    pub(super) async fn idle(&self, length: Duration) -> Result<Interval, Error> {
        let from = self.snapshot().await?;
        tokio::time::sleep(length).await;
        Ok(Interval { from, to: self.snapshot().await? })
    }

    /// Waits until no more is written than in the idle time, and returns the last counts. Other users may
    /// write all the time, so the wait ends in any case.
    pub(super) async fn settled(&self, idle: Option<&Interval>) -> Result<Snapshot, Error> {
        let anyway = idle.map_or(0.0, Interval::writes_per_second) * SETTLE_EVERY.as_secs_f64();
        let until = Instant::now() + SETTLED_WITHIN;
        let mut before = self.snapshot().await?;
        while !self.is_empty() {
            tokio::time::sleep(SETTLE_EVERY).await;
            let after = self.snapshot().await?;
            if after.writes_since(&before) <= LEASE_WRITES.max(2.0 * anyway) || Instant::now() > until {
                return Ok(after);
            }
            before = after;
        }
        Ok(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(at: Instant, posts: u32, leases: u32) -> Snapshot {
        let text = format!(
            "apiserver_request_total{{resource=\"jobs\",subresource=\"\",verb=\"POST\"}} {posts}\n\
             apiserver_request_total{{resource=\"leases\",subresource=\"\",verb=\"PUT\"}} {leases}\n"
        );
        let counts = BTreeMap::from([("asia".to_owned(), Counts::read(&text).unwrap())]);
        Snapshot { at, clock: Timestamp::UNIX_EPOCH, counts }
    }

    #[test]
    fn the_idle_time_is_counted_by_its_length() {
        let began = Instant::now();
        let second = |number| began + Duration::from_secs(number);
        let idle = Interval { from: snapshot(second(0), 0, 0), to: snapshot(second(10), 0, 20) };
        let load = Interval { from: snapshot(second(10), 0, 20), to: snapshot(second(15), 100, 30) };
        assert_eq!((idle.writes_per_second(), load.writes_per_second()), (2.0, 22.0));
        let each = &load.per_job(Some(&idle), 50)["asia"];
        let posts = Request { verb: "POST".to_owned(), resource: "jobs".to_owned() };
        assert_eq!(each, &BTreeMap::from([(posts, 2.0)]));
        assert_eq!(load.per_job(None, 50)["asia"].len(), 2);
    }
}
