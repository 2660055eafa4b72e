//! Where the objects come from: exported files, or the cluster itself.

use super::setup::Setup;
use crate::args::MigrateSource;
use crate::commands::api_servers;
use crate::error::Error;
use crate::files;
use crate::session::Session;
use meridian_manager_kubernetes::preview;
use serde_json::Value;

pub(super) async fn read(session: &mut Session, source: &MigrateSource) -> Result<Vec<Value>, Error> {
    if source.files.is_empty() {
        let (named, context) = session.named_cluster();
        let connection = api_servers::open(named, context).await?;
        return preview::read(&connection.client).await.map_err(api_servers::refused);
    }
    let mut objects = Vec::new();
    for (name, text) in files::texts(&source.files, &mut session.stdin)? {
        let documents: Vec<Value> =
            documents(&text).map_err(|why| Error::Refused(format!("`{name}` can't be read: {why}")))?;
        documents.into_iter().for_each(|document| flatten(document, &mut objects));
    }
    Ok(objects)
}

fn documents(text: &str) -> Result<Vec<Value>, String> {
    // Large exports are JSON more often than not, and its reader is faster.
    if text.trim_start().starts_with(['{', '[']) {
        return serde_json::Deserializer::from_str(text)
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string());
    }
    serde_saphyr::from_multiple(text).map_err(|error| error.to_string())
}

/// The objects of a document: itself, or the items of a list.
fn flatten(document: Value, objects: &mut Vec<Value>) {
    match document {
        Value::Array(items) => items.into_iter().for_each(|item| flatten(item, objects)),
        Value::Object(mut fields) if fields.get("items").is_some_and(Value::is_array) => {
            flatten(fields.remove("items").unwrap_or_default(), objects);
        }
        object @ Value::Object(_) => objects.push(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// How the printed commands read the objects again at the time of each step.
#[derive(Debug)]
pub(super) enum Source {
    /// From the cluster, with these flags.
    Cluster(String),
    /// From a file that `kubectl get` writes first, with these kinds. An export that is older than the step
    /// may show jobs as waiting that have run since.
    Export(String),
}

impl Source {
    pub(super) fn of(session: &Session, source: &MigrateSource, setup: &Setup) -> Self {
        if !source.files.is_empty() {
            return Self::Export(exported_kinds(setup));
        }
        let (kubeconfig, context) = session.named_cluster();
        let mut words = String::new();
        kubeconfig
            .iter()
            .for_each(|path| words += &format!(" --kubeconfig {}", quoted(&path.to_string_lossy())));
        context.iter().for_each(|name| words += &format!(" --context {}", quoted(name)));
        Self::Cluster(words)
    }

    /// The commands that read the objects again and print a part of a queue. Each step has its own `file`.
    pub(super) fn part(&self, queue: &str, part: &str, file: &str, then: &str) -> Vec<String> {
        let print =
            |flags: &str| format!("meridian migrate plan{flags} --queue {queue} --manifests {part}{then}");
        match self {
            Self::Cluster(flags) => vec![print(flags)],
            Self::Export(kinds) => {
                vec![format!("kubectl get {kinds} -A -o yaml > {file}"), print(&format!(" -f {file}"))]
            }
        }
    }
}

/// Kinds that every cluster with Kueue serves, with the group where other groups have kinds of the same name.
const EXPORTED: [&str; 10] = [
    "resourceflavors.kueue.x-k8s.io",
    "cohorts.kueue.x-k8s.io",
    "clusterqueues.kueue.x-k8s.io",
    "localqueues.kueue.x-k8s.io",
    "admissionchecks.kueue.x-k8s.io",
    "multikueueconfigs.kueue.x-k8s.io",
    "multikueueclusters.kueue.x-k8s.io",
    "workloads.kueue.x-k8s.io",
    "jobs.batch",
    "pods",
];

/// Kinds for `kubectl get`, including those of an earlier export, since the cluster serves them.
fn exported_kinds(setup: &Setup) -> String {
    let mut kinds = EXPORTED.map(str::to_owned).to_vec();
    for kind in setup.members().filter_map(|member| member.kind) {
        let name = match kind.group() {
            "" => kind.plural().to_owned(),
            group => format!("{}.{group}", kind.plural()),
        };
        if !kinds.contains(&name) {
            kinds.push(name);
        }
    }
    kinds.join(",")
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@+=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
