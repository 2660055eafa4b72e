//! Settings from flags, variables and the file.

use super::*;

fn args() -> ManagerArgs {
    ManagerArgs { data_dir: Some("data".into()), ..ManagerArgs::default() }
}

#[test]
fn flags_override_the_file_and_the_file_overrides_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("manager.yaml");
    let text = "data-dir: filed\nterm: 20m\nresidency: required\nadvertise: [manager.example]\n\
                log-format: json\n";
    std::fs::write(&path, text).unwrap();
    let settings =
        Settings::resolve(ManagerArgs { config: Some(path.clone()), term: Some("30m".into()), ..args() })
            .unwrap();
    assert_eq!(
        (settings.data_dir, settings.term, settings.term_min),
        ("data".into(), Millis::mins(30), lease::TERM_MIN_DEFAULT)
    );
    assert!(settings.residency_required && settings.log_format == Format::Json);
    assert_eq!(settings.names, ["manager.example", "127.0.0.1", "localhost", "::1"]);
    std::fs::write(&path, "data-dir: x\nterms: 20m\n").unwrap();
    let error =
        Settings::resolve(ManagerArgs { config: Some(path.clone()), ..args() }).unwrap_err().to_string();
    assert!(
        error.ends_with("manager.yaml:2:1: terms: `terms` is not known here; did you mean `term`?"),
        "{error}"
    );
    std::fs::write(&path, "data-dir: x\nterm: fifteen\n").unwrap();
    let error =
        Settings::resolve(ManagerArgs { config: Some(path.clone()), ..args() }).unwrap_err().to_string();
    assert!(
        error.contains("manager.yaml:2:7: term: `fifteen` is not a duration") && !error.contains("--"),
        "{error}"
    );
    let flag = ManagerArgs { config: Some(path), term: Some("soon".into()), ..args() };
    assert!(
        Settings::resolve(flag).unwrap_err().to_string().starts_with("`--term`: `soon` is not a duration")
    );
}

#[test]
fn invalid_settings_are_explained() {
    let error = |args: ManagerArgs| Settings::resolve(args).unwrap_err().to_string();
    assert!(error(ManagerArgs::default()).contains("MERIDIAN_MANAGER_DATA_DIR"));
    assert!(
        error(ManagerArgs { term: Some("fifteen".into()), ..args() }).contains("`fifteen` is not a duration")
    );
    assert!(error(ManagerArgs { term: Some("30s".into()), ..args() }).contains("--term-min"));
    assert!(error(ManagerArgs { term_min: Some("4s".into()), ..args() }).contains("too short"));
    assert!(
        error(ManagerArgs { agent_certificate_lifetime: Some("1s".into()), ..args() }).contains("shorter")
    );
    let small = error(ManagerArgs { audit_segment_size: Some("100".into()), ..args() });
    assert!(small.starts_with("`--audit-segment-size`: `100` bytes are too few"), "{small}");
    let size = error(ManagerArgs { audit_segment_size: Some("big".into()), ..args() });
    assert!(size.contains("`big` is not a size"), "{size}");
    assert!(error(ManagerArgs { audit_keep_segments: Some(3), ..args() }).contains("set `audit-export` too"));
    assert!(error(ManagerArgs { recover: true, ..args() }).contains("--init"));
    assert!(
        error(ManagerArgs { otlp_endpoint: Some("ftp://x".into()), ..args() })
            .starts_with("`--otlp-endpoint`: `ftp://x`")
    );
    let guard = |text: &str| ManagerArgs { starvation_guard: Some(text.into()), ..args() };
    assert!(
        error(guard("0s")).contains("--starvation-guard")
            && error(guard("of")).ends_with("or `2h`; or `off`")
    );
    assert_eq!(Settings::resolve(guard("off")).unwrap().starvation_guard, None);
    assert_eq!(Settings::resolve(args()).unwrap().starvation_guard, Some(Millis::mins(60)));
    let demo = ManagerArgs { term: Some("8s".into()), term_min: Some("8s".into()), ..args() };
    assert_eq!(Settings::resolve(demo).unwrap().term, Millis::secs(8));
}

#[test]
fn resource_rules_are_read_as_in_kueue() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("manager.yaml");
    let read = |file: &str| {
        std::fs::write(&path, file).unwrap();
        Settings::resolve(ManagerArgs { config: Some(path.clone()), ..args() })
            .map(|settings| settings.resources)
            .map_err(|error| error.to_string())
    };
    assert!(read("").unwrap().is_empty());
    let rules = read(
        "resources:\n  excludeResourcePrefixes: [net.example/]\n  transformations:\n  - \
         {input: gpu.example/mig, strategy: Replace, outputs: {gpu.example/memory: 5Gi}}\n",
    );
    let requested = [("net.example/card", 1), ("gpu.example/mig", 2), ("cpu", 500)]
        .map(|(name, amount)| (name.to_owned(), amount))
        .into();
    let counted = [("gpu.example/memory", 10 << 30), ("cpu", 500)]
        .map(|(name, amount)| (name.to_owned(), amount))
        .into();
    assert_eq!(rules.unwrap().counted(&requested), counted);
    let refused = |file: &str| read(file).unwrap_err();
    assert!(
        refused("resources: {transformations: [{strategy: Replace}]}")
            .contains("transformations[0].input: is missing")
    );
    assert!(
        refused("resources: {transformations: [{input: cpu, strategy: Drop}]}")
            .contains("`Drop` is not a choice")
    );
    assert!(
        refused("resources: {transformations: [{input: cpu}, {input: cpu}]}")
            .contains("`cpu` is the input of two")
    );
    assert!(refused("resources: {excludeResourcePrefixes: ['']}").contains("excludeResourcePrefixes[0]"));
    assert!(
        refused("resources: {deviceClassMappings: []}").contains("`deviceClassMappings` is not known here")
    );
    assert!(refused("resources: [cpu]").contains("must be a mapping"));
}

#[test]
fn admission_fair_sharing_is_read_from_flag_or_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("manager.yaml");
    let read = |flag: Option<&str>, file: &str| {
        std::fs::write(&path, file).unwrap();
        let args = ManagerArgs {
            config: Some(path.clone()),
            admission_fair_sharing: flag.map(str::to_owned),
            ..args()
        };
        Settings::resolve(args)
            .map(|settings| settings.admission_fair_sharing)
            .map_err(|error| error.to_string())
    };
    assert_eq!(read(None, ""), Ok(None));
    let filed = "admissionFairSharing: {usageHalfLifeTime: 168h, usageSamplingInterval: 90s, \
                 resourceWeights: {nvidia.com/gpu: 2.5, cpu: 0}}";
    let weights = vec![("cpu".to_owned(), 0), ("nvidia.com/gpu".to_owned(), 2_500_000_000)];
    let expected =
        AdmissionFairSharing { half_life_ms: 604_800_000, sampling_ms: 90_000, resource_weights: weights };
    assert_eq!(read(None, filed), Ok(Some(expected.clone())));
    assert_eq!(
        read(Some("half-life=168h,sampling=90s,weight.cpu=0,weight.nvidia.com/gpu=2.5"), ""),
        Ok(Some(expected))
    );
    assert_eq!(read(Some("off"), filed), Ok(None));
    let usual = read(None, "admission-fair-sharing: {usageHalfLifeTime: 0s}").unwrap().unwrap();
    assert_eq!((usual.half_life_ms, usual.sampling_ms), (0, 300_000));
    let refused = |flag: Option<&str>, file: &str| read(flag, file).unwrap_err();
    assert!(refused(Some("sampling=5m"), "").contains("`half-life` is missing"));
    assert!(refused(Some("half-life=1h,sampling=5ms"), "").contains("the least is 1000 ms"));
    assert!(
        refused(None, "admissionFairSharing: {usageHalfLifeTime: -1h}")
            .contains("`-1h` of `usageHalfLifeTime` is not a time")
    );
    assert!(
        refused(None, "admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 0s}")
            .contains("never passes")
    );
    assert!(
        refused(None, "admissionFairSharing: {usageHalfLifeTime: 1h, resourceWeights: {cpu: -1}}")
            .contains("`-1` of `resourceWeights.cpu`")
    );
    assert!(refused(None, "admissionFairSharing: {usageSamplingInterval: 5m}").contains("usageHalfLifeTime"));
}

#[test]
fn the_url_has_the_first_name() {
    let at = |listen: &str, advertise: &[&str]| {
        let advertise = advertise.iter().map(|n| (*n).to_owned()).collect();
        Settings::resolve(ManagerArgs { listen: Some(listen.parse().unwrap()), advertise, ..args() })
            .unwrap()
            .url(7443)
    };
    assert_eq!(at("0.0.0.0:0", &["manager.example"]), "https://manager.example:7443");
    assert_eq!(at("0.0.0.0:0", &[]), "https://localhost:7443");
    assert_eq!(at("[::1]:0", &[]), "https://[::1]:7443");
}
