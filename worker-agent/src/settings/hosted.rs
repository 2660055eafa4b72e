//! The settings of an agent in the manager's process.

use super::{KubernetesSettings, RunnerChoice, Settings};
use meridian_kubernetes::KubeconfigText;
use meridian_shared::time::Millis;
use meridian_telemetry::Format;
use std::path::PathBuf;

impl Settings {
    /// The defaults of all settings, with this kubeconfig of the cluster.
    pub(crate) fn hosted(data_dir: PathBuf, kubeconfig: KubeconfigText) -> Self {
        Self {
            manager: None,
            data_dir,
            fleet: None,
            cluster: None,
            region: None,
            runner: RunnerChoice::Kubernetes,
            provider: None,
            speed: 1.0,
            log_format: Format::default(),
            metrics_listen: None,
            replacement_wait: Millis(0),
            kubernetes: KubernetesSettings {
                kubeconfig_text: Some(kubeconfig),
                ..KubernetesSettings::default()
            },
            join: None,
        }
    }
}
