//! Files of objects, with a real engine.

use super::*;
use crate::engine::clock::BootClock;
use crate::engine::{Options, Running, StartMode};
use crate::journal::RedbJournal;
use crate::journal::faulty::{Faults, FaultyDisk};
use crate::metrics::Metrics;
use meridian_manager_core::Config;
use meridian_manager_core::facts::key::Key;
use meridian_shared::ids::JournalId;
use meridian_shared::mac::ReceiptKey;
use meridian_shared::time::Wall;
use meridian_views::asker::Asker;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::sync::Arc;

/// Reached only if a test fails.
const DEADLINE: Duration = Duration::from_secs(30);

/// A directory as the kubelet makes it from a ConfigMap, and a manager that reads it.
struct Stage {
    directory: tempfile::TempDir,
    versions: u32,
    files: ObjectFiles,
    applied: Option<Texts>,
    running: Running,
}

impl Stage {
    async fn new() -> Self {
        let disk = FaultyDisk::new(1, 1, Faults::default());
        let journal = RedbJournal::init_on(disk, JournalId(1), Wall(0)).unwrap();
        let options = Options {
            config: Config::new(ReceiptKey([7; 32])),
            start: StartMode::Init,
            clock: Arc::new(BootClock),
            marks: None,
            metrics: Metrics::new("0"),
            traces: false,
        };
        let (engine, running) = crate::engine::start(Box::new(journal), options).unwrap();
        tokio::time::timeout(DEADLINE, engine.led()).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let files = ObjectFiles::new(directory.path().to_owned(), engine);
        Self { directory, versions: 0, files, applied: None, running }
    }

    /// Replaces the file's content. Returns the problem that probes see then.
    async fn publish(&mut self, text: &str) -> Option<String> {
        self.versions += 1;
        let version = format!("..version-{}", self.versions);
        let root = self.directory.path();
        fs::create_dir(root.join(&version)).unwrap();
        fs::write(root.join(&version).join("clusters.yaml"), text).unwrap();
        symlink(&version, root.join("..new")).unwrap();
        fs::rename(root.join("..new"), root.join("..data")).unwrap();
        if self.versions == 1 {
            symlink("..data/clusters.yaml", root.join("clusters.yaml")).unwrap();
        }
        self.look().await
    }

    async fn look(&mut self) -> Option<String> {
        self.applied = self.files.look(self.applied.take()).await;
        self.files.problem().borrow().clone()
    }

    fn spec(&self, cluster: &str) -> Option<Value> {
        let key = Key::global(Kind::Cluster, cluster);
        self.files.engine.reads().get(&key, &Asker::unlimited()).map(|view| view.value["spec"].clone())
    }

    async fn end(self) {
        drop(self.files);
        tokio::task::spawn_blocking(move || self.running.stop()).await.unwrap().unwrap();
    }
}

fn cluster(name: &str, rest: &str) -> String {
    format!(
        "---\napiVersion: meridian.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: {name}}}\n\
         spec:\n  region: europe-west4\n  jurisdiction: EU\n{rest}"
    )
}

#[tokio::test]
async fn a_region_is_one_entry_of_a_file() {
    let mut stage = Stage::new().await;
    let pool = "  limits: {nvidia.com/gpu: 4}\n";
    assert_eq!(stage.publish(&cluster("eu", "")).await, None);
    assert_eq!(stage.publish(&(cluster("eu", pool) + &cluster("other", ""))).await, None);
    assert_eq!(stage.spec("eu").unwrap()["limits"]["nvidia.com/gpu"], json!(4));
    assert!(stage.spec("other").is_some());
    assert_eq!(stage.publish(&cluster("other", "")).await, None);
    assert_eq!(stage.spec("eu").unwrap()["cordoned"], json!(true), "it stays, without new work");
    stage.end().await;
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_is_named_with_line_and_field() {
    let mut stage = Stage::new().await;
    let directory = stage.directory.path().display().to_string();
    let says = |problem: Option<String>, words: &[&str]| {
        let problem = problem.expect("it is wrong");
        assert!(problem.starts_with(&format!("the objects in `{directory}` are not applied: ")), "{problem}");
        assert!(words.iter().all(|word| problem.contains(word)), "{problem}");
    };
    says(stage.look().await, &["has no manifest"]);
    let misspelt = cluster("eu", "  limit: {cpu: 4}\n") + &cluster("us", "");
    says(stage.publish(&misspelt).await, &["clusters.yaml:8:", "spec.limit: "]);
    assert!(stage.spec("us").is_none(), "all or none");

    let ours = cluster("eu", "");
    assert_eq!(stage.publish(&ours).await, None);
    says(
        stage.publish(&cluster("eu", "  cordoned: false\n")).await,
        &["clusters.yaml:8:13", "spec.cordoned: "],
    );
    let moved = cluster("us", "") + &ours.replace("jurisdiction: EU", "jurisdiction: US");
    says(stage.publish(&moved).await, &["clusters.yaml:14:17", "spec.jurisdiction: ", "has `EU`"]);
    let policy = "---\napiVersion: meridian.dev/v1alpha1\nkind: ResidencyPolicy\nmetadata: {name: all}\n\
                  spec: {deny: {regions: [us-east4]}}\n";
    says(stage.publish(&(ours.clone() + policy)).await, &["clusters.yaml:10:7", "`meridian apply`"]);
    says(stage.publish("---\n").await, &["clusters.yaml`: no object in it"]);
    let broken = stage.directory.path().join("broken.yaml");
    symlink("missing", &broken).unwrap();
    says(stage.look().await, &["broken.yaml` can't be read"]);
    fs::remove_file(broken).unwrap();
    assert!(stage.spec("us").is_none());
    assert_eq!(stage.spec("eu").unwrap().get("cordoned"), None, "a bad file releases nothing");

    assert_eq!(stage.publish(&ours).await, None, "and the problem ends with the file's correction");
    stage.end().await;
}
