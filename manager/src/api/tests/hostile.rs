//! Malformed, oversized and odd requests.

use super::*;

async fn raw(rig: &Rig, path: &str, form: &str, body: impl Into<Body>) -> Answer {
    let mut request = with(rig.request("POST", path, None), "content-type", form);
    *request.body_mut() = body.into();
    rig.read(request).await
}

#[tokio::test]
async fn bodies_without_an_object_are_refused() {
    let rig = Rig::with_queue().await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested = format!(
        r#"{{"apiVersion":"batch/v1","kind":"Job","metadata":{}{}}}"#,
        r#"{"a":"#.repeat(5_000),
        "1".to_owned() + &"}".repeat(5_000)
    );
    for body in [
        "",
        "null",
        "3",
        "[]",
        "{",
        "\"x\"",
        "{\"kind\":3}",
        "\u{0}",
        &deep,
        &nested,
        "{\"apiVersion\":\"batch/v1\",\"kind\":\"Job\"}",
    ] {
        for path in [JOBS, "/meridian/v1/apply", "/meridian/v1/bulk"] {
            let answer = raw(&rig, path, "application/json", body.to_owned()).await;
            assert!(
                matches!(answer.failure().0, 400 | 422),
                "{path} {}: {answer:?}",
                &body[..body.len().min(40)]
            );
        }
    }
    let answer = raw(&rig, JOBS, "application/json", vec![0xff, 0xfe]).await;
    assert_eq!(answer.failure().0, 400);
}

#[tokio::test]
async fn bodies_of_other_media_types_are_refused() {
    let rig = Rig::with_queue().await;
    for form in [
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "text/plain",
        "application/x-www-form-urlencoded",
    ] {
        let answer = raw(&rig, JOBS, form, job("x").to_string()).await;
        assert_eq!((answer.failure().0, answer.failure().1), (415, "UnsupportedMediaType"), "{form}");
    }
    let zipped = with(rig.request("POST", JOBS, Some(&job("x"))), "content-encoding", "gzip");
    assert_eq!(rig.read(zipped).await.failure().0, 415);
    let html = with(rig.request("GET", JOBS, None), "accept", "text/html");
    assert_eq!(rig.read(html).await.failure().0, 406);
}

#[tokio::test]
async fn large_bodies_are_refused_with_or_without_a_length() {
    let rig = Rig::with_queue().await;
    let large = "x".repeat(crate::api::request::body::OBJECT_BYTES_MAX + 1);
    assert_eq!(raw(&rig, JOBS, "application/json", large).await.failure().0, 413);
    let pieces =
        futures::stream::iter((0..64).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 64 << 10]))));
    assert_eq!(raw(&rig, JOBS, "application/json", Body::from_stream(pieces)).await.failure().0, 413);
    let announced = with(rig.request("POST", JOBS, Some(&job("x"))), "content-length", "99999999999");
    assert_eq!(rig.read(announced).await.failure().0, 413);
    let mut fat = job("x");
    fat["metadata"]["annotations"] = json!({"a": "b".repeat(3 << 20)});
    let refused = rig.apply(&[fat]).await;
    assert_eq!(refused.body["details"]["causes"][0]["field"], "objects[0]", "{:?}", refused.code);
    let broken = futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]);
    assert_eq!(raw(&rig, JOBS, "application/json", Body::from_stream(broken)).await.failure().0, 400);
}

#[tokio::test]
async fn odd_paths_and_queries_do_no_harm() {
    let rig = Rig::with_queue().await;
    let long = "a".repeat(20_000);
    for path in [
        "/apis/batch/v1/namespaces/%00/jobs/%2e%2e",
        "/apis//",
        "//",
        "/apis/batch/v1/namespaces/default/jobs/%f0%9f",
        &format!("/{long}"),
    ] {
        let answer = rig.get(path).await;
        assert_eq!(answer.failure().0, 404, "{path}");
        assert!(answer.failure().2.len() < 1_000);
    }
    assert_eq!(rig.get(&format!("{JOBS}?{}", "a=b&".repeat(100))).await.failure().0, 400);
    assert_eq!(rig.get(&format!("{JOBS}?labelSelector={long}")).await.failure().0, 400);
    assert_eq!(rig.get(&format!("{JOBS}?continue={}", "x".repeat(1_000))).await.failure().0, 400);
    assert!(rig.get(&format!("{JOBS}?limit=18446744073709551615")).await.code.is_success());
}
