//! Authentication and roles.

use super::*;

#[tokio::test]
async fn unknown_users_get_no_information() {
    let rig = Rig::with_queue().await;
    let paths = ["/", "/api", "/version", QUEUES, "/meridian/v1/recovery", "/meridian/v1/audit", "/nowhere"];
    for path in paths {
        for token in [None, Some("Bearer wrong"), Some("Basic YTpi"), Some("Bearer")] {
            let mut request = rig.request("GET", path, None);
            request.headers_mut().remove(AUTHORIZATION);
            if let Some(token) = token {
                request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static(token));
            }
            let answer = rig.read(request).await;
            assert_eq!((answer.failure().0, answer.failure().1), (401, "Unauthorized"), "{path}");
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
        }
    }
}

#[tokio::test]
async fn impersonation_is_refused() {
    let rig = Rig::with_queue().await;
    for name in ["impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-scopes"] {
        let answer = rig.read(with(rig.request("GET", QUEUES, None), name, "root")).await;
        assert_eq!((answer.failure().0, answer.failure().1), (403, "Forbidden"));
        assert!(answer.failure().2.contains("impersonation is not supported"));
    }
}

#[tokio::test]
async fn submitters_may_submit_and_nothing_else() {
    let rig = Rig::with_roles().await;
    let bulk = json!({"objects": [job("b")]});
    let apply = |object: Value| json!({"objects": [object]});
    let join = json!({"region": "r", "jurisdiction": "EU"});
    let table: Vec<(&str, String, Option<Value>, bool)> = vec![
        ("POST", JOBS.into(), Some(job("a")), true),
        ("GET", JOBS.into(), None, true),
        ("GET", format!("{JOBS}?watch=true&timeoutSeconds=0"), None, true),
        ("GET", format!("{JOBS}/a"), None, true),
        ("PUT", format!("{JOBS}/a"), Some(job("a")), false),
        ("GET", "/meridian/v1/why/default/a".into(), None, true),
        ("DELETE", format!("{JOBS}/a"), None, true),
        ("POST", "/meridian/v1/bulk".into(), Some(bulk), true),
        ("POST", "/meridian/v1/apply".into(), Some(apply(job("c"))), true),
        ("POST", "/meridian/v1/apply".into(), Some(apply(queue("c"))), false),
        ("POST", "/meridian/v1/apply".into(), Some(json!({"objects": [job("d")], "cluster": "eu"})), false),
        ("GET", QUEUES.into(), None, false),
        ("GET", "/apis/kueue.x-k8s.io/v1beta2/resourceflavors".into(), None, true),
        ("GET", "/api/v1/namespaces/default".into(), None, true),
        ("GET", "/api/v1/namespaces".into(), None, false),
        ("GET", "/apis/batch/v1/jobs".into(), None, false),
        ("GET", format!("{QUEUES}?cluster=eu"), None, false),
        ("POST", QUEUES.into(), Some(queue("z")), false),
        ("DELETE", format!("{QUEUES}/q"), None, false),
        ("GET", "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads".into(), None, true),
        ("GET", "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues".into(), None, true),
        (
            "PUT",
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues/q".into(),
            Some(json!({})),
            false,
        ),
        ("GET", "/apis/meridian.dev/v1alpha1/residencypolicies".into(), None, false),
        ("GET", "/apis/meridian.dev/v1alpha1/clusters".into(), None, false),
        ("GET", "/api".into(), None, true),
        ("GET", "/meridian/v1/audit".into(), None, false),
        ("GET", "/meridian/v1/recovery".into(), None, false),
        ("POST", "/meridian/v1/recovery/confirm".into(), Some(json!({})), false),
        ("POST", "/meridian/v1/rules/confirm".into(), Some(json!({})), false),
        ("POST", "/meridian/v1/clusters/eu/join-token".into(), Some(join), false),
        ("POST", "/meridian/v1/clusters/eu/cordon".into(), Some(json!({})), false),
        ("POST", "/meridian/v1/clusters/eu/uncordon".into(), Some(json!({})), false),
        ("POST", "/meridian/v1/clusters/eu/drain".into(), Some(json!({})), false),
        ("POST", "/meridian/v1/clusters/eu/revoke".into(), Some(json!({"confirm": "eu"})), false),
        ("POST", "/meridian/v1/clusters/eu/declare-lost".into(), Some(json!({"confirm": "eu"})), false),
        ("POST", "/meridian/v1/clusters/eu/admit".into(), Some(json!({})), false),
        (
            "POST",
            "/meridian/v1/orphans/00000000-0000-0000-0000-000000000001/1-2-3/stop".into(),
            Some(json!({})),
            false,
        ),
        (
            "POST",
            "/meridian/v1/orphans/00000000-0000-0000-0000-000000000001/1-2-3/adopt".into(),
            Some(job("x")),
            false,
        ),
    ];
    for (method, path, body, may) in table {
        let answer = rig.as_user(&rig.submitter, method, &path, body.as_ref()).await;
        if may {
            assert!(answer.code.is_success(), "{method} {path}: {answer:?}");
        } else {
            assert_eq!(answer.failure().0, 403, "{method} {path}");
            assert!(answer.failure().2.contains("is forbidden: User \"sam\" cannot "), "{answer:?}");
        }
    }
}
