//! What a runner reads from a `batch/v1` Job, and nothing else of it.
//!
//! The job was validated where it was submitted; here it is parsed once into what pods need. Presence of a field that
//! changes what a job means and that a runner can't honour is kept, so that [`JobSpec::unrunnable`] can refuse it in words.

use super::Error;
use meridian_shared::time::Millis;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// Kubernetes' default for `backoffLimit`.
const BACKOFF_LIMIT_DEFAULT: u32 = 6;
/// The annotation by which completions follow the pods at a time, as Kueue has it.
const COMPLETIONS_FOLLOW: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";

/// How a container of a failed pod is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// A failed pod is replaced.
    Never,
    /// A failed container is started again.
    OnFailure,
}

/// One variable of a container's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Its literal value, before `$(NAME)` is expanded.
    pub value: String,
}

/// A job as a runner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// Annotations of the job, over those of its pod template.
    pub annotations: BTreeMap<String, String>,
    /// How many pods run at the same time.
    pub parallelism: u32,
    /// How many must succeed; `None` means that one success ends it (a work queue).
    pub completions: Option<u32>,
    /// Whether each completion has an index of its own.
    pub indexed: bool,
    /// Failures that are forgiven.
    pub backoff_limit: u32,
    /// How long the job may be active.
    pub active_deadline: Option<Millis>,
    /// How long one pod may be active.
    pub pod_active_deadline: Option<Millis>,
    /// What a failure means.
    pub restart_policy: RestartPolicy,
    /// How long a pod may take to stop; unset means the whole stop budget.
    pub grace: Option<Millis>,
    /// `command` of the container.
    pub command: Vec<String>,
    /// `args` of the container.
    pub args: Vec<String>,
    /// Its literal environment.
    pub env: Vec<EnvVar>,
    /// Its working directory.
    pub working_dir: Option<String>,
    /// Fewer places than it would like are fewer completions too.
    pub completions_follow: bool,
    refusal: Option<String>,
}

impl JobSpec {
    /// Reads a job from its JSON.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let job: RawJob = serde_json::from_str(text).map_err(Error::NotAJob)?;
        let refusal = job.spec.refusal();
        let RawJob { metadata, spec } = job;
        let RawSpec { template, .. } = spec;
        let mut annotations = template.metadata.annotations;
        annotations.extend(metadata.annotations);
        let pod = template.spec;
        let container = pod.containers.into_iter().next().unwrap_or_default();
        Ok(Self {
            completions_follow: annotations.get(COMPLETIONS_FOLLOW).is_some_and(|text| text == "true"),
            annotations,
            parallelism: spec.parallelism.unwrap_or(1),
            completions: match (spec.completions, spec.parallelism) {
                (None, None) => Some(1),
                (completions, _) => completions,
            },
            indexed: spec.completion_mode.as_deref() == Some("Indexed"),
            backoff_limit: spec.backoff_limit.unwrap_or(BACKOFF_LIMIT_DEFAULT),
            active_deadline: spec.active_deadline_seconds.map(Millis::secs),
            pod_active_deadline: pod.active_deadline_seconds.map(Millis::secs),
            restart_policy: if pod.restart_policy.as_deref() == Some("OnFailure") {
                RestartPolicy::OnFailure
            } else {
                RestartPolicy::Never
            },
            grace: pod.termination_grace_period_seconds.map(Millis::secs),
            command: container.command,
            args: container.args,
            env: container
                .env
                .into_iter()
                .map(|e| EnvVar { name: e.name, value: e.value.unwrap_or_default() })
                .collect(),
            working_dir: container.working_dir.filter(|d| !d.is_empty()),
            refusal,
        })
    }

    /// How many pods run at the same time when all is well.
    pub fn width(&self) -> u32 {
        self.completions.map_or(self.parallelism, |c| c.min(self.parallelism))
    }

    /// Why no process can honour this job, where that is so.
    pub fn unrunnable(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}

#[derive(Deserialize)]
struct RawJob {
    #[serde(default)]
    metadata: RawMeta,
    spec: RawSpec,
}

#[derive(Default, Deserialize)]
struct RawMeta {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpec {
    #[serde(default, deserialize_with = "whole")]
    parallelism: Option<u32>,
    #[serde(default, deserialize_with = "whole")]
    completions: Option<u32>,
    completion_mode: Option<String>,
    #[serde(default, deserialize_with = "whole")]
    backoff_limit: Option<u32>,
    #[serde(default, deserialize_with = "whole")]
    active_deadline_seconds: Option<u64>,
    backoff_limit_per_index: Option<IgnoredAny>,
    pod_failure_policy: Option<IgnoredAny>,
    success_policy: Option<IgnoredAny>,
    template: RawTemplate,
}

#[derive(Deserialize)]
struct RawTemplate {
    #[serde(default)]
    metadata: RawMeta,
    spec: RawPod,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPod {
    restart_policy: Option<String>,
    #[serde(default, deserialize_with = "whole")]
    active_deadline_seconds: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    termination_grace_period_seconds: Option<u64>,
    #[serde(default)]
    security_context: Option<RawSecurity>,
    #[serde(default)]
    containers: Vec<RawContainer>,
    #[serde(default)]
    init_containers: Vec<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawContainer {
    command: Vec<String>,
    args: Vec<String>,
    env: Vec<RawEnv>,
    env_from: Vec<IgnoredAny>,
    working_dir: Option<String>,
    volume_mounts: Vec<RawMount>,
    security_context: Option<RawSecurity>,
}

/// Whose rights a pod wants.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSecurity {
    run_as_user: Option<u64>,
    run_as_group: Option<u64>,
    run_as_non_root: Option<bool>,
}

impl RawSecurity {
    /// What of it this process doesn't have to give.
    fn refusal(&self) -> Option<&'static str> {
        let (user, group) =
            (u64::from(rustix::process::geteuid().as_raw()), u64::from(rustix::process::getegid().as_raw()));
        let wanted = [
            (self.run_as_user.is_some_and(|wanted| wanted != user), "runAsUser"),
            (self.run_as_group.is_some_and(|wanted| wanted != group), "runAsGroup"),
            (self.run_as_non_root == Some(true) && user == 0, "runAsNonRoot"),
        ];
        wanted.into_iter().find_map(|(differs, field)| differs.then_some(field))
    }
}

/// A number without a fraction, however it was written: `1e3` is a whole number in YAML too.
fn whole<'de, D: serde::Deserializer<'de>, N: TryFrom<u64>>(from: D) -> Result<Option<N>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(from)? else { return Ok(None) };
    let exact = |float: &f64| float.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(float);
    let read = number
        .as_u64()
        .or_else(|| number.as_f64().filter(exact).map(|float| float as u64))
        .and_then(|whole| N::try_from(whole).ok());
    read.map(Some).ok_or_else(|| {
        serde::de::Error::custom(format_args!("`{number}` is not a whole number that could be counted with"))
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEnv {
    name: String,
    value: Option<String>,
    value_from: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMount {
    #[serde(default)]
    mount_path: String,
}

impl RawSpec {
    /// The first thing in this job that a plain process can't honour.
    fn refusal(&self) -> Option<String> {
        let pod = &self.template.spec;
        let unsupported = [
            (self.backoff_limit_per_index.is_some(), "spec.backoffLimitPerIndex"),
            (self.pod_failure_policy.is_some(), "spec.podFailurePolicy"),
            (self.success_policy.is_some(), "spec.successPolicy"),
            (!pod.init_containers.is_empty(), "spec.template.spec.initContainers"),
        ];
        if let Some((_, field)) = unsupported.iter().find(|(there, _)| *there) {
            return Some(format!(
                "the process runner can't honour `{field}`: leave it out, or send the job to a Kubernetes cluster"
            ));
        }
        let security = pod
            .security_context
            .iter()
            .chain(pod.containers.iter().filter_map(|container| container.security_context.as_ref()));
        if let Some(field) = security.into_iter().find_map(RawSecurity::refusal) {
            return Some(format!(
                "the process runner runs pods with the rights of the agent's user, so it can't honour `securityContext.{field}`: leave it out, or run the agent as that user"
            ));
        }
        let [container] = pod.containers.as_slice() else {
            return Some(format!(
                "the process runner runs exactly one container per pod, and this job has {}",
                pod.containers.len()
            ));
        };
        if !container.env_from.is_empty() {
            return Some("the process runner has no config maps or secrets, so it can't honour `envFrom`: write the values into `env`".into());
        }
        if let Some(env) = container.env.iter().find(|e| e.value_from.is_some()) {
            return Some(format!(
                "the process runner takes literal environment values only, and `{}` has a `valueFrom`: write a `value`",
                env.name
            ));
        }
        if let Some(bad) = container.env.iter().find(|e| {
            e.name.is_empty()
                || e.name.contains(['=', '\0'])
                || e.value.as_ref().is_some_and(|v| v.contains('\0'))
        }) {
            return Some(format!(
                "`{}` can't be an environment variable of a process: a name has no `=`, and neither part a NUL byte",
                bad.name.escape_default()
            ));
        }
        if let Some(mount) = container.volume_mounts.first() {
            return Some(format!(
                "the process runner mounts no volumes, and this job wants one at `{}`: use paths of the machine",
                mount.mount_path
            ));
        }
        if container.command.is_empty() {
            return Some(
                "the process runner runs a job's `command`, and this job has none: an image's own entry point can't be run without a container".into(),
            );
        }
        if container.command.iter().chain(&container.args).any(|word| word.contains('\0')) {
            return Some("a `command` or `args` entry holds a NUL byte, which no process can take".into());
        }
        if self.parallelism == Some(0) || self.completions == Some(0) {
            return Some(
                "the job asks for no pods: set `parallelism` and `completions` to at least 1".into(),
            );
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(container: serde_json::Value) -> JobSpec {
        JobSpec::parse(&json!({"spec": {"template": {"spec": {"containers": [container]}}}}).to_string())
            .unwrap()
    }

    #[test]
    fn defaults_are_those_of_kubernetes() {
        let spec = job(json!({"command": ["true"]}));
        assert_eq!(
            (spec.parallelism, spec.completions, spec.backoff_limit, spec.indexed),
            (1, Some(1), 6, false)
        );
        assert_eq!(spec.unrunnable(), None);
        let queue = JobSpec::parse(
            r#"{"spec":{"parallelism":3,"template":{"spec":{"containers":[{"command":["true"]}]}}}}"#,
        )
        .unwrap();
        assert_eq!((queue.completions, queue.width()), (None, 3));
    }

    #[test]
    fn whole_numbers_may_be_written_as_floats() {
        let of = |limit: serde_json::Value| {
            JobSpec::parse(
                &json!({"spec": {"backoffLimit": limit, "template": {"spec": {"containers": [{}]}}}})
                    .to_string(),
            )
        };
        assert_eq!(of(json!(1.0)).unwrap().backoff_limit, 1);
        assert_eq!(of(json!(1e2)).unwrap().backoff_limit, 100);
        assert!(of(json!(1.5)).is_err() && of(json!(-1.0)).is_err() && of(json!("1")).is_err());
    }

    #[test]
    fn refusals_name_the_field() {
        for (container, names) in [
            (json!({"image": "x", "args": ["120s"]}), "`command`"),
            (
                json!({"command": ["true"], "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}),
                "`IP` has a `valueFrom`",
            ),
            (json!({"command": ["true"], "envFrom": [{"secretRef": {"name": "s"}}]}), "`envFrom`"),
            (json!({"command": ["true"], "volumeMounts": [{"name": "v", "mountPath": "/data"}]}), "`/data`"),
            (json!({"command": ["a\u{0}b"]}), "NUL"),
            (
                json!({"command": ["true"], "securityContext": {"runAsUser": 4_000_000_000_u64}}),
                "`securityContext.runAsUser`",
            ),
        ] {
            let spec = job(container);
            assert!(spec.unrunnable().unwrap().contains(names), "{:?}", spec.unrunnable());
        }
        let two = JobSpec::parse(
            r#"{"spec":{"template":{"spec":{"containers":[{"command":["a"]},{"command":["b"]}]}}}}"#,
        )
        .unwrap();
        assert!(two.unrunnable().unwrap().contains("has 2"));
        assert!(JobSpec::parse("{}").is_err());
    }
}
