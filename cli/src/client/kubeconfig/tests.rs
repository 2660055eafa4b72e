use super::*;

const TOKEN: &str = "s3cr3t-t0ken";

fn config(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\npreferences: {{}}\ncurrent-context: here\n\
         contexts:\n- name: here\n  context: {{cluster: m, user: u, namespace: research}}\n\
         clusters:\n- name: m\n  cluster: {{{cluster}}}\nusers:\n- name: u\n  user: {{{user}}}\n"
    )
}

fn access(text: &str) -> Result<Access, Error> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("config"), text).unwrap();
    std::fs::write(directory.path().join("ca.pem"), "PEM of a CA").unwrap();
    std::fs::write(directory.path().join("token"), format!("{TOKEN}\n")).unwrap();
    Lookup::file(directory.path().join("config")).access()
}

#[test]
fn inline_data_and_files_are_read() {
    let inline = access(&config(
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
        access(&config("server: 'https://m:7443', certificate-authority: ca.pem", "tokenFile: token"))
            .unwrap();
    assert_eq!(files.authorities.as_deref(), Some(b"PEM of a CA".as_slice()));
    assert_eq!(files.token, inline.token);
    let certificate =
        access(&config("server: 'https://m'", "client-certificate-data: Q0VSVA==, client-key-data: S0VZ"))
            .unwrap();
    assert_eq!(certificate.identity.as_ref().map(Secret::reveal), Some("CERT\nKEY"));
}

#[test]
fn unsupported_entries_are_refused() {
    let check = |cluster: &str, user: &str, expect: &str| {
        let error = access(&config(cluster, user)).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
        assert!(!error.contains(TOKEN), "{error}");
    };
    let https = "server: 'https://m'";
    check(
        "server: 'https://m', insecure-skip-tls-verify: true",
        "",
        "cluster `m` of the kubeconfig has `insecure-skip-tls-verify`",
    );
    check("server: m", "", "has `server`");
    check(https, "exec: {command: login}", "user `u` of the kubeconfig has `exec`");
    check(https, "as: somebody", "refuses impersonation");
    check(https, "client-certificate-data: Q0VSVA==", "has `client-certificate` without its key");
    check(
        "server: 'https://m', certificate-authority-data: '***'",
        "",
        "`certificate-authority-data` of the kubeconfig is not base64",
    );
    check("server: 'http://m.example:80'", &format!("token: {TOKEN}"), "without TLS");
    check(https, &format!("token: [{TOKEN}"), "its YAML can't be read at line");
    assert!(access(&config("server: 'http://127.0.0.1:80'", &format!("token: {TOKEN}"))).is_ok());
    assert!(access(&config("server: 'http://[::1]:80'", &format!("token: {TOKEN}"))).is_ok());
}

#[test]
fn a_missing_entry_is_named_with_the_known_ones() {
    let text = config("server: 'https://m'", "");
    let error = access(&text.replace("current-context: here", "current-context: there")).unwrap_err();
    assert_eq!(error.to_string(), "the kubeconfig has no context `there`; it has `here`");
    assert!(matches!(access(&text.replace("current-context: here\n", "")).unwrap_err(), Error::NoContext));
}

#[test]
fn paths_are_tried_in_order_and_lists_are_merged() {
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
    put("home/.meridian/kubeconfig", &config("server: 'https://home'", ""));
    assert_eq!(lookup.access().unwrap().server, "https://home");
    put("work/.meridian/kubeconfig", &config("server: 'https://work'", ""));
    assert_eq!(lookup.access().unwrap().server, "https://work");
    let first = put("first", "current-context: here\ncontexts:\n- {name: here, context: {cluster: m}}\n");
    let second = put("second", &config("server: 'https://second'", ""));
    let list =
        std::env::join_paths([&first, &root.path().join("absent"), &second]).unwrap().into_string().unwrap();
    let listed = Lookup { variable: Some(list), ..lookup.clone() };
    assert_eq!(listed.access().unwrap().server, "https://second");
    assert_eq!(listed.access().unwrap().namespace, "default");
    let flagged = Lookup { flag: Some(second), variable: Some("absent".into()), ..lookup };
    assert_eq!(flagged.access().unwrap().namespace, "research");
}
