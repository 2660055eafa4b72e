//! Finds the objects that a job's pods refer to and need to start.

use super::JobKind;
use meridian_shared::protocol::{Reference, ReferenceKind};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Every namespace has this account, which pods use by default.
const USUAL_ACCOUNT: &str = "default";
/// Every cluster has the classes with this prefix.
const SYSTEM_CLASS: &str = "system-";

impl JobKind {
    /// The objects that the job's pods need, without duplicates. Optional objects and image pull secrets are
    /// omitted, because Kubernetes starts pods without them.
    pub fn references(&self, manifest: &Value) -> Vec<Reference> {
        let mut found = Found::default();
        for template in self.templates(manifest) {
            found.take_pod(&template["spec"]);
        }
        // Pods of one pod set of a group may refer to different objects.
        for pod in self.group_pods(manifest) {
            found.take_pod(manifest.pointer(&pod.at).map_or(&Value::Null, |pod| &pod["spec"]));
        }
        found.0.into_iter().map(|(kind, name)| Reference { kind, name: Arc::from(name) }).collect()
    }
}

#[derive(Default)]
struct Found(BTreeSet<(ReferenceKind, String)>);

impl Found {
    fn take(&mut self, kind: ReferenceKind, name: &Value) {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            self.0.insert((kind, name.to_owned()));
        }
    }

    /// Adds the name in `field`, unless its source is marked as optional.
    fn take_required(&mut self, kind: ReferenceKind, source: &Value, field: &str) {
        if source["optional"] != true {
            self.take(kind, &source[field]);
        }
    }

    fn take_pod(&mut self, pod: &Value) {
        let account = match &pod["serviceAccountName"] {
            Value::Null => &pod["serviceAccount"],
            name => name,
        };
        if account != USUAL_ACCOUNT {
            self.take(ReferenceKind::ServiceAccount, account);
        }
        let class = &pod["priorityClassName"];
        if !class.as_str().is_some_and(|name| name.starts_with(SYSTEM_CLASS)) {
            self.take(ReferenceKind::PriorityClass, class);
        }
        for container in list(pod, "initContainers").iter().chain(list(pod, "containers")) {
            self.take_container(container);
        }
        for volume in list(pod, "volumes") {
            self.take_volume(volume);
        }
    }

    fn take_container(&mut self, container: &Value) {
        for variable in list(container, "env") {
            let from = &variable["valueFrom"];
            self.take_required(ReferenceKind::ConfigMap, &from["configMapKeyRef"], "name");
            self.take_required(ReferenceKind::Secret, &from["secretKeyRef"], "name");
        }
        for source in list(container, "envFrom") {
            self.take_required(ReferenceKind::ConfigMap, &source["configMapRef"], "name");
            self.take_required(ReferenceKind::Secret, &source["secretRef"], "name");
        }
    }

    fn take_volume(&mut self, volume: &Value) {
        self.take_required(ReferenceKind::ConfigMap, &volume["configMap"], "name");
        self.take_required(ReferenceKind::Secret, &volume["secret"], "secretName");
        self.take(ReferenceKind::Secret, &volume["csi"]["nodePublishSecretRef"]["name"]);
        self.take(ReferenceKind::PersistentVolumeClaim, &volume["persistentVolumeClaim"]["claimName"]);
        for source in list(&volume["projected"], "sources") {
            self.take_required(ReferenceKind::ConfigMap, &source["configMap"], "name");
            self.take_required(ReferenceKind::Secret, &source["secret"], "name");
        }
    }
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}
