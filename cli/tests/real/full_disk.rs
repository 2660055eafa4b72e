//! A manager on a full disk: it accepts nothing new, loses nothing acknowledged, and running gangs continue.

use super::fleet::{KUBECONFIG, MANAGER, TERM};
use super::gangs::{self, JOBS};
use super::leases::{ENDLESS_RUN_MS, START_WITHIN, job, run_one, start_fleet};
use super::rest::RestClient;
use super::sandbox::{Sandbox, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A little more than the journal's reserve.
const DISK_BYTES: u64 = 64 << 20;
/// Size of each submission; all differ, so that none is stored twice.
const BALLAST_BYTES: usize = 200 << 10;
/// More submissions than the disk can hold.
const SUBMISSIONS_MAX: usize = 1_000;
/// Long enough to run until the disk is full, and to end then.
const SHORT_RUN_MS: u64 = 12_000;
const END_WITHIN: Duration = Duration::from_secs(60);

/// A small filesystem, unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    /// `None` if this user may not mount. Root must be able to.
    fn mount(at: PathBuf) -> Option<Self> {
        std::fs::create_dir(&at).unwrap();
        let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        let made = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={DISK_BYTES},mode=0700"), "tmpfs"])
            .arg(&at)
            .output()
            .unwrap();
        assert!(
            made.status.success() || !root,
            "a test that runs as root has to be able to mount: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        made.status.success().then_some(Self(at))
    }

    /// Fills the disk with a file; returns its path.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("somebody-elses.file");
        let mut file = File::create(&path).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).output());
    }
}

/// A gang that stays pending, because no cluster has as many CPUs, and takes space in the journal.
fn heavy(number: usize, proofs: &Path) -> Value {
    let mut job = gangs::lasting(number, 100, proofs);
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1000");
    let mut dice = gangs::Dice::new(7, number as u64);
    let noise: String = (0..BALLAST_BYTES / 16).map(|_| format!("{:016x}", dice.below(u64::MAX))).collect();
    job["metadata"]["annotations"] = json!({"example.com/noise": noise});
    job
}

/// Submits until the manager refuses; returns how many were accepted, and the refusal.
async fn submit_until_full(rest: &RestClient, from: usize, proofs: &Path) -> (usize, Value) {
    for number in from..from + SUBMISSIONS_MAX {
        match rest.post(JOBS, &heavy(number, proofs)).await.unwrap() {
            (201, _) => {}
            (503, output) => return (number - from, output),
            other => panic!("{other:?}"),
        }
    }
    panic!("the disk is never full");
}

async fn state(rest: &RestClient, number: usize) -> (Value, Value) {
    let status = job(rest, number).await.unwrap()["status"]["meridian"].clone();
    (status["state"].clone(), status["attempts"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts real processes for minutes: cargo test -p meridian --test real -- --ignored"]
async fn a_full_disk_loses_nothing_acknowledged() {
    let sandbox = Sandbox::create(KUBECONFIG).await;
    let Some(disk) = Disk::mount(sandbox.path(MANAGER)) else {
        eprintln!("nothing may be mounted here: the journal's own tests stand for this one");
        return;
    };
    let (mut fleet, rest, proofs) = start_fleet(&sandbox).await;
    run_one(&sandbox, &rest, 0, ENDLESS_RUN_MS, &proofs).await;
    run_one(&sandbox, &rest, 1, ENDLESS_RUN_MS, &proofs).await;
    run_one(&sandbox, &rest, 2, SHORT_RUN_MS, &proofs).await;
    let theirs = disk.fill();
    let (mut taken, output) = submit_until_full(&rest, 10, &proofs).await;
    assert!(
        output["message"].as_str().is_some_and(|m| m.contains("full") || m.contains("space")),
        "{output}"
    );

    // Lease renewals, ends and deletions are still stored.
    let deleted = sandbox.meridian(&["delete", "job", &gangs::name(1), "--wait"]).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    wait_until("the short one has ended", END_WITHIN, async || match state(&rest, 2).await {
        (of, _) if of == "Finished" => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    tokio::time::sleep(TERM + TERM / 2).await;
    assert_eq!(state(&rest, 0).await, (json!("Running"), json!(1)));
    assert_eq!(rest.post(JOBS, &heavy(9, &proofs)).await.unwrap().0, 503);

    // A restart changes nothing.
    fleet.kill_for_good(MANAGER).await;
    fleet.start_again(MANAGER);
    wait_until("it serves again", START_WITHIN, async || match rest.get("/healthz").await? {
        (200, _) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    wait_until("what runs is known", START_WITHIN, async || match state(&rest, 0).await {
        (of, attempts) if of == "Running" && attempts == 1 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    tokio::time::sleep(TERM).await;
    assert_eq!(state(&rest, 0).await, (json!("Running"), json!(1)));

    // With free space, the manager continues: everything accepted exists, and nothing refused.
    std::fs::remove_file(theirs).unwrap();
    wait_until("it takes work again", END_WITHIN, async || {
        match rest.post(JOBS, &heavy(10 + taken, &proofs)).await? {
            (201, _) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    taken += 1;
    let jobs = rest.list(JOBS).await.unwrap();
    let named: BTreeMap<String, &Value> =
        jobs.iter().map(|job| (job["metadata"]["name"].as_str().unwrap().to_owned(), job)).collect();
    let expected: Vec<String> = [0, 2].into_iter().chain(10..10 + taken).map(gangs::name).collect();
    assert_eq!(named.keys().cloned().collect::<Vec<_>>(), expected);
    assert_eq!(gangs::ends(&proofs, 2).into_iter().collect::<Vec<_>>(), [(0, 1)]);
    assert_eq!(gangs::overlaps(&proofs), "");
    sandbox.meridian(&["audit", "verify"]).await.ok();
    sandbox.meridian(&["delete", "job", &gangs::name(0), "--wait"]).await.ok();
    fleet.stop().await;
    sandbox.assert_nothing_left().await;
}
