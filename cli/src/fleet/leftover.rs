//! What a fleet that was killed left behind: its manager and its agents go on by themselves, and keep their files locked.

use super::Plan;
use crate::error::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Which file: the device and the number on it.
type FileId = (u64, u64);

/// An error that names the processes of an earlier run that still work in the plan's directory.
pub(super) fn refuse(plan: &Plan) -> Result<(), Error> {
    let agents = plan.clusters.iter().map(|cluster| {
        (format!("the agent of `{}`", cluster.cluster), plan.agent_dir(cluster.cluster.as_str()))
    });
    let stores = agents.map(|(name, dir)| (name, dir.join(meridian_agent::store::FILE)));
    let files: Vec<(String, PathBuf)> =
        std::iter::once(("a manager".to_owned(), plan.journal())).chain(stores).collect();
    let known: BTreeMap<FileId, &str> =
        files.iter().filter_map(|(name, path)| Some((file_id(path)?, name.as_str()))).collect();
    let found = holders(&known);
    if found.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = found.iter().map(|(pid, name)| format!("{name} (process {pid})")).collect();
    let pids: BTreeSet<u32> = found.iter().map(|(pid, _)| *pid).collect();
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    Err(Error::Refused(format!(
        "of an earlier run in `{}`, which was killed, there is still {}: end what it left with `kill {}`, and try again; nothing was started",
        plan.root.display(),
        names.join(", "),
        pids.join(" ")
    )))
}

/// The processes that have one of these files open, but for this one. What can't be looked into belongs to somebody else.
fn holders(files: &BTreeMap<FileId, &str>) -> BTreeSet<(u32, String)> {
    let mut found = BTreeSet::new();
    if files.is_empty() {
        return found;
    }
    let pids = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids.filter(|pid| *pid != std::process::id()) {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .filter_map(|entry| file_id(&entry.ok()?.path()));
        found.extend(open.filter_map(|file| Some((pid, (*files.get(&file)?).to_owned()))));
    }
    found
}

fn file_id(path: &Path) -> Option<FileId> {
    std::fs::metadata(path).ok().map(|seen| (seen.dev(), seen.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_agent::capacity::fleet;

    #[tokio::test]
    async fn what_an_earlier_run_left_is_named_and_nothing_is_started() {
        let root = tempfile::tempdir().unwrap();
        let text = super::super::DEFAULT_FLEET;
        let clusters = fleet::parse("fleet.yaml", text).unwrap();
        let plan = Plan {
            root: root.path().to_owned(),
            clusters,
            fleet_text: text.to_owned(),
            runner: "simulated",
            speed: 1.0,
            term: None,
            listen: "127.0.0.1:0".to_owned(),
        };
        refuse(&plan).unwrap();
        let journal = plan.journal();
        std::fs::create_dir(journal.parent().unwrap()).unwrap();
        let file = std::fs::File::create(&journal).unwrap();
        refuse(&plan).unwrap();
        // Waits for its standard input, with the journal as its standard output.
        let mut other = tokio::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(file)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let pid = other.id().unwrap();
        let error = super::super::Fleet::start(plan.clone()).await.err().unwrap().to_string();
        assert!(
            error.contains(&format!("a manager (process {pid})")) && error.contains(&format!("`kill {pid}`")),
            "{error}"
        );
        assert!(!root.path().join("manager.log").exists() && !root.path().join("fleet.yaml").exists());
        other.kill().await.unwrap();
        refuse(&plan).unwrap();
    }
}
