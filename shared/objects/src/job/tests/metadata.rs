//! Labels and annotations of a Job.

use super::*;

#[test]
fn queue_and_priority_come_from_labels() {
    let labels = json!({QUEUE_LABEL: "q", PRIORITY_LABEL: "high"});
    let job =
        read(with(&[("metadata.labels", labels), (&format!("{POD}.priorityClassName"), json!("pods"))]))
            .unwrap();
    assert_eq!(
        (job.priority_class.as_deref(), job.pod_priority_class.as_deref()),
        (Some("high"), Some("pods"))
    );
    check_error(
        &[("metadata.labels", json!({}))],
        "metadata.labels[kueue.x-k8s.io/queue-name]: is missing, so the job has no queue; name the job's \
            local queue",
    );
    check_error(
        &[("metadata.labels", json!({})), ("metadata.annotations", json!({QUEUE_LABEL: "q"}))],
        "move it from the annotations to the labels: `kueue.x-k8s.io/queue-name: q`",
    );
}

#[test]
fn regions_only_narrow() {
    let check = |metadata: (&str, &str), expect: &[&str]| {
        let mut job = base();
        job["metadata"][metadata.0][REGION_KEY] = json!(metadata.1);
        assert_eq!(read(job).unwrap().regions, expect.iter().map(Region::new).collect());
    };
    check(("annotations", "europe-west4, us-east4,"), &["europe-west4", "us-east4"]);
    check(("labels", "us-east4"), &["us-east4"]);
    check_error(&[("metadata.annotations", json!({REGION_KEY: " , "}))], "names no region");
    let both = [
        ("metadata.annotations", json!({REGION_KEY: "a"})),
        ("metadata.labels", json!({QUEUE_LABEL: "q", REGION_KEY: "b"})),
    ];
    check_error(&both, "differs from the annotation of the same name");
}

#[test]
fn unknown_keys_of_our_domains_are_refused() {
    let check = |place: &str, key: &str, expect: &str| {
        let mut job = base();
        let at = place.split('.').fold(&mut job, |at, step| &mut at[step]);
        at[key] = json!("x");
        let errors = read(job).unwrap_err();
        assert!(errors.iter().any(|error| error.to_string().contains(expect)), "{place} {key}: {errors:?}");
    };
    check(
        "metadata.annotations",
        "meridian.dev/regoin",
        "is an unknown key and would have no effect; did you mean the annotation `meridian.dev/region`?",
    );
    check(
        "metadata.annotations",
        "Meridian.dev/Region",
        "did you mean the annotation `meridian.dev/region`?",
    );
    check(
        "metadata.labels",
        "meridian.dev/queue",
        "remove it; the known annotations of a job are meridian.dev/region, ",
    );
    check(
        "metadata.labels",
        "simulated.meridian.dev/duration",
        "has no effect here; write it into the job's own `metadata.annotations`",
    );
    check(
        "spec.template.metadata.annotations",
        "meridian.dev/region",
        "spec.template.metadata.annotations[meridian.dev/region]: has no effect here",
    );
    let bad = "metadata.annotations[simulated.meridian.dev/duration]: `x` is not a duration of at most a \
        year; write one such as";
    check("metadata.annotations", "simulated.meridian.dev/duration", bad);
    let others = json!({"example.com/meridian.dev": "x", "meridian.dev.example.com/region": "x",
        "simulated.meridian.dev/stagger": "1s"});
    assert!(read(with(&[("metadata.annotations", others)])).is_ok());
}

#[test]
fn keys_at_a_place_without_effect_are_warned_about() {
    let mut job = base();
    job["metadata"]["annotations"] = json!({MAX_EXEC_LABEL: "60", PRIORITY_LABEL: "high"});
    job["metadata"]["labels"][MAX_RUN_ANNOTATION] = json!("60");
    let (_, warnings) = Object::from_value(job).unwrap();
    let shown: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 3, "{shown:?}");
    assert!(
        shown.contains(&format!(
            "metadata.annotations[{MAX_EXEC_LABEL}]: has no effect here; write it \
        into the job's `metadata.labels`"
        )),
        "{shown:?}"
    );
}
