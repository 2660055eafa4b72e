//! Processes of an earlier fleet that was killed: its manager, its agents and its Prometheus keep running,
//! and hold their files.

use super::observe;
use super::setup::{FleetProcess, FleetSetup};
use crate::error::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Device and inode.
type FileId = (u64, u64);

/// Fails, naming them, if processes of an earlier fleet still use the directory.
pub(super) fn refuse(setup: &FleetSetup) -> Result<(), Error> {
    let stores = setup.clusters.iter().map(|cluster| {
        let name = cluster.cluster.as_str();
        let store = setup.agent_directory(name).join(meridian_agent::store::FILE);
        (FleetProcess::Agent(name.to_owned()).to_string(), store)
    });
    // Two fleets over one directory would damage its data, because not every build locks the directory.
    let files: Vec<(String, PathBuf)> = std::iter::once((FleetProcess::Manager.to_string(), setup.journal()))
        .chain(stores)
        .chain([("Prometheus".to_owned(), observe::series(&setup.root))])
        .collect();
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
        "processes of an earlier fleet still run in `{}`: {}; end them with `kill {}` and try again",
        setup.root.display(),
        names.join(", "),
        pids.join(" ")
    )))
}

/// Other processes that have one of these files open. Processes of other users can't be inspected and are
/// skipped.
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
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Fleet;
    use crate::fleet::setup::DEFAULT_FLEET;

    #[test]
    fn a_prometheus_of_an_earlier_fleet_is_named() {
        let root = tempfile::tempdir().unwrap();
        let setup = FleetSetup::simulated(root.path().to_owned(), DEFAULT_FLEET).unwrap();
        let series = observe::series(&setup.root);
        std::fs::create_dir_all(&series).unwrap();
        // Keeps the directory open, as Prometheus does.
        let mut other = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stderr(std::fs::File::open(&series).unwrap())
            .spawn()
            .unwrap();
        let error = refuse(&setup).unwrap_err().to_string();
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(error.contains(&format!("Prometheus (process {})", other.id())), "{error}");
        refuse(&setup).unwrap();
    }

    #[tokio::test]
    async fn processes_of_an_earlier_fleet_are_named_and_nothing_starts() {
        let root = tempfile::tempdir().unwrap();
        let setup = FleetSetup::simulated(root.path().to_owned(), DEFAULT_FLEET).unwrap();
        refuse(&setup).unwrap();
        let journal = setup.journal();
        std::fs::create_dir(journal.parent().unwrap()).unwrap();
        let file = std::fs::File::create(&journal).unwrap();
        refuse(&setup).unwrap();
        // This process waits for its standard input, with the journal as its standard output.
        let mut other = tokio::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(file)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let pid = other.id().unwrap();
        let error = Fleet::start(setup.clone()).await.err().unwrap().to_string();
        assert!(
            error.contains(&format!("the manager (process {pid})"))
                && error.contains(&format!("`kill {pid}`")),
            "{error}"
        );
        assert!(!root.path().join("manager.log").exists() && !root.path().join("fleet.yaml").exists());
        other.kill().await.unwrap();
        refuse(&setup).unwrap();
    }
}
