//! Tenants: what a user of one namespace sees of another one, at every endpoint.

use super::*;
use crate::api::access::Verb;
use crate::api::meridian::ROUTES;
use meridian_objects::Kind;
use meridian_objects::kind::RBAC_GROUP;

/// The body of a request to an endpoint that is closed to a user of another namespace: it answers 403. A new
/// endpoint that answers such a user needs a test that it names nothing of the other namespace.
fn body_of_closed(method: &str, path: &str) -> Option<Value> {
    match (method, path) {
        ("POST", "/meridian/v1/apply" | "/meridian/v1/bulk") => Some(json!({"objects": [other_job("new")]})),
        ("POST", "/meridian/v1/clusters/{name}/join-token") => {
            Some(json!({"region": "r", "jurisdiction": "EU"}))
        }
        ("POST", "/meridian/v1/orphans/{uid}/{fence}/adopt") => Some(other_job("orphan")),
        (
            "POST",
            "/meridian/v1/clusters/{name}/cordon"
            | "/meridian/v1/clusters/{name}/uncordon"
            | "/meridian/v1/clusters/{name}/admit"
            | "/meridian/v1/clusters/{name}/drain"
            | "/meridian/v1/clusters/{name}/revoke"
            | "/meridian/v1/clusters/{name}/declare-lost"
            | "/meridian/v1/recovery/confirm"
            | "/meridian/v1/rules/confirm"
            | "/meridian/v1/orphans/{uid}/{fence}/stop"
            | "/meridian/v1/tokens",
        ) => Some(json!({"confirm": "eu", "name": "t"})),
        (
            "GET",
            "/meridian/v1/why/{namespace}/{name}"
            | "/meridian/v1/logs/{namespace}/{name}"
            | "/meridian/v1/recovery"
            | "/meridian/v1/audit"
            | "/meridian/v1/audit/key"
            | "/meridian/v1/tokens"
            | "/metrics",
        )
        | ("DELETE", "/meridian/v1/tokens/{name}") => None,
        _ => panic!("{method} {path} has no verdict: decide what a user of another namespace may see of it"),
    }
}

fn other_job(name: &str) -> Value {
    let mut job = job(name);
    job["metadata"]["namespace"] = json!("b");
    job
}

/// Namespaces `a` and `b` with a queue and a job each; `sam` is a submitter in `a`.
async fn two_tenants() -> Rig {
    let rig = Rig::with_roles().await;
    let mut objects = shipped::bindings("a", "sam", "vic");
    objects.extend([namespace("a", &json!({})), namespace("b", &json!({}))]);
    for of in ["a", "b"] {
        let mut local = local("main", "q");
        local["metadata"]["namespace"] = json!(of);
        objects.push(local);
    }
    rig.apply(&objects).await.ok();
    rig.delete(&format!("/apis/{RBAC_GROUP}/v1/namespaces/default/rolebindings/meridian-submitter"))
        .await
        .ok();
    let mut own = job("own-job");
    own["metadata"]["namespace"] = json!("a");
    rig.apply(&[own, other_job("secret-job")]).await.ok();
    rig
}

#[tokio::test]
async fn every_endpoint_is_closed_to_other_tenants() {
    let rig = two_tenants().await;
    for route in &ROUTES {
        let body = body_of_closed(route.method, route.path);
        let path = route
            .path
            .replace("clusters/{name}", "clusters/eu")
            .replace("tokens/{name}", "tokens/ada")
            .replace("{namespace}/{name}", "b/secret-job")
            .replace("{uid}/{fence}", "00000000-0000-0000-0000-000000000001/1-2-3");
        let answer = rig.as_user(&rig.submitter, route.method, &path, body.as_ref()).await;
        let (code, reason, message) = answer.failure();
        assert_eq!((code, reason), (403, "Forbidden"), "{} {path}", route.method);
        assert!(message.contains("orbidden: User \"sam\" cannot"), "{message}");
    }
}

#[tokio::test]
async fn every_kind_and_verb_is_closed_to_other_tenants() {
    let rig = two_tenants().await;
    for kind in Kind::ALL {
        let version = kind.storage_version();
        let root = match kind.group() {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let plural = kind.plural();
        let collection = if kind.namespaced() {
            format!("{root}/namespaces/b/{plural}")
        } else {
            format!("{root}/{plural}")
        };
        // the catalog of what jobs may name belongs to no tenant
        let is_shared = matches!(
            kind,
            Kind::ResourceFlavor
                | Kind::WorkloadPriorityClass
                | Kind::PriorityClass
                | Kind::Topology
                | Kind::RuntimeClass
        );
        for verb in Verb::of(kind) {
            let (method, path) = match verb {
                Verb::Get => ("GET", format!("{collection}/secret-job")),
                Verb::List => ("GET", collection.clone()),
                Verb::Watch => ("GET", format!("{collection}?watch=true&timeoutSeconds=1")),
                Verb::Create => ("POST", collection.clone()),
                Verb::Update => ("PUT", format!("{collection}/secret-job")),
                Verb::Patch => ("PATCH", format!("{collection}/secret-job")),
                Verb::Delete => ("DELETE", format!("{collection}/secret-job")),
            };
            let reads = matches!(verb, Verb::Get | Verb::List | Verb::Watch);
            let body = (!reads && *verb != Verb::Delete).then(|| json!({}));
            let answer = rig.as_user(&rig.submitter, method, &path, body.as_ref()).await;
            if is_shared && reads {
                assert_ne!(answer.code, 403, "{method} {path}");
                continue;
            }
            assert_eq!(answer.failure().0, 403, "{method} {path}: {answer:?}");
            if !kind.namespaced() {
                continue;
            }
            assert!(answer.failure().2.ends_with("in the namespace \"b\""), "{answer:?}");
            if matches!(verb, Verb::List | Verb::Watch) {
                let all = path.replace("/namespaces/b", "");
                let answer = rig.as_user(&rig.submitter, method, &all, None).await;
                assert!(answer.failure().2.ends_with("at the cluster scope"), "{method} {all}: {answer:?}");
            }
        }
    }
    let answer = rig.as_user(&rig.submitter, "GET", "/apis/batch/v1/jobs", None).await;
    let expect = "jobs.batch is forbidden: User \"sam\" cannot list resource \"jobs\" in API group \"batch\" \
                  at the cluster scope";
    assert_eq!(answer.failure(), (403, "Forbidden", expect));
    let own = "/apis/batch/v1/namespaces/a/jobs";
    assert_eq!(
        rig.as_user(&rig.submitter, "GET", own, None).await.ok()["items"].as_array().unwrap().len(),
        1
    );
    rig.as_user(&rig.submitter, "GET", "/meridian/v1/why/a/own-job", None).await.ok();
}

#[tokio::test]
async fn a_role_for_one_name_opens_one_object() {
    let rig = two_tenants().await;
    let rule = json!({
        "verbs": ["get", "list", "watch"], "apiGroups": ["batch"], "resources": ["jobs"],
        "resourceNames": ["secret-job"],
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "one", "namespace": "b"}, "rules": [rule],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "one", "namespace": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"},
        "subjects": [{"kind": "User", "name": "sam"}],
    });
    rig.apply(&[role, binding, other_job("other-job")]).await.ok();
    let jobs = "/apis/batch/v1/namespaces/b/jobs";
    let code = async |path: String| rig.as_user(&rig.submitter, "GET", &path, None).await.code.as_u16();
    assert_eq!(code(format!("{jobs}/secret-job")).await, 200);
    assert_eq!(code(format!("{jobs}?fieldSelector=metadata.name%3Dsecret-job")).await, 200);
    assert_eq!(code("/meridian/v1/why/b/secret-job".to_owned()).await, 200);
    for closed in [
        format!("{jobs}/other-job"),
        jobs.to_owned(),
        format!("{jobs}?fieldSelector=metadata.name%3Dother-job"),
        "/meridian/v1/why/b/other-job".to_owned(),
        "/meridian/v1/logs/b/secret-job".to_owned(),
    ] {
        assert_eq!(code(closed.clone()).await, 403, "{closed}");
    }
}

#[tokio::test]
async fn a_review_says_what_the_asker_may_do() {
    let rig = two_tenants().await;
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let ask = async |token: &str, spec: Value| {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec,
        });
        let answer = rig.as_user(token, "POST", reviews, Some(&review)).await;
        assert_eq!(answer.code, 201, "{answer:?}");
        answer.body["status"]["allowed"].as_bool().unwrap()
    };
    let jobs = |namespace: &str, verb: &str| {
        let resource = json!({"namespace": namespace, "verb": verb, "group": "batch", "resource": "jobs"});
        json!({"resourceAttributes": resource})
    };
    let metrics = json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}});
    assert!(ask(&rig.submitter, jobs("a", "create")).await);
    assert!(!ask(&rig.submitter, jobs("b", "get")).await);
    assert!(!ask(&rig.submitter, jobs("", "list")).await);
    assert!(!ask(&rig.submitter, metrics.clone()).await);
    assert!(ask(&rig.admin, jobs("", "list")).await && ask(&rig.admin, metrics).await);
    // clients send their namespace with every kind
    let flavors = json!({
        "namespace": "b", "verb": "list", "group": "kueue.x-k8s.io", "resource": "resourceflavors",
    });
    assert!(ask(&rig.submitter, json!({"resourceAttributes": flavors})).await);

    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "a"},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let rules = rig.as_user(&rig.submitter, "POST", path, Some(&review)).await.ok();
    let of_jobs = rules["status"]["resourceRules"].to_string();
    assert!(of_jobs.contains("\"jobs/log\"") && !of_jobs.contains("\"tokens\""), "{of_jobs}");
}

#[tokio::test]
async fn a_refusal_names_only_what_the_asker_may_read() {
    let rig = two_tenants().await;
    let user = |name: &str, random: u8| {
        let new = crate::auth::TokenInfo::of_user(name, &[], Wall(0));
        rig.users.change(|tokens| tokens.issue(new, [random; 32])).unwrap().expose().to_owned()
    };
    let keeper = user("kim", 7);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "keeper"},
        "rules": [{"verbs": ["*"], "apiGroups": ["kueue.x-k8s.io"], "resources": ["clusterqueues"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "keeper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "keeper"},
        "subjects": [{"kind": "User", "name": "kim"}],
    });
    rig.apply(&[role, binding]).await.ok();
    let refused = rig.as_user(&keeper, "DELETE", &format!("{QUEUES}/q"), None).await;
    let (code, _, message) = refused.failure();
    assert_eq!(code, 409);
    assert!(!message.contains("secret-job") && message.contains("of other tenants"), "{message}");
    let refused = rig.delete(&format!("{QUEUES}/q")).await;
    assert_eq!(refused.failure().0, 409);
    let message = refused.failure().2;
    assert!(message.contains("b/secret-job") || message.contains("b/main"), "{message}");
}

/// Requests of the controllers of a management cluster.
async fn as_controllers(rig: &Rig, method: &str, path: &str, body: Option<&Value>) -> Answer {
    let mut request = rig.request(method, path, body);
    request.extensions_mut().insert(crate::api::internal::ManagementCluster);
    rig.read(request).await
}

#[tokio::test]
async fn the_controllers_copy_no_name_of_another_tenant() {
    let rig = two_tenants().await;
    let queues = "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/localqueues";
    let mut queue = local("theirs", "q");
    queue["metadata"]["namespace"] = json!("a");
    assert_eq!(as_controllers(&rig, "POST", queues, Some(&queue)).await.code, 201);
    let mut waiting = job("waiting");
    waiting["metadata"]["namespace"] = json!("a");
    waiting["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("theirs");
    rig.apply(&[waiting]).await.ok();
    let refused = as_controllers(&rig, "DELETE", &format!("{queues}/theirs"), None).await;
    assert!(refused.failure().2.contains("a/waiting"), "it is written into that namespace: {refused:?}");
    let path = "/api/v1/namespaces/b";
    let by_admin = rig.delete(path).await;
    assert!(by_admin.failure().2.contains("b/secret-job"), "{by_admin:?}");
    let copied = as_controllers(&rig, "DELETE", path, None).await;
    let (code, _, message) = copied.failure();
    assert_eq!(code, 409, "{message}");
    assert!(!message.contains("secret-job") && message.contains("of another tenant"), "{message}");
    let list = as_controllers(&rig, "GET", "/apis/batch/v1/jobs", None).await.ok();
    assert_eq!(list["items"].as_array().unwrap().len(), 3, "they still read every namespace");
}
