//! The settings of an agent: flags, environment variables and a YAML file, in this order of precedence.
//!
//! Arguments are destructured field by field, so that a new flag can't be ignored.

mod holds;
#[cfg(feature = "kubernetes")]
mod hosted;
mod joining;
mod kubernetes;

pub(crate) use holds::HoldChosen;
pub use holds::{HoldArgs, HoldChoice};
pub(crate) use joining::{IssuerJoin, IssuerJoinArgs};
pub(crate) use kubernetes::KubernetesSettings;

use clap::{Args, ValueEnum};
use meridian_objects::settings::{self, Invalid, Origins, SettingsError};
use meridian_shared::copies::CopiedKind;
use meridian_shared::identity::CaPin;
use meridian_shared::ids::{ClusterName, Region};
use meridian_shared::time::Millis;
use meridian_telemetry::Format;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Largest configuration file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Highest speed of simulated jobs: beyond it, durations round to nothing.
pub const SPEED_MAX: f64 = 100_000.0;
/// Longest wait for a new node; a gang that would wait longer is better started anew.
const REPLACEMENT_WAIT_MAX: Millis = Millis::mins(24 * 60);

/// Why the settings can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read the configuration file `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file has a wrong shape.
    #[error("{}:{slip}", path.display())]
    Shape { path: PathBuf, slip: Box<SettingsError> },
    #[error(
        "`--{flag}` is missing: {why}; give the flag, set `{}`, or write `{flag}` into the configuration \
         file",
        variable(flag)
    )]
    Missing {
        flag: &'static str,
        /// Why the flag is needed.
        why: &'static str,
    },
    #[error(transparent)]
    Invalid(Invalid),
}

impl Error {
    fn invalid(flag: &'static str, what: impl Into<String>) -> Self {
        Self::Invalid(Invalid::new(flag, what))
    }

    fn of_log_format(what: String) -> Self {
        Self::invalid("log-format", what)
    }

    /// Adds the origin of the value.
    fn with_origin(self, origins: &Origins<'_>) -> Self {
        match self {
            Self::Invalid(invalid) => Self::Invalid(invalid.with_origin(origins)),
            other => other,
        }
    }
}

fn variable(flag: &str) -> String {
    format!("MERIDIAN_AGENT_{}", flag.to_uppercase().replace('-', "_"))
}

/// Kinds of runners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum RunnerChoice {
    /// Jobs are simulated: they take time, and no process starts.
    Simulated,
    /// Jobs run as processes of this machine, with the rights of the agent's user.
    Process,
    /// Jobs run as objects of a Kubernetes cluster.
    Kubernetes,
}

impl RunnerChoice {
    /// The value of the flag, also the name of the runner in the store.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Process => "process",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// The provider. The names are those of `Cluster.spec.provider.kind`, in the spelling of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProviderChoice {
    /// Makes no nodes.
    Static,
    /// Makes nodes that don't exist, for the simulated runner.
    Simulated,
    /// Asks the autoscaler of the Kubernetes cluster.
    ProvisioningRequest,
}

impl FromStr for ProviderChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "static" => Ok(Self::Static),
            "simulated" => Ok(Self::Simulated),
            "provisioning-request" => Ok(Self::ProvisioningRequest),
            other => Err(format!(
                "`{other}` is not a provider: use `static`, `simulated` or `provisioning-request`"
            )),
        }
    }
}

/// Arguments of `agent run`.
#[derive(Clone, Debug, Default, Args)]
pub struct AgentArgs {
    /// A YAML file with any of these settings, named as the flags are.
    #[arg(long, value_name = "FILE", env = "MERIDIAN_AGENT_CONFIG")]
    pub config: Option<PathBuf>,
    /// Address of the manager. [default: the one that this agent joined]
    #[arg(long, value_name = "URL", env = "MERIDIAN_AGENT_MANAGER")]
    pub manager: Option<String>,
    /// Directory for what the agent must not lose: its identity, its store, its runs.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_AGENT_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// The nodes of the cluster. [default: this machine, with the process runner]
    #[arg(long, value_name = "FILE", env = "MERIDIAN_AGENT_FLEET")]
    pub fleet: Option<PathBuf>,
    /// Name of the cluster in the fleet file. [default: the name that this agent joined as]
    #[arg(long, value_name = "NAME", env = "MERIDIAN_AGENT_CLUSTER")]
    pub cluster: Option<String>,
    /// The region in which this machine is, as its provider reports it. A cluster that was declared in
    /// another region gets no work. [default: the one of the fleet file]
    #[arg(long, value_name = "REGION", env = "MERIDIAN_AGENT_REGION")]
    pub region: Option<String>,
    /// What runs gangs.
    #[arg(long, value_enum, env = "MERIDIAN_AGENT_RUNNER")]
    pub runner: Option<RunnerChoice>,
    /// What makes nodes: `static`, `simulated`, or `provisioning-request` with the `kubernetes` runner.
    /// [default: with the `kubernetes` runner what the manager's Cluster object says; else `simulated` if the
    /// fleet file has pools, and `static` without]
    #[arg(long, value_name = "PROVIDER", env = "MERIDIAN_AGENT_PROVIDER")]
    pub provider: Option<String>,
    /// Speed of simulated jobs and nodes compared with real time; leases always run in real time. [default:
    /// 1]
    #[arg(long, value_name = "N", env = "MERIDIAN_AGENT_SPEED")]
    pub speed: Option<f64>,
    /// Format of log lines: `text` or `json`. [default: text]
    #[arg(long, value_name = "FORMAT", env = "MERIDIAN_AGENT_LOG_FORMAT")]
    pub log_format: Option<Format>,
    /// Address that serves `/metrics`, `/healthz` and `/readyz` over plain HTTP, without authentication: they
    /// name the cluster and GPUs, but no job, namespace or user. [default: none]
    #[arg(long, value_name = "ADDRESS", env = "MERIDIAN_AGENT_METRICS_LISTEN")]
    pub metrics_listen: Option<SocketAddr>,
    /// How long pods of a lost node wait for a new node when none has capacity, such as `10m`. [default: 0s]
    #[arg(long, value_name = "DURATION", env = "MERIDIAN_AGENT_NODE_REPLACEMENT_WAIT")]
    pub node_replacement_wait: Option<String>,
    /// The Kubernetes cluster of the `kubernetes` runner. [default: the one that this process is a pod of]
    #[arg(long, value_name = "FILE", env = "MERIDIAN_AGENT_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. [default: its current one]
    #[arg(long, value_name = "NAME", env = "MERIDIAN_AGENT_CONTEXT")]
    pub context: Option<String>,
    /// Labels of the nodes that the `kubernetes` runner may use, such as `pool=training`. [default: all
    /// nodes]
    #[arg(long, value_name = "LABELS", env = "MERIDIAN_AGENT_NODE_SELECTOR")]
    pub node_selector: Option<String>,
    /// Name of the Lease by which one of several replicas of the `kubernetes` runner acts. [default:
    /// meridian-agent]
    #[arg(long, value_name = "NAME", env = "MERIDIAN_AGENT_LEASE_NAME")]
    pub lease_name: Option<String>,
    /// Image with `meridian-pod-guard`, such as the agent's own, for the `kubernetes` runner: pods then end
    /// by themselves when their lease does. [default: pods have no guards]
    #[arg(long, value_name = "IMAGE", env = "MERIDIAN_AGENT_POD_GUARD_IMAGE")]
    pub pod_guard_image: Option<String>,
    /// Kueue's ProvisioningRequestConfig, for `--provider provisioning-request`. The pools that can grow are
    /// in the fleet file.
    #[arg(long, value_name = "FILE", env = "MERIDIAN_AGENT_PROVISIONING_CONFIG")]
    pub provisioning_config: Option<PathBuf>,
    /// Most provisioning requests that are open at the same time; GKE allows 100 in a project and region.
    /// [default: 100]
    #[arg(long, value_name = "N", env = "MERIDIAN_AGENT_PROVISIONING_REQUESTS_MAX")]
    pub provisioning_requests_max: Option<usize>,
    /// With the `kubernetes` runner: the kinds of objects to copy from the management cluster if a job names
    /// them and this cluster lacks them: `config-maps`, `secrets` or both. Copies exist while the job does.
    /// The manager needs the same setting. [default: nothing is copied]
    #[arg(long, value_name = "KINDS", env = "MERIDIAN_AGENT_COPY_REFERENCES", value_delimiter = ',')]
    pub copy_references: Vec<CopiedKind>,
    #[command(flatten)]
    pub join: IssuerJoinArgs,
    #[command(flatten)]
    pub hold: HoldArgs,
}

/// Arguments of `agent join`.
#[derive(Clone, Debug, Args)]
pub struct JoinArgs {
    /// Address of the manager: `https://HOST:PORT`.
    #[arg(long, value_name = "URL", env = "MERIDIAN_AGENT_MANAGER")]
    pub manager: String,
    /// File with the one-time token that `meridian cluster join` printed, or `-` for standard input. The
    /// token can't be an argument: those are visible to all users of the machine.
    #[arg(long, value_name = "FILE", env = "MERIDIAN_AGENT_TOKEN_FILE")]
    pub token_file: PathBuf,
    /// The hash of the manager's certificate authority, from the same command.
    #[arg(long, value_name = "PIN", env = "MERIDIAN_AGENT_CA_PIN")]
    pub ca_pin: CaPin,
    /// Directory for the identity.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_AGENT_DATA_DIR")]
    pub data_dir: PathBuf,
}

/// The YAML file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FileSettings {
    manager: Option<String>,
    data_dir: Option<PathBuf>,
    fleet: Option<PathBuf>,
    cluster: Option<String>,
    region: Option<String>,
    runner: Option<RunnerChoice>,
    provider: Option<String>,
    speed: Option<f64>,
    log_format: Option<String>,
    metrics_listen: Option<SocketAddr>,
    node_replacement_wait: Option<String>,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    node_selector: Option<String>,
    lease_name: Option<String>,
    pod_guard_image: Option<String>,
    provisioning_config: Option<PathBuf>,
    provisioning_requests_max: Option<usize>,
    join_token_file: Option<PathBuf>,
    manager_ca_file: Option<PathBuf>,
    hold: Option<HoldChoice>,
    placeholder_image: Option<String>,
    placeholder_priority_class: Option<String>,
    local_queue: Option<String>,
    #[serde(default)]
    copy_references: Vec<CopiedKind>,
}

impl FileSettings {
    fn take_holds(&mut self) -> HoldArgs {
        HoldArgs {
            hold: self.hold.take(),
            placeholder_image: self.placeholder_image.take(),
            placeholder_priority_class: self.placeholder_priority_class.take(),
            local_queue: self.local_queue.take(),
        }
    }
}

/// The settings in effect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) manager: Option<String>,
    pub(crate) data_dir: PathBuf,
    pub(crate) fleet: Option<PathBuf>,
    pub(crate) cluster: Option<ClusterName>,
    pub(crate) region: Option<Region>,
    pub(crate) runner: RunnerChoice,
    /// `None`: chosen by the inventory.
    pub(crate) provider: Option<ProviderChoice>,
    pub(crate) speed: f64,
    pub(crate) log_format: Format,
    pub(crate) metrics_listen: Option<SocketAddr>,
    pub(crate) replacement_wait: Millis,
    pub(crate) kubernetes: KubernetesSettings,
    join: Option<IssuerJoin>,
}

impl AgentArgs {
    /// Reads the configuration file, if one is named, and checks everything. Fails with the first setting
    /// that can't be used.
    pub(crate) fn resolve(self) -> Result<Settings, Error> {
        let (text, file) = self.config.as_deref().map(read).transpose()?.unwrap_or_default();
        let name = self.config.as_deref().unwrap_or(Path::new("")).display().to_string();
        let set = |flag: &str| Some(variable(flag)).filter(|variable| std::env::var_os(variable).is_some());
        let given = [
            ("provider", self.provider.is_some()),
            ("speed", self.speed.is_some()),
            ("metrics-listen", self.metrics_listen.is_some()),
            ("node-replacement-wait", self.node_replacement_wait.is_some()),
            ("hold", self.hold.hold.is_some()),
            ("placeholder-image", self.hold.placeholder_image.is_some()),
            ("placeholder-priority-class", self.hold.placeholder_priority_class.is_some()),
            ("local-queue", self.hold.local_queue.is_some()),
            ("copy-references", !self.copy_references.is_empty()),
        ];
        let given = given.into_iter().filter_map(|(flag, given)| given.then_some(flag)).collect();
        let origins = Origins { said: given, variable: set, file: Some((&name, &text)) };
        self.decide(file).map_err(|error| error.with_origin(&origins))
    }

    fn decide(self, mut file: FileSettings) -> Result<Settings, Error> {
        let Self {
            config: _,
            manager,
            data_dir,
            fleet,
            cluster,
            region,
            runner,
            provider,
            speed,
            log_format,
            metrics_listen,
            node_replacement_wait,
            kubeconfig,
            context,
            node_selector,
            lease_name,
            pod_guard_image,
            provisioning_config,
            provisioning_requests_max,
            copy_references,
            join,
            hold,
        } = self;
        let copied = if copy_references.is_empty() { file.copy_references.clone() } else { copy_references };
        let hold = hold.decide(file.take_holds())?;
        let join = join.or(file.join_token_file, file.manager_ca_file);
        let manager = manager.or(file.manager);
        let settings = Settings {
            join: IssuerJoin::of(join, manager.as_ref())?,
            manager,
            data_dir: data_dir.or(file.data_dir).ok_or(Error::Missing {
                flag: "data-dir",
                why: "the agent must keep its identity and its store somewhere",
            })?,
            fleet: fleet.or(file.fleet),
            cluster: cluster.or(file.cluster).map(ClusterName::new),
            region: region.or(file.region).map(Region::new),
            runner: runner.or(file.runner).ok_or(Error::Missing {
                flag: "runner",
                why: "`simulated` only simulates jobs, `process` runs them on this machine, `kubernetes` \
                      in a Kubernetes cluster",
            })?,
            provider: provider
                .or(file.provider)
                .map(|text| text.parse().map_err(|what: String| Error::invalid("provider", what)))
                .transpose()?,
            speed: speed.or(file.speed).unwrap_or(1.0),
            log_format: Format::choose(log_format, file.log_format).map_err(Error::of_log_format)?,
            metrics_listen: metrics_listen.or(file.metrics_listen),
            replacement_wait: replacement_wait(
                node_replacement_wait.or(file.node_replacement_wait).as_deref(),
            )?,
            kubernetes: KubernetesSettings {
                kubeconfig: kubeconfig.or(file.kubeconfig),
                #[cfg(feature = "kubernetes")]
                kubeconfig_text: None,
                context: context.or(file.context),
                node_selector: kubernetes::node_selector_labels(
                    node_selector.or(file.node_selector).as_deref(),
                )?,
                lease_name: lease_name.or(file.lease_name),
                pod_guard_image: pod_guard_image.or(file.pod_guard_image),
                provisioning_config: provisioning_config.or(file.provisioning_config),
                provisioning_requests_max: provisioning_requests_max.or(file.provisioning_requests_max),
                hold,
                copied: copied.into_iter().map(CopiedKind::kind).collect(),
            },
        };
        settings.check()
    }
}

impl Settings {
    fn check(self) -> Result<Self, Error> {
        let invalid = |flag, what: String| Err(Error::invalid(flag, what));
        if !(self.speed > 0.0 && self.speed <= SPEED_MAX) {
            return invalid("speed", format!("`{}` must be above 0 and at most {SPEED_MAX}", self.speed));
        }
        if self.runner == RunnerChoice::Simulated && self.fleet.is_none() {
            return Err(Error::Missing {
                flag: "fleet",
                why: "a simulated cluster has only the nodes that a fleet file names",
            });
        }
        if self.provider == Some(ProviderChoice::Simulated) && self.runner != RunnerChoice::Simulated {
            let what =
                "`simulated` makes nodes that don't exist, so it needs the simulated runner: use `static`";
            return invalid("provider", what.to_owned());
        }
        self.check_provisioning()?;
        self.check_holds()?;
        if let Some(flag) = self.flag_of_another_runner() {
            let only =
                if flag == "fleet" { "the cluster's own nodes count" } else { "only that runner uses it" };
            let what = format!("it can't be used with `--runner {}`: {only}", self.runner.name());
            return invalid(flag, what);
        }
        Ok(self)
    }
}

fn replacement_wait(text: Option<&str>) -> Result<Millis, Error> {
    let Some(text) = text else { return Ok(Millis(0)) };
    let parsed = meridian_objects::duration::parse(text.trim()).filter(|wait| *wait <= REPLACEMENT_WAIT_MAX);
    let wrong = || {
        format!(
            "`{text}` is not a duration of at most {REPLACEMENT_WAIT_MAX}: write for example `10m`, or `0s` \
             for no wait"
        )
    };
    parsed.ok_or_else(|| Error::invalid("node-replacement-wait", wrong()))
}

/// The text of the configuration file, and the settings in it.
fn read(path: &Path) -> Result<(String, FileSettings), Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(failed(std::io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes"))));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let file =
        settings::read(&text).map_err(|slip| Error::Shape { path: path.to_owned(), slip: Box::new(slip) })?;
    Ok((text, file))
}

#[cfg(test)]
mod tests;
