//! Which certificates and join tokens of an agent are valid.

use super::*;

#[tokio::test]
async fn a_token_is_for_one_key_and_a_removed_cluster_is_refused() {
    let port = Port::open(Millis::secs(5)).await;
    let token = port.mint("eu", 1).await;
    let first = port.join(&token, "first").await.unwrap();
    assert_eq!(first.region.as_str(), "europe-west4");
    let error = port.join(&token, "second").await.unwrap_err();
    assert!(
        matches!(error, Error::Refused { status: 403, .. }) && error.to_string().contains("used"),
        "{error}"
    );
    let unknown = token::mint([9; 32]).0;
    assert!(matches!(port.join(&unknown, "third").await.unwrap_err(), Error::Refused { status: 403, .. }));

    let key = Key::global(Kind::Cluster, "eu");
    port.rig
        .handle
        .ask(crate::rig::write(vec![Change::Delete { key, uid: None, force: true }]))
        .await
        .unwrap();
    let keeper = Keeper::open(&port.dir.path().join("first")).unwrap();
    let error = keeper.renew(&first.http_client().unwrap()).await.unwrap_err();
    assert!(
        matches!(error, Error::Refused { status: 403, .. }) && error.to_string().contains("removed"),
        "{error}"
    );
    port.close().await;
}

#[tokio::test]
async fn the_same_key_can_repeat_its_join_while_its_certificates_are_valid() {
    let port = Port::open(Millis::secs(5)).await;
    let token = port.mint("eu", 1).await;
    // the first answer is lost: the agent has its key, but no identity
    let dir = port.dir.path().join("lost");
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    std::fs::create_dir(&dir).unwrap();
    let kept = dir.join("joining.key");
    let lose_answer = || {
        use std::os::unix::fs::PermissionsExt;
        let _ = std::fs::remove_file(dir.join("identity.json"));
        std::fs::write(&kept, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    lose_answer();
    port.join(&token, "lost").await.unwrap();
    lose_answer();
    assert_eq!(port.join(&token, "lost").await.unwrap().cluster.as_str(), "eu");
    // the token is spent for ever, for this key too
    port.delete_and_create_cluster("eu").await;
    lose_answer();
    let error = port.join(&token, "lost").await.unwrap_err();
    assert!(
        matches!(error, Error::Refused { status: 403, .. }) && error.to_string().contains("was used"),
        "{error}"
    );
    port.close().await;
}

#[tokio::test]
async fn a_revoked_agent_is_cut_and_gets_a_remedy() {
    let port = Arc::new(Port::open(Millis::mins(10)).await);
    let (mut worker, client) = port.agent("eu", 1).await;
    let (mut other, other_client) = port.agent("us", 2).await;
    for _ in 0..4 {
        port.exchange(&mut worker, &client).await;
        port.exchange(&mut other, &other_client).await;
    }
    let request = worker.compose(Lane::Poll);
    let sending = client.post(format!("{}{SYNC_PATH}", port.url)).json(&request).timeout(DEADLINE);
    let parked = tokio::spawn(sending.send());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!parked.is_finished() && port.connections.open() >= 2);
    port.operate(Operator::Revoke("eu".into())).await;
    // its connection breaks, unless the refusal was sent just before
    let ended = tokio::time::timeout(Duration::from_secs(5), parked).await.expect("the poll ends at once");
    match ended.unwrap() {
        Ok(answer) => assert_eq!(answer.status(), 403),
        Err(error) => assert!(!error.is_timeout(), "{error}"),
    }
    let (status, text) = port.refusal(&client, &worker.compose(Lane::News)).await;
    assert!(status == 403 && text.contains("was revoked"), "{status} {text}");
    assert!(text.contains("meridian cluster join eu --replace"), "{text}");
    assert_eq!(port.renew(&client).await.0, 403);
    let logs = client.get(format!("{}{REQUESTS_PATH}", port.url)).timeout(DEADLINE).send().await.unwrap();
    assert_eq!(logs.status(), 403);
    let metrics = port.rig.handle.metrics().render(&[]);
    assert!(metrics.contains(r#"meridian_agent_requests_refused_total{cluster="eu"}"#), "{metrics}");
    port.exchange(&mut other, &other_client).await;
    port.stop.cancel();
}

#[tokio::test]
async fn a_recreated_cluster_refuses_the_old_certificate() {
    let port = Port::open(Millis::secs(5)).await;
    let (mut worker, client) = port.agent("eu", 1).await;
    port.exchange(&mut worker, &client).await;
    port.delete_and_create_cluster("eu").await;
    let (status, text) = port.refusal(&client, &worker.compose(Lane::News)).await;
    assert!(status == 403 && text.contains("deleted and created again"), "{status} {text}");
    assert_eq!(port.renew(&client).await.0, 403);
    // a new agent doesn't make the old certificate valid again
    port.join(&port.mint_for("eu", 3, true).await, "new").await.unwrap();
    let (status, text) = port.refusal(&client, &worker.compose(Lane::News)).await;
    assert!(status == 403 && text.contains("was revoked"), "{status} {text}");
    port.close().await;
}

#[tokio::test]
async fn a_replaced_machine_evicts_nobody() {
    let port = Port::open(Millis::secs(5)).await;
    let (mut old, old_client) = port.agent("eu", 1).await;
    port.exchange(&mut old, &old_client).await;
    let token = port.mint_for("eu", 2, true).await;
    port.exchange(&mut old, &old_client).await;
    let joined = port.join(&token, "new").await.unwrap();
    let (mut new, new_client) =
        (Worker::new("eu", 2, 4, port.rig.clock.clone()), joined.http_client().unwrap());
    port.exchange(&mut new, &new_client).await;
    let ledger = LedgerId(2).to_string();
    let has_ledger = async || port.status("eu")["ledger"].as_str() == Some(ledger.as_str());
    crate::rig::until("the new agent's session is displayed", has_ledger).await;
    // the old machine has lost its store, so it brings a ledger that nobody knows
    let mut emptied = Worker::new("eu", 3, 4, port.rig.clock.clone());
    let (status, text) = port.refusal(&old_client, &emptied.compose(Lane::News)).await;
    assert!(status == 403 && text.contains("another agent"), "{status} {text}");
    submit(&port.rig.handle, "one").await.unwrap();
    while port.rig.state_of("one").as_deref() != Some("Running") {
        port.exchange(&mut new, &new_client).await;
    }
    assert!(has_ledger().await && new.refused == 0);
    port.close().await;
}

#[tokio::test]
async fn an_expired_certificate_is_renewed_within_the_grace_only() {
    let port = Port::open(Millis::secs(5)).await;
    let (mut worker, _) = port.agent("eu", 1).await;
    let valid = port.binding("eu");
    let earlier = CertificateBinding { generation: RecordNumber(valid.generation.0 - 1), ..valid };
    let days = |n: u64| Millis::secs(n * 24 * 3_600);
    let recent = port.client_of("eu", valid, days(6));
    assert_eq!(port.refusal(&recent, &worker.compose(Lane::News)).await.0, 401);
    assert_eq!(port.renew(&recent).await.0, 200);
    let (status, text) = port.renew(&port.client_of("eu", valid, days(8))).await;
    assert!(status == 403 && text.contains("more than 7 days ago"), "{status} {text}");
    let (status, text) = port.renew(&port.client_of("eu", earlier, days(1))).await;
    assert!(status == 403 && text.contains("was revoked"), "{status} {text}");
    port.close().await;
}
