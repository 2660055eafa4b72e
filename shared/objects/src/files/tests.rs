//! Untidy and hostile files, each with the exact lines that a user sees.

use super::*;
use crate::fields::{FieldPath, MAX_ISSUES_PER_OBJECT};
use crate::object::Object;
use crate::text::syntax::MAX_DOCUMENTS;
use serde_json::json;
use std::sync::Arc;

const QUEUE: &str = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: q, namespace: \
    a}\nspec: {clusterQueue: c}\n";

fn lines(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// The file `f` gives exactly these errors and warnings; with no errors, `objects` objects.
fn check(text: &str, objects: usize, errors: &[&str], warnings: &[&str]) {
    let parsed = parse("f", text);
    assert_eq!(lines(&parsed.errors), errors, "errors of:\n{text}");
    assert_eq!(lines(&parsed.warnings), warnings, "warnings of:\n{text}");
    assert_eq!(parsed.objects.len(), objects, "objects of:\n{text}");
}

/// The file `f` gives an error that contains `expect`, and nothing worse happens.
fn check_error(text: &str, expect: &str) {
    let parsed = parse("f", text);
    let errors = lines(&parsed.errors);
    assert!(errors.iter().any(|error| error.contains(expect)), "wanted `{expect}` in {errors:?}");
}

fn queue(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {{name: {name}}}\nspec:\n{spec}"
    )
}

#[test]
fn reads_every_shape_of_file() {
    check(QUEUE, 1, &[], &[]);
    check(&format!("\u{feff}---\n{}---\n", QUEUE.replace('\n', "\r\n")), 1, &[], &[]);
    check(&format!("# head\n---\n---\n{QUEUE}---\nnull\n---\n# tail\n"), 1, &[], &[]);
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
    check(&object.to_string(), 1, &[], &[]);
    check(
        &json!([object, object]).to_string(),
        1,
        &[],
        &["f:1:65: `namespace/a` is identical to the one at f:1:2 and is read once; remove one of them"],
    );
    check(&json!({"apiVersion": "v1", "kind": "List", "items": [object]}).to_string(), 1, &[], &[]);
    check(
        &json!({"apiVersion": "v1", "kind": "NamespaceList", "metadata": {}, "items": [object]}).to_string(),
        1,
        &[],
        &[],
    );
    let untyped = json!([{"metadata": {"name": "a"}}]);
    check(
        &json!({"apiVersion": "v1", "kind": "NamespaceList", "metadata": {}, "items": untyped}).to_string(),
        1,
        &[],
        &[],
    );
    let missing = "f:1:29: this document has neither `apiVersion` nor `kind`, so it is not an object; add \
                   both, or leave the document out";
    check(&json!({"apiVersion": "v1", "kind": "List", "items": untyped}).to_string(), 0, &[missing], &[]);
    check(
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n",
        1,
        &[],
        &[],
    );
    check(
        "{apiVersion: v1, kind: Namespace, metadata: {name: ünï}}",
        0,
        &["f:1:52: metadata.name: `ünï` is not a name; use lower-case letters, digits and `-`, for \
                example `n`"],
        &[],
    );
}

#[test]
fn numbers_with_leading_zeros_are_read_as_kubectl_does() {
    let volume = "volumes: [{name: k, secret: {secretName: k, defaultMode: 0400}}, {name: s, configMap: \
        {name: s, defaultMode: 0o755}}]";
    let containers = "containers: [{name: c, image: i, resources: {requests: {cpu: 010}}}]";
    let labels = "labels: {kueue.x-k8s.io/queue-name: q}";
    let text = format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j, {labels}}}\nspec: {{template: {{spec: \
            {{restartPolicy: Never, {containers}, {volume}}}}}}}\n"
    );
    let parsed = parse("f", &text);
    assert_eq!(lines(&parsed.errors), [""; 0]);
    let pod = &parsed.objects[0].value.stored["spec"]["template"]["spec"];
    assert_eq!(
        (&pod["volumes"][0]["secret"]["defaultMode"], &pod["volumes"][1]["configMap"]["defaultMode"]),
        (&json!(256), &json!(493))
    );
    assert_eq!(pod["containers"][0]["resources"]["requests"]["cpu"], json!(8));
}

#[test]
fn positions_count_lines_and_characters() {
    let parsed = parse("f", &format!("# 😀\n{QUEUE}---\n\n{}", QUEUE.replace("name: q", "name: r")));
    let places: Vec<String> = parsed.objects.iter().map(|located| located.place.to_string()).collect();
    assert_eq!(places, ["f:2:1", "f:8:1"]);
    check(
        "apiVersion: v1\nkind: Namespace\nmetadata: {labels: {x: \"😀\", y: 1}, name: a}\n",
        0,
        &[
            "f:3:32: metadata.labels.y: must be a string, not the number `1`; quote it as it is written",
            "f:3:24: metadata.labels.x: `😀` is not a label value; use at most 63 letters, digits, `-`, `_` \
                and `.`, beginning and ending with a letter or digit",
        ],
        &[],
    );
}

#[test]
fn empty_files_are_warned_about() {
    for text in
        ["", "\n\n", "---\n---\n", "# nothing\n", "null", "[]", "{\"kind\": \"List\", \"items\": null}"]
    {
        check(text, 0, &[], &["f: there is no object in it"]);
    }
}

#[test]
fn duplicates_are_dropped_and_conflicts_refused() {
    let again = QUEUE.replace("{name: q, namespace: a}", "\n  namespace: a\n  name: q");
    check(
        &format!("{QUEUE}---\n{again}"),
        1,
        &[],
        &["f:6:1: `localqueue/a/q` is identical to the one at f:1:1 and is read once; remove one of them"],
    );
    let other = QUEUE.replace("clusterQueue: c", "clusterQueue: d");
    check(
        &format!("{QUEUE}---\n{other}"),
        1,
        &["f:6:1: `localqueue/a/q` is also at f:1:1 with different content; keep one of them; if one is a \
                worker cluster's, put it into a file of its own and apply that with `apply --cluster NAME \
                -f FILE`"],
        &[],
    );
    let elsewhere = QUEUE.replace("namespace: a", "namespace: b");
    check(&format!("{QUEUE}---\n{elsewhere}"), 2, &[], &[]);
    let unnamed = QUEUE.replace(", namespace: a", "");
    check(
        &format!("{unnamed}---\n{}", QUEUE.replace("namespace: a", "namespace: default")),
        1,
        &[],
        &["f:6:1: `localqueue/default/q` is identical to the one at f:1:1 and is read once; remove one of \
            them"],
    );
    let made = QUEUE.replace("name: q", "generateName: q-");
    check(&format!("{made}---\n{made}"), 2, &[], &[]);
    let beta1 = QUEUE.replace("v1beta2", "v1beta1");
    check(
        &format!("{QUEUE}---\n{beta1}"),
        1,
        &[],
        &["f:6:1: `localqueue/a/q` is identical to the one at f:1:1 and is read once; remove one of them"],
    );
}

#[test]
fn a_workers_file_applied_with_the_managers_gets_a_hint() {
    let manager = include_str!("../../../../manifests/examples/tutorial/manager.yaml");
    let worker = include_str!("../../../../manifests/examples/tutorial/worker.yaml");
    for files in [[("m.yaml", manager), ("w.yaml", worker)], [("w.yaml", worker), ("m.yaml", manager)]] {
        let parsed = parse_set(&files);
        assert_eq!(parsed.errors.len(), 1, "{:?}", lines(&parsed.errors));
        let shown = parsed.errors[0].to_string();
        assert!(shown.contains("`clusterqueue/dws-cluster-queue` is also at"), "{shown}");
        assert!(shown.contains("apply the worker's file with `apply --cluster NAME -f w.yaml`"), "{shown}");
    }
}

#[test]
fn identity_is_checked() {
    check("kind: Job\nmetadata: {name: a}\n", 0, &["f:1:1: apiVersion: is missing; add `apiVersion`"], &[]);
    check("apiVersion: batch/v1\nmetadata: {name: a}\n", 0, &["f:1:1: kind: is missing; add `kind`"], &[]);
    check_error("# Values.\nreplicas: 3\n", "f:2:1: this document has neither `apiVersion` nor `kind`");
    check(
        "apiVersion: batch/v1\nkind: [Job]\n",
        0,
        &["f:2:7: kind: must be a string; write a string here"],
        &[],
    );
    check(
        "apiVersion: batch/v1\nkind: Jbo\n",
        0,
        &["f:2:7: kind: unknown kind `Jbo` of `batch/v1`; did you mean `Job`?"],
        &[],
    );
    check(
        "apiVersion: batch/v2\nkind: Job\n",
        0,
        &["f:1:13: apiVersion: `Job` has no version `v2`; write apiVersion `batch/v1`"],
        &[],
    );
    check(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload\nmetadata: {name: a}\n",
        0,
        &["f:2:7: kind: a `Workload` is not written by hand; submit a Job; its workload is made for it"],
        &[],
    );
    check("apiVersion: v1\nkind: Namespace\n", 0, &["f:1:1: metadata: is missing; add `metadata`"], &[]);
    check_error(
        "apiVersion: v1\nkind: Namespace\nmetadata: {}\n",
        "f:3:11: metadata.name: is missing; add `name`",
    );
    check_error(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: A_b}\n",
        "f:3:18: metadata.name: `A_b` is not a name; use lower-case letters, digits and `-`, for example \
            `a-b`",
    );
    check_error(
        "apiVersion: v1\nkind: Namespace\nmetadata: {generateName: A}\n",
        "metadata.generateName: `A` cannot begin a name",
    );
    check_error(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: 7}\n",
        "metadata.name: must be a string, not the number `7`; quote it as it is written",
    );
    // No remedy shows another text than the file: these are read as 10, 1.1 and true.
    for written in ["012", "1.10", "True"] {
        let parsed = parse("f", &format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {written}}}\n"));
        assert_eq!(parsed.errors[0].remedy, "quote it as it is written");
    }
    check_error("just text\n", "f:1:1: this document is not an object");
    check_error("- 7\n", "f:1:3: this document is not an object");
}

#[test]
fn unknown_fields_are_kept_with_a_warning() {
    let text = queue("q", "  namespaceSelctor: {}\n  futureField: {a: [1]}\n");
    check(
        &text,
        1,
        &[],
        &[
            "f:6:16: spec.futureField: is an unknown field, kept as it is",
            "f:5:21: spec.namespaceSelctor: is an unknown field, kept as it is; did you mean \
                `namespaceSelector`?",
        ],
    );
    let parsed = parse("f", &text);
    assert_eq!(parsed.objects[0].value.stored["spec"]["futureField"], json!({"a": [1]}));
    assert_eq!(parsed.objects[0].value.in_version("v1beta1")["spec"]["futureField"], json!({"a": [1]}));
    let policy = "apiVersion: meridian.dev/v1alpha1\nkind: ResidencyPolicy\nmetadata: {name: p}\nspec: \
        {alow: {regions: [x]}, deny: {regions: [y]}}\n";
    check(policy, 0, &["f:4:14: spec.alow: is an unknown field; did you mean `allow`?"], &[]);
}

#[test]
fn paths_are_those_of_the_written_version() {
    check_error(&queue("q", "  cohort: Bad_Name\n"), "f:5:11: spec.cohort: `Bad_Name` is not a name");
    check_error(
        &queue("q", "  admissionChecks:\n  - ok\n  - 7\n"),
        "f:7:5: spec.admissionChecks[1]: must be a string, not the number `7`",
    );
    let cluster = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: MultiKueueCluster\nmetadata: {name: \
        c}\nspec:\n  kubeConfig:\n    locationType: Sekret\n    location: s\n";
    check_error(
        cluster,
        "f:6:19: spec.kubeConfig.locationType: `Sekret` is not a choice; did you mean `Secret`? the choices \
            are `Secret`, `Path`",
    );
    let none = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: MultiKueueCluster\nmetadata: {name: c}\nspec: {}\n";
    check_error(none, "f:4:7: spec.kubeConfig: is missing");
}

#[test]
fn errors_in_yaml_name_their_position() {
    check_error("apiVersion: v1\nkind: Namespace\nmetadata:\n\tname: a\n", "f:4:");
    check_error(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n\tname: a\n",
        "indent with spaces, not with tabs",
    );
    check_error("apiVersion: v1\nkind: Namespace\nkind: Job\n", "f:3:1: ");
    check_error("apiVersion: v1\nkind: Namespace\nkind: Job\n", "write the key once");
    check_error("apiVersion: v1\nkind: \"Names", "f:2:7: ");
    check_error("metadata: {name: a\n", "f:");
    check_error("a: *nowhere\n", "define the anchor before it is used");
    check_error("a: b: c\n", "f:1:");
    check_error("{\"apiVersion\": \"v1\", \"kind\": ", "f:1:");
    check_error("{\"a\": 1, \"a\": 2}", "appears twice; write the key once");
    check_error("apiVersion: v1\0\n", "f:1:15: the file is not text; save it as UTF-8");
    check_error("a: !!binary \"//79\"\n", "f:1:");
    check_error("a: .inf\n", "f:1:");
}

#[test]
fn anchors_work_and_alias_bombs_are_refused() {
    let text =
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  labels: &l {x: y}\n  annotations: *l\n";
    check(text, 1, &[], &[]);
    assert_eq!(parse("f", text).objects[0].value.annotations["x"], "y");
    let merged = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  labels: &l {x: y}\n  \
        annotations:\n    <<: *l\n    z: w\n";
    assert_eq!(parse("f", merged).objects[0].value.annotations.len(), 2);

    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    check_error(&bomb, "f:5:10: aliases repeat more than 20000 values; write the values out");
    check_error("a: &a [*a]\n", "f:1:");
    check_error(&format!("a: {}{}\n", "[".repeat(500), "]".repeat(500)), "f:");
    check_error(&format!("a: {}\n", "{a: ".repeat(500)), "f:");
    let deep: String = (0..500).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    check_error(&deep, "f:");
    check_error(&"[".repeat(100_000), "nested more than 24 deep");
}

#[test]
fn size_is_bounded() {
    check_error(
        &" ".repeat(MAX_FILE_BYTES + 1),
        "f: the file is 16777217 bytes; split it; the maximum is 16777216",
    );
    let big = " ".repeat(MAX_FILE_BYTES);
    let parsed = parse_set(&[("a", &big), ("b", &big), ("c", &big), ("d", &big), ("e", &big)]);
    assert_eq!(
        lines(&parsed.errors),
        ["a: the files are 83886080 bytes together; apply at most 67108864 bytes at once"]
    );
    check_error(&"--- a\n".repeat(MAX_DOCUMENTS + 1), "f:");
    let many = "---\n7\n".repeat(MAX_PROBLEMS + 50);
    assert_eq!(parse("f", &many).errors.len(), MAX_PROBLEMS);
    let wide = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  labels:\n{}",
        (0..500).map(|i| format!("    k{i}: {i}\n")).collect::<String>()
    );
    assert_eq!(parse("f", &wide).errors.len(), MAX_ISSUES_PER_OBJECT);
}

#[test]
fn a_cut_file_never_panics_nor_reads_as_whole() {
    let whole = include_str!("../../../../manifests/examples/tutorial/manager.yaml");
    let count = parse("f", whole).objects.len();
    for end in (0..whole.len()).step_by(7).filter(|end| whole.is_char_boundary(*end)) {
        let parsed = parse("f", &whole[..end]);
        assert!(parsed.objects.len() <= count);
        for problem in parsed.errors.iter().chain(&parsed.warnings) {
            assert!(!problem.to_string().contains('\n'));
        }
    }
    let json = serde_json::to_string(&parse("f", whole).objects[0].value).unwrap();
    for end in 1..json.len() {
        assert!(!parse("f", &json[..end]).errors.is_empty(), "{}", &json[..end]);
    }
}

#[test]
fn mangled_files_never_panic() {
    let whole = include_str!("../../../../manifests/examples/tutorial/job.yaml");
    // A plain generator, so that every run mangles the files alike.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let pieces = [
        "{", "}", "[", "]", ":", "- ", "\n", "\t", "\"", "'", "&a ", "*a", "<<: ", "!!int ", "-1", "1e99",
        "null", "9Ei", "😀", "|", ">", "#", "---\n",
    ];
    let (mut sound, mut broken) = (0, 0);
    for _ in 0..3_000 {
        let mut text = whole.to_owned();
        for _ in 0..=next(4) {
            let at = next(text.len());
            let until = (at + next(12)).min(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(until) {
                text.replace_range(at..until, pieces[next(pieces.len())]);
            }
        }
        let parsed = parse("f", &text);
        if parsed.errors.is_empty() {
            sound += 1
        } else {
            broken += 1
        }
        for problem in parsed.errors.iter().chain(&parsed.warnings) {
            assert!(
                !problem.message.is_empty() && problem.place.line as usize <= text.lines().count() + 1,
                "{problem}"
            );
        }
        for located in &parsed.objects {
            assert_eq!(
                Object::from_value(located.value.stored.clone()).map(|(object, _)| object),
                Ok(located.value.clone())
            );
        }
    }
    assert!(sound > 100 && broken > 1_000, "{sound} sound, {broken} broken");
}

#[test]
fn later_problems_are_located_in_the_text() {
    const JOB: &str = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: a\n  labels:\n    \
        kueue.x-k8s.io/queue-name: gone\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: \
        c, image: i}]}}}\n";
    let indented: String = JOB.lines().map(|line| format!("  {line}\n")).collect();
    let list = format!(
        "kind: List\napiVersion: v1\nitems:\n- {{apiVersion: v1, kind: Namespace, metadata: {{name: \
            n}}}}\n-{}",
        &indented[1..]
    );
    let behind = format!("\u{feff}apiVersion: v1\nkind: Namespace\nmetadata: {{name: n}}\n---\n{JOB}");
    for (text, begins) in [(JOB, (1, 1)), (&behind, (5, 1)), (&list, (5, 3))] {
        let read = parse("f", text.trim_start_matches('\u{feff}'));
        let object = read.objects.last().unwrap().place.clone();
        assert_eq!((object.line, object.column), begins, "{text}");
        let place = |field: &str| SourceText::parse(text).place_of(&object, &FieldPath::parse(field));
        let label = place("metadata.labels[kueue.x-k8s.io/queue-name]");
        let line = text.lines().nth(label.line as usize - 1).unwrap();
        assert_eq!(line.chars().skip(label.column as usize - 1).collect::<String>(), "gone", "{text}");
        assert_eq!(place("spec.nothing.there").line, begins.0 + 6, "what isn't there is what it would be in");
        assert_eq!(place(""), object);
    }
    let nowhere = FilePosition { file: Arc::from("f"), line: 40, column: 2 };
    assert_eq!(SourceText::parse("{").place_of(&nowhere, &FieldPath::of("spec")), nowhere);
}

#[test]
fn a_wrong_kind_is_one_error_however_often_it_is_written() {
    let queue = |n: u32| {
        let name = format!("metadata: {{name: q{n}}}");
        format!("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueu\n{name}\nspec: {{}}\n---\n")
    };
    let text: String = (0..18).map(queue).collect();
    let errors = lines(&parse("f", &text).errors);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("f:2:7: kind: unknown kind `ClusterQueu`"), "{errors:?}");
    assert!(errors[0].contains("(also in 17 more documents of this file)"), "{errors:?}");
    let three: String = (0..3).map(queue).collect();
    let errors = lines(&parse("f", &three).errors);
    assert!(errors.len() == 1 && errors[0].contains("(also at lines 7, 12)"), "{errors:?}");
    // each file has its own, and another mistake is another error
    let both = parse_set(&[("f", &*queue(1)), ("g", &*queue(2))]);
    assert_eq!(lines(&both.errors).len(), 2);
    let other = format!("{three}{}", queue(3).replace("ClusterQueu", "LocalQueu"));
    assert_eq!(lines(&parse("f", &other).errors).len(), 2);
}

#[test]
fn objects_of_other_programs_are_skipped_with_one_warning_each() {
    let monitoring = |name: &str| {
        format!(
            "apiVersion: monitoring.googleapis.com/v1\nkind: PodMonitoring\nmetadata: {{name: {name}}}\n---\n"
        )
    };
    let mixed = format!(
        "{}{}apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\n---\n{QUEUE}",
        monitoring("a"),
        monitoring("b")
    );
    let warnings = [
        "f:2:7: kind: `PodMonitoring` of `monitoring.googleapis.com/v1` is not a kind that Meridian takes: \
            those at lines 2, 6 are skipped",
        "f:10:7: kind: `Service` of `v1` is not a kind that Meridian takes: it is skipped",
    ];
    check(&mixed, 1, &[], &warnings);
    let strict = Strictness { refuse_foreign: true, ..Strictness::default() };
    let refused = parse_set_with(&[("f", &mixed)], strict);
    assert_eq!(refused.errors.len(), 2, "one for each kind");
    assert!(lines(&refused.errors)[0].contains("(also at line 6)"));
    assert!(lines(&refused.errors)[1].starts_with("f:10:7: kind: `Service` of `v1`"));
    check_error(
        "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: r}\n",
        "submit it as a `batch/v1` Job",
    );
    check_error("apiVersion: batch/v1\nkind: Jbo\nmetadata: {name: r}\n", "did you mean `Job`?");
}
