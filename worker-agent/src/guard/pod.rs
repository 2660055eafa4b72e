//! Starts one pod as a process, in its own directory.
//!
//! A pod gets a clean environment: a few variables of the machine, those of the job, and ours, which take
//! precedence. It never gets the agent's environment, which may contain secrets.

use super::output::Output;
use super::processes::{MARK_FENCE, MARK_UID};
use super::rundir::{Plan, RunDir, create_directories};
use super::{OWN_BINARY, exit_code};
use crate::job_run::JobSpec;
use crate::job_run::expand::expand;
use crate::job_run::pods::Try;
use meridian_agent_core::runtime::PodPlacement;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Variables of the machine that a pod gets: search paths, language, time zone, home.
pub const PASSED_ON: [&str; 10] =
    ["PATH", "HOME", "USER", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME"];
/// Directories kept per pod; those of older tries are removed, so that many retries don't fill the disk.
const TRIES_KEPT: u32 = 4;

/// A started pod.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) pid: i32,
    /// Readable when the pod has ended. `None` on old kernels: then the guard polls.
    pub(super) ended: Option<OwnedFd>,
    pub(super) output: Output,
}

/// A pod that could not be started.
#[derive(Debug)]
pub(super) struct NotStarted {
    pub(super) exit_code: i32,
    pub(super) message: String,
}

/// Starts one try of a pod. `direct`: the guard is init of a namespace, so the pod dies with it anyway. Fails
/// if the pod can't be started; that counts as a failure of the pod.
pub(super) fn start(
    dir: &RunDir,
    plan: &Plan,
    job: &JobSpec,
    this: Try,
    direct: bool,
) -> Result<Live, NotStarted> {
    let failed = |what: &str, e: &io::Error| NotStarted {
        exit_code: i32::from(exit_code(e)),
        message: format!("cannot {what}: {e}"),
    };
    let directory = dir.pod(this.index, this.attempt);
    let work = directory.join("work");
    create_directories(&work).map_err(|e| failed("create the pod's directory", &e))?;
    if let Some(old) = this.attempt.checked_sub(TRIES_KEPT) {
        // The directory may be gone already; one that can't be removed only uses space.
        let _ = std::fs::remove_dir_all(dir.pod(this.index, old));
    }
    let log = File::create(directory.join("output.log")).map_err(|e| failed("create the output file", &e))?;
    let notes = log.try_clone();
    // The reason is also written to the pod's output.
    let failed = |what: &str, e: &io::Error| {
        let not = failed(what, e);
        notes.as_ref().into_iter().for_each(|mut log| drop(writeln!(log, "meridian: {}", not.message)));
        not
    };
    let (reader, writer) = io::pipe().map_err(|e| failed("make a pipe", &e))?;
    let second = writer.try_clone().map_err(|e| failed("make a pipe", &e))?;
    let output = Output::new(reader, log).map_err(|e| failed("make a pipe", &e))?;

    let cwd = job.working_dir.as_deref().map_or(work.as_path(), Path::new);
    if !cwd.is_dir() {
        let why = io::Error::from(io::ErrorKind::NotFound);
        return Err(failed(&format!("work in `{}`", cwd.display()), &why));
    }
    let env = environment(plan, job, this, |name| std::env::var(name).ok());
    let words: Vec<String> = job
        .command
        .iter()
        .chain(&job.args)
        .map(|w| expand(w, |name| env.get(name).map(String::as_str)))
        .collect();
    let mut command = if direct {
        Command::new(&words[0])
    } else {
        let mut shim = Command::new(OWN_BINARY);
        shim.args(["guard", "--exec", &std::process::id().to_string(), &words[0]]);
        shim
    };
    command.args(&words[1..]).env_clear().envs(&env).current_dir(cwd).process_group(0);
    command.stdin(Stdio::null()).stdout(writer).stderr(second);
    let child = command.spawn().map_err(|e| failed(&format!("run `{}`", words[0]), &e))?;
    // The handle is dropped, because the guard collects all its children, its own and adopted, in one place.
    let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
    let ended = Pid::from_raw(pid).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
    Ok(Live { pid, ended, output })
}

/// The marks of the processes of one try, as `NAME=value`.
pub(super) fn marks(plan: &Plan, this: Try) -> Vec<String> {
    let mut marks = super::processes::marks(plan.start.uid, plan.start.fence);
    marks.extend([
        format!("MERIDIAN_POD_INDEX={}", this.index),
        format!("MERIDIAN_POD_ATTEMPT={}", this.attempt),
    ]);
    marks
}

/// The environment of a pod. `machine` looks up variables of the machine.
fn environment(
    plan: &Plan,
    job: &JobSpec,
    this: Try,
    machine: impl Fn(&str) -> Option<String>,
) -> BTreeMap<String, String> {
    let start = &plan.start;
    let none =
        PodPlacement { pod_set: String::new(), index: 0, node: String::new(), accelerators: BTreeMap::new() };
    let place = start.placement.get(this.slot).unwrap_or(&none);
    let mut ours: Vec<(&str, String)> = vec![
        (MARK_UID, start.uid.to_string()),
        (MARK_FENCE, start.fence.to_string()),
        ("MERIDIAN_CLUSTER", plan.cluster.to_string()),
        ("MERIDIAN_REGION", plan.region.to_string()),
        ("MERIDIAN_NAMESPACE", start.namespace.to_string()),
        ("MERIDIAN_JOB", start.name.to_string()),
        ("MERIDIAN_POD_SET", place.pod_set.clone()),
        ("MERIDIAN_POD_SLOT", this.slot.to_string()),
        ("MERIDIAN_POD_INDEX", this.index.to_string()),
        ("MERIDIAN_POD_ATTEMPT", this.attempt.to_string()),
        ("MERIDIAN_NODE", place.node.clone()),
        ("HOSTNAME", format!("{}-{}", start.name, this.index)),
    ];
    // A pod normally has accelerators of one resource; of several, all indexes are listed.
    let accelerators: Vec<u32> = place.accelerators.values().flatten().copied().collect();
    ours.extend(visible_devices(&accelerators));
    if job.indexed {
        ours.push(("JOB_COMPLETION_INDEX", this.index.to_string()));
    }
    let mut env: BTreeMap<String, String> =
        PASSED_ON.iter().filter_map(|name| Some(((*name).to_owned(), machine(name)?))).collect();
    env.extend(ours.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    for var in &job.env {
        // As in Kubernetes, a value may refer to variables that are defined before it.
        let value = expand(&var.value, |name| env.get(name).map(String::as_str));
        env.insert(var.name.clone(), value);
    }
    env.extend(ours.into_iter().map(|(name, value)| (name.to_owned(), value)));
    env
}

/// The variables that tell the vendors' run times which devices to use. A pod without accelerators gets none.
fn visible_devices(indices: &[u32]) -> [(&'static str, String); 4] {
    let list =
        |numbers: &mut dyn Iterator<Item = u32>| numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let given = list(&mut indices.iter().copied());
    let none = indices.is_empty();
    // HIP counts among the devices that ROCR leaves visible, so its indexes start from 0.
    let renumbered = list(&mut (0..).take(indices.len()));
    [
        ("CUDA_VISIBLE_DEVICES", given.clone()),
        ("NVIDIA_VISIBLE_DEVICES", if none { "void".into() } else { given.clone() }),
        ("ROCR_VISIBLE_DEVICES", given),
        ("HIP_VISIBLE_DEVICES", if none { "-1".into() } else { renumbered }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_run::pods::RETRY_DELAY_FIRST_DEFAULT;
    use meridian_agent_core::runtime::Start;
    use meridian_shared::ids::{Fence, OfferId, Uid};
    use meridian_shared::time::{Millis, Mono, Now};

    fn env_of(job: &str) -> BTreeMap<String, String> {
        let start = Start {
            uid: Uid(7),
            fence: Fence { epoch: 1, leadership: 2, counter: 3 },
            offer: OfferId { epoch: 1, leadership: 2, counter: 3 },
            attempt: 1,
            namespace: "research".into(),
            name: "train".into(),
            spec: job.into(),
            placement: vec![PodPlacement {
                pod_set: "main".into(),
                index: 0,
                node: "n1".into(),
                accelerators: BTreeMap::from([("nvidia.com/gpu".into(), vec![2, 5])]),
            }],
            deadline: Some(Mono(1)),
            stop_budget: Millis(1),
            run_left: None,
            pod_failures: 0,
            completed: meridian_shared::indexes::Indexes::default(),
        };
        let plan = Plan {
            version: 1,
            boot_id: String::new(),
            given: Now::default(),
            cluster: "eu".into(),
            region: "europe-west4".into(),
            retry_delay_first: RETRY_DELAY_FIRST_DEFAULT,
            start,
        };
        let spec = JobSpec::parse(job).unwrap();
        environment(&plan, &spec, Try { slot: 0, index: 4, attempt: 1 }, |name| {
            (name == "PATH").then(|| "/bin".to_owned())
        })
    }

    #[test]
    fn a_pod_gets_a_clean_environment_with_fixed_marks() {
        let env = env_of(
            r#"{"spec":{"completionMode":"Indexed","template":{"spec":{"containers":[{"command":["x"],"env":[
                {"name":"A","value":"$(MERIDIAN_REGION)/$(JOB_COMPLETION_INDEX)"},
                {"name":"B","value":"$(A)!$(LATER)"},
                {"name":"LATER","value":"1"},
                {"name":"MERIDIAN_FENCE","value":"forged"},
                {"name":"CUDA_VISIBLE_DEVICES","value":"all"}]}]}}}}"#,
        );
        for (name, value) in [
            ("A", "europe-west4/4"),
            ("B", "europe-west4/4!$(LATER)"),
            ("PATH", "/bin"),
            ("MERIDIAN_FENCE", "1-2-3"),
            ("CUDA_VISIBLE_DEVICES", "2,5"),
            ("NVIDIA_VISIBLE_DEVICES", "2,5"),
            ("ROCR_VISIBLE_DEVICES", "2,5"),
            ("HIP_VISIBLE_DEVICES", "0,1"),
            ("MERIDIAN_NODE", "n1"),
        ] {
            assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!env.contains_key("HOME"), "only what the machine has");
    }

    #[test]
    fn no_accelerators_means_that_none_is_visible() {
        assert_eq!(visible_devices(&[]).map(|(_, v)| v), ["", "void", "", "-1"]);
    }
}
