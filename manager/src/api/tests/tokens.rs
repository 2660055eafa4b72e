//! Tokens: created, listed, expired and revoked; and what may not be granted.

use super::*;
use crate::auth::TokenInfo;
use meridian_shared::time::Millis;
use std::time::{SystemTime, UNIX_EPOCH};

const TOKENS: &str = "/meridian/v1/tokens";

fn now() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Wall(i64::try_from(since.as_millis()).unwrap())
}

/// An open watch of the jobs in `default`.
async fn watch_as(rig: &Rig, token: &str) -> Events {
    let request = rig.request("GET", &format!("{JOBS}?watch=true"), None);
    let response = rig.send(with(request, "authorization", &format!("Bearer {token}"))).await;
    assert_eq!(response.status(), StatusCode::OK);
    Events { stream: response.into_body().into_data_stream(), buffer: Vec::new() }
}

/// The code of the error that ends a watch.
async fn end_of(mut watch: Events) -> Value {
    loop {
        let event = watch.next().await.expect("an error before the end");
        if event["type"] == "ERROR" {
            assert_eq!(watch.next().await, None, "the watch ends with the error");
            return event["object"]["code"].clone();
        }
    }
}

#[tokio::test]
async fn a_token_is_named_listed_and_revoked() {
    let rig = Rig::with_roles().await;
    let wanted = json!({"name": "ci", "user": "sam", "groups": [], "ttl": "1h", "namespace": "team"});
    let created = rig.post(TOKENS, &wanted).await;
    assert_eq!(created.code, 201);
    let token = created.body["token"].as_str().unwrap().to_owned();
    let kubeconfig = created.body["kubeconfig"].as_str().unwrap();
    assert!(kubeconfig.contains(&token) && kubeconfig.contains("namespace: \"team\""), "{kubeconfig}");
    assert_eq!(rig.post(TOKENS, &wanted).await.failure().0, 409, "the name is taken");
    rig.as_user(&token, "GET", JOBS, None).await.ok();

    let listed = rig.get(TOKENS).await.ok();
    assert!(!listed.to_string().contains(&token), "a token is shown once");
    let ci = listed["tokens"].as_array().unwrap().iter().find(|t| t["name"] == "ci").unwrap();
    assert_eq!((ci["user"].as_str(), ci["expired"].as_bool()), (Some("sam"), Some(false)));
    let lines = rig.get("/meridian/v1/audit").await.body.to_string();
    assert!(lines.contains("create-user-token") && !lines.contains(&token), "{lines}");

    let watch = watch_as(&rig, &token).await;
    rig.delete(&format!("{TOKENS}/ci")).await.ok();
    assert_eq!(end_of(watch).await, 401, "a live watch is cut");
    assert_eq!(rig.as_user(&token, "GET", JOBS, None).await.failure().0, 401);
    assert_eq!(rig.delete(&format!("{TOKENS}/ci")).await.failure().0, 404);
    for wrong in [
        json!({"name": ""}),
        json!({"name": "a/b"}),
        json!({"name": "a", "ttl": "soon"}),
        json!({"name": "a", "ttl": "99999h"}),
        json!({"name": "a", "groups": [" "]}),
    ] {
        assert_eq!(rig.post(TOKENS, &wrong).await.failure().0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn an_expired_token_cuts_a_live_watch() {
    let rig = Rig::with_roles().await;
    let soon = TokenInfo {
        name: "short".to_owned(),
        expires: Some(now() + Millis(400)),
        ..TokenInfo::of_user("sam", &[], now())
    };
    let token = rig.users.change(|tokens| tokens.issue(soon, [9; 32])).unwrap();
    let watch = watch_as(&rig, token.expose()).await;
    assert_eq!(end_of(watch).await, 401);
    assert_eq!(rig.as_user(token.expose(), "GET", JOBS, None).await.failure().0, 401);
    let listed = rig.get(TOKENS).await.ok();
    let short = listed["tokens"].as_array().unwrap().iter().find(|t| t["name"] == "short").unwrap();
    assert_eq!(short["expired"], true);
}

#[tokio::test]
async fn a_deleted_binding_cuts_a_live_watch() {
    let rig = Rig::with_roles().await;
    let watch = watch_as(&rig, &rig.submitter).await;
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/meridian-submitter";
    rig.delete(binding).await.ok();
    assert_eq!(end_of(watch).await, 403);
}

fn rule(group: &str, resources: Value, verbs: Value) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_have() {
    let rig = Rig::with_roles().await;
    let role = |name: &str, rules: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": name, "namespace": "default"}, "rules": rules,
        })
    };
    let rbac = "rbac.authorization.k8s.io";
    // sam keeps roles in `default`, and may make tokens
    let keeper = role(
        "keeper",
        json!([rule(rbac, json!(["roles", "rolebindings"]), json!(["create", "update", "get"])),]),
    );
    let minter = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "minter"},
        "rules": [rule("meridian.dev", json!(["tokens"]), json!(["create"]))],
    });
    let bind = |kind: &str, role_kind: &str, name: &str, role: &str, user: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": name, "namespace": "default"},
            "roleRef": {"apiGroup": rbac, "kind": role_kind, "name": role},
            "subjects": [{"kind": "User", "name": user}],
        })
    };
    let mut everywhere = bind("ClusterRoleBinding", "ClusterRole", "minter", "minter", "sam");
    everywhere["metadata"] = json!({"name": "minter"});
    let binding = bind("RoleBinding", "Role", "keeper", "keeper", "sam");
    rig.apply(&[keeper, minter, binding, everywhere]).await.ok();

    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let sam = async |path: &str, body: &Value| rig.as_user(&rig.submitter, "POST", path, Some(body)).await;
    let mine = role("mine", json!([rule("batch", json!(["jobs"]), json!(["get", "delete"]))]));
    sam(roles, &mine).await.ok();
    sam(bindings, &bind("RoleBinding", "Role", "mine", "mine", "pat")).await.ok();
    let more = role("more", json!([rule("batch", json!(["jobs"]), json!(["get", "update"]))]));
    let refused = sam(roles, &more).await;
    assert_eq!(refused.failure().0, 403);
    let wording = "attempting to grant RBAC permissions not currently held:\n\
                   {APIGroups:[\"batch\"], Resources:[\"jobs\"], Verbs:[\"update\"]}";
    assert!(refused.failure().2.contains(wording), "{refused:?}");
    let viewer = bind("RoleBinding", "ClusterRole", "v", "meridian-viewer", "sam");
    assert_eq!(sam(bindings, &viewer).await.failure().0, 403);
    let absent = bind("RoleBinding", "Role", "v", "absent", "sam");
    assert_eq!(sam(bindings, &absent).await.failure().0, 403);
    let applied = json!({"objects": [more]});
    assert_eq!(sam("/meridian/v1/apply", &applied).await.failure().0, 403, "by apply neither");

    sam(TOKENS, &json!({"name": "own", "user": "sam"})).await.ok();
    assert_eq!(sam(TOKENS, &json!({"name": "ada", "user": "ada"})).await.failure().0, 403);
    let masters = json!({"name": "m", "user": "sam", "groups": ["system:masters"]});
    assert_eq!(sam(TOKENS, &masters).await.failure().0, 403);
    let authenticated = bind("RoleBinding", "Role", "mine", "mine", "pat");
    assert_eq!(sam(bindings, &authenticated).await.failure().0, 409, "the binding of before exists");
}
