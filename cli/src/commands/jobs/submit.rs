//! `submit`: a job from a command and a few numbers.
//!
//! This program names the job, and marks it with an id. So a submission can be sent again if its answer is
//! lost, without creating a second job.

mod job;

use self::job::{generated_name, job_object};
use crate::args::SubmitArgs;
use crate::client::{self, ChangeKind, Client, CreateOptions, Created, List, Selection};
use crate::commands::results::Results;
use crate::error::Error;
use crate::objects::fields::{name_of, text};
use crate::objects::job::{self as job_status, JobEnd};
use crate::output::progress::Progress;
use crate::output::references::reference;
use crate::session::Session;
use backoff::{ExponentialBuilder, Retryable};
use meridian_objects::job::{SUBMISSION_ANNOTATION, SUBMITTED_KIND};
use meridian_objects::{Kind, Object};
use serde_json::Value;
use std::time::Duration;
use uuid::Uuid;

/// Sends of one submission: the pauses between them cover a restart of the manager.
const SENDS_MAX: usize = 6;
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);

pub(in crate::commands) async fn run(session: &mut Session, args: SubmitArgs) -> Result<(), Error> {
    let namespace = session.namespace()?;
    let client = session.client()?;
    let queue = match &args.queue {
        Some(queue) => queue.clone(),
        None => only_local_queue(&client, &namespace).await?,
    };
    let id = Uuid::new_v4();
    let name = args.name.clone().unwrap_or_else(|| generated_name(&args.command[0], id));
    let written = job_object(&args, &namespace, &queue, &name, id);
    let (object, warnings) = Object::from_value(written).map_err(|errors| {
        let problems: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Error::Usage(format!("the job would be invalid:\n  {}", problems.join("\n  ")))
    })?;
    warnings.iter().for_each(|warning| session.out.warn(warning.to_string()));
    let created = send(&client, &namespace, &object.stored, id).await?;
    let title = object.title();
    let is_new = |text: &&String| !warnings.iter().any(|known| text.contains(&known.message));
    created.warnings.iter().filter(is_new).for_each(|text| session.out.warn(format!("`{title}`: {text}")));
    if !args.wait {
        return show(session, created.object, "created");
    }
    let ended = wait(session, &client, &namespace, created.object).await?;
    let name = name_of(&ended).to_owned();
    match job_status::end(&ended).unwrap_or(JobEnd::Succeeded) {
        JobEnd::Succeeded => show(session, ended, "finished"),
        JobEnd::Failed(why) => {
            show(session, ended, "failed")?;
            Err(Error::Refused(format!("job `{name}` failed: {why}; see `meridian logs {name}`")))
        }
    }
}

fn show(session: &mut Session, job: Value, done: &str) -> Result<(), Error> {
    let name = name_of(&job).to_owned();
    Results::of(SUBMITTED_KIND, &name, done, job).show(session)
}

/// The namespace's local queue, if it has exactly one.
async fn only_local_queue(client: &Client, namespace: &str) -> Result<String, Error> {
    let List { items, .. } = client.list(&Selection::in_namespace(Kind::LocalQueue, namespace)).await?;
    match items.as_slice() {
        [only] => Ok(name_of(only).to_owned()),
        [] => Err(Error::Refused(format!(
            "namespace `{namespace}` has no local queue: apply one, or name another namespace with `-n`"
        ))),
        many => {
            let names: Vec<String> = many.iter().map(|queue| format!("`{}`", name_of(queue))).collect();
            Err(Error::Usage(format!(
                "namespace `{namespace}` has several local queues: choose with `--queue` from {}",
                names.join(", ")
            )))
        }
    }
}

/// Creates the job, again if need be. If it exists after a repeated send, it is ours if it carries our id.
async fn send(client: &Client, namespace: &str, job: &Value, id: Uuid) -> Result<Created, client::Error> {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(PAUSE_FIRST)
        .with_max_delay(PAUSE_MAX)
        .with_max_times(SENDS_MAX - 1)
        .with_jitter();
    let send_once = || async {
        match client.create(SUBMITTED_KIND, Some(namespace), job, CreateOptions::default()).await {
            Err(error) if error.is_already_exists() => {
                let present = client.get(SUBMITTED_KIND, Some(namespace), name_of(job)).await?;
                let annotations = present.pointer("/metadata/annotations");
                let submission = annotations.and_then(|all| all.get(SUBMISSION_ANNOTATION)?.as_str());
                if submission == Some(id.to_string().as_str()) {
                    Ok(Created { object: present, warnings: Vec::new() })
                } else {
                    Err(error)
                }
            }
            other => other,
        }
    };
    // A manager that was never reached is reported at once; one that vanished in between may come back.
    let is_worth_repeating = |error: &client::Error| {
        error.is_temporary() && !matches!(error, client::Error::Unreachable { unsent: true, .. })
    };
    send_once
        .retry(pauses)
        .when(is_worth_repeating)
        .notify(
            |error, pause| tracing::info!(%error, pause_ms = pause.as_millis(), "repeating the submission"),
        )
        .await
}

/// Watches the job until it ends. Fails if it is deleted before.
async fn wait(
    session: &mut Session,
    client: &Client,
    namespace: &str,
    created: Value,
) -> Result<Value, Error> {
    let name = name_of(&created).to_owned();
    let uid = text(&created, "/metadata/uid").to_owned();
    let selection =
        Selection { name: Some(name.clone()), ..Selection::in_namespace(SUBMITTED_KIND, namespace) };
    let mut progress = Progress::begin(&session.out);
    let (present, mut watch) = client.watch(selection).await?;
    let mut next = present.into_iter().next();
    loop {
        let job = match next.take() {
            Some(job) => job,
            None => {
                let event = watch.next().await?;
                if event.kind == ChangeKind::Deleted {
                    return Err(Error::Refused(format!("job `{name}` was deleted before it ended")));
                }
                event.object
            }
        };
        if text(&job, "/metadata/uid") != uid {
            return Err(Error::Refused(format!("job `{name}` was deleted, and another one has its name")));
        }
        if job_status::end(&job).is_some() {
            progress.end();
            return Ok(job);
        }
        let cluster = job_status::cluster(&job);
        let within = if cluster.is_empty() { String::new() } else { format!(" in {cluster}") };
        let message = format!("{} is {}{within}", reference(SUBMITTED_KIND, &name), job_status::state(&job));
        progress.update(&mut session.out, &message);
    }
}
