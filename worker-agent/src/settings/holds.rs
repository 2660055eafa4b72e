//! How the Kubernetes runner keeps held capacity from other workloads.

use super::{Error, ProviderChoice, Settings};
use clap::{Args, ValueEnum};
use meridian_shared::protocol::HoldMethod;
use serde::Deserialize;

/// The image of placeholder pods where the settings give none.
const IMAGE: &str = "registry.k8s.io/pause:3.10";
/// The PriorityClass of placeholder pods where the settings give none; the chart makes it.
const PRIORITY_CLASS: &str = "meridian-placeholder";

/// Methods to hold capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum HoldChoice {
    /// The nodes run only what the agent places.
    #[default]
    Ledger,
    /// Pods of low priority hold the capacity on nodes that other workloads use too.
    Placeholders,
    /// The cluster's own Kueue admits each gang in a LocalQueue.
    Kueue,
}

/// Arguments about holds.
#[derive(Clone, Debug, Default, Args)]
pub struct HoldArgs {
    /// How the `kubernetes` runner keeps held capacity from other workloads; `ledger` without this setting.
    #[arg(long, value_enum, value_name = "METHOD", env = "MERIDIAN_AGENT_HOLD")]
    pub hold: Option<HoldChoice>,
    /// Image of placeholder pods. [default: registry.k8s.io/pause:3.10]
    #[arg(long, value_name = "IMAGE", env = "MERIDIAN_AGENT_PLACEHOLDER_IMAGE")]
    pub placeholder_image: Option<String>,
    /// PriorityClass of placeholder pods; empty for the cluster's default. [default: meridian-placeholder]
    #[arg(long, value_name = "NAME", env = "MERIDIAN_AGENT_PLACEHOLDER_PRIORITY_CLASS")]
    pub placeholder_priority_class: Option<String>,
    /// LocalQueue of the cluster's own Kueue, in each namespace with gangs, for `--hold kueue`.
    #[arg(long, value_name = "NAME", env = "MERIDIAN_AGENT_LOCAL_QUEUE")]
    pub local_queue: Option<String>,
}

/// The method to hold capacity, with its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum HoldChosen {
    #[default]
    Ledger,
    Placeholders {
        image: String,
        priority_class: String,
    },
    Kueue {
        queue: String,
    },
}

impl HoldChosen {
    pub(crate) fn method(&self) -> HoldMethod {
        match self {
            Self::Ledger => HoldMethod::Ledger,
            Self::Placeholders { .. } => HoldMethod::Placeholders,
            Self::Kueue { .. } => HoldMethod::Kueue,
        }
    }
}

impl HoldArgs {
    /// These arguments, completed by those of the file. Fails if they contradict each other.
    pub(super) fn decide(self, file: Self) -> Result<HoldChosen, Error> {
        let image = self.placeholder_image.or(file.placeholder_image);
        let priority_class = self.placeholder_priority_class.or(file.placeholder_priority_class);
        let queue = self.local_queue.or(file.local_queue).filter(|queue| !queue.is_empty());
        let method = self.hold.or(file.hold).unwrap_or_default();
        let of_others = [
            ("placeholder-image", image.is_some(), HoldChoice::Placeholders),
            ("placeholder-priority-class", priority_class.is_some(), HoldChoice::Placeholders),
            ("local-queue", queue.is_some(), HoldChoice::Kueue),
        ];
        if let Some((flag, _, of)) = of_others.into_iter().find(|(_, given, of)| *given && *of != method) {
            let of = if of == HoldChoice::Kueue { "kueue" } else { "placeholders" };
            return Err(Error::invalid(flag, format!("it needs `--hold {of}`")));
        }
        match method {
            HoldChoice::Ledger => Ok(HoldChosen::Ledger),
            HoldChoice::Placeholders => Ok(HoldChosen::Placeholders {
                image: image.unwrap_or_else(|| IMAGE.to_owned()),
                priority_class: priority_class.unwrap_or_else(|| PRIORITY_CLASS.to_owned()),
            }),
            HoldChoice::Kueue => Ok(HoldChosen::Kueue {
                queue: queue.ok_or(Error::Missing {
                    flag: "local-queue",
                    why: "the cluster's own Kueue admits a gang in a LocalQueue of its namespace",
                })?,
            }),
        }
    }
}

impl Settings {
    /// Fails if both Kueue and a provider would have to supply the nodes.
    pub(super) fn check_holds(&self) -> Result<(), Error> {
        let asks = self.provider == Some(ProviderChoice::ProvisioningRequest);
        match &self.kubernetes.hold {
            HoldChosen::Kueue { .. } if asks => {
                let what = "`kueue` holds capacity on existing nodes only, so it can't be used with \
                    `--provider provisioning-request`: leave one of the two out";
                Err(Error::invalid("hold", what))
            }
            _ => Ok(()),
        }
    }
}
