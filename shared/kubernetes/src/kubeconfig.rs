//! Kubeconfigs, in a file or as text from another source.

use crate::error::Error;
use kube::config::Kubeconfig;
use std::path::PathBuf;

/// Source of a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeconfigSource {
    File(PathBuf),
    Text(KubeconfigText),
}

impl KubeconfigSource {
    /// Reads the kubeconfig. Fails if it can't be read or is malformed.
    pub(crate) fn read(&self) -> Result<Kubeconfig, Error> {
        match self {
            Self::File(path) => Kubeconfig::read_from(path).map_err(|source| self.failed(source)),
            // Drop the reader's error, which may quote secret content of any file.
            Self::Text(text) => Kubeconfig::from_yaml(&text.0).map_err(|_| Error::KubeconfigMalformed),
        }
    }

    pub(crate) fn failed(&self, source: kube::config::KubeconfigError) -> Error {
        match self {
            Self::File(path) => Error::Kubeconfig { path: path.clone(), source: Box::new(source) },
            Self::Text(_) => Error::KubeconfigText(Box::new(source)),
        }
    }
}

/// A kubeconfig from another source, such as a Secret of the management cluster. It has credentials, so its
/// debug form shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct KubeconfigText(String);

impl std::fmt::Debug for KubeconfigText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KubeconfigText")
    }
}

impl KubeconfigText {
    /// Fails if the text isn't a kubeconfig or doesn't authenticate its API server, or if it names files or
    /// programs of this machine, because the author of a Secret has no rights here.
    pub fn new(text: String) -> Result<Self, Error> {
        let this = Self(text);
        let config = KubeconfigSource::Text(this.clone()).read()?;
        match foreign_field(&config) {
            Some(field) => Err(Error::KubeconfigField { field }),
            None if config.clusters.iter().filter_map(|c| c.cluster.as_ref()).next().is_none() => {
                Err(Error::KubeconfigField { field: "no cluster" })
            }
            None => Ok(this),
        }
    }
}

/// A field that a kubeconfig from another source must not have.
fn foreign_field(config: &Kubeconfig) -> Option<&'static str> {
    let clusters = config.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let of_cluster = |cluster: &kube::config::Cluster| {
        let fields = [
            ("`certificate-authority`, a file", cluster.certificate_authority.is_some()),
            ("`insecure-skip-tls-verify`", cluster.insecure_skip_tls_verify == Some(true)),
            (
                "a `server` without `https://`",
                cluster.server.as_deref().is_none_or(|server| !server.starts_with("https://")),
            ),
        ];
        fields.into_iter().find_map(|(field, is_set)| is_set.then_some(field))
    };
    let users = config.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let of_user = |user: &kube::config::AuthInfo| {
        let fields = [
            ("`exec`, a program", user.exec.is_some()),
            ("`auth-provider`, a program", user.auth_provider.is_some()),
            ("`tokenFile`, a file", user.token_file.is_some()),
            ("`client-certificate`, a file", user.client_certificate.is_some()),
            ("`client-key`, a file", user.client_key.is_some()),
        ];
        fields.into_iter().find_map(|(field, is_set)| is_set.then_some(field))
    };
    clusters.map(of_cluster).chain(users.map(of_user)).flatten().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {cluster}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {user}}}]\n"
        )
    }

    const SERVER: &str = "{server: 'https://192.0.2.1', certificate-authority-data: QUJD}";

    #[test]
    fn a_kubeconfig_from_elsewhere_names_nothing_of_this_machine() {
        let text = KubeconfigText::new(config(SERVER, "{token: abc}")).unwrap();
        assert_eq!(format!("{text:?}"), "KubeconfigText");
        for (cluster, user, field) in [
            (SERVER, "{tokenFile: /run/token}", "tokenFile"),
            (SERVER, "{exec: {command: sh, apiVersion: client.authentication.k8s.io/v1}}", "exec"),
            (SERVER, "{client-key: /etc/key}", "client-key"),
            (SERVER, "{client-certificate: /etc/cert}", "client-certificate"),
            (SERVER, "{auth-provider: {name: gcp, config: {}}}", "auth-provider"),
            ("{server: 'https://192.0.2.1', certificate-authority: /etc/ca}", "{}", "certificate-authority"),
            ("{server: 'https://192.0.2.1', insecure-skip-tls-verify: true}", "{}", "insecure-skip-tls"),
            ("{server: 'http://192.0.2.1'}", "{}", "https://"),
        ] {
            let error = KubeconfigText::new(config(cluster, user)).unwrap_err().to_string();
            assert!(error.contains(field), "{cluster} {user}: {error}");
        }
        for text in ["apiVersion: v1\nkind: Config\n", "- 1", "{"] {
            assert!(KubeconfigText::new(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn an_error_quotes_nothing_of_a_text_that_is_no_kubeconfig() {
        for text in ["secret-value", "clusters: secret-value", "users: [{name: u, user: secret-value}]"] {
            let error = KubeconfigText::new(text.to_owned()).unwrap_err();
            let (shown, debug) = (error.to_string(), format!("{error:?}"));
            assert!(!shown.contains("secret") && !debug.contains("secret"), "{shown} {debug}");
        }
    }
}
