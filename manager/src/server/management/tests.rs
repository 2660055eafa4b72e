//! Starts while the management cluster can't be used.

use super::super::settings::ManagerArgs;
use super::*;
use axum::Json;
use axum::routing::{get, post};
use clap::Parser as _;
use serde_json::json;

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
    let found = connect(&settings(dir.path(), AWAY, &[]), dir.path()).await.unwrap().unwrap();
    assert!(found.management.is_none());
    let why = found.absence().borrow().clone().unwrap();
    assert!(why.starts_with("the management cluster can't be used: cannot reach"), "{why}");
    let first = connect(&settings(dir.path(), AWAY, &["--init"]), dir.path()).await;
    let Err(first) = first else { panic!("it starts") };
    assert!(first.to_string().contains("127.0.0.1:9"), "{first}");
    let broken = connect(&settings(dir.path(), "a: [", &[]), dir.path()).await;
    let Err(broken) = broken else { panic!("it starts") };
    assert!(broken.to_string().contains("kubeconfig"), "no time mends it: {broken}");
}

#[tokio::test]
async fn copies_wait_for_the_management_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let found = connect(&settings(dir.path(), AWAY, &[]), dir.path()).await.unwrap().unwrap();
    assert!(found.copies().is_none(), "nothing is to be copied");
    let more = ["--copy-references", "secrets"];
    let found = connect(&settings(dir.path(), AWAY, &more), dir.path()).await;
    let copies = found.unwrap().unwrap().copies().unwrap();
    let reference = Reference { kind: meridian_shared::protocol::ReferenceKind::Secret, name: "s".into() };
    let refused = copies.read("default", &reference, true).await.unwrap_err();
    assert_eq!(refused, "the management cluster can't be used yet");
}

/// A kubeconfig of an API server that permits everything, and whose claim names another manager.
async fn claimed() -> String {
    let version = Json(json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    }));
    let review = Json(json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "metadata": {}, "spec": {}, "status": {"allowed": true},
    }));
    let namespaces = Json(json!({
        "apiVersion": "v1", "kind": "NamespaceList", "metadata": {},
        "items": [{"metadata": {"name": "kube-system", "uid": "uid-1"}}],
    }));
    let role = Json(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [],
        "metadata": {
            "name": "meridian-management-cluster",
            "annotations": {"meridian.dev/manager": "first/meridian-manager sha256:a"},
        },
    }));
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let claim = "/apis/rbac.authorization.k8s.io/v1/clusterroles/meridian-management-cluster";
    let app = Router::new()
        .route("/version", get(|| async { version }))
        .route(reviews, post(|| async { review }))
        .route("/api/v1/namespaces", get(|| async { namespaces }))
        .route(claim, get(|| async { role }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async { axum::serve(listener, app).await });
    AWAY.replace("127.0.0.1:9", &address)
}

#[tokio::test]
async fn a_second_manager_of_a_cluster_is_no_first_start_and_serves_agents_only() {
    let (dir, kubeconfig) = (tempfile::tempdir().unwrap(), claimed().await);
    let first = connect(&settings(dir.path(), &kubeconfig, &["--init"]), dir.path()).await;
    let Err(first) = first else { panic!("it starts") };
    let named = "another manager acts for this management cluster: the one in namespace `first`";
    assert!(first.to_string().starts_with(named), "{first}");
    let found = connect(&settings(dir.path(), &kubeconfig, &[]), dir.path()).await.unwrap().unwrap();
    assert!(found.management.is_none());
    let why = found.absence().borrow().clone().unwrap();
    assert!(why.contains(named), "{why}");
}
