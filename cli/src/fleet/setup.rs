//! Contents of a fleet, and the places of its files.

use super::process;
use crate::error::Error;
use crate::examples;
use meridian_agent::inventory::fleet::{self, FleetCluster};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// File that keeps the runner of the fleet's jobs, for the next start.
pub(crate) const RUNNER_FILE: &str = "runner";
/// The three regions of every example.
pub(crate) const DEFAULT_FLEET: &str = examples::FLEET;

/// One process of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FleetProcess {
    Manager,
    /// The agent of this cluster.
    Agent(String),
}

impl fmt::Display for FleetProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manager => f.write_str("the manager"),
            Self::Agent(cluster) => write!(f, "the agent of `{cluster}`"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct FleetSetup {
    /// Directory of all files.
    pub(crate) root: PathBuf,
    pub(crate) clusters: Vec<FleetCluster>,
    /// The fleet file that declares the clusters.
    pub(crate) fleet_text: String,
    /// `simulated` or `process`.
    pub(crate) runner: &'static str,
    /// How much faster than real time simulated jobs run.
    pub(crate) speed: f64,
    /// Lease term, such as `8s`; `None` keeps the manager's default.
    pub(crate) term: Option<&'static str>,
    /// Address of the manager. Port 0 chooses a free port once and keeps it: agents return to where they
    /// joined.
    pub(crate) listen: String,
    /// Address of each agent's metrics, by cluster. Agents without one serve none.
    pub(crate) metrics: BTreeMap<String, String>,
}

impl FleetSetup {
    /// A fleet of simulated clusters on a free port. Fails if the fleet file is wrong.
    pub(crate) fn simulated(root: PathBuf, fleet_text: &str) -> Result<Self, Error> {
        let clusters = parse_fleet("fleet.yaml", fleet_text)?;
        Ok(Self { clusters, ..Self::manager_only(root, fleet_text) })
    }

    /// A manager without clusters.
    pub(crate) fn manager_only(root: PathBuf, fleet_text: &str) -> Self {
        Self {
            root,
            clusters: Vec::new(),
            fleet_text: fleet_text.to_owned(),
            runner: "simulated",
            speed: 1.0,
            term: None,
            listen: "127.0.0.1:0".into(),
            metrics: BTreeMap::new(),
        }
    }

    /// Uses the port that was chosen in this directory before, or a free one.
    pub(super) fn with_port(self) -> Result<Self, Error> {
        let Some(host) = self.listen.strip_suffix(":0") else { return Ok(self) };
        let kept = self.root.join("listen");
        if let Ok(listen) = std::fs::read_to_string(&kept) {
            return Ok(Self { listen: listen.trim().to_owned(), ..self });
        }
        let free = std::net::TcpListener::bind((host, 0)).and_then(|listener| listener.local_addr());
        let listen = free.map_err(|e| Error::Refused(format!("no free port at `{host}`: {e}")))?.to_string();
        process::write(&kept, &listen)?;
        Ok(Self { listen, ..self })
    }

    pub(super) fn fleet_file(&self) -> PathBuf {
        kept_fleet(&self.root)
    }

    pub(super) fn manager_directory(&self) -> PathBuf {
        self.root.join("manager")
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.manager_directory().join("journal.redb")
    }

    pub(super) fn admin_kubeconfig(&self) -> PathBuf {
        self.manager_directory().join("admin.kubeconfig")
    }

    pub(super) fn submitter_kubeconfig(&self) -> PathBuf {
        self.manager_directory().join("submitter.kubeconfig")
    }

    pub(super) fn agent_directory(&self, cluster: &str) -> PathBuf {
        self.root.join("agents").join(cluster)
    }

    /// The log of one process.
    pub(super) fn log_of(&self, process: &FleetProcess) -> PathBuf {
        match process {
            FleetProcess::Manager => self.root.join("manager.log"),
            FleetProcess::Agent(cluster) => self.root.join(format!("agent-{cluster}.log")),
        }
    }
}

/// Where a directory keeps the fleet file of its last start.
pub(crate) fn kept_fleet(root: &Path) -> PathBuf {
    root.join("fleet.yaml")
}

/// Reads a fleet file. Fails with the place of what is wrong.
pub(crate) fn parse_fleet(name: &str, text: &str) -> Result<Vec<FleetCluster>, Error> {
    fleet::parse(name, text).map_err(|error| Error::Refused(error.to_string()))
}
