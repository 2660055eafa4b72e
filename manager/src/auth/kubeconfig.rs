//! The kubeconfig by which `kubectl` and `meridian` reach this manager.

use super::tokens::UserToken;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use meridian_private_files as files;
use std::path::Path;

/// A kubeconfig with one cluster, one user and one context.
#[derive(Clone, Copy, Debug)]
pub struct Kubeconfig<'a> {
    /// URL of the form `https://HOST:PORT`.
    pub server: &'a str,
    /// The certificate of the server's authority, PEM.
    pub ca_pem: &'a str,
    pub user: &'a str,
    pub token: &'a UserToken,
    /// The namespace for commands without `--namespace`.
    pub namespace: &'a str,
}

impl Kubeconfig<'_> {
    /// The YAML text. Strings are quoted as in JSON, which is valid YAML.
    pub fn to_yaml(&self) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let (server, user, namespace) = (quoted(self.server), quoted(self.user), quoted(self.namespace));
        let (ca, token) = (STANDARD.encode(self.ca_pem), quoted(self.token.expose()));
        format!(
            "apiVersion: v1\nkind: Config\n\
             clusters:\n- name: meridian\n  cluster:\n    server: {server}\n    \
             certificate-authority-data: {ca}\n\
             users:\n- name: {user}\n  user:\n    token: {token}\n\
             contexts:\n- name: meridian\n  context:\n    cluster: meridian\n    user: {user}\n    \
             namespace: {namespace}\n\
             current-context: meridian\n"
        )
    }

    /// Replaces `path`, with mode 0600. Fails if it can't be written.
    pub fn write(&self, path: &Path) -> Result<(), files::Error> {
        files::replace(path, &self.to_yaml())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_written_kubeconfig_reads_back() {
        let token = UserToken::of("mu_secret");
        let config = Kubeconfig {
            server: "https://127.0.0.1:7443",
            ca_pem: "-----BEGIN…\n",
            user: "admin: \"x\"",
            token: &token,
            namespace: "default",
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.kubeconfig");
        config.write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read: serde_json::Value =
            serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(read["clusters"][0]["cluster"]["server"], config.server);
        let ca = read["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap();
        assert_eq!(STANDARD.decode(ca).unwrap(), config.ca_pem.as_bytes());
        assert_eq!(read["users"][0]["name"], config.user);
        assert_eq!(read["users"][0]["user"]["token"], "mu_secret");
        assert_eq!(read["contexts"][0]["context"]["user"], config.user);
        assert_eq!(read["contexts"][0]["context"]["namespace"], "default");
        assert_eq!(read["current-context"], read["contexts"][0]["name"]);
    }
}
