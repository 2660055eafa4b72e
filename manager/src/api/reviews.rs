//! Permissions of the asker: the `SelfSubjectAccessReview` and `SelfSubjectRulesReview` of Kubernetes, for
//! `kubectl auth can-i`.

use super::access::User;
use super::metering::Label;
use super::request::body;
use super::response::error::{Error, method_not_allowed};
use super::state::Api;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use meridian_objects::Kind;
use meridian_objects::rbac::Access;
use meridian_objects::spec::PolicyRule;
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) const GROUP: &str = "authorization.k8s.io";
pub(crate) const VERSION: &str = "v1";
/// Plural and kind of each review.
pub(crate) const KINDS: [(&str, &str); 2] = [
    ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
];
const ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
/// The paths of discovery, which every user may read.
const DISCOVERY: [&str; 5] = ["/api", "/api/*", "/apis", "/apis/*", "/version"];

pub(crate) fn router() -> Router<Api> {
    Router::new()
        .route(ACCESS, post(access).fallback(|m, u| method_not_allowed(m, u, ["POST"])))
        .route(RULES, post(rules).fallback(|m, u| method_not_allowed(m, u, ["POST"])))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AccessSpec {
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<PathAttributes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResourceAttributes {
    namespace: String,
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PathAttributes {
    path: String,
    verb: String,
}

#[derive(Debug, Deserialize)]
struct Review<S> {
    spec: S,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RulesSpec {
    namespace: String,
}

async fn access(Extension(user): Extension<User>, headers: HeaderMap, body: Body) -> Result<Response, Error> {
    let (mut review, spec): (Value, AccessSpec) = read(&headers, body).await?;
    let allowed = match (spec.resource_attributes, spec.non_resource_attributes) {
        (Some(resource), None) => user.permissions().allows(&resource.access()),
        (None, Some(path)) => is_discovery(&path) || user.permissions().allows_path(&path.verb, &path.path),
        _ => {
            return Err(Error::BadRequest(
                "spec: exactly one of `resourceAttributes` and `nonResourceAttributes` must be set"
                    .to_owned(),
            ));
        }
    };
    let reason = if allowed { "" } else { "no role that permits it is bound to the user or its groups" };
    review["status"] = json!({"allowed": allowed, "reason": reason});
    Ok(answer(review))
}

impl ResourceAttributes {
    /// The access to check. For a kind without namespaces, the client's namespace is ignored.
    fn access(&self) -> Access<'_> {
        let some = |text| Some(text).filter(|text: &&str| !text.is_empty());
        let kind = Kind::ALL.into_iter().find(|k| k.plural() == self.resource && k.group() == self.group);
        let is_global = kind.is_some_and(|kind| !kind.namespaced());
        let namespace = match kind {
            Some(Kind::Namespace) => some(self.name.as_str()),
            _ if is_global => None,
            _ => some(self.namespace.as_str()),
        };
        Access {
            verb: &self.verb,
            group: &self.group,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace,
            name: some(self.name.as_str()),
        }
    }
}

fn is_discovery(asked: &PathAttributes) -> bool {
    let matches = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(prefix) => asked.path.starts_with(prefix),
        None => asked.path == **pattern,
    };
    asked.verb == "get" && DISCOVERY.iter().any(matches)
}

async fn rules(Extension(user): Extension<User>, headers: HeaderMap, body: Body) -> Result<Response, Error> {
    let (mut review, spec): (Value, RulesSpec) = read(&headers, body).await?;
    if spec.namespace.is_empty() {
        return Err(Error::BadRequest("spec.namespace: Required value: name a namespace".to_owned()));
    }
    let everything = PolicyRule {
        verbs: vec!["*".to_owned()],
        api_groups: vec!["*".to_owned()],
        resources: vec!["*".to_owned()],
        ..PolicyRule::default()
    };
    let everywhere = PolicyRule {
        verbs: vec!["*".to_owned()],
        non_resource_urls: vec!["*".to_owned()],
        ..PolicyRule::default()
    };
    let permissions = user.permissions();
    let of_masters = [&everything, &everywhere].into_iter().filter(|_| permissions.is_master());
    let all: Vec<&PolicyRule> = of_masters.chain(permissions.rules(Some(&spec.namespace))).collect();
    let resources = all.iter().filter(|rule| !rule.resources.is_empty()).map(|rule| {
        json!({
            "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources,
            "resourceNames": rule.resource_names,
        })
    });
    let discovery = json!({"verbs": ["get"], "nonResourceURLs": DISCOVERY});
    let paths = all
        .iter()
        .filter(|rule| !rule.non_resource_urls.is_empty())
        .map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
    review["status"] = json!({
        "resourceRules": resources.collect::<Vec<_>>(),
        "nonResourceRules": paths.chain([discovery]).collect::<Vec<_>>(),
        "incomplete": false,
    });
    Ok(answer(review))
}

/// The review as the client sent it, and its spec.
async fn read<S: for<'d> Deserialize<'d>>(headers: &HeaderMap, body: Body) -> Result<(Value, S), Error> {
    body::must_be_json(headers)?;
    let bytes = body::read(headers, body, body::ACTION_BYTES_MAX).await?;
    let Review { spec } = body::json(&bytes)?;
    Ok((body::json(&bytes)?, spec))
}

fn answer(review: Value) -> Response {
    let label = Label { verb: "create", resource: "reviews", streams: false };
    (StatusCode::CREATED, Extension(label), Json(review)).into_response()
}
