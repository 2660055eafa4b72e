//! The part of a `batch/v1` Job that the runners of this crate use.
//!
//! The job was validated at submission; here it is parsed once into what pods need. A field that changes the
//! meaning of a job and that a process can't honour is noted, so that [`JobSpec::unrunnable`] can name it.

use super::Error;
use meridian_shared::time::Millis;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// Kubernetes' default for `backoffLimit`.
const BACKOFF_LIMIT_DEFAULT: u32 = 6;
/// Kueue's annotation that keeps completions equal to parallelism.
const COMPLETIONS_FOLLOW: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";

/// What happens after the failure of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// A failed pod is replaced.
    Never,
    /// A failed container is started again.
    OnFailure,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvVar {
    pub name: String,
    /// Before `$(NAME)` is expanded.
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// Annotations of the job, which override those of its pod template.
    pub annotations: BTreeMap<String, String>,
    /// Most pods at the same time.
    pub parallelism: u32,
    /// Number of successes that complete the job; `None` for a work queue, which ends with its first success.
    pub completions: Option<u32>,
    /// Whether pods get their completion index.
    pub indexed: bool,
    /// Number of pod failures that the job survives.
    pub backoff_limit: u32,
    /// Longest run time of the job.
    pub active_deadline: Option<Millis>,
    /// Longest run time of one pod.
    pub pod_active_deadline: Option<Millis>,
    pub restart_policy: RestartPolicy,
    /// How long a pod may take to stop; `None` for the whole stop budget.
    pub grace: Option<Millis>,
    pub command: Vec<String>,
    pub args: Vec<String>,
    /// Literal variables only.
    pub env: Vec<EnvVar>,
    pub working_dir: Option<String>,
    /// Whether a grant with fewer pods also reduces the completions.
    pub completions_follow: bool,
    refusal: Option<String>,
}

impl JobSpec {
    /// Parses a job from JSON. Fails if it is not a Job.
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

    /// Number of pods that run at the same time without failures.
    pub fn width(&self) -> u32 {
        self.completions.map_or(self.parallelism, |c| c.min(self.parallelism))
    }

    /// Why a process can't run this job, if so.
    pub fn unrunnable(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}

#[derive(Deserialize)]
struct RawJob {
    #[serde(default, deserialize_with = "null_as_default")]
    metadata: RawMeta,
    spec: RawSpec,
}

#[derive(Default, Deserialize)]
struct RawMeta {
    #[serde(default, deserialize_with = "null_as_default")]
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
    #[serde(default, deserialize_with = "null_as_default")]
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
    security_context: Option<RawSecurity>,
    #[serde(default, deserialize_with = "null_as_default")]
    containers: Vec<RawContainer>,
    #[serde(default, deserialize_with = "null_as_default")]
    init_containers: Vec<IgnoredAny>,
    #[serde(default, deserialize_with = "null_as_default")]
    volumes: Vec<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawContainer {
    #[serde(deserialize_with = "null_as_default")]
    command: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    args: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    env: Vec<RawEnv>,
    #[serde(deserialize_with = "null_as_default")]
    env_from: Vec<IgnoredAny>,
    working_dir: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    volume_mounts: Vec<RawMount>,
    security_context: Option<RawSecurity>,
}

/// The requested user of a pod.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawSecurity {
    run_as_user: Option<u64>,
    run_as_group: Option<u64>,
    run_as_non_root: Option<bool>,
}

impl RawSecurity {
    /// The first field that differs from the agent's user.
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

/// A field whose `null` is the same as its absence, as in Kubernetes.
fn null_as_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// A whole number in any notation: YAML also allows `1e3`.
fn whole<'de, D: serde::Deserializer<'de>, N: TryFrom<u64>>(from: D) -> Result<Option<N>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(from)? else { return Ok(None) };
    let exact = |float: &f64| float.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(float);
    let read = number
        .as_u64()
        .or_else(|| number.as_f64().filter(exact).map(|float| float as u64))
        .and_then(|whole| N::try_from(whole).ok());
    read.map(Some)
        .ok_or_else(|| serde::de::Error::custom(format_args!("`{number}` is not a whole number in range")))
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

impl RawContainer {
    /// The first part of this container that a process can't honour.
    fn refusal(&self) -> Option<String> {
        if !self.env_from.is_empty() {
            return Some(
                "the process runner has no config maps or secrets, so it can't honour `envFrom`: write the \
                 values into `env`"
                    .into(),
            );
        }
        if let Some(env) = self.env.iter().find(|e| e.value_from.is_some()) {
            return Some(format!(
                "the process runner takes only literal environment values, and `{}` has a `valueFrom`: write \
                 a `value`",
                env.name
            ));
        }
        if let Some(bad) = self.env.iter().find(|e| {
            e.name.is_empty()
                || e.name.contains(['=', '\0'])
                || e.value.as_ref().is_some_and(|v| v.contains('\0'))
        }) {
            return Some(format!(
                "`{}` can't be an environment variable of a process: a name has no `=`, and neither part a \
                 NUL byte",
                bad.name.escape_default()
            ));
        }
        if let Some(mount) = self.volume_mounts.first() {
            return Some(format!(
                "the process runner mounts no volumes, and this job has one at `{}`: use paths of the \
                 machine",
                mount.mount_path
            ));
        }
        if self.command.is_empty() {
            return Some(
                "the process runner runs a job's `command`, and this job has none: the entry point of an \
                 image needs a container"
                    .into(),
            );
        }
        if self.command.iter().chain(&self.args).any(|word| word.contains('\0')) {
            return Some(
                "an entry of `command` or `args` contains a NUL byte, which no process can take".into(),
            );
        }
        None
    }
}

impl RawSpec {
    /// The first part of this job that a process can't honour.
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
                "the process runner can't honour `{field}`: leave it out, or send the job to a Kubernetes \
                 cluster"
            ));
        }
        let security = pod
            .security_context
            .iter()
            .chain(pod.containers.iter().filter_map(|container| container.security_context.as_ref()));
        if let Some(field) = security.into_iter().find_map(RawSecurity::refusal) {
            return Some(format!(
                "the process runner runs pods as the agent's user, so it can't honour \
                 `securityContext.{field}`: leave it out, or send the job to a Kubernetes cluster"
            ));
        }
        let [container] = pod.containers.as_slice() else {
            return Some(format!(
                "the process runner runs exactly one container per pod, and this job has {}",
                pod.containers.len()
            ));
        };
        if let Some(why) = container.refusal() {
            return Some(why);
        }
        if !pod.volumes.is_empty() {
            return Some(
                "the process runner makes no volumes, and this job has `volumes`: leave them out, and use \
                 paths of the machine"
                    .into(),
            );
        }
        if self.parallelism == Some(0) || self.completions == Some(0) {
            return Some(
                "the job requests no pods: set `parallelism` and `completions` to at least 1".into(),
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
    fn null_is_the_same_as_absent() {
        let full = json!({
            "metadata": {},
            "spec": {
                "template": {"metadata": {}, "spec": {"containers": [{"command": ["true"]}]}},
            },
        });
        let absent = JobSpec::parse(&full.to_string()).unwrap();
        assert_eq!(absent.unrunnable(), None);
        let (spec, template) = ("/spec", "/spec/template");
        let (pod, container) = ("/spec/template/spec", "/spec/template/spec/containers/0");
        let fields = [
            ("", "metadata"),
            ("/metadata", "annotations"),
            (spec, "parallelism"),
            (spec, "completions"),
            (spec, "completionMode"),
            (spec, "backoffLimit"),
            (spec, "activeDeadlineSeconds"),
            (spec, "backoffLimitPerIndex"),
            (spec, "podFailurePolicy"),
            (spec, "successPolicy"),
            (template, "metadata"),
            ("/spec/template/metadata", "annotations"),
            (pod, "restartPolicy"),
            (pod, "activeDeadlineSeconds"),
            (pod, "terminationGracePeriodSeconds"),
            (pod, "securityContext"),
            (pod, "initContainers"),
            (pod, "volumes"),
            (container, "args"),
            (container, "env"),
            (container, "envFrom"),
            (container, "workingDir"),
            (container, "volumeMounts"),
            (container, "securityContext"),
        ];
        for (at, field) in fields {
            let mut job = full.clone();
            job.pointer_mut(at).unwrap()[field] = serde_json::Value::Null;
            assert_eq!(JobSpec::parse(&job.to_string()).unwrap(), absent, "{at}/{field}");
        }
        let inner = json!({
            "command": ["true"],
            "env": [{"name": "A", "value": null, "valueFrom": null}],
            "securityContext": {"runAsUser": null, "runAsGroup": null, "runAsNonRoot": null},
        });
        assert_eq!(job(inner).unrunnable(), None);
        assert!(job(json!({"command": null})).unrunnable().unwrap().contains("`command`"));
    }

    #[test]
    fn refusals_name_the_field() {
        for (container, names) in [
            (json!({"image": "x", "args": ["120s"]}), "`command`"),
            (
                json!({
                    "command": ["true"],
                    "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                }),
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
        let volume = JobSpec::parse(
            r#"{"spec":{"template":{"spec":{"containers":[{"command":["a"]}],"volumes":[{"name":"v"}]}}}}"#,
        )
        .unwrap();
        assert!(volume.unrunnable().unwrap().contains("`volumes`"));
        assert!(JobSpec::parse("{}").is_err());
    }
}
