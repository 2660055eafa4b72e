//! A Prometheus beside the fleet, for `up --observe`: it collects the metrics of every process, and evaluates
//! the alert rules of this version.

use super::process::{append, end, make_directory, write};
use super::setup::FleetSetup;
use crate::error::Error;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::Stdio;
use tokio::process::{Child, Command};

/// The program, as it is called on the `PATH`.
const PROGRAM: &str = "prometheus";
const RULES: &str = include_str!("../../../manifests/observability/rules/meridian.rules.yaml");
/// Short, so that a newcomer sees a change at once.
const SCRAPE_EVERY: &str = "2s";

/// What a user is told if there is no Prometheus.
pub(crate) const NOT_INSTALLED: &str = "no `prometheus` is on the PATH, so nothing collects metrics: install \
                                        it (Debian and Ubuntu: `apt install prometheus`) and start again";

/// A running Prometheus.
pub(crate) struct Observer {
    child: Child,
    url: String,
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
    /// Starts Prometheus for a fleet whose manager has this URL. `None` if it isn't installed.
    pub(crate) fn start(setup: &FleetSetup, server: &str) -> Result<Option<Self>, Error> {
        let directory = setup.root.join(PROGRAM);
        make_directory(&directory)?;
        write(&directory.join("meridian.rules.yaml"), RULES)?;
        // JSON is YAML, too.
        let config = directory.join("prometheus.yml");
        write(&config, &format!("{:#}\n", configuration(setup, server)?))?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|e| no_port(&e))?;
        let address = listener.local_addr().map_err(|e| no_port(&e))?;
        drop(listener);
        let log = || append(&setup.root.join("prometheus.log"));
        let mut command = Command::new(PROGRAM);
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--enable-feature=exemplar-storage", "--log.level=warn"]);
        let child = command.stdin(Stdio::null()).stdout(log()?).stderr(log()?).kill_on_drop(true).spawn();
        match child {
            Ok(child) => Ok(Some(Self { child, url: format!("http://{address}") })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::Refused(format!("can't start `{PROGRAM}`: {error}"))),
        }
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
