//! The sources of settings, and the settings that are refused.

use super::*;

fn file(text: &str) -> (tempfile::TempDir, AgentArgs) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.yaml");
    std::fs::write(&path, text).unwrap();
    (dir, AgentArgs { config: Some(path), ..AgentArgs::default() })
}

#[test]
fn flags_take_precedence_over_the_file() {
    let (_dir, args) = file(
        "data-dir: /data\nfleet: fleet.yaml\nrunner: simulated\nspeed: 60\nlog-format: \
         json\nmetrics-listen: 0.0.0.0:9100\n",
    );
    let settings = AgentArgs { speed: Some(2.0), ..args }.resolve().unwrap();
    assert_eq!(
        (settings.speed, settings.log_format, settings.runner),
        (2.0, Format::Json, RunnerChoice::Simulated)
    );
    let (_dir, waits) = file("data-dir: /data\nfleet: f\nrunner: simulated\nnode-replacement-wait: 10m\n");
    assert_eq!(
        (settings.replacement_wait, waits.resolve().unwrap().replacement_wait),
        (Millis(0), Millis::mins(10))
    );
    assert_eq!(
        (settings.data_dir.as_path(), settings.metrics_listen.unwrap().port()),
        (Path::new("/data"), 9100)
    );
}

#[test]
fn missing_and_wrong_settings_are_named() {
    let whole = AgentArgs {
        data_dir: Some("d".into()),
        fleet: Some("f".into()),
        runner: Some(RunnerChoice::Simulated),
        ..AgentArgs::default()
    };
    whole.clone().resolve().unwrap();
    for (args, says) in [
        (AgentArgs { data_dir: None, ..whole.clone() }, "MERIDIAN_AGENT_DATA_DIR"),
        (AgentArgs { runner: None, ..whole.clone() }, "`simulated` only simulates jobs"),
        (AgentArgs { fleet: None, ..whole.clone() }, "`--fleet` is missing"),
        (
            AgentArgs { provider: Some("provisioning-request".into()), ..whole.clone() },
            "`provisioning-request` asks the autoscaler of a Kubernetes cluster, so it needs",
        ),
        (AgentArgs { provider: Some("aws".into()), ..whole.clone() }, "use `static`, `simulated` or"),
        (
            AgentArgs {
                provider: Some("simulated".into()),
                runner: Some(RunnerChoice::Process),
                ..whole.clone()
            },
            "needs the simulated runner",
        ),
        (AgentArgs { speed: Some(0.0), ..whole.clone() }, "above 0"),
        (AgentArgs { speed: Some(f64::NAN), ..whole.clone() }, "above 0"),
        (
            AgentArgs { node_replacement_wait: Some("soon".into()), ..whole.clone() },
            "`--node-replacement-wait`: `soon`",
        ),
        (AgentArgs { node_replacement_wait: Some("25h".into()), ..whole.clone() }, "at most 1440m"),
    ] {
        let error = args.resolve().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let (_dir, args) = file("runer: simulated\n");
    let error = meridian_telemetry::with_causes(&args.resolve().unwrap_err());
    assert!(
        error.ends_with("agent.yaml:1:1: runer: `runer` is not known here; did you mean `runner`?"),
        "{error}"
    );
    let (_dir, args) = file("data-dir: /data\nfleet: f\nrunner: simulated\nspeed: 0\n");
    let error = args.resolve().unwrap_err().to_string();
    assert!(error.contains("agent.yaml:4:8: speed: `0` must be above 0"), "{error}");
}

#[test]
fn each_way_to_hold_room_has_its_own_settings() {
    let base = AgentArgs {
        data_dir: Some("d".into()),
        runner: Some(RunnerChoice::Kubernetes),
        ..AgentArgs::default()
    };
    let with = |hold: HoldArgs| AgentArgs { hold, ..base.clone() };
    let of = |method: HoldChoice| HoldArgs { hold: Some(method), ..HoldArgs::default() };
    let chosen = |args: AgentArgs| args.resolve().unwrap().kubernetes.hold;
    assert_eq!(chosen(base.clone()), HoldChosen::Ledger);
    let HoldChosen::Placeholders { image, priority_class } = chosen(with(of(HoldChoice::Placeholders)))
    else {
        panic!("placeholders were chosen")
    };
    assert!(image.contains("pause") && priority_class == "meridian-placeholder", "{image} {priority_class}");
    let queue = Some("gangs".to_owned());
    let kueue = HoldArgs { local_queue: queue.clone(), ..of(HoldChoice::Kueue) };
    assert_eq!(chosen(with(kueue.clone())), HoldChosen::Kueue { queue: "gangs".to_owned() });
    let simulated = AgentArgs {
        runner: Some(RunnerChoice::Simulated),
        fleet: Some("f".into()),
        ..with(of(HoldChoice::Placeholders))
    };
    let asking = AgentArgs {
        provider: Some("provisioning-request".into()),
        provisioning_config: Some("p".into()),
        fleet: Some("f".into()),
        ..with(kueue)
    };
    for (args, says) in [
        (with(of(HoldChoice::Kueue)), "`--local-queue` is missing"),
        (with(HoldArgs { local_queue: queue, ..HoldArgs::default() }), "it needs `--hold kueue`"),
        (
            with(HoldArgs { placeholder_image: Some("i".into()), ..HoldArgs::default() }),
            "it needs `--hold placeholders`",
        ),
        (simulated, "`--hold`: it can't be used with `--runner simulated`"),
        (asking, "can't be used with `--provider provisioning-request`"),
    ] {
        let error = args.resolve().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn the_way_to_hold_room_can_stand_in_the_file() {
    let (_dir, args) = file("data-dir: /data\nrunner: kubernetes\nhold: kueue\nlocal-queue: gangs\n");
    assert_eq!(args.resolve().unwrap().kubernetes.hold, HoldChosen::Kueue { queue: "gangs".to_owned() });
}

#[test]
fn what_is_copied_is_a_setting_of_the_kubernetes_runner() {
    use meridian_shared::protocol::ReferenceKind;
    let text = "data-dir: /data\nrunner: kubernetes\ncopy-references: [secrets, config-maps]\n";
    let (_dir, args) = file(text);
    let copied = args.clone().resolve().unwrap().kubernetes.copied;
    assert_eq!(copied, [ReferenceKind::ConfigMap, ReferenceKind::Secret].into());
    let flag = AgentArgs { copy_references: vec![CopiedKind::Secrets], ..args.clone() };
    assert_eq!(flag.resolve().unwrap().kubernetes.copied, [ReferenceKind::Secret].into());
    let process = AgentArgs { runner: Some(RunnerChoice::Process), ..args };
    let error = process.resolve().unwrap_err().to_string();
    assert!(error.contains("copy-references: it can't be used with `--runner process`"), "{error}");
}
