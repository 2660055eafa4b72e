//! Lists and watches of the store.

use super::*;
use crate::journal::faulty::{Faults, FaultyDisk};
use crate::journal::{Journal, RedbJournal};
use meridian_shared::ids::JournalId;
use meridian_shared::time::Wall;
use serde_json::json;

fn reads() -> Reads {
    let journal =
        RedbJournal::init_on(FaultyDisk::new(1, 1, Faults::default()), JournalId(1), Wall(0)).unwrap();
    let (suspects, _) = std::sync::mpsc::sync_channel(1);
    Reads::new(Arc::new(BodyStore::new(journal.reader())), RecordNumber(0), suspects)
}

fn entry(version: u64) -> Option<StoredObject> {
    Some(StoredObject { version: RecordNumber(version), form: Form::Value(Arc::new(json!({"v": version}))) })
}

fn key(name: &str) -> Key {
    Key::namespaced(Kind::LocalQueue, "a", name)
}

#[tokio::test]
async fn a_watch_resumes_in_version_order_and_ends_beyond_the_ring() {
    let reads = reads();
    let none = HashMap::new();
    // the order of names differs from that of versions
    reads.publish(
        vec![(key("a"), entry(3)), (key("b"), entry(2)), (key("c"), entry(0))],
        RecordNumber(4),
        &none,
    );
    let mut watch = reads.watch(RecordNumber(2), Asker::unlimited()).unwrap();
    let mut next = async || watch.next().await.unwrap().view.key.name.to_string();
    assert_eq!([next().await, next().await], ["a", "c"]);
    assert_eq!(reads.watch(RecordNumber(5), Asker::unlimited()).unwrap_err(), Gone, "from another journal");
    for n in 5..=u64::try_from(RING_CHANGES_MAX).unwrap() + 5 {
        reads.publish(vec![(key("a"), entry(n))], RecordNumber(n), &none);
    }
    assert_eq!(reads.watch(RecordNumber(3), Asker::unlimited()).unwrap_err(), Gone);
    assert_eq!(watch.next().await.unwrap_err(), Gone, "too slow");
    let mut watch = reads.watch(reads.version(), Asker::unlimited()).unwrap();
    reads.publish(vec![(key("a"), None)], reads.version().next(), &none);
    let change = watch.next().await.unwrap();
    assert_eq!(
        (change.event, change.view.version, change.at),
        (WatchEventType::Deleted, RecordNumber(65_542), RecordNumber(65_542))
    );
    assert_eq!(change.view.value["metadata"]["resourceVersion"], "65542");
}

#[test]
fn lists_keep_kinds_namespaces_and_scopes_apart() {
    let reads = reads();
    let scoped = Key { scope: Some("eu".into()), ..Key::global(Kind::ClusterQueue, "q") };
    let elsewhere = Key::namespaced(Kind::LocalQueue, "b", "x");
    let all = [key("x"), key("y"), elsewhere, Key::global(Kind::ClusterQueue, "q"), scoped];
    reads.publish(all.iter().map(|k| (k.clone(), entry(1))).collect(), RecordNumber(1), &HashMap::new());
    let names = |kind, namespace, scope: Option<&ClusterName>| {
        reads.list(kind, namespace, scope, &Asker::unlimited()).0.len()
    };
    assert_eq!(names(Kind::LocalQueue, None, None), 3);
    assert_eq!(names(Kind::LocalQueue, Some("a"), None), 2);
    assert_eq!(names(Kind::LocalQueue, Some("c"), None), 0);
    assert_eq!(names(Kind::ClusterQueue, None, None), 1);
    assert_eq!(names(Kind::ClusterQueue, None, Some(&"eu".into())), 1);
    assert_eq!(names(Kind::ClusterQueue, None, Some(&"us".into())), 0);
}
