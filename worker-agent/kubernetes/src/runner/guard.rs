//! Guards in pods: the fields that they need in a gang's pods, and their leases.
//!
//! A guard reads the lease from a file, into which the kubelet writes an annotation of the pod. The first
//! lease is written into the pod together with its node, before the pod can be scheduled; later ones are
//! written while it runs. `meridian_pod_guard` says how guards count it.

use super::manifest::Built;
use super::notes::Notes;
use super::request::Placing;
use crate::labels::{LEASE, NOTES};
use meridian_agent_core::runtime::{Start, can_be_guarded};
use meridian_pod_guard::lease::{End, Lease};
use meridian_pod_guard::{GUARD_DIR, LEASE_DIR, LEASE_FILE, PROGRAM};
use meridian_shared::time::{Millis, Mono, Now};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Names of the volumes that are added to a pod, and of the container that copies the program.
const PROGRAM_VOLUME: &str = "meridian-guard";
const LEASE_VOLUME: &str = "meridian-lease";
/// A lease is written again when this part of its remaining time has passed.
const RENEWED_AFTER: u64 = 4;

/// How pods are guarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardSettings {
    /// The image that has the guard's program; `None` guards nothing new.
    pub image: Option<String>,
    /// The boot of this machine, which names its clock.
    pub clock: String,
}

/// Puts a guard before the command of every container of a gang, if its kind allows that, and says whether it
/// does. Fails if a container has no command of its own.
pub(super) fn add(built: &mut Built, start: &Start, image: &str) -> Result<bool, String> {
    if !can_be_guarded(built.kind.name()) {
        return Ok(false);
    }
    for pod in &mut built.others {
        wrap(pod.get_mut("spec").and_then(Value::as_object_mut).ok_or("it has no spec")?, image)?;
    }
    let templates: Vec<String> = match built.kind.is_pod_group() {
        true => vec![String::new()],
        false => built.kind.pod_sets(&built.manifest).into_iter().map(|set| set.template).collect(),
    };
    for template in templates {
        let pod = built.manifest.pointer_mut(&format!("{template}/spec")).and_then(Value::as_object_mut);
        wrap(pod.ok_or("it has no pod template")?, image)?;
    }
    let notes = Notes { guarded: true, ends: start.deadline.is_some(), ..Notes::of(start) };
    built.manifest["metadata"]["annotations"][NOTES] = json!(notes.to_text());
    Ok(true)
}

fn wrap(pod: &mut Map<String, Value>, image: &str) -> Result<(), String> {
    let program = format!("{GUARD_DIR}/{PROGRAM}");
    let mount = |volume: &str, path: &str| json!({"name": volume, "mountPath": path, "readOnly": true});
    let mounts = [mount(PROGRAM_VOLUME, GUARD_DIR), mount(LEASE_VOLUME, LEASE_DIR)];
    for container in pod.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
        let command =
            container.get("command").and_then(Value::as_array).filter(|command| !command.is_empty());
        let Some(command) = command else {
            return Err(format!(
                "container `{}` has no `command`, and a guard must know what it starts: write the command \
                 of its image",
                container["name"].as_str().unwrap_or_default()
            ));
        };
        let guarded = [json!(program), json!("run"), json!("--")].into_iter().chain(command.iter().cloned());
        container["command"] = guarded.collect();
        append(container, "volumeMounts", mounts.iter().cloned());
    }
    let resources = json!({"cpu": "10m", "memory": "16Mi"});
    let copies = json!({
        "name": PROGRAM_VOLUME, "image": image, "command": [PROGRAM, "install", GUARD_DIR],
        "volumeMounts": [{"name": PROGRAM_VOLUME, "mountPath": GUARD_DIR}],
        "resources": {"requests": resources, "limits": resources},
    });
    let lease =
        json!({"path": LEASE_FILE, "fieldRef": {"fieldPath": format!("metadata.annotations['{LEASE}']")}});
    let volumes = [
        json!({"name": PROGRAM_VOLUME, "emptyDir": {}}),
        json!({"name": LEASE_VOLUME, "downwardAPI": {"items": [lease]}}),
    ];
    let mut all = Value::Object(std::mem::take(pod));
    append(&mut all, "volumes", volumes.into_iter());
    append(&mut all, "initContainers", std::iter::empty());
    if let Some(first) = all["initContainers"].as_array_mut() {
        first.insert(0, copies);
    }
    *pod = all.as_object_mut().map(std::mem::take).unwrap_or_default();
    Ok(())
}

fn append(object: &mut Value, list: &str, more: impl Iterator<Item = Value>) {
    match object.get_mut(list).and_then(Value::as_array_mut) {
        Some(entries) => entries.extend(more),
        None => object[list] = more.collect(),
    }
}

/// The lease of one run, as its pods' guards get it.
#[derive(Debug, Default)]
pub(super) struct Leases {
    clock: String,
    /// Both clocks, read at the same moment: converts a time of one clock to the other.
    now: Option<Now>,
    /// The lease that each pod was given last, by the pod's uid.
    written: BTreeMap<String, Written>,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    lapses: Option<Mono>,
    at: Mono,
}

impl Leases {
    pub(super) fn count_on(&mut self, clock: &str) {
        clock.clone_into(&mut self.clock);
    }

    pub(super) fn observe_time(&mut self, now: Now) {
        self.now = Some(now);
    }

    /// Whether both clocks were read, so that a lease can be written.
    pub(super) fn can_be_written(&self) -> bool {
        self.now.is_some()
    }

    /// The lease as text, as of `at`. `None` before both clocks were read.
    fn text(&self, lapses: Option<Mono>, stop: Millis, at: Mono) -> Option<String> {
        let now = self.now?;
        let signed = |time: Mono| i64::try_from(time.0).unwrap_or(i64::MAX);
        let (sent, wall) =
            (signed(at), now.wall.0.saturating_add(signed(at).saturating_sub(signed(now.mono))));
        let end = lapses.map(|lapses| {
            let left = signed(lapses).saturating_sub(sent);
            End { left, wall: wall.saturating_add(left) }
        });
        let stop = i64::try_from(stop.0).unwrap_or(i64::MAX);
        Some(Lease { clock: self.clock.clone(), sent, stop, end }.to_string())
    }

    /// Adds the lease to the patches of pods that are sent to their nodes.
    pub(super) fn add_to(&mut self, placings: &mut [Placing], lapses: Option<Mono>, stop: Millis, at: Mono) {
        let Some(text) = self.text(lapses, stop, at) else { return };
        for Placing { uid, patch, .. } in placings {
            patch["metadata"]["annotations"][LEASE] = json!(text);
            self.written.insert(uid.clone(), Written { lapses, at });
        }
    }

    /// The patches of the pods, by name and uid, whose guards need a newer lease.
    pub(super) fn due(
        &mut self,
        pods: Vec<(String, String)>,
        lapses: Option<Mono>,
        stop: Millis,
        at: Mono,
    ) -> Vec<Placing> {
        self.written.retain(|known, _| pods.iter().any(|(_, uid)| uid == known));
        let is_due = |uid: &String| match self.written.get(uid) {
            None => true,
            Some(Written { lapses: None, .. }) => false,
            Some(Written { lapses: Some(known), at: since }) => {
                lapses.is_some_and(|lapses| lapses > *known)
                    && at.since(*since).0 >= known.since(*since).0 / RENEWED_AFTER
            }
        };
        let mut placings: Vec<Placing> = pods
            .into_iter()
            .filter(|(_, uid)| is_due(uid))
            .map(|(pod, uid)| Placing {
                pod,
                uid,
                number: None,
                patch: json!({"metadata": {"annotations": {}}}),
            })
            .collect();
        self.add_to(&mut placings, lapses, stop, at);
        placings
    }

    /// Forgets the leases that were not written, so that they are written again.
    pub(super) fn answered(&mut self, pods: &[Placing], written: &[String]) {
        for Placing { uid, .. } in pods.iter().filter(|pod| !written.contains(&pod.uid)) {
            self.written.remove(uid);
        }
    }
}
