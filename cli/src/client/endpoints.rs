//! Meridian's own endpoints below `/meridian/v1`, and the manager's health and metrics.

use super::error::Error;
use super::http::{Client, EXCHANGE_TIMEOUT};
use super::job_name::JobName;
use super::stream_lines::StreamLines;
use reqwest::{Method, Url};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Path segments in front of each endpoint.
pub(super) const ROOT: [&str; 2] = ["meridian", "v1"];

/// The result for one object of an apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ApplyResult {
    pub(crate) kind: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// `created`, `configured` or `unchanged`.
    pub(crate) result: String,
}

/// The answer to an apply that succeeded as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ApplyAnswer {
    /// One per object, in the order of the request.
    pub(crate) results: Vec<ApplyResult>,
    pub(crate) warnings: Vec<String>,
}

/// Many new jobs, serialised in advance: `bench` sends tens of thousands at set times.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Bulk {
    objects: Vec<Box<RawValue>>,
}

impl FromIterator<Value> for Bulk {
    fn from_iter<I: IntoIterator<Item = Value>>(jobs: I) -> Self {
        let text = |job: Value| serde_json::value::to_raw_value(&job).expect("a JSON value can be written");
        Self { objects: jobs.into_iter().map(text).collect() }
    }
}

/// Declaration of a joining cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct JoinRequest {
    pub(crate) region: String,
    pub(crate) jurisdiction: String,
    /// How long the token is valid, such as `3600s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<String>,
    /// Whether to replace an existing cluster of this name.
    pub(crate) replace: bool,
    /// Whether the cluster's service account may join, in place of a token.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) issuer: bool,
}

/// A token that works once.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct JoinAnswer {
    /// The command to run on the worker cluster.
    pub(crate) command: String,
    /// The token in it.
    pub(crate) token: String,
    pub(crate) expires: String,
}

impl std::fmt::Debug for JoinAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinAnswer").field("expires", &self.expires).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterAction {
    Cordon,
    Uncordon,
    Admit,
    Drain,
    Revoke,
    DeclareLost,
}

impl ClusterAction {
    fn segment(self) -> &'static str {
        match self {
            Self::Cordon => "cordon",
            Self::Uncordon => "uncordon",
            Self::Admit => "admit",
            Self::Drain => "drain",
            Self::Revoke => "revoke",
            Self::DeclareLost => "declare-lost",
        }
    }
}

/// How objects are applied.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ApplyOptions<'o> {
    /// Applies to this worker cluster only.
    pub(crate) cluster: Option<&'o str>,
    pub(crate) dry_run: bool,
    /// The manager's `fieldValidation`.
    pub(crate) validation: Option<&'o str>,
}

/// Every method fails if the manager can't be reached or refuses.
impl Client {
    /// Creates or changes all objects in one transaction, or none. The field of each cause of a refusal
    /// begins with `objects[N]`.
    pub(crate) async fn apply(
        &self,
        objects: &[Value],
        options: ApplyOptions<'_>,
    ) -> Result<ApplyAnswer, Error> {
        let ApplyOptions { cluster, dry_run, validation } = options;
        let body = json!({
            "objects": objects, "cluster": cluster, "dryRun": dry_run, "fieldValidation": validation,
        });
        self.call(Method::POST, ["apply"], Some(&body)).await
    }

    /// Creates many jobs in one transaction, all or none.
    pub(crate) async fn bulk(&self, jobs: &Bulk) -> Result<Value, Error> {
        self.call(Method::POST, ["bulk"], Some(jobs)).await
    }

    /// Whether `/readyz` answers 200.
    pub(crate) async fn is_ready(&self) -> bool {
        self.text(self.url(["readyz"])).await.is_ok()
    }

    /// The manager's metrics in Prometheus' text format.
    pub(crate) async fn metrics(&self) -> Result<String, Error> {
        self.text(self.url(["metrics"])).await
    }

    /// One metric in Prometheus' text format, which costs the manager less than all metrics.
    pub(crate) async fn metric(&self, name: &str) -> Result<String, Error> {
        let mut url = self.url(["metrics"]);
        url.query_pairs_mut().append_pair("name[]", name);
        self.text(url).await
    }

    async fn text(&self, url: Url) -> Result<String, Error> {
        let request = url.path().to_owned();
        let response = self.send(self.request(Method::GET, url).timeout(EXCHANGE_TIMEOUT)).await?;
        let body = self.read_body(response).await?;
        String::from_utf8(body).map_err(|error| Error::Malformed { request, why: error.to_string() })
    }

    /// Why a workload is pending, or runs where it does.
    pub(crate) async fn why(&self, namespace: &str, job: &JobName) -> Result<Value, Error> {
        let mut url = self.url(ROOT.into_iter().chain(["why", namespace, job.name()]));
        job.add_kind(&mut url);
        self.exchange(self.request(Method::GET, url)).await
    }

    /// A one-time token for the agent of a cluster.
    pub(crate) async fn join_token(&self, cluster: &str, request: &JoinRequest) -> Result<JoinAnswer, Error> {
        self.call(Method::POST, ["clusters", cluster, "join-token"], Some(&json!(request))).await
    }

    /// Lets the service account of a cluster join.
    pub(crate) async fn let_account_join(
        &self,
        cluster: &str,
        request: &JoinRequest,
    ) -> Result<Value, Error> {
        self.call(Method::POST, ["clusters", cluster, "join-token"], Some(&json!(request))).await
    }

    /// The operator has confirmed the action.
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
        self.call(Method::POST, ["clusters", cluster, action.segment()], Some(&body)).await
    }

    /// Whether the manager is recovering, and what it waits for.
    pub(crate) async fn recovery(&self) -> Result<Value, Error> {
        self.call(Method::GET, ["recovery"], None::<&Value>).await
    }

    /// Confirms that no other copy of the journal runs.
    pub(crate) async fn confirm_recovery(&self) -> Result<Value, Error> {
        self.call(Method::POST, ["recovery", "confirm"], Some(&json!({"confirm": true}))).await
    }

    /// Confirms that the journal's policies and quotas are current.
    pub(crate) async fn confirm_rules(&self) -> Result<Value, Error> {
        self.call(Method::POST, ["rules", "confirm"], Some(&json!({"confirm": true}))).await
    }

    pub(crate) async fn stop_orphan(&self, uid: &str, fence: &str) -> Result<Value, Error> {
        self.call(Method::POST, ["orphans", uid, fence, "stop"], Some(&json!({}))).await
    }

    pub(crate) async fn adopt_orphan(&self, uid: &str, fence: &str, job: &Value) -> Result<Value, Error> {
        self.call(Method::POST, ["orphans", uid, fence, "adopt"], Some(job)).await
    }

    /// A new token of a user.
    pub(crate) async fn create_token(&self, wanted: &Value) -> Result<Value, Error> {
        self.call(Method::POST, ["tokens"], Some(wanted)).await
    }

    /// All tokens, without their secrets.
    pub(crate) async fn tokens(&self) -> Result<Value, Error> {
        self.call(Method::GET, ["tokens"], None::<&Value>).await
    }

    pub(crate) async fn revoke_token(&self, name: &str) -> Result<Value, Error> {
        self.call(Method::DELETE, ["tokens", name], None::<&Value>).await
    }

    /// The answer to a SelfSubjectAccessReview.
    pub(crate) async fn can_i(&self, spec: &Value) -> Result<Value, Error> {
        let url = self.url(["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"]);
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec,
        });
        self.exchange(self.request(Method::POST, url).json(&review)).await
    }

    /// The audit log from line `from`, or from the first line that is kept, to its present end.
    pub(crate) async fn audit(&self, from: Option<u64>) -> Result<StreamLines, Error> {
        let mut url = self.url(ROOT.into_iter().chain(["audit"]));
        if let Some(from) = from {
            url.query_pairs_mut().append_pair("from", &from.to_string());
        }
        Ok(StreamLines::new(self.send(self.request(Method::GET, url)).await?))
    }

    /// The audit log up to its present end, with the seals of segments.
    pub(crate) async fn sealed_audit(&self) -> Result<StreamLines, Error> {
        let mut url = self.url(ROOT.into_iter().chain(["audit"]));
        url.query_pairs_mut().append_pair("seals", "true");
        Ok(StreamLines::new(self.send(self.request(Method::GET, url)).await?))
    }

    /// The PEM of the key that signs segments.
    pub(crate) async fn audit_key(&self) -> Result<String, Error> {
        let answer: Value = self.call(Method::GET, ["audit", "key"], None::<&Value>).await?;
        Ok(answer["publicKey"].as_str().unwrap_or_default().to_owned())
    }

    async fn call<'s, T: for<'d> Deserialize<'d>>(
        &self,
        method: Method,
        path: impl IntoIterator<Item = &'s str>,
        body: Option<&impl Serialize>,
    ) -> Result<T, Error> {
        let url = self.url(ROOT.into_iter().chain(path));
        let path = url.path().to_owned();
        let request = self.request(method, url);
        let answer = self.exchange(match body {
            Some(body) => request.json(body),
            None => request,
        });
        serde_json::from_value(answer.await?)
            .map_err(|error| Error::Malformed { request: path, why: error.to_string() })
    }
}
