use super::*;

fn put(key: &str, value: &str) -> StoreOp {
    StoreOp { key: key.into(), value: Some(value.into()) }
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn committed_values_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.load().unwrap(), []);
    store.commit(&[put("b", "1"), put("a", "2"), put("a", "3")]).unwrap();
    store
        .commit(&[
            StoreOp { key: "b".into(), value: None },
            StoreOp { key: "never".into(), value: None },
            put("c", "4"),
        ])
        .unwrap();
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.load().unwrap(), [pair("a", "3"), pair("c", "4")]);
}

#[test]
fn a_partial_store_never_appears() {
    let dir = tempfile::tempdir().unwrap();
    let draft = dir.path().join(format!(".{FILE}.new-{}", std::process::id()));
    std::fs::create_dir(&draft).unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::Unusable { .. }) && !dir.path().join(FILE).exists(), "{error}");
    std::fs::remove_dir(&draft).unwrap();
    // As left by a full disk or a killed process.
    std::fs::write(&draft, vec![0; 100_000]).unwrap();
    Store::open(dir.path()).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_store_is_open_in_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let first = Store::open(dir.path()).unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(
        matches!(error, Error::InUse { .. }) && error.to_string().contains("in use by another agent"),
        "{error}"
    );
    drop(first);
    Store::open(dir.path()).unwrap();
}

#[test]
fn a_store_with_live_runs_keeps_its_runner() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.set_runner("simulated").unwrap();
    store.set_runner("process").unwrap();
    store.commit(&[put("run/1", "{}"), put("fence/1", "{}")]).unwrap();
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    let error = store.set_runner("simulated").unwrap_err();
    assert!(
        matches!(error, Error::OtherRunner { .. }) && error.to_string().contains("`--runner process`"),
        "{error}"
    );
    store.set_runner("process").unwrap();
    store.commit(&[StoreOp { key: "run/1".into(), value: None }]).unwrap();
    store.set_runner("simulated").unwrap();
}

#[test]
fn a_store_with_live_runs_keeps_its_kubernetes_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.set_cluster("uid-1").unwrap();
    store.set_cluster("uid-2").unwrap();
    store.commit(&[put("run/1", "{}")]).unwrap();
    store.set_cluster("uid-2").unwrap();
    let error = store.set_cluster("uid-1").unwrap_err();
    assert!(
        matches!(error, Error::OtherCluster { .. }) && error.to_string().contains("has uid uid-2"),
        "{error}"
    );
    store.commit(&[StoreOp { key: "run/1".into(), value: None }]).unwrap();
    store.set_cluster("uid-1").unwrap();
}

#[test]
fn only_the_owner_reads_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    drop(Store::open(dir.path()).unwrap());
    assert_eq!(mode(), 0o600);
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    drop(Store::open(dir.path()).unwrap());
    assert_eq!(mode(), 0o600);
}

#[test]
fn a_copy_is_refused_and_a_moved_original_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let [original, copy, moved] = ["original", "copy", "moved"].map(|name| dir.path().join(name));
    Store::open(&original).unwrap().commit(&[put("a", "1")]).unwrap();
    std::fs::create_dir(&copy).unwrap();
    std::fs::copy(original.join(FILE), copy.join(FILE)).unwrap();
    let error = Store::open(&copy).unwrap_err();
    assert!(matches!(error, Error::Copied { .. }) && error.to_string().contains("--replace"), "{error}");
    std::fs::rename(&original, &moved).unwrap();
    assert_eq!(Store::open(&moved).unwrap().load().unwrap(), [pair("a", "1")]);
}

#[test]
fn another_machine_is_another_place() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other, none] = ["one", "other", "none"].map(|name| dir.path().join(name));
    std::fs::write(&one, "0123\n").unwrap();
    std::fs::write(&other, "4567\n").unwrap();
    let at = |machine| place_of(&one, machine).unwrap();
    assert_eq!(at(&one), at(&one));
    assert_ne!(at(&one), at(&other));
    assert!(at(&none).ends_with("machine "), "machines without an id are alike");
}

#[test]
fn another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let txn = store.db.begin_write().unwrap();
    txn.open_table(META).unwrap().insert(FORMAT_KEY, FORMAT + 1).unwrap();
    txn.commit().unwrap();
    drop(store);
    let error = Store::open(dir.path()).unwrap_err();
    assert!(
        matches!(error, Error::Format { found, .. } if found == FORMAT + 1)
            && error.to_string().contains("newer"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_not_a_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(FILE), vec![b'x'; 100_000]).unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("--replace") && !error.disk_is_full(), "{error}");
}

#[test]
fn a_full_disk_is_named_and_commits_nothing() {
    let (store, faults) = disk::store().unwrap();
    store.commit(&[put("a", "1")]).unwrap();
    faults.full.store(true, std::sync::atomic::Ordering::Relaxed);
    let error = store.commit(&[put("a", "2"), put("b", "3")]).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot make 2 changes durable in `memory`: the disk is full"),
        "{error}"
    );
    assert!(error.disk_is_full());
    // Commits after a failed one must fail too, even if the disk has space by then.
    faults.full.store(false, std::sync::atomic::Ordering::Relaxed);
    assert!(store.commit(&[put("c", "4")]).is_err());
}
