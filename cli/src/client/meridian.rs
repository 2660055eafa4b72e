//! Meridian's own endpoints beside the Kubernetes-shaped ones, below `/meridian/v1`.

use super::{Client, EXCHANGE_TIMEOUT, Error, Lines, LogStream};
use reqwest::{Method, Url};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What became of one object of an apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ApplyResult {
    /// Its kind, such as `ClusterQueue`.
    pub(crate) kind: String,
    /// Its namespace, where the kind has one.
    pub(crate) namespace: Option<String>,
    /// Its name.
    pub(crate) name: String,
    /// `created`, `configured` or `unchanged`.
    pub(crate) result: String,
}

/// What became of an apply; all of it, or it would have been an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ApplyAnswer {
    /// One per object, in the order of the request.
    pub(crate) results: Vec<ApplyResult>,
    /// What a person should know.
    pub(crate) warnings: Vec<String>,
}

/// Many new jobs, as text: whoever sends tens of thousands at set times has no time to write them then, nor room for their values.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Bulk {
    objects: Vec<Box<RawValue>>,
}

impl FromIterator<Value> for Bulk {
    fn from_iter<I: IntoIterator<Item = Value>>(jobs: I) -> Self {
        let text = |job: Value| serde_json::value::to_raw_value(&job).expect("a value is text");
        Self { objects: jobs.into_iter().map(text).collect() }
    }
}

/// What a joining cluster will be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct JoinRequest {
    /// Where it is.
    pub(crate) region: String,
    /// Whose law holds there.
    pub(crate) jurisdiction: String,
    /// How long the token is good, such as `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<String>,
    /// Whether it takes the place of a cluster of that name.
    pub(crate) replace: bool,
}

/// A token that works once.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct JoinAnswer {
    /// The command to run over there.
    pub(crate) command: String,
    /// The token in it.
    pub(crate) token: String,
    /// When it stops working.
    pub(crate) expires: String,
}

impl std::fmt::Debug for JoinAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinAnswer").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// What an operator does to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterAction {
    /// No new work.
    Cordon,
    /// New work again.
    Uncordon,
    /// Work although no other cluster has acknowledged its name.
    Admit,
    /// No new work, and what runs is moved away.
    Drain,
    /// It will not come back: its leases count as ended.
    DeclareLost,
}

impl ClusterAction {
    fn segment(self) -> &'static str {
        match self {
            Self::Cordon => "cordon",
            Self::Uncordon => "uncordon",
            Self::Admit => "admit",
            Self::Drain => "drain",
            Self::DeclareLost => "declare-lost",
        }
    }
}

/// Which part of a job's output is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogQuery {
    /// Whether to go on until the job ends.
    pub(crate) follow: bool,
    /// One pod only, by its index.
    pub(crate) pod: Option<u32>,
    /// Only this many lines from the end.
    pub(crate) tail: Option<u64>,
}

const ROOT: [&str; 2] = ["meridian", "v1"];

impl Client {
    /// Makes or changes all objects in one transaction, or none. A problem's field begins with `objects[N]`.
    pub(crate) async fn apply(
        &self,
        objects: &[Value],
        cluster: Option<&str>,
        dry_run: bool,
    ) -> Result<ApplyAnswer, Error> {
        let body = json!({"objects": objects, "cluster": cluster, "dryRun": dry_run});
        self.own(Method::POST, ["apply"], Some(&body)).await
    }

    /// Makes many new jobs in one transaction, all or none.
    pub(crate) async fn bulk(&self, jobs: &Bulk) -> Result<Value, Error> {
        self.own(Method::POST, ["bulk"], Some(jobs)).await
    }

    /// Whether the manager says that it is ready.
    pub(crate) async fn ready(&self) -> bool {
        self.text("readyz").await.is_ok()
    }

    /// The manager's metrics, as text.
    pub(crate) async fn metrics(&self) -> Result<String, Error> {
        self.text("metrics").await
    }

    /// One metric, in the same format: the others cost nothing.
    pub(crate) async fn metric(&self, name: &str) -> Result<String, Error> {
        let mut url = self.url(["metrics"]);
        url.query_pairs_mut().append_pair("name[]", name);
        self.text_at(url, "metrics").await
    }

    async fn text(&self, path: &str) -> Result<String, Error> {
        self.text_at(self.url([path]), path).await
    }

    async fn text_at(&self, url: Url, path: &str) -> Result<String, Error> {
        let request = self.request(Method::GET, url).timeout(EXCHANGE_TIMEOUT);
        let response = self.send(request).await?;
        let body = self.body(response).await?;
        String::from_utf8(body)
            .map_err(|error| Error::Malformed { what: format!("/{path}"), why: error.to_string() })
    }

    /// Why a workload runs where it does, or does not run.
    pub(crate) async fn why(&self, namespace: &str, name: &str) -> Result<Value, Error> {
        self.own(Method::GET, ["why", namespace, name], None::<&Value>).await
    }

    /// A one-time token for the agent of a cluster.
    pub(crate) async fn join_token(&self, cluster: &str, request: &JoinRequest) -> Result<JoinAnswer, Error> {
        self.own(Method::POST, ["clusters", cluster, "join-token"], Some(&json!(request))).await
    }

    /// Does something to a cluster. The person has confirmed it.
    pub(crate) async fn cluster_action(
        &self,
        cluster: &str,
        action: ClusterAction,
        ledger: Option<&str>,
    ) -> Result<Value, Error> {
        let mut body = json!({"confirm": cluster});
        if let Some(ledger) = ledger {
            body["ledger"] = ledger.into();
        }
        self.own(Method::POST, ["clusters", cluster, action.segment()], Some(&body)).await
    }

    /// Whether the manager is recovering, and what it waits for.
    pub(crate) async fn recovery(&self) -> Result<Value, Error> {
        self.own(Method::GET, ["recovery"], None::<&Value>).await
    }

    /// An operator's word that no other copy of the journal runs.
    pub(crate) async fn confirm_recovery(&self) -> Result<Value, Error> {
        self.own(Method::POST, ["recovery", "confirm"], Some(&json!({"confirm": true}))).await
    }

    /// An operator's word that today's policies and quotas are the right ones.
    pub(crate) async fn confirm_rules(&self) -> Result<Value, Error> {
        self.own(Method::POST, ["rules", "confirm"], Some(&json!({"confirm": true}))).await
    }

    /// Stops a run that no workload owns.
    pub(crate) async fn stop_orphan(&self, uid: &str, fence: &str) -> Result<Value, Error> {
        self.own(Method::POST, ["orphans", uid, fence, "stop"], Some(&json!({}))).await
    }

    /// Gives a run that no workload owns its job back.
    pub(crate) async fn adopt_orphan(&self, uid: &str, fence: &str, job: &Value) -> Result<Value, Error> {
        self.own(Method::POST, ["orphans", uid, fence, "adopt"], Some(job)).await
    }

    /// A job's output as it comes, piece by piece.
    pub(crate) async fn logs(&self, namespace: &str, job: &str, query: LogQuery) -> Result<LogStream, Error> {
        LogStream::start(self.clone(), namespace, job, query).await
    }

    pub(super) async fn open_log(
        &self,
        namespace: &str,
        job: &str,
        query: LogQuery,
    ) -> Result<reqwest::Response, Error> {
        let mut url = self.url(ROOT.into_iter().chain(["logs", namespace, job]));
        if query.follow {
            url.query_pairs_mut().append_pair("follow", "true");
        }
        if let Some(pod) = query.pod {
            url.query_pairs_mut().append_pair("pod", &pod.to_string());
        }
        if let Some(tail) = query.tail {
            url.query_pairs_mut().append_pair("tail", &tail.to_string());
        }
        self.send(self.request(Method::GET, url)).await
    }

    /// The audit log from line `from` on, as it is now.
    pub(crate) async fn audit(&self, from: u64) -> Result<Lines, Error> {
        let mut url = self.url(ROOT.into_iter().chain(["audit"]));
        url.query_pairs_mut().append_pair("from", &from.to_string());
        Ok(Lines::new(self.send(self.request(Method::GET, url)).await?))
    }

    async fn own<'s, T: for<'d> Deserialize<'d>>(
        &self,
        method: Method,
        path: impl IntoIterator<Item = &'s str>,
        body: Option<&impl Serialize>,
    ) -> Result<T, Error> {
        let url = self.url(ROOT.into_iter().chain(path));
        let what = url.path().to_owned();
        let request = self.request(method, url);
        let answer = self.answer(match body {
            Some(body) => request.json(body),
            None => request,
        });
        serde_json::from_value(answer.await?)
            .map_err(|error| Error::Malformed { what, why: error.to_string() })
    }
}
