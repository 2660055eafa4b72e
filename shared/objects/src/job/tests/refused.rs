//! What an API server refuses in a Job, from the public documentation of the Kubernetes API: each row is a
//! value, where it is written, and the error.

use super::*;
use crate::fields::FieldValidation;

const CONTAINER: &str = "spec.template.spec.containers.0";

/// Rows of: where, the value there, the end of the field's path, a part of the message.
fn check_rows(rows: &[(&str, Value, &str, &str)]) {
    for (at, value, field, message) in rows {
        let errors = match Object::from_value(with(&[(at, value.clone())])) {
            Ok(_) => panic!("{at} accepts {value}"),
            Err(errors) => errors,
        };
        let is_it = |error: &crate::fields::FieldError| {
            error.field.to_string().ends_with(field) && error.message.contains(message)
        };
        assert!(errors.iter().any(is_it), "{at} = {value}: wanted `{field}`: `{message}` in {errors:#?}");
    }
}

fn in_container(field: &'static str) -> String {
    format!("{CONTAINER}.{field}")
}

#[test]
fn metadata_of_templates() {
    let metadata = "spec.template.metadata";
    check_rows(&[
        (metadata, json!({"labels": {"team": "ml platform, emea"}}), "labels.team", "is not a label value"),
        (metadata, json!({"labels": {"a/b/c": "x"}}), "labels[a/b/c]", "is not a label key"),
        (metadata, json!({"labels": {"a": 1}}), "labels.a", "must be a string"),
        (
            metadata,
            json!({"annotations": {"bad key/with/slashes": "x"}}),
            "annotations[bad key/with/slashes]",
            "is not an annotation key",
        ),
        (metadata, json!({"annotations": {"a": "x".repeat(300_000)}}), "annotations", "bytes together"),
    ]);
}

#[test]
fn containers() {
    let env = in_container("env");
    check_rows(&[
        (&in_container("name"), json!("Main"), "containers[0].name", "`Main` is not a name"),
        (&in_container("name"), json!("a".repeat(64)), "containers[0].name", "is not a name"),
        (&in_container("image"), json!(" x"), "containers[0].image", "has spaces around it"),
        (&in_container("imagePullPolicy"), json!("always"), "imagePullPolicy", "`always` is not a choice"),
        (&in_container("terminationMessagePolicy"), json!("Log"), "terminationMessagePolicy", "not a choice"),
        (&in_container("tty"), json!("yes"), "tty", "must be a boolean"),
        (&env, json!([{"name": "a\u{7}"}]), "env[0].name", "can't be the name of a variable"),
        (
            &env,
            json!([{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
            "env[0].valueFrom",
            "can't be combined with `value`",
        ),
        (&env, json!([{"name": "A", "valueFrom": {}}]), "env[0].valueFrom", "is empty"),
        (
            &env,
            json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]),
            "env[0].valueFrom.secretKeyRef.key",
            "is missing",
        ),
        (
            &env,
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.image"}}}]),
            "fieldRef.fieldPath",
            "is not a field that pods can read",
        ),
        (
            &env,
            json!([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.gpu"}}}]),
            "resourceFieldRef.resource",
            "is not a resource that containers can read",
        ),
        (&in_container("envFrom"), json!([{"prefix": "X_"}]), "envFrom[0]", "is empty"),
    ]);
}

#[test]
fn ports_mounts_probes_and_security() {
    let [ports, mounts] = ["ports", "volumeMounts"].map(in_container);
    check_rows(&[
        (&ports, json!([{"containerPort": 0}]), "ports[0].containerPort", "is too small"),
        (&ports, json!([{"name": "http"}]), "ports[0].containerPort", "is missing"),
        (&ports, json!([{"containerPort": 80, "name": "HTTP_port"}]), "ports[0].name", "name of a port"),
        (&ports, json!([{"containerPort": 80, "protocol": "HTTP"}]), "ports[0].protocol", "not a choice"),
        (
            &ports,
            json!([{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}]),
            "ports[1].name",
            "appears twice",
        ),
        (
            &ports,
            json!([{"containerPort": 80, "hostPort": 8}, {"containerPort": 81, "hostPort": 8}]),
            "ports[1].hostPort",
            "is taken twice",
        ),
        (&mounts, json!([{"name": "v", "mountPath": "/v"}]), "volumeMounts[0].name", "no volume `v`"),
        (&mounts, json!([{"name": "v"}]), "volumeMounts[0].mountPath", "is missing"),
        (
            &mounts,
            json!([{"name": "v", "mountPath": "/v", "subPath": "../x"}]),
            "subPath",
            "within the volume",
        ),
        (&in_container("livenessProbe"), json!({"periodSeconds": 5}), "livenessProbe", "is empty"),
        (
            &in_container("livenessProbe"),
            json!({"tcpSocket": {"port": 80}, "successThreshold": 2}),
            "livenessProbe.successThreshold",
            "must be 1",
        ),
        (&in_container("lifecycle"), json!({"preStop": {}}), "lifecycle.preStop", "is empty"),
        (
            &in_container("securityContext"),
            json!({"privileged": true, "allowPrivilegeEscalation": false}),
            "allowPrivilegeEscalation",
            "can't be false",
        ),
        (&in_container("securityContext"), json!({"runAsUser": -1}), "runAsUser", "is too small"),
    ]);
}

#[test]
fn names_of_containers_are_distinct() {
    check_rows(&[
        (
            &format!("{POD}.containers"),
            json!([{"name": "a"}, {"name": "a"}]),
            "spec.containers[1].name",
            "the name `a` appears twice",
        ),
        (
            &format!("{POD}.initContainers"),
            json!([{"name": "c"}]),
            "spec.containers[0].name",
            "the name `c` appears twice",
        ),
        (
            &format!("{POD}.initContainers"),
            json!([{"name": "i", "livenessProbe": {"exec": {"command": ["x"]}}}]),
            "initContainers[0].livenessProbe",
            "is not for init containers",
        ),
    ]);
}

#[test]
fn resources_of_containers() {
    let resources = in_container("resources");
    check_rows(&[
        (
            &resources,
            json!({"limits": {"nvidia.com/gpu": "500m"}}),
            "limits[nvidia.com/gpu]",
            "`500m` is not whole",
        ),
        (&resources, json!({"requests": {"nvidia.com/gpu": 1}}), "resources.limits", "has no limit of"),
        (&resources, json!({"limits": {"gpu": 1}}), "limits.gpu", "`gpu` is not a resource of containers"),
        (&resources, json!({"limits": {"cpu": 1}, "requests": {"cpu": 2}}), "requests.cpu", "is more than"),
        (
            &resources,
            json!({"limits": {"hugepages-2Mi": "4Mi"}}),
            "spec.containers",
            "huge pages and neither",
        ),
        (&resources, json!({"claims": [{"name": "x"}]}), "claims[0].name", "no resource claim `x`"),
    ]);
}

#[test]
fn pods() {
    let pod = |field: &str| format!("{POD}.{field}");
    let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b c"}}});
    check_rows(&[
        (&pod("restartPolicy"), json!("Always"), "restartPolicy", "`Always` is not a choice"),
        (&pod("restartPolicy"), Value::Null, "restartPolicy", "is missing"),
        (&pod("activeDeadlineSeconds"), json!(0), "activeDeadlineSeconds", "is too small"),
        (&pod("terminationGracePeriodSeconds"), json!(-1), "GracePeriodSeconds", "is too small"),
        (&pod("dnsPolicy"), json!("First"), "dnsPolicy", "is not a choice"),
        (&pod("dnsPolicy"), json!("None"), "dnsConfig", "has no nameserver"),
        (&pod("dnsConfig"), json!({"nameservers": ["dns.local"]}), "nameservers[0]", "is not an IP address"),
        (&pod("ephemeralContainers"), json!([{"name": "d"}]), "ephemeralContainers", "pod template"),
        (&pod("hostAliases"), json!([{"hostnames": ["x"]}]), "hostAliases[0].ip", "is missing"),
        (&pod("hostname"), json!("a.b"), "hostname", "is not a host name"),
        (&pod("hostNetwork"), json!("true"), "hostNetwork", "must be a boolean"),
        (&pod("serviceAccountName"), json!("My_Account"), "serviceAccountName", "is not a name"),
        (&pod("schedulingGates"), json!([{"name": "a b"}]), "schedulingGates[0].name", "is not a label key"),
        (&pod("nodeSelector"), json!({"zone": "a b"}), "nodeSelector.zone", "is not a label value"),
        (&pod("tolerations"), json!([{"key": "a b", "operator": "Exists"}]), "[0].key", "is not a taint key"),
        (&pod("tolerations"), json!([{"key": "a", "value": "b c"}]), "[0].value", "is not a taint value"),
        (
            &pod("topologySpreadConstraints"),
            json!([{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]),
            "maxSkew",
            "is too small",
        ),
        (
            &pod("affinity"),
            json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}),
            "matchLabels.a",
            "is not a label value",
        ),
        (
            &pod("affinity"),
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 101, "preference": {}}]}}),
            "weight",
            "is too large",
        ),
        (&pod("volumes"), json!([{"name": "V"}]), "volumes[0].name", "is not a name"),
        (&pod("volumes"), json!([{"name": "v"}, {"name": "v"}]), "volumes[1].name", "appears twice"),
        (
            &pod("volumes"),
            json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
            "volumes[0]",
            "has `emptyDir` and `hostPath`",
        ),
        (&pod("volumes"), json!([{"name": "v", "secret": {}}]), "secret.secretName", "is missing"),
        (&pod("volumes"), json!({"v": {}}), "volumes", "must be a list"),
        (&pod("os"), json!({"name": "Linux"}), "os.name", "is not a choice"),
    ]);
}

#[test]
fn rules_of_jobs() {
    let policy = |action: &str, codes: Value| {
        let codes = json!({"operator": "In", "values": codes});
        json!({"rules": [{"action": action, "onExitCodes": codes}]})
    };
    check_rows(&[
        ("spec.backoffLimitPerIndex", json!(1), "backoffLimitPerIndex", "completionMode: Indexed"),
        ("spec.maxFailedIndexes", json!(1), "maxFailedIndexes", "without `backoffLimitPerIndex`"),
        ("spec.successPolicy", json!({"rules": []}), "successPolicy", "completionMode: Indexed"),
        ("spec.podReplacementPolicy", json!("Never"), "podReplacementPolicy", "is not a choice"),
        ("spec.podFailurePolicy", policy("FailIndex", json!([1])), "action", "needs `backoffLimitPerIndex`"),
        ("spec.podFailurePolicy", policy("FailJob", json!([0])), "values", "`0` is no failure"),
        ("spec.podFailurePolicy", policy("FailJob", json!([])), "values", "is empty"),
        ("spec.podFailurePolicy", json!({"rules": [{"action": "Stop"}]}), "action", "is not a choice"),
        ("spec.manualSelector", json!("no"), "manualSelector", "must be a boolean"),
        ("spec.ttlSecondsAfterFinished", json!(-1), "ttlSecondsAfterFinished", "is too small"),
        ("spec.backoffLimit", json!(-1), "backoffLimit", "is too small"),
    ]);
    let selecting = |selector: Value| {
        let labels = json!({"app": "train", "tier": "gpu"});
        with(&[
            ("spec.manualSelector", json!(true)),
            ("spec.template.metadata.labels", labels),
            ("spec.selector", selector),
        ])
    };
    let expression = |operator: &str| json!({"key": "tier", "operator": operator, "values": ["gpu", "tpu"]});
    for (selector, is_accepted) in [
        (json!({"matchLabels": {"app": "train"}}), true),
        (json!({"matchLabels": {"app": "other"}}), false),
        (json!({"matchExpressions": [expression("In")]}), true),
        (json!({"matchExpressions": [expression("NotIn")]}), false),
        (json!(null), false),
    ] {
        let errors = read(selecting(selector.clone())).err().unwrap_or_default();
        assert_eq!(errors.is_empty(), is_accepted, "{selector}: {errors:?}");
        assert!(errors.iter().all(|error| error.starts_with("spec.selector: ")), "{errors:?}");
    }
    let indexed = |name: String, completions: u32| {
        with(&[
            ("metadata.name", json!(name)),
            ("spec.completionMode", json!("Indexed")),
            ("spec.completions", json!(completions)),
        ])
    };
    assert!(read(indexed("a".repeat(61), 10)).is_ok());
    let errors = read(indexed("a".repeat(61), 11)).unwrap_err();
    assert!(errors[0].starts_with("metadata.name: `") && errors[0].contains("host name"), "{errors:?}");
    let failing = with(&[
        (&format!("{POD}.restartPolicy"), json!("OnFailure")),
        ("spec.podFailurePolicy", policy("FailJob", json!([1]))),
    ]);
    assert!(read(failing).unwrap_err()[0].contains("is for pods with `restartPolicy: Never`"));
}

#[test]
fn values_that_only_an_api_server_would_notice() {
    let pod = |field: &str| format!("{POD}.{field}");
    let [env, mounts, resources] = ["env", "volumeMounts", "resources"].map(in_container);
    let spread = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let downward = json!({"items": [{"path": "../x", "fieldRef": {"fieldPath": "metadata.name"}}]});
    check_rows(&[
        (&env, json!([{"name": "", "value": "1"}]), "env[0].name", "is empty"),
        (&in_container("image"), json!(""), "containers[0].image", "is empty"),
        (
            &resources,
            json!({"limits": {"kubernetes.io/gpu": 1}}),
            "limits[kubernetes.io/gpu]",
            "can't be the name of a device",
        ),
        (
            &resources,
            json!({"limits": {"requests.nvidia.com/gpu": 1}}),
            "limits[requests.nvidia.com/gpu]",
            "can't be the name of a device",
        ),
        (&mounts, json!([{"name": "v", "mountPath": "/a:b"}]), "volumeMounts[0].mountPath", "has a `:`"),
        (
            &mounts,
            json!([{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}]),
            "volumeMounts[0].mountPropagation",
            "is for privileged containers",
        ),
        (
            &pod("volumes"),
            json!([{"name": "v", "hostPath": {"path": "/a/../b"}}]),
            "hostPath.path",
            "has `..`",
        ),
        (
            &pod("volumes"),
            json!([{"name": "v", "emptyDir": {"sizeLimit": "-1Gi"}}]),
            "sizeLimit",
            "is negative",
        ),
        (
            &pod("volumes"),
            json!([{"name": "v", "downwardAPI": downward}]),
            "downwardAPI.items[0].path",
            "is not a path within the volume",
        ),
        (
            &pod("securityContext"),
            json!({"sysctls": [{"name": "A B", "value": "1"}]}),
            "sysctls[0].name",
            "is not the name of a kernel parameter",
        ),
        (&pod("dnsConfig"), json!({"searches": ["a b"]}), "searches[0]", "is not a domain"),
        (
            &pod("topologySpreadConstraints"),
            json!([spread, spread]),
            "topologySpreadConstraints[1]",
            "repeats the constraint on `zone`",
        ),
        ("spec.template.metadata", json!({"finalizers": ["x"]}), "finalizers[0]", "name of a finalizer"),
        ("metadata.finalizers", json!(["x"]), "metadata.finalizers[0]", "name of a finalizer"),
        (
            &in_container("ports"),
            json!([{"containerPort": 80, "protocol": "HTTP"}]),
            "ports[0].protocol",
            "is not a choice",
        ),
    ]);
}

#[test]
fn rules_of_policies() {
    let exits = |codes: Value| json!({"rules": [{"action": "FailJob", "onExitCodes": codes}]});
    let failure = "spec.podFailurePolicy";
    check_rows(&[
        (
            failure,
            exits(json!({"containerName": "other", "operator": "In", "values": [1]})),
            "onExitCodes.containerName",
            "no container `other`",
        ),
        (failure, exits(json!({"operator": "In", "values": [1, 1]})), "values", "`1` appears twice"),
        (failure, exits(json!({"operator": "In", "values": [2, 1]})), "values", "is not in order"),
    ]);
    let success = |rules: Value| {
        read(with(&[
            ("spec.completionMode", json!("Indexed")),
            ("spec.completions", json!(5)),
            ("spec.successPolicy", json!({"rules": rules})),
        ]))
    };
    assert!(success(json!([{"succeededIndexes": "0,2-4", "succeededCount": 4}])).is_ok());
    assert!(success(json!([{"succeededCount": 5}])).is_ok());
    for (rules, expect) in [
        (json!([]), "rules: is empty"),
        (json!([{}]), "rules[0]: is empty"),
        (json!([{"succeededIndexes": "5-3"}]), "`5-3` is not a range"),
        (json!([{"succeededIndexes": "3-5"}]), "index 5 is out of range"),
        (json!([{"succeededIndexes": "2,1"}]), "`1` is not after"),
        (json!([{"succeededIndexes": "a"}]), "`a` is not an index"),
        (json!([{"succeededIndexes": "0,1", "succeededCount": 3}]), "`3` is more than the 2 indexes"),
        (json!([{"succeededCount": 6}]), "`6` is more than the 5 indexes"),
    ] {
        let errors = success(rules.clone()).unwrap_err();
        assert!(errors.iter().any(|error| error.contains(expect)), "{rules}: {errors:?}");
    }
}

#[test]
fn choices_that_may_be_empty_are_named_without_the_empty_one() {
    let ports = with(&[(&in_container("ports"), json!([{"containerPort": 80, "protocol": "HTTP"}]))]);
    let errors = read(ports).unwrap_err();
    assert!(errors[0].ends_with("the choices are `TCP`, `UDP`, `SCTP`"), "{errors:?}");
}

#[test]
fn the_whole_of_a_pod_is_accepted() {
    let probe = json!({"httpGet": {"port": "http", "path": "/", "httpHeaders": [{"name": "a", "value": "b"}]},
        "periodSeconds": 3});
    let pod = json!({
        "restartPolicy": "OnFailure", "dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.1"]},
        "hostAliases": [{"ip": "::1", "hostnames": ["a.b"]}], "imagePullSecrets": [{"name": "pull"}],
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
        "volumes": [{"name": "tmp"}, {"name": "keys", "secret": {"secretName": "s", "items": [
            {"key": "k", "path": "k"}]}}, {"name": "all", "projected": {"sources": [
            {"serviceAccountToken": {"path": "t"}}]}}],
        "initContainers": [{"name": "side", "restartPolicy": "Always", "startupProbe": probe}],
        "containers": [{
            "name": "main", "image": "x", "livenessProbe": probe,
            "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}},
                {"name": "EMPTY", "value": "", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "P_"}],
            "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81}],
            "resources": {"limits": {"nvidia.com/gpu": 1, "hugepages-2Mi": "4Mi", "cpu": 1},
                "claims": [{"name": "gpu"}]},
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp", "subPath": "a/b"}],
        }],
    });
    let (_, warnings) =
        Object::validated(with(&[("spec.template.spec", pod)]), FieldValidation::Strict).unwrap();
    assert_eq!(warnings, []);
}

#[test]
fn unknown_fields_name_what_was_meant() {
    for (at, name, expect) in [
        ("spec", "paralelism", "parallelism"),
        ("spec", "containers", "template.spec.containers"),
        ("spec.template.spec", "backoffLimit", "spec.backoffLimit"),
        ("spec.template.spec", "container", "containers"),
        ("spec.template.spec", "image", "containers[].image"),
        (CONTAINER, "limits", "resources.limits"),
        (CONTAINER, "limit", "resources.limits"),
        (CONTAINER, "secretKeyRef", "env[].valueFrom.secretKeyRef"),
        ("spec.template.spec.containers.0.resources", "limit", "limits"),
        ("spec.template.spec.containers.0.env.0", "secretKeyRef", "valueFrom.secretKeyRef"),
    ] {
        let mut job =
            with(&[(&in_container("env"), json!([{"name": "A"}])), (&in_container("resources"), json!({}))]);
        let pointer = format!("/{}", at.replace('.', "/"));
        job.pointer_mut(&pointer).unwrap()[name] = json!({});
        let (_, warnings) = Object::validated(job.clone(), FieldValidation::Warn).unwrap();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!(warnings[0].remedy, format!("did you mean `{expect}`?"), "{at}.{name}");
        assert_eq!(Object::validated(job.clone(), FieldValidation::Ignore).unwrap().1, []);
        for strict in [FieldValidation::Strict, FieldValidation::StrictJobs] {
            let errors = Object::validated(job.clone(), strict).unwrap_err();
            assert_eq!(errors[0].message, "is an unknown field", "{at}.{name}");
        }
    }
}
