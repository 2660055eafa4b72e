//! Contexts, clusters and users of kubeconfig files. Paths in a file are relative to that file.

use super::{Access, Error, Secret, is_loopback};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::fmt;
use std::path::{Path, PathBuf};

/// Largest kubeconfig, certificate or token file in bytes; real ones have a few thousand.
const FILE_BYTES_MAX: u64 = 4 << 20;
const DEFAULT_NAMESPACE: &str = "default";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Entries {
    current_context: String,
    contexts: Vec<NamedContext>,
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
    /// The directory of its file.
    #[serde(skip)]
    directory: PathBuf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
    /// The directory of its file.
    #[serde(skip)]
    directory: PathBuf,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    exec: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
    username: Option<IgnoredAny>,
    #[serde(rename = "as")]
    impersonate: Option<IgnoredAny>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User { (secret) }")
    }
}

impl Entries {
    /// Fails if the file can't be read or isn't a kubeconfig.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let malformed = |why: String| Error::Malformed { path: path.to_owned(), why };
        let text = String::from_utf8(read_file(path)?).map_err(|_| malformed("not UTF-8 text".to_owned()))?;
        // The YAML reader's own message quotes the file, secrets included: only the position is shown.
        let mut entries: Self = serde_saphyr::from_str(&text).map_err(|error| {
            let position =
                error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
            malformed(format!("its YAML can't be read{}", position.unwrap_or_default()))
        })?;
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        entries.clusters.iter_mut().for_each(|entry| entry.directory.clone_from(&directory));
        entries.users.iter_mut().for_each(|entry| entry.directory.clone_from(&directory));
        Ok(entries)
    }

    /// Adds the entries of another file; on equal names the first file wins, as in `kubectl`.
    pub(super) fn merge(&mut self, other: Self) {
        if self.current_context.is_empty() {
            self.current_context = other.current_context;
        }
        self.contexts.extend(other.contexts);
        self.clusters.extend(other.clusters);
        self.users.extend(other.users);
    }

    /// The access of `context`, or of the current one. Fails if an entry is missing, wrong or unsupported.
    pub(super) fn access(&self, context: Option<&str>) -> Result<Access, Error> {
        let name = context.unwrap_or(&self.current_context);
        if name.is_empty() {
            return Err(Error::NoContext);
        }
        let context = &find("context", name, &self.contexts, |entry| &entry.name)?.context;
        let cluster = find("cluster", &context.cluster, &self.clusters, |entry| &entry.name)?;
        let user = if context.user.is_empty() {
            None
        } else {
            Some(find("user", &context.user, &self.users, |entry| &entry.name)?)
        };
        let (token, identity) = match user {
            Some(user) => (user.token()?, user.identity()?),
            None => (None, None),
        };
        let server = cluster.server()?;
        if token.is_some() && !server.starts_with("https://") && !is_loopback(&server) {
            return Err(Error::Plaintext { server });
        }
        let namespace = context
            .namespace
            .clone()
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        Ok(Access { server, authorities: cluster.authorities()?, token, identity, namespace })
    }
}

impl NamedCluster {
    fn server(&self) -> Result<String, Error> {
        let unsupported =
            |field, remedy| Error::Unsupported { what: "cluster", name: self.name.clone(), field, remedy };
        if self.cluster.insecure_skip_tls_verify {
            let remedy = "write the manager's CA as `certificate-authority-data`";
            return Err(unsupported("insecure-skip-tls-verify", remedy));
        }
        if self.cluster.tls_server_name.as_ref().is_some_and(|name| !name.is_empty()) {
            let remedy = "write a `server` whose host name is in the certificate";
            return Err(unsupported("tls-server-name", remedy));
        }
        if self.cluster.proxy_url.as_ref().is_some_and(|url| !url.is_empty()) {
            return Err(unsupported("proxy-url", "set HTTPS_PROXY in the environment"));
        }
        let server = self.cluster.server.trim_end_matches('/');
        if server.starts_with("https://") || server.starts_with("http://") {
            Ok(server.to_owned())
        } else {
            Err(unsupported("server", "write a URL such as `https://127.0.0.1:7443`"))
        }
    }

    fn authorities(&self) -> Result<Option<Vec<u8>>, Error> {
        let Cluster { certificate_authority: file, certificate_authority_data: data, .. } = &self.cluster;
        data_or_file(&self.directory, data.as_deref(), file.as_deref(), "certificate-authority-data")
    }
}

impl NamedUser {
    fn token(&self) -> Result<Option<Secret>, Error> {
        self.refuse_unsupported()?;
        let token = match (&self.user.token, &self.user.token_file) {
            (Some(token), _) => token.clone(),
            (None, Some(path)) => {
                String::from_utf8_lossy(&read_file(&self.directory.join(path))?).into_owned()
            }
            (None, None) => return Ok(None),
        };
        let token = token.trim();
        Ok((!token.is_empty()).then(|| Secret(token.to_owned())))
    }

    fn refuse_unsupported(&self) -> Result<(), Error> {
        let other = "use a token or a client certificate";
        let (field, remedy) = match &self.user {
            User { exec: Some(_), .. } => ("exec", other),
            User { auth_provider: Some(_), .. } => ("auth-provider", other),
            User { username: Some(_), .. } => ("username", other),
            User { impersonate: Some(_), .. } => {
                ("as", "the manager refuses impersonation; use that user's own kubeconfig")
            }
            _ => return Ok(()),
        };
        Err(Error::Unsupported { what: "user", name: self.name.clone(), field, remedy })
    }

    fn identity(&self) -> Result<Option<Secret>, Error> {
        let User { client_certificate, client_certificate_data, client_key, client_key_data, .. } =
            &self.user;
        let pem = |data: &Option<String>, file: &Option<PathBuf>, field| {
            data_or_file(&self.directory, data.as_deref(), file.as_deref(), field)
        };
        let certificate = pem(client_certificate_data, client_certificate, "client-certificate-data")?;
        let key = pem(client_key_data, client_key, "client-key-data")?;
        let incomplete = |field, missing| Err(Error::Incomplete { name: self.name.clone(), field, missing });
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some(Secret(format!(
                "{}\n{}",
                String::from_utf8_lossy(&certificate).trim_end(),
                String::from_utf8_lossy(&key)
            )))),
            (None, None) => Ok(None),
            (Some(_), None) => incomplete("client-certificate", "its key"),
            (None, Some(_)) => incomplete("client-key", "its certificate"),
        }
    }
}

fn find<'e, T>(
    what: &'static str,
    name: &str,
    entries: &'e [T],
    name_of: fn(&T) -> &String,
) -> Result<&'e T, Error> {
    entries.iter().find(|entry| name_of(entry) == name).ok_or_else(|| {
        let known: Vec<String> = entries.iter().map(|entry| format!("`{}`", name_of(entry))).collect();
        Error::Unknown {
            what,
            name: name.to_owned(),
            known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
        }
    })
}

/// Inline data wins over a file, as in `kubectl`.
fn data_or_file(
    directory: &Path,
    data: Option<&str>,
    file: Option<&Path>,
    field: &'static str,
) -> Result<Option<Vec<u8>>, Error> {
    match (data.filter(|data| !data.is_empty()), file.filter(|file| !file.as_os_str().is_empty())) {
        (Some(data), _) => STANDARD.decode(data.trim()).map(Some).map_err(|_| Error::Base64 { field }),
        (None, Some(file)) => read_file(&directory.join(file)).map(Some),
        (None, None) => Ok(None),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|source| Error::Read { path: path.to_owned(), source })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let why = format!("larger than {} MiB", FILE_BYTES_MAX >> 20);
        return Err(Error::Malformed { path: path.to_owned(), why });
    }
    Ok(bytes)
}
