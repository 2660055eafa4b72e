//! What a manager is told: flags, environment variables and a YAML file, in this order of precedence.
//!
//! Everything is taken apart field by field, so that a flag which is added and not honoured does not compile.

use crate::tls::ca::AGENT_LIFETIME;
use clap::{Args, ValueEnum};
use meridian_manager_core::config::STARVATION_GUARD_DEFAULT;
use meridian_objects::ResourceRules;
use meridian_objects::settings::{self, Invalid, Origins, Slip};
use meridian_queueing::settings::{AdmissionFairSharing, FairSharing, FairStrategy};
use meridian_shared::ids::Jurisdiction;
use meridian_shared::lease;
use meridian_shared::time::Millis;
use meridian_telemetry::Format;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Where it listens when nobody says otherwise: this machine only, until an operator decides.
const LISTEN_DEFAULT: &str = "127.0.0.1:7443";
/// A larger file is no configuration.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest duration of any setting: a year. More is a slip.
const DURATION_MAX: Millis = Millis::mins(366 * 24 * 60);
/// Shortest lifetime of an agent's certificate: a renewal at two thirds must have time to be repeated.
const LIFETIME_MIN: Millis = Millis::mins(1);
/// Shortest time between two samples of past use, in milliseconds: each is a record.
const SAMPLING_MIN_MS: i64 = 1_000;

/// Why the settings don't do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read.
    #[error("cannot read the configuration file `{}`", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{}:{slip}", path.display())]
    Shape {
        /// Which file.
        path: PathBuf,
        /// Where, what is wrong, and what to do.
        slip: Box<Slip>,
    },
    /// The file is too large to be one.
    #[error("configuration file `{}` is larger than {FILE_BYTES_MAX} bytes: name another one", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
    },
    /// Something must be said.
    #[error(
        "`--{flag}` is missing: {why}; give the flag, set `{}`, or write `{flag}` into the configuration file",
        variable(flag)
    )]
    Missing {
        /// Which flag.
        flag: &'static str,
        /// What it is for.
        why: &'static str,
    },
    /// Something can't be as it was said.
    #[error(transparent)]
    Invalid(Invalid),
}

impl Error {
    fn invalid(flag: &'static str, what: impl Into<String>) -> Self {
        Self::Invalid(Invalid::new(flag, what))
    }

    /// The same with where the value came from.
    fn told(self, origins: &Origins<'_>) -> Self {
        match self {
            Self::Invalid(invalid) => Self::Invalid(invalid.told(origins)),
            other => other,
        }
    }
}

fn variable(flag: &str) -> String {
    format!("MERIDIAN_MANAGER_{}", flag.to_uppercase().replace('-', "_"))
}

/// Whether a workload needs a policy to go anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Residency {
    /// A workload that no residency policy matches is refused.
    Required,
    /// It may go anywhere.
    Optional,
}

/// `meridian manager`.
#[derive(Clone, Debug, Default, Args)]
pub struct ManagerArgs {
    /// A YAML file with any of these settings, named as the flags are
    #[arg(long, value_name = "FILE", env = "MERIDIAN_MANAGER_CONFIG")]
    pub config: Option<PathBuf>,
    /// What the manager must not lose: its journal, its authorities, its users
    #[arg(long, value_name = "DIR", env = "MERIDIAN_MANAGER_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where it listens [default: 127.0.0.1:7443]
    #[arg(long, value_name = "ADDRESS", env = "MERIDIAN_MANAGER_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// Names and addresses by which it is reached, the first one in its URL [default: the address it listens on]
    #[arg(long, value_name = "NAME", env = "MERIDIAN_MANAGER_ADVERTISE", value_delimiter = ',')]
    pub advertise: Vec<String>,
    /// Lease term of workloads whose policy names none [default: 15m]
    #[arg(long, value_name = "DURATION", env = "MERIDIAN_MANAGER_TERM")]
    pub term: Option<String>,
    /// Shortest lease term that any workload may have [default: 1m]
    #[arg(long, value_name = "DURATION", env = "MERIDIAN_MANAGER_TERM_MIN")]
    pub term_min: Option<String>,
    /// How long an offer asks a cluster to hold room [default: 1m]
    #[arg(long, value_name = "DURATION", env = "MERIDIAN_MANAGER_HOLD")]
    pub hold: Option<String>,
    /// How long a granted gang may take to run [default: 10m]
    #[arg(long, value_name = "DURATION", env = "MERIDIAN_MANAGER_START_TIMEOUT")]
    pub start_timeout: Option<String>,
    /// Whether a workload that no residency policy matches is refused [default: optional]
    #[arg(long, value_enum, env = "MERIDIAN_MANAGER_RESIDENCY")]
    pub residency: Option<Residency>,
    /// Fair sharing between cluster queues and cohorts: the rules by which a smaller share may displace, in order, `on` for the
    /// usual ones, or `off` [default: off; without rules, or `on`: LessThanOrEqualToFinalShare,LessThanInitialShare]
    #[arg(
        long,
        value_name = "RULES",
        env = "MERIDIAN_MANAGER_FAIR_SHARING",
        value_delimiter = ',',
        num_args = 0..,
        require_equals = true,
        default_missing_value = "on"
    )]
    pub fair_sharing: Vec<String>,
    /// How long the head of a queue waits before nobody passes it by any more and room is kept for it, or `off` [default: 1h]
    #[arg(long, value_name = "DURATION", env = "MERIDIAN_MANAGER_STARVATION_GUARD")]
    pub starvation_guard: Option<String>,
    /// Fair sharing of admissions between local queues by what they used before, such as half-life=168h,sampling=5m,weight.cpu=2,
    /// or `off` [default: off]
    #[arg(long, value_name = "KEY=VALUE,..", env = "MERIDIAN_MANAGER_ADMISSION_FAIR_SHARING")]
    pub admission_fair_sharing: Option<String>,
    /// The legal area in which this manager stores what it is given, such as `EU`
    #[arg(long, value_name = "AREA", env = "MERIDIAN_MANAGER_JURISDICTION")]
    pub jurisdiction: Option<String>,
    /// How long an agent's certificate is good before it must be renewed [default: 24h]
    #[arg(long, value_name = "DURATION", env = "MERIDIAN_MANAGER_AGENT_CERTIFICATE_LIFETIME")]
    pub agent_certificate_lifetime: Option<String>,
    /// How log lines look: `text` or `json` [default: text]
    #[arg(long, value_name = "FORMAT", env = "MERIDIAN_MANAGER_LOG_FORMAT")]
    pub log_format: Option<Format>,
    /// Where traces go, such as `http://127.0.0.1:4318`; nowhere without it
    #[arg(long, value_name = "URL", env = "MERIDIAN_MANAGER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
    /// Make a new journal first, and assert with it that no gang was ever started for one that was here
    #[arg(long)]
    pub init: bool,
    /// With `--init`: the new journal takes the place of a lost one, and gangs may still run
    #[arg(long, requires = "init")]
    pub recover: bool,
}

/// The file: every setting but the two that must be said every time.
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
    admission_fair_sharing: Option<PastUse>,
    jurisdiction: Option<String>,
    agent_certificate_lifetime: Option<String>,
    log_format: Option<String>,
    otlp_endpoint: Option<String>,
}

/// How past use of local queues counts, in the words of Kueue's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PastUse {
    usage_half_life_time: String,
    usage_sampling_interval: Option<String>,
    #[serde(default)]
    resource_weights: BTreeMap<String, f64>,
}

/// Everything decided.
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
    pub(super) jurisdiction: Option<Jurisdiction>,
    pub(super) agent_certificate_lifetime: Millis,
    pub(super) log_format: Format,
    pub(super) otlp_endpoint: Option<String>,
    pub(super) init: bool,
    pub(super) recover: bool,
}

impl ManagerArgs {
    /// The flags whose values may be wrong and that were said.
    fn said(&self) -> Vec<&'static str> {
        let some = [
            ("term", self.term.is_some()),
            ("term-min", self.term_min.is_some()),
            ("hold", self.hold.is_some()),
            ("start-timeout", self.start_timeout.is_some()),
            ("fair-sharing", !self.fair_sharing.is_empty()),
            ("starvation-guard", self.starvation_guard.is_some()),
            ("admission-fair-sharing", self.admission_fair_sharing.is_some()),
            ("agent-certificate-lifetime", self.agent_certificate_lifetime.is_some()),
            ("otlp-endpoint", self.otlp_endpoint.is_some()),
        ];
        some.into_iter().filter_map(|(flag, said)| said.then_some(flag)).collect()
    }
}

impl Settings {
    pub(super) fn resolve(args: ManagerArgs) -> Result<Self, Error> {
        let (text, file) = args.config.as_deref().map(read).transpose()?.unwrap_or_default();
        let name = args.config.as_deref().unwrap_or(Path::new("")).display().to_string();
        let set = |flag: &str| Some(variable(flag)).filter(|variable| std::env::var_os(variable).is_some());
        let origins = Origins { said: args.said(), variable: set, file: Some((&name, &text)) };
        Self::decide(args, file).map_err(|error| error.told(&origins))
    }

    fn decide(args: ManagerArgs, file: File) -> Result<Self, Error> {
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
            jurisdiction,
            agent_certificate_lifetime,
            log_format,
            otlp_endpoint,
            init,
            recover,
        } = args;
        let log_format = match (log_format, file.log_format) {
            (Some(format), _) => format,
            (None, Some(text)) => text.parse().map_err(|what: String| Error::invalid("log-format", what))?,
            (None, None) => Format::default(),
        };
        let listen =
            listen.or(file.listen).unwrap_or_else(|| LISTEN_DEFAULT.parse().expect("a constant address"));
        let advertise = if advertise.is_empty() { file.advertise } else { advertise };
        let pick = |flag, said: Option<String>, filed: Option<String>, default| {
            said.or(filed).map_or(Ok(default), |text| duration(flag, &text))
        };
        let lifetime = pick(
            "agent-certificate-lifetime",
            agent_certificate_lifetime,
            file.agent_certificate_lifetime,
            AGENT_LIFETIME,
        )?;
        let why = "it says where the journal, the authorities and the users are kept";
        let settings = Self {
            data_dir: data_dir.or(file.data_dir).ok_or(Error::Missing { flag: "data-dir", why })?,
            listen,
            names: names(listen.ip(), advertise),
            term: pick("term", term, file.term, lease::TERM_DEFAULT)?,
            term_min: pick("term-min", term_min, file.term_min, lease::TERM_MIN_DEFAULT)?,
            hold: pick("hold", hold, file.hold, Millis::secs(60))?,
            start_timeout: pick("start-timeout", start_timeout, file.start_timeout, Millis::mins(10))?,
            residency_required: residency.or(file.residency) == Some(Residency::Required),
            fair_sharing: sharing(if fair_sharing.is_empty() { &file.fair_sharing } else { &fair_sharing })?,
            resources: resources(file.resources.as_ref())?,
            starvation_guard: guard(starvation_guard.or(file.starvation_guard).as_deref())?,
            admission_fair_sharing: past_use(admission_fair_sharing.as_deref(), file.admission_fair_sharing)?,
            jurisdiction: jurisdiction.or(file.jurisdiction).map(Jurisdiction::new),
            agent_certificate_lifetime: lifetime,
            log_format,
            otlp_endpoint: otlp_endpoint.or(file.otlp_endpoint),
            init,
            recover,
        };
        settings.check()?;
        Ok(settings)
    }

    /// Whether the numbers of the leases fit, and what else can't be seen from one setting alone.
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
                    "past use can't be sampled every {} ms; the least is {SAMPLING_MIN_MS} ms",
                    sharing.sampling_ms
                ),
            );
        }
        if let Some(Err(what)) = self.otlp_endpoint.as_deref().map(meridian_telemetry::check_endpoint) {
            return invalid("otlp-endpoint", what);
        }
        if self.recover && !self.init {
            return invalid(
                "recover",
                "it says what a new journal takes the place of: give `--init` with it".into(),
            );
        }
        Ok(())
    }

    /// Where people and agents find this manager, once it listens at `port`.
    pub(super) fn url(&self, port: u16) -> String {
        let name = self.names.first().map_or("localhost", String::as_str);
        match name.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("https://[{address}]:{port}"),
            _ => format!("https://{name}:{port}"),
        }
    }
}

/// The rules of fair sharing; none where it is off.
fn sharing(rules: &[String]) -> Result<Option<FairSharing>, Error> {
    let rule = |text: &String| match text.as_str() {
        "LessThanOrEqualToFinalShare" => Ok(FairStrategy::LessThanOrEqualToFinalShare),
        "LessThanInitialShare" => Ok(FairStrategy::LessThanInitialShare),
        other => Err(Error::invalid(
            "fair-sharing",
            format!(
                "`{other}` is no rule: the rules are `LessThanOrEqualToFinalShare` and `LessThanInitialShare`; or `on`, or `off`"
            ),
        )),
    };
    match rules {
        [] => Ok(None),
        [off] if off == "off" => Ok(None),
        [on] if on == "on" => Ok(Some(FairSharing::default())),
        rules => Ok(Some(FairSharing { strategies: rules.iter().map(rule).collect::<Result<_, _>>()? })),
    }
}

/// How past use of local queues counts; none where it doesn't.
fn past_use(said: Option<&str>, filed: Option<PastUse>) -> Result<Option<AdmissionFairSharing>, Error> {
    let invalid = |what: String| Error::invalid("admission-fair-sharing", what);
    match (said, filed) {
        (Some("off"), _) | (None, None) => Ok(None),
        (Some(text), _) => text.parse().map(Some).map_err(invalid),
        (None, Some(filed)) => filed.read().map(Some).map_err(invalid),
    }
}

impl PastUse {
    fn read(self) -> Result<AdmissionFairSharing, String> {
        let Self { usage_half_life_time, usage_sampling_interval, resource_weights } = self;
        let weight = |(resource, weight): (String, f64)| {
            let nano =
                AdmissionFairSharing::weight(&format!("resourceWeights.{resource}"), &weight.to_string())?;
            Ok((resource, nano))
        };
        Ok(AdmissionFairSharing {
            half_life_ms: AdmissionFairSharing::time("usageHalfLifeTime", &usage_half_life_time)?,
            sampling_ms: usage_sampling_interval
                .map_or(Ok(AdmissionFairSharing::SAMPLING_USUAL_MS), |text| {
                    AdmissionFairSharing::interval("usageSamplingInterval", &text)
                })?,
            resource_weights: resource_weights.into_iter().map(weight).collect::<Result<_, String>>()?,
        })
    }
}

/// Names for the certificate: what is advertised, and what reaches it from this machine in any case.
fn names(listen: IpAddr, advertise: Vec<String>) -> Vec<String> {
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

/// What quota sees of what pods ask for.
fn resources(filed: Option<&serde_json::Value>) -> Result<ResourceRules, Error> {
    let invalid = |what: String| Error::invalid("resources", what);
    filed.map(ResourceRules::from_json).transpose().map(Option::unwrap_or_default).map_err(invalid)
}

/// After how long room is kept for who waits.
fn guard(text: Option<&str>) -> Result<Option<Millis>, Error> {
    match text {
        None => Ok(Some(STARVATION_GUARD_DEFAULT)),
        Some("off") => Ok(None),
        Some(text) => duration("starvation-guard", text).map(Some).map_err(|error| match error {
            Error::Invalid(invalid) => Error::Invalid(invalid.or("`off`")),
            other => other,
        }),
    }
}

fn duration(flag: &'static str, text: &str) -> Result<Millis, Error> {
    let parsed = text
        .trim()
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|d| u64::try_from(d.as_millis()).ok())
        .map(Millis);
    match parsed {
        Some(millis) if millis > Millis(0) && millis <= DURATION_MAX => Ok(millis),
        _ => Err(Error::invalid(
            flag,
            format!(
                "`{text}` is not a duration of up to a year; write a number with a unit, such as `90s`, `15m` or `2h`"
            ),
        )),
    }
}

/// The file's text and what it says.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> ManagerArgs {
        ManagerArgs { data_dir: Some("data".into()), ..ManagerArgs::default() }
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("manager.yaml");
        std::fs::write(&path, "data-dir: filed\nterm: 20m\nresidency: required\nadvertise: [manager.example]\nlog-format: json\n").unwrap();
        let settings =
            Settings::resolve(ManagerArgs { config: Some(path.clone()), term: Some("30m".into()), ..args() })
                .unwrap();
        assert_eq!(
            (settings.data_dir, settings.term, settings.term_min),
            ("data".into(), Millis::mins(30), lease::TERM_MIN_DEFAULT)
        );
        assert!(settings.residency_required && settings.log_format == Format::Json);
        assert_eq!(settings.names, ["manager.example", "127.0.0.1", "localhost", "::1"]);
        std::fs::write(&path, "data-dir: x\nterms: 20m\n").unwrap();
        let error =
            Settings::resolve(ManagerArgs { config: Some(path.clone()), ..args() }).unwrap_err().to_string();
        assert!(
            error.ends_with("manager.yaml:2:1: terms: `terms` is not known here; did you mean `term`?"),
            "{error}"
        );
        std::fs::write(&path, "data-dir: x\nterm: fifteen\n").unwrap();
        let error =
            Settings::resolve(ManagerArgs { config: Some(path.clone()), ..args() }).unwrap_err().to_string();
        assert!(
            error.contains("manager.yaml:2:7: term: `fifteen` is not a duration") && !error.contains("--"),
            "{error}"
        );
        let flag = ManagerArgs { config: Some(path), term: Some("soon".into()), ..args() };
        assert!(
            Settings::resolve(flag)
                .unwrap_err()
                .to_string()
                .starts_with("`--term`: `soon` is not a duration")
        );
    }

    #[test]
    fn what_does_not_fit_is_said_in_words() {
        let error = |args: ManagerArgs| Settings::resolve(args).unwrap_err().to_string();
        assert!(error(ManagerArgs::default()).contains("MERIDIAN_MANAGER_DATA_DIR"));
        assert!(
            error(ManagerArgs { term: Some("fifteen".into()), ..args() })
                .contains("`fifteen` is not a duration")
        );
        assert!(error(ManagerArgs { term: Some("30s".into()), ..args() }).contains("--term-min"));
        assert!(error(ManagerArgs { term_min: Some("4s".into()), ..args() }).contains("too short"));
        assert!(
            error(ManagerArgs { agent_certificate_lifetime: Some("1s".into()), ..args() })
                .contains("shorter")
        );
        assert!(error(ManagerArgs { recover: true, ..args() }).contains("--init"));
        assert!(
            error(ManagerArgs { otlp_endpoint: Some("ftp://x".into()), ..args() })
                .starts_with("`--otlp-endpoint`: `ftp://x`")
        );
        let guard = |text: &str| ManagerArgs { starvation_guard: Some(text.into()), ..args() };
        assert!(
            error(guard("0s")).contains("--starvation-guard")
                && error(guard("of")).ends_with("or `2h`; or `off`")
        );
        assert_eq!(Settings::resolve(guard("off")).unwrap().starvation_guard, None);
        assert_eq!(Settings::resolve(args()).unwrap().starvation_guard, Some(Millis::mins(60)));
        let demo = ManagerArgs { term: Some("8s".into()), term_min: Some("8s".into()), ..args() };
        assert_eq!(Settings::resolve(demo).unwrap().term, Millis::secs(8));
    }

    #[test]
    fn what_quota_sees_is_said_in_words_of_kueue() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("manager.yaml");
        let read = |file: &str| {
            std::fs::write(&path, file).unwrap();
            Settings::resolve(ManagerArgs { config: Some(path.clone()), ..args() })
                .map(|settings| settings.resources)
                .map_err(|error| error.to_string())
        };
        assert!(read("").unwrap().is_empty());
        let rules = read(
            "resources:\n  excludeResourcePrefixes: [net.example/]\n  transformations:\n  - {input: gpu.example/mig, strategy: Replace, outputs: {gpu.example/memory: 5Gi}}\n",
        );
        let asked = [("net.example/card", 1), ("gpu.example/mig", 2), ("cpu", 500)]
            .map(|(name, amount)| (name.to_owned(), amount))
            .into();
        let seen = [("gpu.example/memory", 10 << 30), ("cpu", 500)]
            .map(|(name, amount)| (name.to_owned(), amount))
            .into();
        assert_eq!(rules.unwrap().seen(&asked), seen);
        let refused = |file: &str| read(file).unwrap_err();
        assert!(
            refused("resources: {transformations: [{strategy: Replace}]}")
                .contains("transformations[0].input: is missing")
        );
        assert!(
            refused("resources: {transformations: [{input: cpu, strategy: Drop}]}")
                .contains("`Drop` is not a choice")
        );
        assert!(
            refused("resources: {transformations: [{input: cpu}, {input: cpu}]}")
                .contains("`cpu` is the input of two")
        );
        assert!(refused("resources: {excludeResourcePrefixes: ['']}").contains("excludeResourcePrefixes[0]"));
        assert!(
            refused("resources: {deviceClassMappings: []}")
                .contains("`deviceClassMappings` is not known here")
        );
        assert!(refused("resources: [cpu]").contains("must be a mapping"));
    }

    #[test]
    fn past_use_is_said_as_a_flag_or_in_words_of_kueue() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("manager.yaml");
        let read = |flag: Option<&str>, file: &str| {
            std::fs::write(&path, file).unwrap();
            let args = ManagerArgs {
                config: Some(path.clone()),
                admission_fair_sharing: flag.map(str::to_owned),
                ..args()
            };
            Settings::resolve(args)
                .map(|settings| settings.admission_fair_sharing)
                .map_err(|error| error.to_string())
        };
        assert_eq!(read(None, ""), Ok(None));
        let filed = "admissionFairSharing: {usageHalfLifeTime: 168h, usageSamplingInterval: 90s, resourceWeights: {nvidia.com/gpu: 2.5, cpu: 0}}";
        let weights = vec![("cpu".to_owned(), 0), ("nvidia.com/gpu".to_owned(), 2_500_000_000)];
        let meant = AdmissionFairSharing {
            half_life_ms: 604_800_000,
            sampling_ms: 90_000,
            resource_weights: weights,
        };
        assert_eq!(read(None, filed), Ok(Some(meant.clone())));
        assert_eq!(
            read(Some("half-life=168h,sampling=90s,weight.cpu=0,weight.nvidia.com/gpu=2.5"), ""),
            Ok(Some(meant))
        );
        assert_eq!(read(Some("off"), filed), Ok(None));
        let usual = read(None, "admission-fair-sharing: {usageHalfLifeTime: 0s}").unwrap().unwrap();
        assert_eq!((usual.half_life_ms, usual.sampling_ms), (0, 300_000));
        let refused = |flag: Option<&str>, file: &str| read(flag, file).unwrap_err();
        assert!(refused(Some("sampling=5m"), "").contains("`half-life` is missing"));
        assert!(refused(Some("half-life=1h,sampling=5ms"), "").contains("the least is 1000 ms"));
        assert!(
            refused(None, "admissionFairSharing: {usageHalfLifeTime: -1h}")
                .contains("`-1h` of `usageHalfLifeTime` is not a time")
        );
        assert!(
            refused(None, "admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 0s}")
                .contains("never passes")
        );
        assert!(
            refused(None, "admissionFairSharing: {usageHalfLifeTime: 1h, resourceWeights: {cpu: -1}}")
                .contains("`-1` of `resourceWeights.cpu`")
        );
        assert!(
            refused(None, "admissionFairSharing: {usageSamplingInterval: 5m}").contains("usageHalfLifeTime")
        );
    }

    #[test]
    fn the_url_has_the_first_name() {
        let at = |listen: &str, advertise: &[&str]| {
            let advertise = advertise.iter().map(|n| (*n).to_owned()).collect();
            Settings::resolve(ManagerArgs { listen: Some(listen.parse().unwrap()), advertise, ..args() })
                .unwrap()
                .url(7443)
        };
        assert_eq!(at("0.0.0.0:0", &["manager.example"]), "https://manager.example:7443");
        assert_eq!(at("0.0.0.0:0", &[]), "https://localhost:7443");
        assert_eq!(at("[::1]:0", &[]), "https://[::1]:7443");
    }
}
