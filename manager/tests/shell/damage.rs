//! Damage that came while the manager was stopped: it is reported, lists stay whole, and nothing is granted
//! from it.

use crate::rig::{DEADLINE, Rig, Worker, delete, job, put, until};
use meridian_manager::journal::faulty::{Faults, FaultyDisk};
use meridian_objects::Kind;
use meridian_views::asker::Asker;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PAGE: usize = 4_096;

/// Text that only the manifest of this job has.
fn text_of(name: &str) -> String {
    format!("only-in-the-manifest-of-{name}")
}

fn manifest(name: &str) -> Value {
    let mut manifest = job(name, 1);
    manifest["spec"]["template"]["spec"]["containers"][0]["args"] = json!([text_of(name)]);
    manifest
}

/// A manager that was stopped in order after these jobs were submitted. No agent was there to run them.
async fn stopped_with(jobs: &[&str]) -> Rig {
    let rig = Rig::new().await;
    rig.create_queues(&["eu"]).await;
    put(&rig.handle, jobs.iter().map(|name| manifest(name)).collect()).await.unwrap();
    rig
}

/// Stops the manager, changes its disk wherever the manifest of `name` is, and starts it again.
async fn restart_damaged(rig: Rig, name: &str, damage: impl Fn(&mut [u8], usize)) -> Rig {
    let (disk, clock, marks) = rig.stop().await;
    let mut image = disk.image();
    let text = text_of(name).into_bytes();
    let at: Vec<usize> = (0..image.len() - text.len()).filter(|at| image[*at..].starts_with(&text)).collect();
    assert!(!at.is_empty());
    at.into_iter().for_each(|at| damage(&mut image, at));
    let rig = Rig::open(FaultyDisk::from_image(image, 1, 7, Faults::default()), clock, marks);
    rig.led().await;
    rig
}

fn is_shown_as_damaged(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Damaged" && condition["status"] == "True")
}

fn listed(rig: &Rig, kind: Kind) -> Vec<(String, bool)> {
    let (views, _) = rig.handle.reads().list(kind, None, None, &Asker::unlimited());
    views.iter().map(|view| (view.key.name.to_string(), is_shown_as_damaged(&view.value))).collect()
}

async fn why(rig: &Rig, name: &str) -> Value {
    rig.handle.explain("default", name, Asker::unlimited()).await.unwrap().unwrap()
}

fn has_metric(rig: &Rig, line: &str) -> bool {
    rig.handle.metrics().render(&[]).lines().any(|other| other == line)
}

#[tokio::test]
async fn a_flipped_bit_in_a_manifest_is_said_and_never_granted() {
    let rig = stopped_with(&["damaged", "fine"]).await;
    let rig = restart_damaged(rig, "damaged", |image, at| image[at] ^= 1).await;
    // at once, before anybody has looked for damage
    assert_eq!(listed(&rig, Kind::Job), [("damaged".to_owned(), true), ("fine".to_owned(), false)]);
    let shown = rig.job("damaged").unwrap();
    assert_eq!(shown.value["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "lq");
    assert!(shown.value["metadata"]["uid"].is_string());
    until("it is known", async || {
        tokio::time::sleep(Duration::from_millis(10)).await;
        rig.handle.problems().len() == 1
    })
    .await;
    let problems = rig.handle.problems();
    assert!(problems[0].starts_with("1 job has a damaged manifest"), "{problems:?}");
    assert!(has_metric(&rig, "meridian_journal_damaged{part=\"manifests\"} 1"));
    let workloads = listed(&rig, Kind::Workload);
    assert_eq!(workloads.iter().filter(|(_, damaged)| *damaged).count(), 1, "{workloads:?}");

    let mut worker = Worker::new("eu", 1, 4, rig.clock.clone());
    worker.until(&rig.handle, "the other runs", |_| rig.state_of("fine").as_deref() == Some("Running")).await;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        worker.exchange(&rig.handle).await.unwrap();
    }
    assert_eq!((worker.starts, rig.state_of("damaged").as_deref()), (1, Some("Damaged")));
    assert!(has_metric(&rig, "meridian_grants_total 1"), "one grant, of the other job");
    let why_damaged = why(&rig, "damaged").await;
    let summary = why_damaged["summary"].as_str().unwrap();
    assert!(summary.contains("damaged: the stored manifest can't be read"), "{why_damaged:#}");

    // the same manifest repairs it
    put(&rig.handle, vec![manifest("damaged")]).await.unwrap();
    worker.until(&rig.handle, "it runs", |_| rig.state_of("damaged").as_deref() == Some("Running")).await;
    until("nothing is wrong", async || {
        tokio::time::sleep(Duration::from_millis(10)).await;
        rig.handle.problems().is_empty()
    })
    .await;
    let (disk, clock, marks) = rig.stop().await;
    let rig = Rig::open(disk, clock, marks);
    let expect = text_of("damaged");
    let kept = rig.job("damaged").unwrap();
    assert_eq!(kept.value["spec"]["template"]["spec"]["containers"][0]["args"][0], expect, "it is durable");
    rig.stop().await;
}

#[tokio::test]
async fn the_scrub_finds_damage_that_nobody_reads() {
    let rig = stopped_with(&["damaged", "fine"]).await;
    let rig = restart_damaged(rig, "damaged", |image, at| image[at] ^= 1).await;
    let started = Instant::now();
    while rig.handle.problems().is_empty() {
        assert!(started.elapsed() < DEADLINE);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let summary = why(&rig, "damaged").await["summary"].as_str().unwrap().to_owned();
    assert!(summary.contains("damaged: the stored manifest can't be read"), "{summary}");
    rig.stop().await;
}

#[tokio::test]
async fn a_zeroed_page_empties_no_list() {
    let rig = stopped_with(&["one", "two"]).await;
    let rig = restart_damaged(rig, "one", |image, at| image[at / PAGE * PAGE..][..PAGE].fill(0)).await;
    let jobs = listed(&rig, Kind::Job);
    assert_eq!(jobs.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(jobs[0], ("one".to_owned(), true));
    until("it is known", async || {
        tokio::time::sleep(Duration::from_millis(10)).await;
        !rig.handle.problems().is_empty()
    })
    .await;
    // new work is stored next to it, and the damaged job can be deleted
    put(&rig.handle, vec![manifest("three")]).await.unwrap();
    delete(&rig.handle, "one").await.unwrap();
    assert!(rig.job("one").is_none() && rig.job("three").is_some());
    rig.stop().await;
}
