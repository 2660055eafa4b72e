//! Completion of words that only the manager knows: names of jobs, queues, namespaces, clusters.
//!
//! A shell waits for completion at every tab, so a request has a deadline. Without an answer there are no
//! candidates.

use super::Cli;
use crate::client::kubeconfig::Lookup;
use crate::client::{Client, Selection};
use clap::{ArgMatches, CommandFactory};
use clap_complete::CompletionCandidate;
use meridian_objects::Kind;
use meridian_objects::job::SUBMITTED_KIND;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// Time limit for reading the kubeconfig, the connection and the answer together.
const DEADLINE: Duration = Duration::from_secs(1);
/// Variable by which a shell asks for candidates.
pub(crate) const COMPLETE_VARIABLE: &str = "MERIDIAN_COMPLETE";
/// Environment variable in which some shells pass the position of the word to complete.
const INDEX_VARIABLE: &str = "_CLAP_COMPLETE_INDEX";

/// Context from the words before the completed one.
#[derive(Debug, Default)]
struct Line {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    namespace: Option<String>,
    /// Kinds and names so far.
    targets: Vec<String>,
}

impl Line {
    fn of_process() -> Self {
        // The shell calls `meridian -- WORDS`.
        let mut words: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
        let index = std::env::var(INDEX_VARIABLE).ok().and_then(|index| index.parse().ok());
        words.truncate(index.unwrap_or(words.len().saturating_sub(1)));
        Self::read(words)
    }

    fn read(words: Vec<OsString>) -> Self {
        let command = Cli::command().ignore_errors(true);
        let Ok(matches) = command.try_get_matches_from(words) else { return Self::default() };
        let mut deepest: &ArgMatches = &matches;
        while let Some((_, inner)) = deepest.subcommand() {
            deepest = inner;
        }
        fn one<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Option<T> {
            matches.try_get_one::<T>(id).ok().flatten().cloned()
        }
        let targets = deepest.try_get_many::<String>("targets").ok().flatten();
        Self {
            kubeconfig: one(deepest, "kubeconfig"),
            context: one(deepest, "context"),
            namespace: one(deepest, "namespace"),
            targets: targets.into_iter().flatten().cloned().collect(),
        }
    }

    /// Names of the manager's objects; none if it doesn't answer in time.
    fn names(self, kind: Kind) -> Vec<String> {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return Vec::new();
        };
        // a timer needs a runtime already when it is made
        let asked = runtime.block_on(async { tokio::time::timeout(DEADLINE, self.ask(kind)).await });
        // A look-up of the manager's address may still block.
        runtime.shutdown_background();
        asked.ok().flatten().unwrap_or_default()
    }

    async fn ask(self, kind: Kind) -> Option<Vec<String>> {
        let lookup = Lookup {
            flag: self.kubeconfig,
            variable: std::env::var("KUBECONFIG").ok(),
            home: std::env::home_dir(),
            directory: PathBuf::from("."),
            context: self.context,
        };
        let access = lookup.access().ok()?;
        let client = Client::new(&access).ok()?;
        let namespace = kind.namespaced().then(|| self.namespace.unwrap_or(access.namespace));
        client.some_names(&Selection { namespace, ..Selection::all(kind) }).await.ok()
    }
}

/// KIND, NAME after a kind, and KIND/NAME.
pub(super) fn targets(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let line = Line::of_process();
    if let Some((word, _)) = current.split_once('/') {
        let names = Kind::from_word(word).map(|kind| line.names(kind)).unwrap_or_default();
        return candidates(current, names.iter().map(|name| format!("{word}/{name}")));
    }
    match line.targets.first() {
        None => kinds(current),
        Some(first) => {
            let kind = Kind::from_word(first.split(',').next().unwrap_or_default());
            let taken = line.targets.clone();
            let names = kind.map(|kind| line.names(kind)).unwrap_or_default();
            candidates(current, names.into_iter().filter(|name| !taken[1..].contains(name)))
        }
    }
}

/// Names of jobs, or KIND NAME and KIND/NAME.
pub(super) fn jobs_or_targets(current: &OsStr) -> Vec<CompletionCandidate> {
    let first = Line::of_process().targets.into_iter().next();
    let is_kind = first.is_some_and(|first| Kind::from_word(&first).is_some());
    if is_kind || current.to_str().is_some_and(|current| current.contains('/')) {
        return targets(current);
    }
    jobs(current)
}

/// Names of jobs.
pub(super) fn jobs(current: &OsStr) -> Vec<CompletionCandidate> {
    match current.to_str() {
        Some(word) if word.contains('/') => targets(current),
        _ => of_kind(current, SUBMITTED_KIND),
    }
}

/// Names of local queues.
pub(super) fn local_queues(current: &OsStr) -> Vec<CompletionCandidate> {
    of_kind(current, Kind::LocalQueue)
}

/// Names of namespaces.
pub(super) fn namespaces(current: &OsStr) -> Vec<CompletionCandidate> {
    of_kind(current, Kind::Namespace)
}

/// Names of worker clusters.
pub(super) fn clusters(current: &OsStr) -> Vec<CompletionCandidate> {
    of_kind(current, Kind::Cluster)
}

fn of_kind(current: &OsStr, kind: Kind) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    candidates(current, Line::of_process().names(kind))
}

/// Completes a kind, or the last one of several kinds that commas separate.
fn kinds(current: &str) -> Vec<CompletionCandidate> {
    let before = current.rfind(',').map_or("", |comma| &current[..=comma]);
    candidates(current, Kind::ALL.iter().map(|kind| format!("{before}{}", kind.plural())))
}

fn candidates(current: &str, words: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    words.into_iter().filter(|word| word.starts_with(current)).map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::fake::{Fake, FakeAnswer};
    use serde_json::json;

    fn read(line: &str) -> Line {
        Line::read(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn the_words_in_front_say_which_objects_are_meant() {
        let line = read("meridian get jobs -n research --sort-by .a train --kubeconfig k");
        assert_eq!(line.targets, ["jobs", "train"]);
        assert_eq!((line.namespace.as_deref(), line.kubeconfig), (Some("research"), Some("k".into())));
        assert_eq!(read("meridian --context c cluster drain").context.as_deref(), Some("c"));
        // A line that isn't complete, and one that is wrong.
        assert_eq!(read("meridian delete").targets, Vec::<String>::new());
        assert_eq!(read("meridian fly to").targets, Vec::<String>::new());
    }

    #[test]
    fn kinds_are_known_without_a_manager() {
        let words = |current: &str| {
            let all = kinds(current);
            all.iter().map(|one| one.get_value().to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words("job"), ["jobs", "jobsets"]);
        assert_eq!(words("jobs,localq"), ["jobs,localqueues"]);
        assert!(words("clu").contains(&"clusterqueues".to_owned()));
    }

    /// Shells ask from outside a runtime.
    #[test]
    fn names_are_the_managers() {
        let page = json!({"metadata": {"continue": "more"}, "items": [{"metadata": {"name": "train"}}]});
        let fake = Fake::new([(
            "GET /apis/batch/v1/namespaces/research/jobs?limit=500",
            FakeAnswer::Json(200, page),
        )]);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(fake.start()).server;
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("kubeconfig");
        let context = "current-context: c\ncontexts: [{name: c, context: {cluster: m, user: u}}]";
        let cluster = format!("clusters: [{{name: m, cluster: {{server: '{server}'}}}}]");
        let text = format!("{context}\n{cluster}\nusers: [{{name: u, user: {{}}}}]\n");
        std::fs::write(&file, text).unwrap();
        let line = |kubeconfig: PathBuf| Line {
            kubeconfig: Some(kubeconfig),
            namespace: Some("research".to_owned()),
            ..Line::default()
        };
        assert_eq!(line(file).names(Kind::Job), ["train"]);
        assert_eq!(fake.requests().len(), 1);
        assert!(line(root.path().join("none")).names(Kind::Job).is_empty());
    }
}
