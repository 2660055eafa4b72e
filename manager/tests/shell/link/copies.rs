//! Copies of the management cluster's objects: which agents get them, when, and that nothing of them is kept.

use super::*;
use crate::rig::{job, until};
use futures::future::BoxFuture;
use meridian_manager_core::facts::input::{PutMode, Write};
use meridian_objects::Object;
use meridian_shared::copies::{COPIES_PATH, Content, CopyAnswer, CopyOutcome, CopyRequest};
use meridian_shared::ids::{Fence, OfferId};
use meridian_shared::protocol::{Command, Reference, ReferenceKind};
use serde_json::json;
use std::collections::BTreeMap;

const VALUE: &str = "bmV2ZXItaW4tYS1qb3VybmFs";
const UID: Uid = Uid(0xfeed);

/// A management cluster with one Secret in one namespace.
#[derive(Debug)]
struct OneSecret;

impl CopySource for OneSecret {
    fn read<'a>(
        &'a self,
        namespace: &'a str,
        reference: &'a Reference,
        with_content: bool,
    ) -> BoxFuture<'a, Result<CopyOutcome, String>> {
        assert_eq!((namespace, &*reference.name), ("default", "token"));
        let data = BTreeMap::from([("token".to_owned(), VALUE.to_owned())]);
        let content = Content { secret_type: Some("Opaque".to_owned()), data, ..Content::default() };
        let outcome =
            if with_content { CopyOutcome::Content(Box::new(content)) } else { CopyOutcome::Permitted };
        Box::pin(async { Ok(outcome) })
    }
}

fn request(offer: OfferId, fence: Option<Fence>, name: &str) -> Value {
    let references = vec![Reference { kind: ReferenceKind::Secret, name: name.into() }];
    serde_json::to_value(CopyRequest { uid: UID, offer, fence, references }).unwrap()
}

impl Port {
    /// Submits a job of the management cluster whose pods name the Secret `token`.
    async fn submit_reader(&self) {
        let mut manifest = job("reader", 1);
        manifest["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
            json!([{"secretRef": {"name": "token"}}]);
        let object = Box::new(Object::from_value(manifest).unwrap().0);
        let change = Change::Put { object, scope: None, uid: UID, mode: PutMode::Create };
        let write = Write::new(Actor::ManagementCluster, vec![change], false);
        let reply = self.rig.handle.ask(Input::Write(Box::new(write))).await.unwrap();
        assert!(matches!(reply, Reply::Written(_)), "{reply:?}");
    }

    /// Syncs until a command of this kind came.
    async fn command<T>(
        &self,
        worker: &mut Worker,
        client: &reqwest::Client,
        find: impl Fn(&Command) -> Option<T>,
    ) -> T {
        let mut found = None;
        until("the command", async || {
            let request = worker.compose(Lane::News);
            let (_, answer) = self.sync(client, &request).await;
            if let Some(SyncAnswer::Ok(answer)) = answer.as_deref() {
                found = answer.commands.iter().find_map(&find);
            }
            worker.receive(answer.unwrap());
            found.is_some()
        })
        .await;
        found.unwrap()
    }
}

#[tokio::test]
async fn an_agent_gets_names_with_its_offer_and_content_with_its_grant_and_no_other_agent_gets_either() {
    let port = Port::open_with(Millis::secs(5), Some(Arc::new(OneSecret))).await;
    let (mut worker, client) = port.agent("eu", 1).await;
    let (_, other) = port.agent("us", 2).await;
    for _ in 0..4 {
        port.exchange(&mut worker, &client).await;
    }
    port.submit_reader().await;
    let offer = port
        .command(&mut worker, &client, |command| match command {
            Command::Offer(offer) => Some(offer.offer),
            _ => None,
        })
        .await;
    let names = request(offer, None, "token");
    let answer = port.answer(&client, COPIES_PATH, &names).await;
    assert_eq!(answer, (200, r#"{"objects":["Permitted"]}"#.to_owned()));
    let (status, text) = port.answer(&other, COPIES_PATH, &names).await;
    assert_eq!(status, 403, "{text}");
    assert!(text.contains("no offer and no right to run") && !text.contains("token"), "{text}");
    let (status, text) = port.answer(&client, COPIES_PATH, &request(offer, None, "other")).await;
    assert_eq!(status, 403);
    assert!(text.contains("the pods of the workload name no Secret `other`"), "{text}");
    // Content before the grant, with a fence that is made up.
    let early = Fence { epoch: offer.epoch, leadership: offer.leadership, counter: 1 };
    assert_eq!(port.answer(&client, COPIES_PATH, &request(offer, Some(early), "token")).await.0, 403);

    let fence = port
        .command(&mut worker, &client, |command| match command {
            Command::Grant(grant) => Some(grant.fence),
            _ => None,
        })
        .await;
    let content = request(offer, Some(fence), "token");
    let (status, text) = port.answer(&client, COPIES_PATH, &content).await;
    assert_eq!(status, 200, "{text}");
    let answer: CopyAnswer = serde_json::from_str(&text).unwrap();
    let CopyOutcome::Content(found) = &answer.objects[0] else { panic!("{answer:?}") };
    assert_eq!(found.data["token"], VALUE);
    let (status, text) = port.answer(&other, COPIES_PATH, &content).await;
    assert!(status == 403 && !text.contains(VALUE), "{text}");
    // With the run no more content is sent, and what was sent is nowhere at the manager.
    while port.rig.state_of("reader").as_deref() != Some("Running") {
        port.exchange(&mut worker, &client).await;
    }
    assert_eq!(port.answer(&client, COPIES_PATH, &content).await.0, 403);
    let traced = port.rig.handle.metrics().render(&[]);
    assert!(!traced.contains(VALUE));
    port.stop.cancel();
    tokio::time::timeout(DEADLINE, port.served).await.expect("it ends").unwrap();
    let (disk, ..) = port.rig.stop().await;
    let stored = disk.image();
    let contains = |what: &str| stored.windows(what.len()).any(|part| part == what.as_bytes());
    assert!(contains("Secret token"), "the audit log names it");
    assert!(!contains(VALUE), "the journal has no value");
}

#[tokio::test]
async fn a_manager_without_the_setting_copies_nothing() {
    let port = Port::open(Millis::secs(5)).await;
    let (_, client) = port.agent("eu", 1).await;
    let offer = OfferId { epoch: 1, leadership: 1, counter: 1 };
    let (status, text) = port.answer(&client, COPIES_PATH, &request(offer, None, "token")).await;
    assert_eq!(status, 403);
    assert!(text.contains("set its `copy-references`"), "{text}");
    port.close().await;
}
