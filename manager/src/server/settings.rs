//! The manager's settings: flags, environment variables and a YAML file, in this order of precedence.
//!
//! All structs are destructured field by field, so that code with an unused new flag doesn't compile.

mod joins;
mod management;
mod parse;
#[cfg(test)]
mod tests;

use self::joins::FiledAgent;
pub(super) use self::management::{AdmissionWebhook, ManagementArgs, ManagementCluster};
use self::parse::{
    FiledFairSharing, duration, parse_admission_fair_sharing, parse_fair_sharing, parse_guard,
    parse_resources, parse_retention,
};
use crate::agents::TrustedAgent;
use crate::audit::keeper::Retention;
use crate::tls::ca::AGENT_LIFETIME;
use clap::{Args, ValueEnum};
use meridian_objects::ResourceRules;
use meridian_objects::settings::{self, Invalid, Origins, SettingsError};
use meridian_queueing::settings::{AdmissionFairSharing, FairSharing};
use meridian_shared::copies::CopiedKind;
use meridian_shared::ids::Jurisdiction;
use meridian_shared::lease;
use meridian_shared::time::Millis;
use meridian_telemetry::Format;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Default address: this machine only, until an operator decides otherwise.
const LISTEN_DEFAULT: &str = "127.0.0.1:7443";
/// What the flag `--data-dir` is for.
const DATA_DIR: &str = "the directory of the journal, the authorities and the users";
/// A larger file is not a configuration file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Shortest lifetime of an agent's certificate: there must be time to repeat a failed renewal.
const LIFETIME_MIN: Millis = Millis::mins(1);
/// Shortest time between two samples of the usage history, in milliseconds: each sample is a record.
const SAMPLING_MIN_MS: i64 = 1_000;

/// Why the settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the configuration file `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file is malformed, or has an unknown or invalid field.
    #[error("{}:{slip}", path.display())]
    Shape { path: PathBuf, slip: Box<SettingsError> },
    #[error(
        "configuration file `{}` is larger than {FILE_BYTES_MAX} bytes: check the path",
        path.display()
    )]
    TooLarge { path: PathBuf },
    #[error(
        "`--{flag}` is missing: {why}; give the flag, set `{}`, or write `{flag}` into the configuration \
         file",
        variable(flag)
    )]
    Missing { flag: &'static str, why: &'static str },
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl Error {
    fn invalid(flag: &'static str, what: impl Into<String>) -> Self {
        Self::Invalid(Invalid::new(flag, what))
    }

    fn of_log_format(what: String) -> Self {
        Self::invalid("log-format", what)
    }

    /// Adds where the invalid value came from.
    fn with_origin(self, origins: &Origins<'_>) -> Self {
        match self {
            Self::Invalid(invalid) => Self::Invalid(invalid.with_origin(origins)),
            other => other,
        }
    }
}

fn variable(flag: &str) -> String {
    format!("MERIDIAN_MANAGER_{}", flag.to_uppercase().replace('-', "_"))
}

/// Default for workloads that no residency policy matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Residency {
    /// The workload is refused.
    Required,
    /// The workload may run in any cluster.
    Optional,
}

/// The flags of `meridian manager`.
#[derive(Clone, Debug, Default, Args)]
pub struct ManagerArgs {
    /// A YAML file with any of these settings, named as the flags are
    #[arg(long, value_name = "FILE", env = "MERIDIAN_MANAGER_CONFIG")]
    pub config: Option<PathBuf>,
    /// Directory of the journal, the certificate authorities and the users
    #[arg(long, value_name = "DIR", env = "MERIDIAN_MANAGER_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:7443]
    #[arg(long, value_name = "ADDRESS", env = "MERIDIAN_MANAGER_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// Names and addresses of this manager, the first one for its URL [default: the address it listens on]
    #[arg(long, value_name = "NAME", env = "MERIDIAN_MANAGER_ADVERTISE", value_delimiter = ',')]
    pub advertise: Vec<String>,
    /// Lease term of workloads if their dispatch policy sets none [default: 15m]
    #[arg(long, value_name = "DURATION", env = "MERIDIAN_MANAGER_TERM")]
    pub term: Option<String>,
    /// Shortest lease term that a dispatch policy may set [default: 1m]
    #[arg(long, value_name = "DURATION", env = "MERIDIAN_MANAGER_TERM_MIN")]
    pub term_min: Option<String>,
    /// How long a cluster holds the resources of an offer [default: 1m]
    #[arg(long, value_name = "DURATION", env = "MERIDIAN_MANAGER_HOLD")]
    pub hold: Option<String>,
    /// How long a granted gang may take to start [default: 10m]
    #[arg(long, value_name = "DURATION", env = "MERIDIAN_MANAGER_START_TIMEOUT")]
    pub start_timeout: Option<String>,
    /// Whether a workload that no residency policy matches is refused [default: optional]
    #[arg(long, value_enum, env = "MERIDIAN_MANAGER_RESIDENCY")]
    pub residency: Option<Residency>,
    /// Fair sharing between cluster queues and cohorts: preemption strategies in order, `on` for the default
    /// ones, or `off` [default: off; without strategies, or `on`:
    /// LessThanOrEqualToFinalShare,LessThanInitialShare]
    #[arg(
        long,
        value_name = "RULES",
        value_name = "STRATEGIES",
        value_delimiter = ',',
        num_args = 0..,
        require_equals = true,
        default_missing_value = "on"
    )]
    pub fair_sharing: Vec<String>,
    /// How long the head of a queue waits before capacity is reserved for it, or `off` [default: 1h]
    #[arg(long, value_name = "DURATION", env = "MERIDIAN_MANAGER_STARVATION_GUARD")]
    pub starvation_guard: Option<String>,
    /// Fair sharing of admissions between local queues by their usage history, such as
    /// half-life=168h,sampling=5m,weight.cpu=2, or `off` [default: off]
    #[arg(long, value_name = "KEY=VALUE,..", env = "MERIDIAN_MANAGER_ADMISSION_FAIR_SHARING")]
    pub admission_fair_sharing: Option<String>,
    /// Directory of manifests (`.yaml`, `.yml`, `.json`) that declare Clusters, ResourceFlavors and
    /// Topologies: applied at the start, and when they change [default: none]
    #[arg(long, value_name = "DIR", env = "MERIDIAN_MANAGER_OBJECTS")]
    pub objects: Option<PathBuf>,
    /// Jurisdiction in which this manager stores its data, such as `EU`
    #[arg(long, value_name = "AREA", env = "MERIDIAN_MANAGER_JURISDICTION")]
    pub jurisdiction: Option<String>,
    /// Validity of an agent's certificate [default: 24h]
    #[arg(long, value_name = "DURATION", env = "MERIDIAN_MANAGER_AGENT_CERTIFICATE_LIFETIME")]
    pub agent_certificate_lifetime: Option<String>,
    /// Size of lines after which a segment of the audit log is finished [default: 64Mi]
    #[arg(long, value_name = "SIZE", env = "MERIDIAN_MANAGER_AUDIT_SEGMENT_SIZE")]
    pub audit_segment_size: Option<String>,
    /// Where finished segments of the audit log go: a directory, or a program that gets the path of each
    #[arg(long, value_name = "PATH", env = "MERIDIAN_MANAGER_AUDIT_EXPORT")]
    pub audit_export: Option<PathBuf>,
    /// Exported segments of the audit log to keep [default: all]
    #[arg(long, value_name = "NUMBER", env = "MERIDIAN_MANAGER_AUDIT_KEEP_SEGMENTS")]
    pub audit_keep_segments: Option<u64>,
    /// Size up to which exported segments of the audit log are kept [default: all]
    #[arg(long, value_name = "SIZE", env = "MERIDIAN_MANAGER_AUDIT_KEEP_SIZE")]
    pub audit_keep_size: Option<String>,
    /// Format of log lines: `text` or `json` [default: text]
    #[arg(long, value_name = "FORMAT", env = "MERIDIAN_MANAGER_LOG_FORMAT")]
    pub log_format: Option<Format>,
    /// OTLP endpoint for traces, such as `http://127.0.0.1:4318`; without it there are no traces
    #[arg(long, value_name = "URL", env = "MERIDIAN_MANAGER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
    #[command(flatten)]
    pub management: ManagementArgs,
    /// Create a new journal first, and assert that no gang was ever started from a journal in this place
    #[arg(long)]
    pub init: bool,
    /// With `--init`: the new journal replaces a lost one, and gangs may still run
    #[arg(long, requires = "init")]
    pub recover: bool,
}

/// The configuration file: every setting except `--init` and `--recover`, which must be given at each start.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    data_dir: Option<PathBuf>,
    listen: Option<SocketAddr>,
    advertise: Vec<String>,
    term: Option<String>,
    term_min: Option<String>,
    hold: Option<String>,
    start_timeout: Option<String>,
    residency: Option<Residency>,
    fair_sharing: Vec<String>,
    starvation_guard: Option<String>,
    resources: Option<serde_json::Value>,
    #[serde(alias = "admissionFairSharing")]
    admission_fair_sharing: Option<FiledFairSharing>,
    objects: Option<PathBuf>,
    jurisdiction: Option<String>,
    agent_certificate_lifetime: Option<String>,
    audit_segment_size: Option<String>,
    audit_export: Option<PathBuf>,
    audit_keep_segments: Option<u64>,
    audit_keep_size: Option<String>,
    log_format: Option<String>,
    otlp_endpoint: Option<String>,
    kubernetes: bool,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    lease_name: Option<String>,
    admission_webhook: Option<String>,
    host_clusters: Option<String>,
    copy_references: Vec<CopiedKind>,
    join_by_issuer: Vec<FiledAgent>,
    ca_config_map: Option<String>,
}

/// The settings with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) data_dir: PathBuf,
    pub(super) listen: SocketAddr,
    pub(super) names: Vec<String>,
    pub(super) term: Millis,
    pub(super) term_min: Millis,
    pub(super) hold: Millis,
    pub(super) start_timeout: Millis,
    pub(super) residency_required: bool,
    pub(super) fair_sharing: Option<FairSharing>,
    pub(super) starvation_guard: Option<Millis>,
    pub(super) resources: ResourceRules,
    pub(super) admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Directory of the manifests that declare clusters.
    pub(super) objects: Option<PathBuf>,
    pub(super) jurisdiction: Option<Jurisdiction>,
    pub(super) agent_certificate_lifetime: Millis,
    pub(super) audit_retention: Retention,
    pub(super) audit_export: Option<PathBuf>,
    pub(super) log_format: Format,
    pub(super) otlp_endpoint: Option<String>,
    pub(super) management_cluster: Option<ManagementCluster>,
    /// Agents that may join by their service account.
    pub(super) trusted: Vec<TrustedAgent>,
    /// ConfigMap in which the manager publishes its authority, in the namespace of its own pod.
    pub(super) ca_config_map: Option<String>,
    pub(super) init: bool,
    pub(super) recover: bool,
}

impl ManagerArgs {
    /// The flags given on the command line, among those whose values are validated.
    fn given(&self) -> Vec<&'static str> {
        let flags = [
            ("term", self.term.is_some()),
            ("term-min", self.term_min.is_some()),
            ("hold", self.hold.is_some()),
            ("start-timeout", self.start_timeout.is_some()),
            ("fair-sharing", !self.fair_sharing.is_empty()),
            ("starvation-guard", self.starvation_guard.is_some()),
            ("admission-fair-sharing", self.admission_fair_sharing.is_some()),
            ("agent-certificate-lifetime", self.agent_certificate_lifetime.is_some()),
            ("audit-segment-size", self.audit_segment_size.is_some()),
            ("audit-keep-segments", self.audit_keep_segments.is_some()),
            ("audit-keep-size", self.audit_keep_size.is_some()),
            ("otlp-endpoint", self.otlp_endpoint.is_some()),
            ("kubeconfig", self.management.kubeconfig.is_some()),
            ("context", self.management.context.is_some()),
            ("lease-name", self.management.lease_name.is_some()),
            ("admission-webhook", self.management.admission_webhook.is_some()),
            ("host-clusters", self.management.host_clusters.is_some()),
            ("copy-references", !self.management.copy_references.is_empty()),
        ];
        flags.into_iter().filter_map(|(flag, given)| given.then_some(flag)).collect()
    }
}

impl Settings {
    pub(super) fn resolve(args: ManagerArgs) -> Result<Self, Error> {
        let (text, file) = args.config.as_deref().map(read).transpose()?.unwrap_or_default();
        let name = args.config.as_deref().unwrap_or(Path::new("")).display().to_string();
        let set = |flag: &str| Some(variable(flag)).filter(|variable| std::env::var_os(variable).is_some());
        let origins = Origins { said: args.given(), variable: set, file: Some((&name, &text)) };
        Self::decide(args, file).map_err(|error| error.with_origin(&origins))
    }

    fn decide(mut args: ManagerArgs, mut file: File) -> Result<Self, Error> {
        let cluster = management::resolve(std::mem::take(&mut args.management), &mut file)?;
        let trusted = joins::parse(std::mem::take(&mut file.join_by_issuer))?;
        let settings = Self::combine(args, file, cluster, trusted)?;
        settings.check()?;
        Ok(settings)
    }

    /// Combines settings: flags override the file, and the file overrides defaults.
    fn combine(
        args: ManagerArgs,
        file: File,
        cluster: Option<ManagementCluster>,
        trusted: Vec<TrustedAgent>,
    ) -> Result<Self, Error> {
        let ManagerArgs {
            config: _,
            data_dir,
            listen,
            advertise,
            term,
            term_min,
            hold,
            start_timeout,
            residency,
            fair_sharing,
            starvation_guard,
            admission_fair_sharing,
            objects,
            jurisdiction,
            agent_certificate_lifetime: lifetime,
            audit_segment_size,
            audit_export,
            audit_keep_segments,
            audit_keep_size,
            log_format,
            otlp_endpoint,
            management: _,
            init,
            recover,
        } = args;
        let listen =
            listen.or(file.listen).unwrap_or_else(|| LISTEN_DEFAULT.parse().expect("a constant address"));
        let advertise = if advertise.is_empty() { file.advertise } else { advertise };
        let names = names(listen.ip(), advertise, cluster.as_ref());
        let pick = |flag, given: Option<String>, filed: Option<String>, default| {
            given.or(filed).map_or(Ok(default), |text| duration(flag, &text))
        };
        let lifetime =
            pick("agent-certificate-lifetime", lifetime, file.agent_certificate_lifetime, AGENT_LIFETIME)?;
        let strategies = if fair_sharing.is_empty() { &file.fair_sharing } else { &fair_sharing };
        Ok(Self {
            management_cluster: cluster,
            trusted,
            ca_config_map: file.ca_config_map,
            data_dir: data_dir.or(file.data_dir).ok_or(Error::Missing { flag: "data-dir", why: DATA_DIR })?,
            listen,
            names,
            term: pick("term", term, file.term, lease::TERM_DEFAULT)?,
            term_min: pick("term-min", term_min, file.term_min, lease::TERM_MIN_DEFAULT)?,
            hold: pick("hold", hold, file.hold, Millis::secs(60))?,
            start_timeout: pick("start-timeout", start_timeout, file.start_timeout, Millis::mins(10))?,
            residency_required: residency.or(file.residency) == Some(Residency::Required),
            fair_sharing: parse_fair_sharing(strategies)?,
            resources: parse_resources(file.resources.as_ref())?,
            starvation_guard: parse_guard(starvation_guard.or(file.starvation_guard).as_deref())?,
            admission_fair_sharing: parse_admission_fair_sharing(
                admission_fair_sharing.as_deref(),
                file.admission_fair_sharing,
            )?,
            objects: objects.or(file.objects),
            jurisdiction: jurisdiction.or(file.jurisdiction).map(Jurisdiction::new),
            agent_certificate_lifetime: lifetime,
            audit_retention: parse_retention(
                audit_segment_size.or(file.audit_segment_size).as_deref(),
                audit_keep_segments.or(file.audit_keep_segments),
                audit_keep_size.or(file.audit_keep_size).as_deref(),
            )?,
            audit_export: audit_export.or(file.audit_export),
            log_format: Format::choose(log_format, file.log_format).map_err(Error::of_log_format)?,
            otlp_endpoint: otlp_endpoint.or(file.otlp_endpoint),
            init,
            recover,
        })
    }

    /// Fails if the lease times don't fit together, or if settings contradict each other.
    fn check(&self) -> Result<(), Error> {
        let invalid = |flag, what: String| Err(Error::invalid(flag, what));
        if let Err(what) = lease::fits(self.term_min, self.term_min) {
            return invalid("term-min", what);
        }
        if let Err(what) = lease::fits(self.term, self.term_min) {
            return invalid("term", what);
        }
        if self.term > lease::TERM_MAX {
            return invalid(
                "term",
                format!("`{}` is longer than the longest lease term, {}", self.term, lease::TERM_MAX),
            );
        }
        if self.agent_certificate_lifetime < LIFETIME_MIN {
            return invalid(
                "agent-certificate-lifetime",
                format!("`{}` is shorter than {LIFETIME_MIN}", self.agent_certificate_lifetime),
            );
        }
        if let Some(sharing) =
            self.admission_fair_sharing.as_ref().filter(|sharing| sharing.sampling_ms < SAMPLING_MIN_MS)
        {
            return invalid(
                "admission-fair-sharing",
                format!(
                    "the sampling interval of {} ms is too short; the least is {SAMPLING_MIN_MS} ms",
                    sharing.sampling_ms
                ),
            );
        }
        if let Some(Err(what)) = self.otlp_endpoint.as_deref().map(meridian_telemetry::check_endpoint) {
            return invalid("otlp-endpoint", what);
        }
        let Retention { segment_bytes: _, segments_max, bytes_max } = self.audit_retention;
        let keep = [("audit-keep-segments", segments_max), ("audit-keep-size", bytes_max)];
        if let Some((flag, _)) =
            keep.into_iter().find(|(_, max)| max.is_some() && self.audit_export.is_none())
        {
            return invalid(flag, "only exported segments are removed: set `audit-export` too".into());
        }
        if self.recover && !self.init {
            return invalid(
                "recover",
                "it makes a new journal replace a lost one, so it needs `--init`".into(),
            );
        }
        Ok(())
    }

    /// The URL for users and agents, once the manager listens on `port`.
    pub(super) fn url(&self, port: u16) -> String {
        let name = self.names.first().map_or("localhost", String::as_str);
        match name.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("https://[{address}]:{port}"),
            _ => format!("https://{name}:{port}"),
        }
    }
}

/// The names in the server's certificate: the advertised names, and names by which local clients reach the
/// manager.
fn names(listen: IpAddr, mut advertise: Vec<String>, cluster: Option<&ManagementCluster>) -> Vec<String> {
    advertise.extend(cluster.and_then(ManagementCluster::webhook_host));
    let mut names: Vec<String> =
        advertise.into_iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    if !listen.is_unspecified() {
        names.push(listen.to_string());
    }
    if listen.is_unspecified() || listen.is_loopback() {
        names.extend(["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()]);
    }
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// The file's text, and its content. Fails if the file can't be read, is too large or is malformed.
fn read(path: &Path) -> Result<(String, File), Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(Error::TooLarge { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    if text.trim().is_empty() {
        return Ok((text, File::default()));
    }
    let file =
        settings::read(&text).map_err(|slip| Error::Shape { path: path.to_owned(), slip: Box::new(slip) })?;
    Ok((text, file))
}
