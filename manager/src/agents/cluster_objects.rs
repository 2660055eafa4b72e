//! The endpoint for the objects that were applied for an agent's cluster: its `Cluster` object, and the
//! ProvisioningRequestConfigs of `apply --cluster`.

use super::request::{Failure, json_of};
use super::state::Agents;
use crate::tls::Peer;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::state::certificates::CertificateUse;
use meridian_objects::Kind;
use meridian_shared::cluster_objects::ClusterObjects;
use meridian_views::asker::Asker;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) async fn cluster_objects(
    State(agents): State<Arc<Agents>>,
    Extension(peer): Extension<Peer>,
) -> Result<Response, Failure> {
    let agent = agents.admit(&peer, CertificateUse::Request).await?;
    let _permit = agents.enter(&agent.cluster)?;
    let engine = &agents.parts.engine;
    if !engine.leading() {
        // While the manager still reads its journal, the answer would wrongly be that nothing was applied.
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, engine.pause()));
    }
    let asker = Asker::unlimited();
    let cluster = engine.reads().get(&Key::global(Kind::Cluster, agent.cluster.as_str()), &asker);
    let (configs, _) =
        engine.reads().list(Kind::ProvisioningRequestConfig, None, Some(&agent.cluster), &asker);
    let objects = cluster.iter().chain(&configs).map(|view| manifest(&view.value)).collect();
    agents.check(agent, CertificateUse::Request)?;
    Ok(json_of(&ClusterObjects { objects }))
}

/// The object as a manifest for `apply`.
fn manifest(object: &Value) -> String {
    json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": { "name": object["metadata"]["name"] },
        "spec": object["spec"],
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_has_no_status_and_nothing_that_changes_by_itself() {
        let object = json!({
            "apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster",
            "metadata": { "name": "eu", "resourceVersion": "7", "generation": 2 },
            "spec": { "region": "europe-west4" }, "status": { "connected": true },
        });
        assert_eq!(
            manifest(&object),
            r#"{"apiVersion":"meridian.dev/v1alpha1","kind":"Cluster","metadata":{"name":"eu"},"spec":{"region":"europe-west4"}}"#
        );
    }
}
