//! `bench kubernetes`: rates, times and API requests of a deployment that the user has.
//!
//! Jobs are created at a manager or a management cluster, followed by watches, and deleted in the end: also
//! after a failure, and after Ctrl-C. Nothing else is changed.
//!
//! | file | owns |
//! |---|---|
//! | `target` | the manager or management cluster, checks before the first job, states of objects |
//! | `deployment` | all API servers, and the watches |
//! | `jobs` | manifests, creation and removal |
//! | `progress` | when each job was first seen in each state |
//! | `requests`, `sources` | counts of requests in metrics, and the servers that have them |
//! | `results` | what was measured, as text and as a document |

mod deployment;
mod jobs;
mod progress;
mod requests;
mod results;
mod sources;
mod target;

use crate::args::{BenchMode, BenchUntil, Format, KubernetesBenchArgs};
use crate::error::Error;
use crate::fleet::interrupts::Interrupts;
use crate::session::Session;
use deployment::{Deployment, Place};
use jobs::{Jobs, SentJob, Template};
use progress::{JobState, Progress};
use results::{ModeResult, StateTimes, interval_json};
use serde_json::{Value, json};
use sources::Interval;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Jobs of the modes without `--jobs`.
const RATE_JOBS: u32 = 500;
const LATENCY_JOBS: u32 = 20;
/// Pause between two jobs one after the other, so that each finds an unloaded deployment.
const PAUSE: Duration = Duration::from_secs(2);

/// How one mode creates its jobs, and until when it measures.
struct Plan {
    /// Whether all jobs are created at once.
    at_once: bool,
    until: JobState,
    jobs: Jobs,
}

/// All that was measured so far.
#[derive(Default)]
struct Measured {
    idle: Option<Interval>,
    modes: Vec<ModeResult>,
}

pub(super) async fn run(session: &mut Session, args: KubernetesBenchArgs) -> Result<(), Error> {
    let (kubeconfig, context) = session.named_cluster();
    let place = Place { kubeconfig, context, namespace: session.named_namespace().map(str::to_owned) };
    let mut interrupts = Interrupts::listen()?;
    let deployment = tokio::select! {
        opened = Deployment::open(place, &args) => opened?,
        () = interrupts.recv() => return Err(Error::Interrupted),
    };
    let plans = plans(&deployment, &args);
    let mut measured = Measured::default();
    let outcome = tokio::select! {
        outcome = measure(session, &deployment, &plans, &args, &mut measured) => outcome,
        () = interrupts.recv() => Err(Error::Interrupted),
    };
    let removed = match &outcome {
        // Each mode has deleted its own jobs.
        Ok(()) => Ok(()),
        Err(_) => remove_after_failure(session, &plans, &mut interrupts).await,
    };
    // Also shows what was measured before a failure.
    show(session, &deployment, &measured)?;
    if let Err(error) = removed {
        session.out.note(format!("error: {error}"));
    }
    outcome
}

/// Deletes what is left of all modes. Fails if another interruption comes first.
async fn remove_after_failure(
    session: &mut Session,
    plans: &[Plan],
    interrupts: &mut Interrupts,
) -> Result<(), Error> {
    session.out.note("deleting the jobs of this run; another Ctrl-C leaves them");
    let removal = async {
        for plan in plans {
            plan.jobs.remove().await?;
        }
        Ok(())
    };
    tokio::select! {
        removed = removal => removed,
        () = interrupts.recv() => {
            plans.iter().for_each(|plan| session.out.note(plan.jobs.advice()));
            Err(Error::Interrupted)
        }
    }
}

/// The modes that `args` ask for, with jobs of their own.
fn plans(deployment: &Deployment, args: &KubernetesBenchArgs) -> Vec<Plan> {
    let target = &deployment.target;
    let template = Template {
        namespace: target.namespace.clone(),
        queue: target.queue.clone(),
        kind: target.kind,
        image: args.image.clone(),
        requests: args.requests.clone(),
    };
    let id = uuid::Uuid::new_v4().simple().to_string();
    let plan = |mode: &str, count: u32| {
        let at_once = mode == "rate";
        let until = match args.until {
            Some(BenchUntil::Admitted) => JobState::Admitted,
            Some(BenchUntil::Running) => JobState::Running,
            None if at_once => JobState::Admitted,
            None => JobState::Running,
        };
        let run = format!("bench-{}-{mode}", &id[..6]);
        let jobs = Jobs::new(target, run, args.jobs.unwrap_or(count), template.clone());
        Plan { at_once, until, jobs }
    };
    match args.mode {
        BenchMode::Rate => vec![plan("rate", RATE_JOBS)],
        BenchMode::Latency => vec![plan("latency", LATENCY_JOBS)],
        BenchMode::Both => vec![plan("rate", RATE_JOBS), plan("latency", LATENCY_JOBS)],
    }
}

async fn measure(
    session: &mut Session,
    deployment: &Deployment,
    plans: &[Plan],
    args: &KubernetesBenchArgs,
    measured: &mut Measured,
) -> Result<(), Error> {
    let sources = &deployment.sources;
    if sources.is_empty() {
        session
            .out
            .note("requests are not counted: name API servers with `--worker`, `--server` or `--metrics`");
    } else if args.idle > 0 {
        session.out.note(format!("counting the requests of an idle time of {} s", args.idle));
        measured.idle = Some(sources.idle(Duration::from_secs(args.idle)).await?);
    }
    let timeout = Duration::from_secs(args.timeout);
    for plan in plans {
        let mode = if plan.at_once { "rate" } else { "latency" };
        session.out.note(format!("measuring {mode} with {} jobs, `{}-…`", plan.jobs.count, plan.jobs.run));
        let result = measure_mode(deployment, plan, measured.idle.as_ref(), timeout).await?;
        measured.modes.push(result);
        plan.jobs.remove().await?;
    }
    Ok(())
}

async fn measure_mode(
    deployment: &Deployment,
    plan: &Plan,
    idle: Option<&Interval>,
    timeout: Duration,
) -> Result<ModeResult, Error> {
    let Plan { at_once, until, jobs } = plan;
    let progress = Arc::new(Progress::new(jobs.prefix()));
    let states = deployment.states(*until);
    // Connections and watches exist before the first job. Dropping them ends the watches.
    let watches = deployment.follow(&jobs.selector(), &progress).await?;
    let from = deployment.sources.settled(idle).await?;
    let sent = if *at_once {
        let sent = jobs.create_all().await?;
        progress.have_reached(sent.len(), &states, timeout).await;
        sent
    } else {
        let mut sent = Vec::new();
        for number in 0..jobs.count {
            let job = jobs.create(number).await?;
            let has_reached = progress.has_reached(&job.name, &states, timeout).await;
            sent.push(job);
            if !has_reached {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        sent
    };
    let seen = sightings(&progress, &sent, &states, timeout)?;
    let to = deployment.sources.settled(idle).await?;
    drop(watches);
    let interval = Interval { from, to };
    let per_second = at_once.then(|| seen.last.duration_since(seen.first).as_secs_f64());
    Ok(ModeResult {
        mode: if *at_once { "rate" } else { "latency" },
        jobs: jobs.count,
        until: *until,
        per_second: per_second.map(|seconds| f64::from(jobs.count) / seconds.max(f64::MIN_POSITIVE)),
        times: seen.times,
        requests: interval.per_job(idle, jobs.count),
        began: interval.from.clock,
        ended: interval.to.clock,
    })
}

/// When jobs were created and seen.
struct Sightings {
    /// The first creation.
    first: Instant,
    /// The last state of the last job.
    last: Instant,
    times: Vec<StateTimes>,
}

/// The times of all jobs. Fails if one was not seen in a state, and names it.
fn sightings(
    progress: &Progress,
    sent: &[SentJob],
    states: &[JobState],
    timeout: Duration,
) -> Result<Sightings, Error> {
    let first = sent.iter().map(|job| job.at).min().unwrap_or_else(Instant::now);
    let mut seen = Sightings { first, last: first, times: Vec::new() };
    for state in states {
        let mut millis = Vec::new();
        let mut missing: Vec<&str> = Vec::new();
        for job in sent {
            match progress.time(&job.name, *state) {
                Some(at) => {
                    seen.last = seen.last.max(at);
                    millis.push(at.saturating_duration_since(job.at).as_secs_f64() * 1_000.0);
                }
                None => missing.push(&job.name),
            }
        }
        if let [one, ..] = missing.as_slice() {
            return Err(Error::Refused(format!(
                "{} of {} jobs were not seen {} within {} s, such as `{one}`: does the queue have quota, and \
                 a cluster nodes, for all of them? A larger `--timeout` waits longer",
                missing.len(),
                sent.len(),
                state.name(),
                timeout.as_secs()
            )));
        }
        seen.times.push(StateTimes::new(*state, millis));
    }
    Ok(seen)
}

fn show(session: &mut Session, deployment: &Deployment, measured: &Measured) -> Result<(), Error> {
    let target = &deployment.target;
    let version = env!("CARGO_PKG_VERSION");
    let document = || {
        json!({
            "version": version, "optimised": !cfg!(debug_assertions), "namespace": target.namespace,
            "queue": target.queue, "idle": measured.idle.as_ref().map(interval_json),
            "target": {"kind": target.kind.name(), "server": target.server, "version": target.version},
            "modes": measured.modes.iter().map(ModeResult::json).collect::<Vec<Value>>(),
        })
    };
    match session.format() {
        Some(Format::Json) => session.out.json(&document())?,
        Some(Format::Yaml) => session.out.yaml(&document())?,
        Some(Format::Wide | Format::Name | Format::Text) | None => {
            let build = if cfg!(debug_assertions) { "debug build" } else { "release build" };
            session.out.line(format!(
                "target    {} at {}, {}",
                target.kind.name(),
                target.server,
                target.version
            ))?;
            session.out.line(format!("program   meridian {version}, {build}"))?;
            session.out.line(format!("queue     {} in namespace {}", target.queue, target.namespace))?;
            for mode in &measured.modes {
                session.out.line("")?;
                let text = mode.text(target.kind, session.out.colour);
                session.out.raw(text.as_bytes())?;
            }
        }
    }
    session.out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use JobState::{Admitted, Running};

    #[tokio::test]
    async fn a_job_that_was_not_seen_is_named() {
        let progress = Progress::new("bench-".to_owned());
        let sent = |name: &str| SentJob { name: name.to_owned(), at: Instant::now() };
        let jobs = [sent("bench-0"), sent("bench-1")];
        progress.note("bench-0", &[Admitted, Running]);
        progress.note("bench-1", &[Admitted]);
        let timeout = Duration::from_secs(9);
        let seen = sightings(&progress, &jobs, &[Admitted], timeout).unwrap();
        assert_eq!((seen.first, seen.times.len()), (jobs[0].at, 1));
        assert!(seen.last >= jobs[1].at);
        let error = sightings(&progress, &jobs, &[Admitted, Running], timeout).err().unwrap().to_string();
        assert!(
            error.starts_with("1 of 2 jobs were not seen running within 9 s, such as `bench-1`"),
            "{error}"
        );
    }
}
