//! The manager's authority as a ConfigMap, so that agents and Terraform can read it.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use meridian_kubernetes::connection::within;
use meridian_kubernetes::{Connection, ConnectionSettings, Error, Program};
use serde_json::json;

/// Key of the certificate in the ConfigMap.
const KEY: &str = "ca.crt";
/// Field manager of the write.
const FIELD_MANAGER: &str = "meridian";

/// Requirements on the cluster. No permissions are listed: publishing needs only those to one ConfigMap, and
/// the check at the start can't ask for permissions to a single object.
const PUBLISHER: Program =
    Program { name: "manager", minor_min: 22, needs: "server-side apply", permissions: &[] };

/// Writes `pem` into the ConfigMap `name`, in the namespace of the pod that this process runs in. Fails
/// outside of a pod, or if the API server refuses.
pub async fn publish_authority(name: &str, pem: &str) -> Result<(), Error> {
    let inside = ConnectionSettings { kubeconfig: None, context: None };
    let connection = Connection::open(&inside, &PUBLISHER).await?;
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "ConfigMap"), "configmaps");
    let maps: Api<DynamicObject> =
        Api::namespaced_with(connection.client.clone(), connection.namespace(), &resource);
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "meridian"}}, "data": {KEY: pem},
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(object);
    within(format!("write the ConfigMap `{name}`"), maps.patch(name, &params, &patch)).await.map(drop)
}
