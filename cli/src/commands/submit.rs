//! `submit`: a job from a command and a few numbers.
//!
//! The job's name is made here and not by the manager, and the request carries an id of its own: so a submission whose
//! answer was lost can be sent again without becoming two jobs.

use super::{name_of, reference, show_done};
use crate::args::SubmitArgs;
use crate::client::{Client, Error as ClientError, List, Made, Selection};
use crate::columns::text;
use crate::error::Error;
use crate::jobs::{self, End};
use crate::progress::Progress;
use crate::session::Session;
use backoff::{ExponentialBuilder, Retryable};
use meridian_objects::job::{MAX_RUN_ANNOTATION, QUEUE_LABEL, REGION_KEY, SUBMISSION_ANNOTATION};
use meridian_objects::{Kind, Object};
use serde_json::{Map, Value, json};
use std::time::Duration;
use uuid::Uuid;

/// The resource that accelerators are asked for as.
const ACCELERATOR_RESOURCE: &str = "nvidia.com/gpu";
/// The node label that names an accelerator's model.
const ACCELERATOR_LABEL: &str = "cloud.google.com/gke-accelerator";
/// The taint of nodes that a queued provisioning made.
const QUEUED_TAINT: &str = "cloud.google.com/gke-queued";
/// Longest stem of a made name, in characters: with a dash and five more a pod's label still takes it.
const STEM_CHARS_MAX: usize = 40;
/// The characters of a made name's end; none that look alike or spell words, as in Kubernetes.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// How often a submission is sent: a manager that restarts is back within these tries' pauses.
const SENDS_MAX: usize = 6;
/// First and longest pause between two sends.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

pub(super) async fn run(session: &mut Session, args: SubmitArgs) -> Result<(), Error> {
    let namespace = session.namespace()?;
    let client = session.client()?;
    let queue = match &args.queue {
        Some(queue) => queue.clone(),
        None => only_queue(&client, &namespace).await?,
    };
    let id = Uuid::new_v4();
    let name = args.name.clone().unwrap_or_else(|| made_name(&args.command[0], id));
    let written = job(&args, &namespace, &queue, &name, id);
    let (object, warnings) = Object::from_value(written).map_err(|errors| {
        let problems: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Error::Usage(format!("this makes no job:\n  {}", problems.join("\n  ")))
    })?;
    warnings.iter().for_each(|warning| session.out.warn(warning.to_string()));
    let Made { object: made, warnings: remarks } = send(&client, &namespace, &object.stored, id).await?;
    let title = object.title();
    let news = remarks.iter().filter(|remark| !warnings.iter().any(|known| remark.contains(&known.message)));
    news.for_each(|remark| session.out.warn(format!("`{title}`: {remark}")));
    if !args.wait {
        return show_done(
            session,
            std::slice::from_ref(&made),
            &[(reference(Kind::Job, name_of(&made)), "created".to_owned())],
        );
    }
    let ended = wait(session, &client, &namespace, made).await?;
    let end = jobs::end(&ended).unwrap_or(End::Succeeded);
    let words = if end == End::Succeeded { "finished" } else { "failed" };
    show_done(
        session,
        std::slice::from_ref(&ended),
        &[(reference(Kind::Job, name_of(&ended)), words.to_owned())],
    )?;
    match end {
        End::Succeeded => Ok(()),
        End::Failed(why) => Err(Error::Refused(format!(
            "the job failed: {why}; its output: `meridian logs {}`",
            name_of(&ended)
        ))),
    }
}

/// The namespace's queue, when there is no choice.
async fn only_queue(client: &Client, namespace: &str) -> Result<String, Error> {
    let selection = Selection {
        kind: Kind::LocalQueue,
        namespace: Some(namespace.to_owned()),
        labels: String::new(),
        name: None,
    };
    let List { items, .. } = client.list(&selection).await?;
    match items.as_slice() {
        [only] => Ok(name_of(only).to_owned()),
        [] => Err(Error::Refused(format!(
            "namespace `{namespace}` has no local queue: apply one, or name another namespace with `-n`"
        ))),
        many => {
            let names: Vec<String> = many.iter().map(|queue| format!("`{}`", name_of(queue))).collect();
            Err(Error::Usage(format!(
                "namespace `{namespace}` has {} queues: name one of {} with `--queue`",
                names.len(),
                names.join(", ")
            )))
        }
    }
}

/// The job that the arguments describe.
pub(super) fn job(args: &SubmitArgs, namespace: &str, queue: &str, name: &str, id: Uuid) -> Value {
    let count = args.count.unwrap_or(u32::from(args.accelerator.is_some()));
    let mut resources = Map::new();
    let mut ask = |resource: &str, amount: String| resources.insert(resource.to_owned(), amount.into());
    args.cpu.iter().for_each(|cpu| drop(ask("cpu", cpu.clone())));
    args.memory.iter().for_each(|memory| drop(ask("memory", memory.clone())));
    if count > 0 {
        ask(ACCELERATOR_RESOURCE, count.to_string());
    }
    let mut container = json!({"name": "main", "command": args.command});
    if let Some(image) = &args.image {
        container["image"] = image.clone().into();
    }
    if !resources.is_empty() {
        // devices need both alike, and for the rest a limit makes what was asked for what is had
        container["resources"] = json!({"requests": resources, "limits": resources});
    }
    let mut pod = json!({"restartPolicy": "Never", "containers": [container]});
    if let Some(model) = &args.accelerator {
        pod["nodeSelector"] = json!({ACCELERATOR_LABEL: model});
    }
    if count > 0 {
        let tolerate = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoSchedule"});
        pod["tolerations"] = json!([tolerate(ACCELERATOR_RESOURCE), tolerate(QUEUED_TAINT)]);
    }
    let mut annotations = json!({SUBMISSION_ANNOTATION: id.to_string()});
    if let Some(longest) = args.max_run {
        annotations[MAX_RUN_ANNOTATION] = longest.as_secs().to_string().into();
    }
    if !args.region.is_empty() {
        annotations[REGION_KEY] = args.region.join(",").into();
    }
    json!({
        "apiVersion": Kind::Job.api_version(Kind::Job.storage_version()),
        "kind": Kind::Job.name(),
        "metadata": {"name": name, "namespace": namespace, "labels": {QUEUE_LABEL: queue}, "annotations": annotations},
        "spec": {
            "parallelism": args.nodes, "completions": args.nodes, "completionMode": "Indexed", "backoffLimit": 0, "suspend": true,
            "template": {"spec": pod},
        },
    })
}

/// A name from the command's first word and five characters of the id.
fn made_name(command: &str, id: Uuid) -> String {
    let file = command.rsplit('/').next().unwrap_or_default().to_lowercase();
    let mapped: String =
        file.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(STEM_CHARS_MAX).collect();
    let stem = mapped.trim_matches('-');
    let mut rest = id.as_u128();
    let suffix: String = std::iter::repeat_with(|| {
        let letters = SUFFIX_ALPHABET.len() as u128;
        let letter =
            SUFFIX_ALPHABET[usize::try_from(rest % letters).expect("less than the alphabet's length")];
        rest /= letters;
        char::from(letter)
    })
    .take(5)
    .collect();
    format!("{}-{suffix}", if stem.is_empty() { "job" } else { stem })
}

/// Creates the job, again if need be. A job that is there already after a repeated send is ours if it carries our id.
async fn send(client: &Client, namespace: &str, job: &Value, id: Uuid) -> Result<Made, ClientError> {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(PAUSES.0)
        .with_max_delay(PAUSES.1)
        .with_max_times(SENDS_MAX - 1)
        .with_jitter();
    let once = || async {
        match client.create(Kind::Job, Some(namespace), job).await {
            Err(error) if error.is_already_exists() => {
                let there = client.get(Kind::Job, Some(namespace), name_of(job)).await?;
                let by = there
                    .pointer("/metadata/annotations")
                    .and_then(|all| all.get(SUBMISSION_ANNOTATION))
                    .and_then(Value::as_str);
                if by == Some(id.to_string().as_str()) {
                    Ok(Made { object: there, warnings: Vec::new() })
                } else {
                    Err(error)
                }
            }
            other => other,
        }
    };
    // a manager that was never there is told at once; one that went away in between may come back
    let is_worth_it = |error: &ClientError| {
        error.is_passing() && !matches!(error, ClientError::Unreachable { unsent: true, .. })
    };
    once.retry(pauses)
        .when(is_worth_it)
        .notify(|error, pause| tracing::info!(%error, ?pause, "the submission is sent again"))
        .await
}

/// Follows the job to its end.
async fn wait(session: &mut Session, client: &Client, namespace: &str, made: Value) -> Result<Value, Error> {
    let name = name_of(&made).to_owned();
    let uid = text(&made, "/metadata/uid").to_owned();
    let selection = Selection {
        kind: Kind::Job,
        namespace: Some(namespace.to_owned()),
        labels: String::new(),
        name: Some(name.clone()),
    };
    let mut progress = Progress::begin(&session.out);
    let (here, mut watch) = client.watch(selection).await?;
    let mut next = here.into_iter().next();
    loop {
        let job = match next.take() {
            Some(job) => job,
            None => {
                let change = watch.next().await?;
                if change.kind == crate::client::ChangeKind::Deleted {
                    return Err(Error::Refused(format!("the job `{name}` was deleted before it ended")));
                }
                change.object
            }
        };
        if text(&job, "/metadata/uid") != uid {
            return Err(Error::Refused(format!(
                "the job `{name}` was deleted, and another one of its name is there"
            )));
        }
        if jobs::end(&job).is_some() {
            progress.end();
            return Ok(job);
        }
        let place = jobs::cluster(&job);
        let place = if place.is_empty() { String::new() } else { format!(" in {place}") };
        progress.say(
            &mut session.out,
            &format!("{} is {}{place}", reference(Kind::Job, &name), jobs::state(&job)),
        );
    }
}
