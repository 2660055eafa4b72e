//! The program itself: started with `--init`, found by its `ready` file, stopped by a signal, and started
//! again.

use crate::rig::{DEADLINE, until};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

/// A process that is killed at the end of the test.
struct Running(Child);

impl Running {
    fn start(dir: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meridian-manager"));
        command
            .args(["--listen", "127.0.0.1:0", "--term", "8s", "--term-min", "8s"])
            .arg("--data-dir")
            .arg(dir)
            .args(more);
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(dir.with_extension("log")).unwrap();
        Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap())
    }

    fn terminate(mut self) -> ExitStatus {
        let id = rustix::process::Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let status = self.0.wait().unwrap();
        let mut printed = String::new();
        std::io::Read::read_to_string(self.0.stdout.as_mut().unwrap(), &mut printed).unwrap();
        assert_eq!(printed, "", "it prints nothing");
        status
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // fails if it has ended already
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn url_of(process: &mut Running, dir: &Path) -> String {
    let started = Instant::now();
    let ready = dir.join("ready");
    loop {
        if let Ok(url) = std::fs::read_to_string(&ready) {
            return url.trim().to_owned();
        }
        let log = || std::fs::read_to_string(dir.with_extension("log")).unwrap_or_default();
        assert!(process.0.try_wait().unwrap().is_none(), "it ended:\n{}", log());
        assert!(started.elapsed() < DEADLINE, "it isn't ready:\n{}", log());
        tokio::task::yield_now().await;
    }
}

fn client(dir: &Path) -> reqwest::Client {
    let text = std::fs::read_to_string(dir.join("admin.kubeconfig")).unwrap();
    let config: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    let ca = config["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap();
    let ca = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, ca).unwrap();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&ca).unwrap()])
        .no_proxy()
        .build()
        .unwrap()
}

#[tokio::test]
async fn the_program_starts_stops_and_starts_again() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("manager");
    std::fs::create_dir(&dir).unwrap();
    let mut refused = Running::start(&dir, &[]);
    assert!(!refused.0.wait().unwrap().success());
    let log = std::fs::read_to_string(dir.with_extension("log")).unwrap();
    assert!(log.contains("init --recover") && !log.contains("panicked"), "{log}");

    let mut process = Running::start(&dir, &["--init"]);
    let url = url_of(&mut process, &dir).await;
    let client = client(&dir);
    let get = async |path: &str| client.get(format!("{url}{path}")).timeout(DEADLINE).send().await.unwrap();
    assert_eq!(
        (get("/healthz").await.status(), get("/readyz").await.status()),
        (reqwest::StatusCode::OK, reqwest::StatusCode::OK)
    );
    assert_eq!(
        get("/metrics").await.status(),
        reqwest::StatusCode::UNAUTHORIZED,
        "metrics name queues and clusters"
    );
    let token = std::fs::read_to_string(dir.join("viewer.token")).unwrap();
    let ca = std::fs::read_to_string(dir.join("ca.pem")).unwrap();
    assert!(ca.starts_with("-----BEGIN CERTIFICATE-----") && !ca.contains("PRIVATE"), "{ca}");
    let scrape =
        client.get(format!("{url}/metrics")).bearer_auth(&token).timeout(DEADLINE).send().await.unwrap();
    assert_eq!(
        (scrape.status(), scrape.headers()["content-type"].to_str().unwrap()),
        (reqwest::StatusCode::OK, "text/plain; version=0.0.4")
    );
    let text = scrape.text().await.unwrap();
    assert!(
        text.contains("meridian_build_info") && text.contains("meridian_journal_commit_seconds_count"),
        "{text}"
    );
    for secret in
        ["admin.kubeconfig", "submitter.kubeconfig", "viewer.kubeconfig", "viewer.token", "users.json"]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            std::fs::metadata(dir.join(secret)).unwrap().permissions().mode() & 0o777,
            0o600,
            "{secret}"
        );
    }
    let kubeconfig = std::fs::read_to_string(dir.join("admin.kubeconfig")).unwrap();
    assert!(kubeconfig.contains(&url), "{kubeconfig}");

    // a second manager on the same directory is refused and does no harm
    let second = Running::start(&dir.join("."), &[]).0.wait().unwrap();
    assert!(!second.success());
    assert_eq!(get("/readyz").await.status(), reqwest::StatusCode::OK);
    assert!(dir.join("ready").exists());

    assert!(process.terminate().success());
    assert!(!dir.join("ready").exists());
    let mut process = Running::start(&dir, &[]);
    url_of(&mut process, &dir).await;
    assert_eq!(
        std::fs::read_to_string(dir.join("admin.kubeconfig")).unwrap(),
        kubeconfig,
        "tokens don't change"
    );
    let mut init = Running::start(&dir, &["--init"]);
    until("a second init is refused", async || {
        init.0.try_wait().unwrap().is_some_and(|status| !status.success())
    })
    .await;
    assert!(process.terminate().success());
}
