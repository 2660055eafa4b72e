use super::*;

#[tokio::test]
async fn tokens_are_created_listed_and_revoked() {
    let token = json!({
        "name": "ci", "user": "sam", "groups": ["team-a"], "created": "2026-11-20T00:00:00Z",
        "expires": "2026-12-20T00:00:00Z", "expired": false,
    });
    let mut created = token.clone();
    created["token"] = json!("mu_secret");
    created["kubeconfig"] = json!("apiVersion: v1\nkind: Config\n");
    let old = json!({"name": "admin", "user": "admin", "groups": [], "created": "", "expires": null});
    let fake = Fake::new([
        ("POST /meridian/v1/tokens", FakeAnswer::Json(201, created.clone())),
        ("POST /meridian/v1/tokens", FakeAnswer::Json(201, created)),
        ("GET /meridian/v1/tokens", FakeAnswer::Json(200, json!({"tokens": [token, old]}))),
        ("DELETE /meridian/v1/tokens/ci", FakeAnswer::Json(200, json!({"message": "token `ci` is revoked"}))),
    ]);
    let line = ["token", "create", "ci", "--user", "sam", "--group", "team-a", "--ttl", "2h", "-n", "a"];
    let ran = run(&fake, &line, "").await;
    assert_eq!(ran.answers, "mu_secret\n");
    assert!(ran.notes.contains("shown once; valid until 2026-12-20"), "{}", ran.notes);
    let expect = json!({
        "name": "ci", "user": "sam", "groups": ["team-a"], "ttl": "7200s", "namespace": "a",
    });
    let ran = run(&fake, &["token", "create", "ci", "--as-kubeconfig"], "").await;
    assert_eq!(ran.answers, "apiVersion: v1\nkind: Config\n");
    let listed = run(&fake, &["token", "list"], "").await.answers;
    assert!(listed.contains("team-a") && listed.contains("never") && !listed.contains("mu_"), "{listed}");
    assert_eq!(run(&fake, &["token", "revoke", "ci"], "").await.answers, "token `ci` is revoked\n");
    assert_eq!(request_body(&fake, 0), expect);
}

#[tokio::test]
async fn can_i_asks_for_kinds_names_and_paths() {
    let path = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = |allowed: bool| (path, FakeAnswer::Json(201, json!({"status": {"allowed": allowed}})));
    let fake = Fake::new([answer(true), answer(false), answer(false), answer(true), answer(true)]);
    let yes = run(&fake, &["auth", "can-i", "delete", "jobs/train", "-n", "a"], "").await;
    assert_eq!((yes.answers.as_str(), yes.code()), ("yes\n", 0));
    let no = run(&fake, &["auth", "can-i", "list", "cq"], "").await;
    assert_eq!((no.answers.as_str(), no.code()), ("no\n", 1));
    assert_eq!(no.notes, "");
    let unknown = run(&fake, &["auth", "can-i", "frobnicate", "jobs", "-n", "a"], "").await;
    assert_eq!((unknown.answers.as_str(), unknown.code()), ("no\n", 1));
    let warning = "warning: `frobnicate` is not a known verb; these are: *, approve, ";
    assert!(unknown.notes.starts_with(warning), "{}", unknown.notes);
    run(&fake, &["auth", "can-i", "get", "/metrics"], "").await.result.unwrap();
    run(&fake, &["auth", "can-i", "get", "audit"], "").await.result.unwrap();
    let spec = |index| request_body(&fake, index)["spec"].clone();
    let resource = |verb: &str, of: [&str; 4]| {
        let [group, resource, name, namespace] = of;
        json!({"resourceAttributes": {
            "verb": verb, "group": group, "resource": resource, "subresource": "", "name": name,
            "namespace": namespace,
        }})
    };
    assert_eq!(spec(0), resource("delete", ["batch", "jobs", "train", "a"]));
    assert_eq!(spec(1), resource("list", ["kueue.x-k8s.io", "clusterqueues", "", ""]));
    assert_eq!(spec(3), json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}));
    assert_eq!(spec(4), resource("get", ["meridian.dev", "audit", "", ""]));
}
