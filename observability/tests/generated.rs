//! The generated files match the code, and everything that they refer to exists.

use meridian_manager::metrics::Metrics;
use meridian_observability::{alerts, dashboards, files};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// With this variable the tests write the files instead of comparing them.
const WRITE: &str = "MERIDIAN_WRITE_GENERATED";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn generated_files_are_fresh() {
    for (path, text) in files() {
        let file = root().join(&path);
        if std::env::var_os(WRITE).is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, text).unwrap();
            continue;
        }
        let stored = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            stored == text,
            "{path} is stale: run `{WRITE}=1 cargo test -p meridian-observability --test generated`"
        );
    }
}

/// A file that is no longer generated would go stale unnoticed.
#[test]
fn nothing_else_is_in_the_generated_folders() {
    let files = files();
    let folders: BTreeSet<&Path> = files
        .keys()
        .filter(|path| path.starts_with("manifests/observability/"))
        .filter_map(|path| Path::new(path).parent())
        .collect();
    for folder in folders {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            let is_folder = root().join(&path).is_dir();
            assert!(is_folder || files.contains_key(path.to_str().unwrap()), "{}", path.display());
        }
    }
}

#[test]
fn dashboards_are_json_with_distinct_panels() {
    for (path, text) in files().iter().filter(|(path, _)| path.ends_with(".json")) {
        let dashboard: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let panels = dashboard["panels"].as_array().unwrap();
        let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len(), "{path}");
        let mut places = BTreeSet::new();
        for panel in panels {
            let place = &panel["gridPos"];
            let side = |key: &str| place[key].as_u64().unwrap();
            assert!(side("x") + side("w") <= 24, "{path}: {panel}");
            for x in side("x")..side("x") + side("w") {
                for y in side("y")..side("y") + side("h") {
                    assert!(places.insert((x, y)), "{path}: panels overlap at {x}, {y}");
                }
            }
        }
    }
}

#[test]
fn rules_are_yaml_and_alerts_have_distinct_names() {
    for (path, text) in files().iter().filter(|(path, _)| path.ends_with(".yaml")) {
        for document in text.split("\n---\n") {
            serde_saphyr::from_str::<Value>(document).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }
    let alerts = alerts::all(&Metrics::new(""));
    let names: BTreeSet<&str> = alerts.iter().map(|alert| alert.name.as_str()).collect();
    assert_eq!(names.len(), alerts.len());
}

/// Each page says what the alert means, what to look at, what to do and what not to do.
#[test]
fn every_alert_and_every_panel_link_has_a_runbook() {
    let metrics = Metrics::new("");
    let panels = dashboards::all(&metrics).into_iter().flat_map(|d| d.rows).flat_map(|row| row.panels);
    let linked: BTreeSet<&str> = panels
        .filter_map(|panel| panel.runbook)
        .chain(alerts::all(&metrics).iter().map(|alert| alert.runbook))
        .collect();
    let folder = root().join("docs/runbooks");
    let sections = ["## What it means", "## What to look at", "## What to do", "## What not to do"];
    for page in &linked {
        let text = std::fs::read_to_string(folder.join(format!("{page}.md"))).unwrap_or_default();
        let found: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(found, sections, "docs/runbooks/{page}.md");
        let look = text.split("## What to look at").nth(1).unwrap().split("\n## ").next().unwrap();
        assert!(look.contains("\nmeridian "), "docs/runbooks/{page}.md has no command to look with");
    }
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let page = name.strip_suffix(".md").unwrap_or_default();
        assert!(linked.contains(page) || page == "README", "docs/runbooks/{name} is linked from nowhere");
    }
}
