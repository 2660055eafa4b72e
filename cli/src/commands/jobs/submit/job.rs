//! The Job object that `submit` makes from its flags.

use crate::args::SubmitArgs;
use meridian_objects::job::{
    MAX_RUN_ANNOTATION, QUEUE_LABEL, REGION_KEY, SUBMISSION_ANNOTATION, SUBMITTED_KIND,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The resource of `--count`.
const ACCELERATOR_RESOURCE: &str = "nvidia.com/gpu";
/// The node label of `--accelerator`.
const ACCELERATOR_LABEL: &str = "cloud.google.com/gke-accelerator";
/// The taint of nodes from queued provisioning.
const QUEUED_TAINT: &str = "cloud.google.com/gke-queued";
/// Longest stem of a generated name: with its suffix, pod names derived from it still fit a label.
const STEM_CHARS_MAX: usize = 40;
/// Characters of a generated suffix, as in Kubernetes: none that are confused or spell words.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_CHARS: usize = 5;

/// An indexed Job: its pods start together and are not retried.
pub(super) fn job_object(args: &SubmitArgs, namespace: &str, queue: &str, name: &str, id: Uuid) -> Value {
    json!({
        "apiVersion": SUBMITTED_KIND.api_version(SUBMITTED_KIND.storage_version()),
        "kind": SUBMITTED_KIND.name(),
        "metadata": {
            "name": name, "namespace": namespace, "labels": {QUEUE_LABEL: queue},
            "annotations": annotations(args, id),
        },
        "spec": {
            "parallelism": args.nodes, "completions": args.nodes, "completionMode": "Indexed",
            "backoffLimit": 0, "suspend": true,
            "template": {"spec": pod_spec(args)},
        },
    })
}

fn annotations(args: &SubmitArgs, id: Uuid) -> Value {
    let mut annotations = json!({SUBMISSION_ANNOTATION: id.to_string()});
    if let Some(max_run) = args.max_run {
        annotations[MAX_RUN_ANNOTATION] = max_run.as_secs().to_string().into();
    }
    if !args.region.is_empty() {
        annotations[REGION_KEY] = args.region.join(",").into();
    }
    annotations
}

fn pod_spec(args: &SubmitArgs) -> Value {
    let accelerators = args.count.unwrap_or(u32::from(args.accelerator.is_some()));
    let mut resources: Map<String, Value> = Map::new();
    resources.extend(args.cpu.iter().map(|cpu| ("cpu".to_owned(), cpu.clone().into())));
    resources.extend(args.memory.iter().map(|memory| ("memory".to_owned(), memory.clone().into())));
    if accelerators > 0 {
        resources.insert(ACCELERATOR_RESOURCE.to_owned(), accelerators.to_string().into());
    }
    let mut container = json!({"name": "main", "command": args.command});
    if let Some(image) = &args.image {
        container["image"] = image.clone().into();
    }
    if !resources.is_empty() {
        // Kubernetes wants both equal for devices; for the others, equal limits guarantee the requests.
        container["resources"] = json!({"requests": resources, "limits": resources});
    }
    let mut pod = json!({"restartPolicy": "Never", "containers": [container]});
    if let Some(model) = &args.accelerator {
        pod["nodeSelector"] = json!({ACCELERATOR_LABEL: model});
    }
    if accelerators > 0 {
        let tolerate = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoSchedule"});
        pod["tolerations"] = json!([tolerate(ACCELERATOR_RESOURCE), tolerate(QUEUED_TAINT)]);
    }
    pod
}

/// `train-py-x7k2p`: the command's file name, and characters from the id.
pub(super) fn generated_name(command: &str, id: Uuid) -> String {
    let file = command.rsplit('/').next().unwrap_or_default().to_lowercase();
    let mapped: String =
        file.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(STEM_CHARS_MAX).collect();
    let stem = mapped.trim_matches('-');
    let letters = SUFFIX_ALPHABET.len() as u128;
    let mut rest = id.as_u128();
    let suffix: String = std::iter::repeat_with(|| {
        let index = usize::try_from(rest % letters).expect("less than the alphabet's length");
        rest /= letters;
        char::from(SUFFIX_ALPHABET[index])
    })
    .take(SUFFIX_CHARS)
    .collect();
    format!("{}-{suffix}", if stem.is_empty() { "job" } else { stem })
}
