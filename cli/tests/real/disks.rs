//! A manager whose disk is full: nothing new is promised, nothing that was promised is lost, and what runs goes on.

use super::crew::{KUBECONFIG, MANAGER, TERM};
use super::door::Door;
use super::gangs::{self, JOBS};
use super::leases::{FOR_EVER_MILLIS, STARTS_WITHIN, job, run_one, set_up};
use super::stage::{Stage, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The journal's reserve, and little more.
const DISK_BYTES: u64 = 64 << 20;
/// What each submission brings: no two alike, so that none is stored twice.
const BALLAST_BYTES: usize = 200 << 10;
/// Far more than the disk holds.
const SUBMISSIONS_MAX: usize = 1_000;
/// It runs until the disk is full, and ends then.
const SHORT_MILLIS: u64 = 12_000;
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A small filesystem of its own, gone with this value.
struct Disk(PathBuf);

impl Disk {
    /// Only root may mount, and root must be able to: elsewhere `None`.
    fn mount(at: PathBuf) -> Option<Self> {
        std::fs::create_dir(&at).unwrap();
        let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        let made = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={DISK_BYTES}"), "tmpfs"])
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

    /// Takes all the room that is left, with a file that it names.
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

/// A gang that waits for ever, as no place has so much, and takes its room in the journal.
fn heavy(number: usize, proofs: &Path) -> Value {
    let mut job = gangs::lasting(number, 100, proofs);
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1000");
    let mut dice = gangs::Dice::new(7, number as u64);
    let noise: String = (0..BALLAST_BYTES / 16).map(|_| format!("{:016x}", dice.below(u64::MAX))).collect();
    job["metadata"]["annotations"] = json!({"example.com/noise": noise});
    job
}

/// Submits until it is refused; how many were taken, and what the refusal said.
async fn submit_until_full(door: &Door, from: usize, proofs: &Path) -> (usize, Value) {
    for number in from..from + SUBMISSIONS_MAX {
        match door.post(JOBS, &heavy(number, proofs)).await.unwrap() {
            (201, _) => {}
            (503, said) => return (number - from, said),
            other => panic!("{other:?}"),
        }
    }
    panic!("the disk is never full");
}

async fn state(door: &Door, number: usize) -> (Value, Value) {
    let status = job(door, number).await.unwrap()["status"]["meridian"].clone();
    (status["state"].clone(), status["attempts"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a whole fleet of processes and waits for leases to be renewed: cargo test -p meridian --test real -- --ignored"]
async fn a_manager_whose_disk_is_full_keeps_what_it_promised_and_what_runs() {
    let stage = Stage::begin(KUBECONFIG).await;
    let Some(disk) = Disk::mount(stage.path(MANAGER)) else {
        eprintln!("nothing may be mounted here: the journal's own tests stand for this one");
        return;
    };
    let (mut crew, door, proofs) = set_up(&stage).await;
    run_one(&stage, &door, 0, FOR_EVER_MILLIS, &proofs).await;
    run_one(&stage, &door, 1, FOR_EVER_MILLIS, &proofs).await;
    run_one(&stage, &door, 2, SHORT_MILLIS, &proofs).await;
    let theirs = disk.fill();
    let (mut taken, said) = submit_until_full(&door, 10, &proofs).await;
    assert!(said["message"].as_str().is_some_and(|m| m.contains("full") || m.contains("space")), "{said}");

    // Leases are renewed, ends and deletions are written down, and nothing else.
    let deleted = stage.meridian(&["delete", "job", &gangs::name(1), "--wait"]).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    until("the short one has ended", ENDS_WITHIN, async || match state(&door, 2).await {
        (of, _) if of == "Finished" => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    tokio::time::sleep(TERM + TERM / 2).await;
    assert_eq!(state(&door, 0).await, (json!("Running"), json!(1)));
    assert_eq!(door.post(JOBS, &heavy(9, &proofs)).await.unwrap().0, 503);

    // A restart changes nothing of that.
    crew.strike(MANAGER).await;
    crew.call_back(MANAGER);
    until("it serves again", STARTS_WITHIN, async || match door.get("/healthz").await? {
        (200, _) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    until("what runs is known", STARTS_WITHIN, async || match state(&door, 0).await {
        (of, attempts) if of == "Running" && attempts == 1 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    tokio::time::sleep(TERM).await;
    assert_eq!(state(&door, 0).await, (json!("Running"), json!(1)));

    // Room comes free, and it goes on by itself: whatever was taken is there, and nothing that was refused.
    std::fs::remove_file(theirs).unwrap();
    until("it takes work again", ENDS_WITHIN, async || {
        match door.post(JOBS, &heavy(10 + taken, &proofs)).await? {
            (201, _) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    taken += 1;
    let jobs = door.list(JOBS).await.unwrap();
    let named: BTreeMap<String, &Value> =
        jobs.iter().map(|job| (job["metadata"]["name"].as_str().unwrap().to_owned(), job)).collect();
    let expected: Vec<String> = [0, 2].into_iter().chain(10..10 + taken).map(gangs::name).collect();
    assert_eq!(named.keys().cloned().collect::<Vec<_>>(), expected);
    assert_eq!(gangs::ends(&proofs, 2).into_iter().collect::<Vec<_>>(), [(0, 1)]);
    assert_eq!(gangs::overlaps(&proofs), "");
    stage.meridian(&["audit", "verify"]).await.ok();
    stage.meridian(&["delete", "job", &gangs::name(0), "--wait"]).await.ok();
    crew.stop().await;
    stage.nothing_left().await;
}
