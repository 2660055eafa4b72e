//! Which manager to talk to and as whom: the part of a kubeconfig that this program understands.
//!
//! A kubeconfig that asks for something that is not understood (a login plugin, a password, a skipped check of the
//! server's certificate) is refused with a reason: going on without it would be a silent change of identity or safety.
//! Files named inside a kubeconfig are relative to that kubeconfig. Invariant: no secret is ever shown or logged.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Largest kubeconfig or certificate file in bytes; real ones have a few thousand.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Where `meridian up` leaves a kubeconfig, below the working directory or the home directory.
pub(crate) const DEFAULT_PATH: &str = ".meridian/kubeconfig";
/// The namespace of who names none.
const DEFAULT_NAMESPACE: &str = "default";

/// Why there is no access to a manager.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Nothing to read anywhere.
    #[error(
        "no kubeconfig found at {looked}: start a fleet with `meridian up`, or name one with `--kubeconfig` or in KUBECONFIG"
    )]
    Missing {
        /// The places.
        looked: String,
    },
    /// A file that can't be read.
    #[error("can't read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file that is no kubeconfig.
    #[error("`{}` is not a kubeconfig: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// An entry that another one names is not there.
    #[error("the kubeconfig has no {what} named `{name}`; it has {known}")]
    Unknown {
        /// `context`, `cluster` or `user`.
        what: &'static str,
        /// Its name.
        name: String,
        /// Those that are there.
        known: String,
    },
    /// No context to begin with.
    #[error("the kubeconfig has no current-context: name one with `--context`")]
    NoContext,
    /// Something that this program does not do.
    #[error("{what} `{name}` of the kubeconfig uses `{field}`, which meridian does not support: {remedy}")]
    Unsupported {
        /// `cluster` or `user`.
        what: &'static str,
        /// Its name.
        name: String,
        /// The field.
        field: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// Base64 that is none.
    #[error("`{field}` of the kubeconfig is not base64")]
    Base64 {
        /// The field.
        field: &'static str,
    },
    /// A token that would travel readable by everyone.
    #[error(
        "refused to send the token of the kubeconfig to `{server}` without TLS: write an https:// server"
    )]
    Plaintext {
        /// The server.
        server: String,
    },
}

/// A token or a key. It never shows.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// The secret itself, for the one place that sends it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// What it takes to talk to a manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// The base URL, without a slash at its end.
    pub(crate) server: String,
    /// PEM of the authorities that may have signed the server's certificate; the system's when there is none.
    pub(crate) authorities: Option<Vec<u8>>,
    /// Bearer token.
    pub(crate) token: Option<Secret>,
    /// PEM of a client certificate and its key.
    pub(crate) identity: Option<Secret>,
    /// The namespace of the context.
    pub(crate) namespace: String,
}

/// Where to look: what the command line and the environment say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookup {
    /// `--kubeconfig`.
    pub(crate) flag: Option<PathBuf>,
    /// `KUBECONFIG`: one path or several, as in `PATH`.
    pub(crate) variable: Option<String>,
    /// The home directory.
    pub(crate) home: Option<PathBuf>,
    /// The working directory.
    pub(crate) directory: PathBuf,
    /// `--context`.
    pub(crate) context: Option<String>,
}

impl Lookup {
    /// The access that the first files found give.
    pub(crate) fn access(&self) -> Result<Access, Error> {
        let mut config = Config::default();
        for path in self.paths()? {
            config.merge(Config::read(&path)?);
        }
        config.access(self.context.as_deref())
    }

    fn paths(&self) -> Result<Vec<PathBuf>, Error> {
        if let Some(path) = &self.flag {
            return Ok(vec![path.clone()]);
        }
        let listed: Vec<PathBuf> = self
            .variable
            .iter()
            .flat_map(|list| std::env::split_paths(list).collect::<Vec<_>>())
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        let candidates = if listed.is_empty() {
            let defaults = std::iter::once(self.directory.clone()).chain(self.home.clone());
            defaults.map(|root| root.join(DEFAULT_PATH)).collect()
        } else {
            listed.clone()
        };
        let mut found: Vec<PathBuf> = candidates.iter().filter(|path| path.exists()).cloned().collect();
        if listed.is_empty() {
            // the two defaults are alternatives; the paths of KUBECONFIG belong together
            found.truncate(1);
        }
        if found.is_empty() {
            let looked = candidates
                .iter()
                .map(|path| format!("`{}`", path.display()))
                .collect::<Vec<_>>()
                .join(" or ");
            return Err(Error::Missing { looked });
        }
        Ok(found)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Config {
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
    #[serde(skip)]
    root: PathBuf,
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
    #[serde(skip)]
    root: PathBuf,
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
    exec: Option<serde::de::IgnoredAny>,
    auth_provider: Option<serde::de::IgnoredAny>,
    username: Option<serde::de::IgnoredAny>,
    #[serde(rename = "as")]
    impersonate: Option<serde::de::IgnoredAny>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User { (secret) }")
    }
}

impl Config {
    fn read(path: &Path) -> Result<Self, Error> {
        let text = String::from_utf8(read(path)?).map_err(|_| Error::Malformed {
            path: path.to_owned(),
            why: "it is not UTF-8 text".to_owned(),
        })?;
        let malformed = |why: String| Error::Malformed { path: path.to_owned(), why };
        // the reader's own report quotes the file, and with it secrets: only the place is told
        let mut config: Self = serde_saphyr::from_str(&text).map_err(|error| {
            let place = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
            malformed(format!("its YAML can't be read{}", place.unwrap_or_default()))
        })?;
        let root = path.parent().unwrap_or(Path::new("")).to_owned();
        config.clusters.iter_mut().for_each(|entry| entry.root.clone_from(&root));
        config.users.iter_mut().for_each(|entry| entry.root.clone_from(&root));
        Ok(config)
    }

    /// Adds another file's entries; what is there already stays, as in `kubectl`.
    fn merge(&mut self, other: Self) {
        if self.current_context.is_empty() {
            self.current_context = other.current_context;
        }
        self.contexts.extend(other.contexts);
        self.clusters.extend(other.clusters);
        self.users.extend(other.users);
    }

    fn access(&self, context: Option<&str>) -> Result<Access, Error> {
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
            return Err(unsupported(
                "insecure-skip-tls-verify",
                "write the manager's CA as `certificate-authority-data`",
            ));
        }
        if self.cluster.tls_server_name.as_ref().is_some_and(|name| !name.is_empty()) {
            return Err(unsupported(
                "tls-server-name",
                "write a `server` whose host name is in the certificate",
            ));
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
        let Cluster { certificate_authority, certificate_authority_data, .. } = &self.cluster;
        file_or_data(
            &self.root,
            certificate_authority.as_deref(),
            certificate_authority_data.as_deref(),
            "certificate-authority-data",
        )
    }
}

impl NamedUser {
    fn token(&self) -> Result<Option<Secret>, Error> {
        let unsupported =
            |field, remedy| Err(Error::Unsupported { what: "user", name: self.name.clone(), field, remedy });
        let other = "use a token or a client certificate";
        match &self.user {
            User { exec: Some(_), .. } => return unsupported("exec", other),
            User { auth_provider: Some(_), .. } => return unsupported("auth-provider", other),
            User { username: Some(_), .. } => return unsupported("username", other),
            User { impersonate: Some(_), .. } => {
                return unsupported(
                    "as",
                    "the manager refuses impersonation; use that person's own kubeconfig",
                );
            }
            _ => {}
        }
        let token = match (&self.user.token, &self.user.token_file) {
            (Some(token), _) => token.clone(),
            (None, Some(path)) => String::from_utf8_lossy(&read(&self.root.join(path))?).into_owned(),
            (None, None) => return Ok(None),
        };
        let token = token.trim();
        Ok((!token.is_empty()).then(|| Secret(token.to_owned())))
    }

    fn identity(&self) -> Result<Option<Secret>, Error> {
        let User { client_certificate, client_certificate_data, client_key, client_key_data, .. } =
            &self.user;
        let certificate = file_or_data(
            &self.root,
            client_certificate.as_deref(),
            client_certificate_data.as_deref(),
            "client-certificate-data",
        )?;
        let key =
            file_or_data(&self.root, client_key.as_deref(), client_key_data.as_deref(), "client-key-data")?;
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some(Secret(format!(
                "{}\n{}",
                String::from_utf8_lossy(&certificate).trim_end(),
                String::from_utf8_lossy(&key)
            )))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(Error::Unsupported {
                what: "user",
                name: self.name.clone(),
                field: "client-certificate",
                remedy: "its key is missing",
            }),
            (None, Some(_)) => Err(Error::Unsupported {
                what: "user",
                name: self.name.clone(),
                field: "client-key",
                remedy: "its certificate is missing",
            }),
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

/// As in `kubectl`, inline data wins over a file.
fn file_or_data(
    root: &Path,
    file: Option<&Path>,
    data: Option<&str>,
    field: &'static str,
) -> Result<Option<Vec<u8>>, Error> {
    match (data.filter(|data| !data.is_empty()), file.filter(|file| !file.as_os_str().is_empty())) {
        (Some(data), _) => STANDARD.decode(data.trim()).map(Some).map_err(|_| Error::Base64 { field }),
        (None, Some(file)) => read(&root.join(file)).map(Some),
        (None, None) => Ok(None),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    use std::io::Read;
    let failed = |source| Error::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::Malformed {
            path: path.to_owned(),
            why: format!("it has more than {FILE_BYTES_MAX} bytes"),
        });
    }
    Ok(bytes)
}

/// Whether the URL's host is this machine, so that nothing leaves it.
pub(crate) fn is_loopback(server: &str) -> bool {
    let Ok(url) = server.parse::<reqwest::Url>() else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "s3cr3t-t0ken";

    fn file(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\npreferences: {{}}\ncurrent-context: here\ncontexts:\n- name: here\n  context: {{cluster: m, user: u, namespace: research}}\n\
             clusters:\n- name: m\n  cluster: {{{cluster}}}\nusers:\n- name: u\n  user: {{{user}}}\n"
        )
    }

    fn access(text: &str) -> Result<Access, Error> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("config"), text).unwrap();
        std::fs::write(directory.path().join("ca.pem"), "PEM of a CA").unwrap();
        std::fs::write(directory.path().join("token"), format!("{TOKEN}\n")).unwrap();
        Lookup { flag: Some(directory.path().join("config")), ..Lookup::default() }.access()
    }

    #[test]
    fn data_and_files_are_read() {
        let inline = access(&file(
            "server: 'https://m:7443/', certificate-authority-data: aGVsbG8=",
            &format!("token: {TOKEN}"),
        ))
        .unwrap();
        assert_eq!(inline.server, "https://m:7443");
        assert_eq!(inline.authorities.as_deref(), Some(b"hello".as_slice()));
        assert_eq!(inline.token.as_ref().map(Secret::reveal), Some(TOKEN));
        assert_eq!(inline.namespace, "research");
        assert!(!format!("{inline:?}").contains(TOKEN));
        let files =
            access(&file("server: 'https://m:7443', certificate-authority: ca.pem", "tokenFile: token"))
                .unwrap();
        assert_eq!(files.authorities.as_deref(), Some(b"PEM of a CA".as_slice()));
        assert_eq!(files.token, inline.token);
        let certificate =
            access(&file("server: 'https://m'", "client-certificate-data: Q0VSVA==, client-key-data: S0VZ"))
                .unwrap();
        assert_eq!(certificate.identity.as_ref().map(Secret::reveal), Some("CERT\nKEY"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let check = |cluster: &str, user: &str, expect: &str| {
            let error = access(&file(cluster, user)).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
            assert!(!error.contains(TOKEN), "{error}");
        };
        let https = "server: 'https://m'";
        check(
            "server: 'https://m', insecure-skip-tls-verify: true",
            "",
            "cluster `m` of the kubeconfig uses `insecure-skip-tls-verify`",
        );
        check("server: m", "", "uses `server`");
        check(https, "exec: {command: login}", "user `u` of the kubeconfig uses `exec`");
        check(https, "as: somebody", "refuses impersonation");
        check(https, "client-certificate-data: Q0VSVA==", "its key is missing");
        check(
            "server: 'https://m', certificate-authority-data: '***'",
            "",
            "`certificate-authority-data` of the kubeconfig is not base64",
        );
        check("server: 'http://m.example:80'", &format!("token: {TOKEN}"), "without TLS");
        check(https, &format!("token: [{TOKEN}"), "its YAML can't be read at line");
        assert!(access(&file("server: 'http://127.0.0.1:80'", &format!("token: {TOKEN}"))).is_ok());
        assert!(access(&file("server: 'http://[::1]:80'", &format!("token: {TOKEN}"))).is_ok());
    }

    #[test]
    fn missing_entries_are_named() {
        let text = file("server: 'https://m'", "");
        let error = access(&text.replace("current-context: here", "current-context: there")).unwrap_err();
        assert_eq!(error.to_string(), "the kubeconfig has no context named `there`; it has `here`");
        assert!(matches!(
            access(&text.replace("current-context: here\n", "")).unwrap_err(),
            Error::NoContext
        ));
    }

    #[test]
    fn places_are_tried_in_order_and_lists_are_merged() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let lookup = Lookup {
            home: Some(root.path().join("home")),
            directory: root.path().join("work"),
            ..Lookup::default()
        };
        assert!(matches!(lookup.access(), Err(Error::Missing { .. })));
        put("home/.meridian/kubeconfig", &file("server: 'https://home'", ""));
        assert_eq!(lookup.access().unwrap().server, "https://home");
        put("work/.meridian/kubeconfig", &file("server: 'https://work'", ""));
        assert_eq!(lookup.access().unwrap().server, "https://work");
        let first = put("first", "current-context: here\ncontexts:\n- {name: here, context: {cluster: m}}\n");
        let second = put("second", &file("server: 'https://second'", ""));
        let list = std::env::join_paths([&first, &root.path().join("absent"), &second])
            .unwrap()
            .into_string()
            .unwrap();
        let listed = Lookup { variable: Some(list), ..lookup.clone() };
        assert_eq!(listed.access().unwrap().server, "https://second");
        assert_eq!(listed.access().unwrap().namespace, "default");
        let flagged = Lookup { flag: Some(second), variable: Some("absent".into()), ..lookup };
        assert_eq!(flagged.access().unwrap().namespace, "research");
    }
}
