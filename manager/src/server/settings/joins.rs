//! Agents that may join by the service account that their own cluster gives them.

use super::Error;
use crate::agents::TrustedAgent;
use meridian_manager_core::facts::input::ClusterPlace;
use meridian_shared::ids::{ClusterName, Jurisdiction, Region};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;

const FLAG: &str = "join-by-issuer";
/// Prefix of a service account in the claim `sub` of Kubernetes' tokens.
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// An entry of the configuration file: an agent and its service account.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FiledAgent {
    cluster: String,
    region: String,
    jurisdiction: String,
    issuer: String,
    subject: String,
    audience: String,
    #[serde(default)]
    keys_file: Option<PathBuf>,
    #[serde(default)]
    ca_file: Option<PathBuf>,
}

/// Parses the entries. Fails if an entry could let a wrong agent join, or could match no agent.
pub(super) fn parse(filed: Vec<FiledAgent>) -> Result<Vec<TrustedAgent>, Error> {
    let mut seen = BTreeSet::new();
    let mut trusted = Vec::with_capacity(filed.len());
    for agent in filed {
        let FiledAgent { cluster, region, jurisdiction, issuer, subject, audience, keys_file, ca_file } =
            agent;
        let invalid = |what: String| Err(Error::invalid(FLAG, format!("of cluster `{cluster}`: {what}")));
        if let Some((field, _)) = [
            ("cluster", &cluster),
            ("region", &region),
            ("jurisdiction", &jurisdiction),
            ("audience", &audience),
        ]
        .into_iter()
        .find(|(_, text)| text.trim().is_empty())
        {
            return invalid(format!("`{field}` is empty"));
        }
        if !issuer.starts_with("https://") {
            return invalid(format!("the issuer `{issuer}` is not an `https` URL"));
        }
        let account = subject.strip_prefix(ACCOUNT_PREFIX).and_then(|account| account.split_once(':'));
        if account
            .is_none_or(|(namespace, name)| namespace.is_empty() || name.is_empty() || name.contains(':'))
        {
            return invalid(format!("the subject `{subject}` is not `{ACCOUNT_PREFIX}NAMESPACE:NAME`"));
        }
        if !seen.insert((issuer.clone(), subject.clone())) {
            return invalid(format!("`{subject}` of issuer `{issuer}` joins for another cluster already"));
        }
        let place = ClusterPlace {
            cluster: ClusterName::new(&cluster),
            region: Region::new(region),
            jurisdiction: Jurisdiction::new(jurisdiction),
        };
        trusted.push(TrustedAgent { place, issuer, subject, audience, keys_file, ca_file });
    }
    Ok(trusted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn agent() -> Value {
        json!({
            "cluster": "eu", "region": "europe-west4", "jurisdiction": "EU",
            "issuer": "https://issuer.example/eu", "subject": "system:serviceaccount:meridian-system:agent",
            "audience": "https://manager.example:7443",
        })
    }

    fn parsed(agents: &[Value]) -> Result<Vec<TrustedAgent>, String> {
        let filed = agents.iter().map(|agent| serde_json::from_value(agent.clone()).unwrap()).collect();
        parse(filed).map_err(|error| error.to_string())
    }

    #[test]
    fn each_rule_names_one_service_account_of_one_issuer() {
        let trusted = parsed(&[agent()]).unwrap();
        assert_eq!(trusted[0].place.cluster.as_str(), "eu");
        assert!(parsed(&[agent(), agent()]).unwrap_err().contains("joins for another cluster already"));
        for (field, wrong, message) in [
            ("cluster", "", "`cluster` is empty"),
            ("audience", " ", "`audience` is empty"),
            ("issuer", "http://issuer.example", "is not an `https` URL"),
            ("subject", "agent", "is not `system:serviceaccount:NAMESPACE:NAME`"),
            ("subject", "system:serviceaccount:a", "is not `system:serviceaccount:NAMESPACE:NAME`"),
        ] {
            let mut agent = agent();
            agent[field] = json!(wrong);
            let error = parsed(&[agent]).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
