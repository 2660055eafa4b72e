//! Starts while the management cluster can't be used.

use super::super::settings::ManagerArgs;
use super::*;
use clap::Parser as _;

/// The arguments of a program that is a manager only.
#[derive(Debug, clap::Parser)]
struct Program {
    #[command(flatten)]
    manager: ManagerArgs,
}

/// Settings with the kubeconfig of a server where nothing listens.
fn settings(dir: &std::path::Path, kubeconfig: &str, more: &[&str]) -> Settings {
    let file = dir.join("kubeconfig");
    std::fs::write(&file, kubeconfig).unwrap();
    let (dir, file) = (dir.to_str().unwrap(), file.to_str().unwrap());
    let line = ["manager", "--data-dir", dir, "--kubernetes", "--kubeconfig", file];
    let program = Program::try_parse_from(line.iter().chain(more)).unwrap();
    Settings::resolve(program.manager).unwrap()
}

const AWAY: &str = "\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
";

/// Agents need their leases renewed, whether the management cluster answers or not.
#[tokio::test]
async fn only_a_first_start_needs_the_management_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let found = connect(&settings(dir.path(), AWAY, &[])).await.unwrap().unwrap();
    assert!(found.management.is_none());
    let why = found.absence().borrow().clone().unwrap();
    assert!(why.starts_with("the management cluster can't be used: cannot reach"), "{why}");
    let Err(first) = connect(&settings(dir.path(), AWAY, &["--init"])).await else { panic!("it starts") };
    assert!(first.to_string().contains("127.0.0.1:9"), "{first}");
    let Err(broken) = connect(&settings(dir.path(), "a: [", &[])).await else { panic!("it starts") };
    assert!(broken.to_string().contains("kubeconfig"), "no time mends it: {broken}");
}

#[tokio::test]
async fn copies_wait_for_the_management_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let found = connect(&settings(dir.path(), AWAY, &[])).await.unwrap().unwrap();
    assert!(found.copies().is_none(), "nothing is to be copied");
    let found = connect(&settings(dir.path(), AWAY, &["--copy-references", "secrets"])).await;
    let copies = found.unwrap().unwrap().copies().unwrap();
    let reference = Reference { kind: meridian_shared::protocol::ReferenceKind::Secret, name: "s".into() };
    let refused = copies.read("default", &reference, true).await.unwrap_err();
    assert_eq!(refused, "the management cluster can't be used yet");
}
