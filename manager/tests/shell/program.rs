//! The program itself: started with `--init`, found by its `ready` file, stopped by a signal, and started
//! again.

use crate::rig::{DEADLINE, GPU, job, until};
use serde_json::json;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

/// A process that is killed at the end of the test.
struct Running(Child);

impl Running {
    fn start(dir: &Path, more: &[&str]) -> Self {
        Self::start_as(Command::new(env!("CARGO_BIN_EXE_meridian-manager")), dir, more)
    }

    /// Starts the program through `command`, which runs it with further arguments.
    fn start_as(mut command: Command, dir: &Path, more: &[&str]) -> Self {
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

/// The token of a kubeconfig that the manager wrote.
fn token_of(dir: &Path, user: &str) -> String {
    let text = std::fs::read_to_string(dir.join(format!("{user}.kubeconfig"))).unwrap();
    let token = text.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap();
    token.trim_matches('"').to_owned()
}

#[tokio::test]
async fn the_first_users_have_their_roles_and_deleted_bindings_stay_deleted() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("manager");
    let mut process = Running::start(&dir, &["--init"]);
    let url = url_of(&mut process, &dir).await;
    let client = client(&dir);
    let ask = async |url: &str, method: reqwest::Method, user: &str, path: &str| {
        let request = client.request(method, format!("{url}{path}")).bearer_auth(token_of(&dir, user));
        request.timeout(DEADLINE).send().await.unwrap().status().as_u16()
    };
    let own = "/apis/batch/v1/namespaces/default/jobs";
    let all = "/apis/batch/v1/jobs";
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for (user, path, code) in [
        ("submitter", own, 200),
        ("submitter", all, 403),
        ("submitter", "/apis/kueue.x-k8s.io/v1beta2/resourceflavors", 200),
        ("submitter", "/metrics", 403),
        ("viewer", all, 200),
        ("viewer", "/metrics", 200),
        ("viewer", roles, 403),
        ("admin", roles, 200),
    ] {
        assert_eq!(ask(&url, reqwest::Method::GET, user, path).await, code, "{user} {path}");
    }
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/meridian-submitter";
    assert_eq!(ask(&url, reqwest::Method::DELETE, "admin", binding).await, 200);
    assert!(process.terminate().success());
    let mut process = Running::start(&dir, &[]);
    let url = url_of(&mut process, &dir).await;
    assert_eq!(ask(&url, reqwest::Method::GET, "submitter", own).await, 403, "its binding was deleted");
    assert_eq!(ask(&url, reqwest::Method::GET, "viewer", all).await, 200);
    assert!(process.terminate().success());
}

#[tokio::test]
async fn the_program_raises_its_file_limit() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("manager");
    let mut few_files = Command::new("sh");
    few_files.args(["-c", "ulimit -Sn 256 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_meridian-manager")]);
    let mut process = Running::start_as(few_files, &dir, &["--init"]);
    url_of(&mut process, &dir).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.0.id())).unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let files: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(files[0], files[1], "the limit is what the system permits: {limits}");
    assert_ne!(files[0], "256");
    assert!(process.terminate().success());
}

#[test]
fn the_program_refuses_a_directory_that_everybody_may_write() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("manager");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(!Running::start(&dir, &["--init"]).0.wait().unwrap().success());
    let log = std::fs::read_to_string(dir.with_extension("log")).unwrap();
    assert!(log.contains("chmod o-w") && log.contains("0777"), "{log}");
    assert!(!dir.join("journal.redb").exists() && !dir.join("identity").exists(), "nothing was created");
}

/// Objects with which a job is accepted and waits, as there is no cluster. Each with the path of its
/// collection.
fn waiting_job(text: &str) -> [(&'static str, serde_json::Value); 4] {
    let kueue = |kind: &str, name: &str, spec: serde_json::Value| {
        let metadata = json!({"name": name});
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec})
    };
    let flavors = json!([{"name": "any", "resources": [{"name": GPU, "nominalQuota": 1}]}]);
    let groups = json!([{"coveredResources": [GPU], "flavors": flavors}]);
    let mut job = job("waits", 1);
    job["spec"]["template"]["spec"]["containers"][0]["args"] = json!([text]);
    [
        ("kueue.x-k8s.io/v1beta2/resourceflavors", kueue("ResourceFlavor", "any", json!({}))),
        (
            "kueue.x-k8s.io/v1beta2/clusterqueues",
            kueue("ClusterQueue", "cq", json!({"namespaceSelector": {}, "resourceGroups": groups})),
        ),
        (
            "kueue.x-k8s.io/v1beta2/namespaces/default/localqueues",
            kueue("LocalQueue", "lq", json!({"clusterQueue": "cq"})),
        ),
        ("batch/v1/namespaces/default/jobs", job),
    ]
}

#[tokio::test]
async fn probes_and_lists_report_a_damaged_manifest() {
    const TEXT: &str = "only-in-the-manifest";
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("manager");
    std::fs::create_dir(&dir).unwrap();
    let mut process = Running::start(&dir, &["--init"]);
    let mut url = url_of(&mut process, &dir).await;
    let client = client(&dir);
    let kubeconfig = std::fs::read_to_string(dir.join("admin.kubeconfig")).unwrap();
    let kubeconfig: serde_json::Value = serde_saphyr::from_str(&kubeconfig).unwrap();
    let token = kubeconfig["users"][0]["user"]["token"].as_str().unwrap();
    for (path, object) in waiting_job(TEXT) {
        let request = client.post(format!("{url}/apis/{path}")).bearer_auth(token).json(&object);
        let answer = request.timeout(DEADLINE).send().await.unwrap();
        assert_eq!(answer.status(), reqwest::StatusCode::CREATED, "{:?}", answer.text().await);
    }
    assert!(process.terminate().success());
    let journal = dir.join("journal.redb");
    let mut image = std::fs::read(&journal).unwrap();
    let found: Vec<usize> = (0..image.len()).filter(|at| image[*at..].starts_with(TEXT.as_bytes())).collect();
    assert!(!found.is_empty());
    found.into_iter().for_each(|at| image[at] ^= 1);
    // the same file, so that it isn't mistaken for a copy
    std::fs::write(&journal, image).unwrap();

    let mut process = Running::start(&dir, &[]);
    url = url_of(&mut process, &dir).await;
    let get = async |path: &str| {
        let request = client.get(format!("{url}{path}")).bearer_auth(token).timeout(DEADLINE);
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let mut ready = (reqwest::StatusCode::OK, String::new());
    until("the probe reports it", async || {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        ready = get("/readyz").await;
        ready.1.starts_with("degraded: ")
    })
    .await;
    assert_eq!(ready.0, reqwest::StatusCode::OK, "a leader stays in service");
    assert!(ready.1.contains("1 job has a damaged manifest") && !ready.1.contains("waits"), "{}", ready.1);
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    for (path, pointer) in [(jobs.to_owned(), "/items/0"), (format!("{jobs}/waits"), "")] {
        let (status, text) = get(&path).await;
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        let job = answer.pointer(pointer).unwrap();
        assert_eq!((status, job["metadata"]["name"].as_str()), (reqwest::StatusCode::OK, Some("waits")));
        assert_eq!(job["status"]["conditions"][0]["type"], "Damaged", "{text}");
    }
    let why = get("/meridian/v1/why/default/waits").await.1;
    assert!(why.contains("damaged: the stored manifest can't be read"), "{why}");
    let metrics = get("/metrics").await.1;
    let lines = ["meridian_journal_damaged{part=\"manifests\"} 1", "meridian_grants_total 0"];
    assert!(lines.into_iter().all(|line| metrics.lines().any(|other| other == line)), "{metrics}");
    assert!(process.terminate().success());
}
