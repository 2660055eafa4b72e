//! The real program with real commands, and a file that a kubelet would write.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

const GUARD: &str = env!("CARGO_BIN_EXE_meridian-pod-guard");

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a lease with `left` milliseconds; the command has `stop` of them to end. Replaces the file in
    /// one step, as kubelets do.
    fn write_lease(&self, sent: i64, left: u64, stop: u64) {
        let end = SystemTime::now() + Duration::from_millis(left);
        let wall = end.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        let text = format!("v1 clock=test sent={sent} left={left} stop={stop} ends={wall}");
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path("lease")).unwrap();
    }

    fn guard(&self, script: &str) -> Child {
        let mut command = Command::new(GUARD);
        command.args(["run", "--skew-seconds", "0", "--lease"]).arg(self.path("lease"));
        command.args(["--", "sh", "-c", script]).current_dir(self.dir.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn run(&self, script: &str) -> Output {
        self.guard(script).wait_with_output().unwrap()
    }

    fn wait_for(&self, name: &str) {
        let began = Instant::now();
        while !self.path(name).exists() {
            assert!(began.elapsed() < Duration::from_secs(20), "`{name}` is not written");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn signal(process: u32, name: &str) {
    let done = Command::new("kill").args(["-s", name, &process.to_string()]).status().unwrap();
    assert!(done.success());
}

fn runs(pid_file: &Path) -> bool {
    let pid = fs::read_to_string(pid_file).unwrap();
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_exit_code_and_the_output_are_those_of_the_command() {
    let bench = Bench::new();
    bench.write_lease(1, 600_000, 1_000);
    let ended = bench.run("echo out; exit 3");
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(3), b"out\n".as_slice()));
    assert_eq!(bench.run("kill -KILL $$").status.code(), Some(137));
    let missing = Command::new(GUARD)
        .args(["run", "--lease"])
        .arg(bench.path("lease"))
        .args(["--", "/no/such/program"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(127), "{}", said(&missing));
}

#[test]
fn signals_reach_the_command_and_children_that_it_leaves_are_reaped() {
    let bench = Bench::new();
    bench.write_lease(1, 600_000, 1_000);
    let guard = bench.guard("trap 'echo stopped; exit 7' TERM; touch ready; while :; do sleep 0.05; done");
    bench.wait_for("ready");
    signal(guard.id(), "TERM");
    let ended = guard.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(7), b"stopped\n".as_slice()));
    assert_eq!(ended.status.signal(), None);
}

#[test]
fn a_command_whose_lease_is_not_renewed_is_stopped_and_then_killed() {
    let bench = Bench::new();
    let began = Instant::now();
    bench.write_lease(1, 4_000, 2_000);
    // The command ignores SIGTERM, and so does its child.
    let script = "trap 'touch told' TERM; (trap '' TERM; echo $$ >/dev/null; while :; do sleep 0.05; done) & \
        echo $! >grandchild; while :; do sleep 0.05; done";
    let ended = bench.run(script);
    let took = began.elapsed();
    assert_eq!(ended.status.code(), Some(124), "{}", said(&ended));
    assert!(bench.path("told").exists(), "it is told first");
    assert!(took >= Duration::from_millis(2_500) && took < Duration::from_millis(4_000), "{took:?}");
    assert!(!runs(&bench.path("grandchild")), "what it started is killed too");
    assert!(said(&ended).contains("the lease has ended: the command is killed"), "{}", said(&ended));
}

#[test]
fn a_renewed_lease_keeps_the_command_and_a_stop_by_lease_is_no_success() {
    let bench = Bench::new();
    bench.write_lease(1_000, 4_000, 2_000);
    let began = Instant::now();
    let mut guard = bench.guard("trap 'exit 0' TERM; while :; do sleep 0.05; done");
    for renewal in 1..=4 {
        std::thread::sleep(Duration::from_millis(1_000));
        bench.write_lease(1_000 + renewal * 1_000, 4_000, 2_000);
        assert!(guard.try_wait().unwrap().is_none(), "it ended at renewal {renewal}");
    }
    // The file stays, and nobody renews it.
    let code = guard.wait().unwrap().code();
    let took = began.elapsed();
    assert_eq!(code, Some(124), "a command that ends in order, and not by itself");
    assert!(took >= Duration::from_millis(5_500) && took < Duration::from_millis(8_000), "{took:?}");
    let mut said = String::new();
    guard.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("was not renewed"), "{said}");
}

#[test]
fn a_container_that_starts_again_after_its_lease_runs_nothing() {
    let bench = Bench::new();
    bench.write_lease(1, 50, 10);
    std::thread::sleep(Duration::from_millis(60));
    let ended = bench.run("touch ran");
    assert_eq!((ended.status.code(), bench.path("ran").exists()), (Some(124), false));
    assert!(said(&ended).contains("is not started"), "{}", said(&ended));
}

#[test]
fn without_a_lease_nothing_starts() {
    let bench = Bench::new();
    let ended = bench.run("touch ran");
    assert!(said(&ended).contains("cannot read the lease"), "{}", said(&ended));
    fs::write(bench.path("lease"), "").unwrap();
    let empty = bench.run("touch ran");
    assert!(said(&empty).contains("no agent has written"), "{}", said(&empty));
    assert_eq!([ended.status.code(), empty.status.code()], [Some(125); 2]);
    assert!(!bench.path("ran").exists());
}

#[test]
fn the_program_copies_itself_into_a_volume() {
    let bench = Bench::new();
    let installed = Command::new(GUARD).arg("install").arg(bench.dir.path()).output().unwrap();
    assert!(installed.status.success(), "{}", said(&installed));
    bench.write_lease(1, 600_000, 1_000);
    let copy = Command::new(bench.path("meridian-pod-guard"))
        .args(["run", "--lease"])
        .arg(bench.path("lease"))
        .args(["--", "true"])
        .status()
        .unwrap();
    assert_eq!(copy.code(), Some(0));
    let nowhere = Command::new(GUARD).args(["install", "/no/such/folder"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(125));
}
