//! A Prometheus beside the fleet, for `up --observe`: it collects the metrics of every process, and evaluates
//! the alert rules of this version.

use super::process::{append, end, make_directory, tail, write};
use super::setup::FleetSetup;
use crate::error::Error;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// The program, as it is called on the `PATH`.
const PROGRAM: &str = "prometheus";
const RULES: &str = include_str!("../../../manifests/observability/rules/meridian.rules.yaml");
/// Short, so that a newcomer sees a change at once.
const SCRAPE_EVERY: &str = "2s";
/// Reading the data of earlier days takes Prometheus seconds.
const READY_WITHIN: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(200);

/// The message if there is no Prometheus.
pub(crate) const NOT_INSTALLED: &str = "no `prometheus` is on the PATH, so nothing collects metrics: install \
                                        it (Debian and Ubuntu: `apt install prometheus`) and start again";

/// A running Prometheus.
pub(crate) struct Observer {
    child: Child,
    url: String,
    log: PathBuf,
    /// The process's end was seen.
    has_ended: bool,
}

/// Directory of the newest series, which a running Prometheus keeps open.
pub(super) fn series(root: &Path) -> PathBuf {
    data(root).join("chunks_head")
}

fn data(root: &Path) -> PathBuf {
    root.join(PROGRAM).join("data")
}

/// A free address of this machine for the metrics of each cluster's agent.
pub(crate) fn agent_addresses<'a>(
    clusters: impl Iterator<Item = &'a str>,
) -> Result<BTreeMap<String, String>, Error> {
    // All are bound until the last one is chosen, so that no two are equal.
    let mut bound = Vec::new();
    for cluster in clusters {
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|e| no_port(&e))?;
        bound.push((
            cluster.to_owned(),
            listener.local_addr().map_err(|e| no_port(&e))?.to_string(),
            listener,
        ));
    }
    Ok(bound.into_iter().map(|(cluster, address, _)| (cluster, address)).collect())
}

fn no_port(error: &std::io::Error) -> Error {
    Error::Refused(format!("no free port for metrics: {error}"))
}

impl Observer {
    /// Starts Prometheus for a fleet whose manager has this URL, and waits until it answers. `None` if it
    /// isn't installed. Fails if it ends, or isn't ready in time.
    pub(crate) async fn start(setup: &FleetSetup, server: &str) -> Result<Option<Self>, Error> {
        Self::start_program(PROGRAM, setup, server).await
    }

    async fn start_program(program: &str, setup: &FleetSetup, server: &str) -> Result<Option<Self>, Error> {
        let directory = setup.root.join(PROGRAM);
        make_directory(&directory)?;
        write(&directory.join("meridian.rules.yaml"), RULES)?;
        // JSON is YAML, too.
        let config = directory.join("prometheus.yml");
        write(&config, &format!("{:#}\n", configuration(setup, server)?))?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|e| no_port(&e))?;
        let address = listener.local_addr().map_err(|e| no_port(&e))?;
        drop(listener);
        let log_file = setup.root.join("prometheus.log");
        let log = || append(&log_file);
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data(&setup.root).display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--enable-feature=exemplar-storage", "--log.level=warn"]);
        let child = command.stdin(Stdio::null()).stdout(log()?).stderr(log()?).kill_on_drop(true).spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::Refused(format!("can't start `{PROGRAM}`: {error}"))),
        };
        let mut this = Self { child, url: format!("http://{address}"), log: log_file, has_ended: false };
        let ready = this.wait_until_ready().await;
        if ready.is_err() {
            this.stop().await;
        }
        ready.map(|()| Some(this))
    }

    async fn wait_until_ready(&mut self) -> Result<(), Error> {
        // Fails if it is installed already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let url = format!("{}/-/ready", self.url);
        let http = reqwest::Client::builder().no_proxy().timeout(ASK_EVERY).build();
        let http =
            http.map_err(|e| Error::Refused(format!("can't ask `{PROGRAM}` whether it is ready: {e}")))?;
        let until = Instant::now() + READY_WITHIN;
        loop {
            if let Some(message) = self.ended() {
                return Err(Error::Refused(message));
            }
            if http.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            if Instant::now() > until {
                let (seconds, log) = (READY_WITHIN.as_secs(), self.log.display());
                return Err(Error::Refused(format!(
                    "`{PROGRAM}` isn't ready after {seconds} s; see its log `{log}`"
                )));
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// The message if Prometheus has ended by itself; returned once.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status: ExitStatus = self.child.try_wait().ok().flatten().filter(|_| !self.has_ended)?;
        self.has_ended = true;
        Some(format!(
            "`{PROGRAM}` ended with {status}, so nothing collects metrics; its log ends with: {}",
            tail(&self.log)
        ))
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn stop(&mut self) {
        end(&mut self.child).await;
    }
}

fn configuration(setup: &FleetSetup, server: &str) -> Result<Value, Error> {
    let manager = std::path::absolute(setup.manager_directory())?;
    let target = server.trim_start_matches("https://");
    let agents: Vec<&String> = setup.metrics.values().collect();
    Ok(json!({
        "global": {"scrape_interval": SCRAPE_EVERY, "evaluation_interval": SCRAPE_EVERY},
        "rule_files": ["meridian.rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "meridian-manager",
                "scheme": "https",
                "authorization": {"credentials_file": manager.join("viewer.token")},
                "tls_config": {"ca_file": manager.join("ca.pem")},
                "static_configs": [{"targets": [target]}],
            },
            {"job_name": "meridian-agent", "static_configs": [{"targets": agents}]},
        ],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_prometheus_that_ends_says_why_and_a_missing_one_is_no_error() {
        let root = tempfile::tempdir().unwrap();
        let setup = FleetSetup::manager_only(root.path().join("data"), "");
        let missing = Observer::start_program("/nonexistent/prometheus", &setup, "https://127.0.0.1:1").await;
        assert!(missing.unwrap().is_none());
        // An old Prometheus, which knows none of the flags.
        let error = Observer::start_program("cat", &setup, "https://127.0.0.1:1").await.err().unwrap();
        let error = error.to_string();
        assert!(error.contains("exit status: 1") && error.contains("option"), "{error}");
    }

    #[test]
    fn every_process_is_a_target_with_an_address_of_its_own() {
        let mut setup = FleetSetup::manager_only("/data".into(), "");
        setup.metrics = agent_addresses(["eu", "us"].into_iter()).unwrap();
        let config = configuration(&setup, "https://127.0.0.1:7443").unwrap();
        let targets = |at: usize| config["scrape_configs"][at]["static_configs"][0]["targets"].clone();
        assert_eq!(targets(0), json!(["127.0.0.1:7443"]));
        let agents = targets(1);
        assert!(agents.as_array().unwrap().len() == 2 && agents[0] != agents[1], "{agents}");
        assert_eq!(config["scrape_configs"][0]["tls_config"]["ca_file"], "/data/manager/ca.pem");
    }
}
