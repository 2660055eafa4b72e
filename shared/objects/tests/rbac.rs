//! The authorizer against a naive one that reads the manifests themselves, and the rule that nobody grants
//! what they don't have.

use meridian_objects::rbac::{Access, Caller, MASTERS, Permissions, Policy, missing};
use meridian_objects::spec::PolicyRule;
use meridian_objects::{Object, Spec};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const VERBS: [&str; 4] = ["get", "list", "create", "delete"];
const GROUPS: [&str; 2] = ["", "batch"];
const RESOURCES: [&str; 2] = ["jobs", "queues"];
const SUBRESOURCES: [&str; 3] = ["", "log", "status"];
const NAMESPACES: [&str; 2] = ["a", "b"];
const NAMES: [&str; 2] = ["x", "y"];
const USERS: [&str; 3] = ["ann", "ben", "cy"];
const USER_GROUPS: [&str; 2] = ["red", "blue"];
const ROLES: [&str; 2] = ["r", "s"];
const PATHS: [&str; 4] = ["/metrics", "/metrics/slow", "/version", "/"];

fn object(kind: &str, namespace: Option<&str>, name: &str, rest: Value) -> Value {
    let mut value = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
    });
    if let Some(namespace) = namespace {
        value["metadata"]["namespace"] = json!(namespace);
    }
    value.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    value
}

fn some(of: &[&'static str], least: usize) -> impl Strategy<Value = Vec<&'static str>> + use<> {
    prop::sample::subsequence(of.to_vec(), least..=of.len())
}

fn resource_rule() -> impl Strategy<Value = Value> {
    let mut verbs = VERBS.to_vec();
    verbs.push("*");
    (
        some(&verbs, 1),
        some(&["", "batch", "*"], 1),
        some(&["jobs", "queues", "jobs/log", "*/status", "*"], 1),
        some(&NAMES, 0),
    )
        .prop_map(|(verbs, groups, resources, names)| {
            json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
        })
}

fn path_rule() -> impl Strategy<Value = Value> {
    (some(&["get", "create", "*"], 1), some(&["/metrics", "/metrics*", "/", "*"], 1))
        .prop_map(|(verbs, paths)| json!({"verbs": verbs, "nonResourceURLs": paths}))
}

fn rules(of_cluster: bool) -> impl Strategy<Value = Vec<Value>> {
    let rule = if of_cluster {
        prop_oneof![3 => resource_rule(), 1 => path_rule()].boxed()
    } else {
        resource_rule().boxed()
    };
    prop::collection::vec(rule, 0..3)
}

fn subjects() -> impl Strategy<Value = Value> {
    (some(&USERS, 0), some(&USER_GROUPS, 0)).prop_map(|(users, groups)| {
        let subject = |kind: &str, name: &&str| json!({"kind": kind, "name": name});
        let users = users.iter().map(|name| subject("User", name));
        users.chain(groups.iter().map(|name| subject("Group", name))).collect()
    })
}

/// Roles and bindings, each by its own name.
fn manifests() -> impl Strategy<Value = Vec<Value>> {
    let role = |at: usize| {
        let name = ROLES[at];
        let of = |kind: &'static str, namespace: Option<&'static str>| {
            rules(namespace.is_none())
                .prop_map(move |rules| object(kind, namespace, name, json!({"rules": rules})))
        };
        prop::option::of(prop_oneof![
            of("ClusterRole", None),
            of("Role", Some(NAMESPACES[0])),
            of("Role", Some(NAMESPACES[1])),
        ])
    };
    let binding = |at: usize| {
        (prop::option::of(0..NAMESPACES.len()), any::<bool>(), 0..ROLES.len(), subjects()).prop_map(
            move |(namespace, of_cluster, role, subjects)| {
                let namespace = namespace.map(|at| NAMESPACES[at]);
                let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
                let role_kind = if of_cluster || namespace.is_none() { "ClusterRole" } else { "Role" };
                let role = json!({
                    "apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": ROLES[role],
                });
                let name = format!("b{at}");
                object(kind, namespace, &name, json!({"roleRef": role, "subjects": subjects}))
            },
        )
    };
    (
        prop::collection::vec((0..ROLES.len()).prop_flat_map(role), 0..4),
        prop::collection::vec((0_usize..9).prop_flat_map(binding), 0..4),
    )
        .prop_map(|(roles, bindings)| {
            let mut seen = BTreeSet::new();
            let all = roles.into_iter().flatten().chain(bindings);
            let key = |o: &Value| format!("{} {}", o["kind"], o["metadata"]);
            all.filter(|object| seen.insert(key(object))).collect()
        })
}

fn read(manifests: &[Value]) -> Vec<Object> {
    manifests.iter().map(|manifest| Object::from_value(manifest.clone()).unwrap().0).collect()
}

fn permissions(manifests: &[Value], user: &str, groups: &[&str]) -> Permissions {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    Policy::new(&read(manifests)).permissions(Caller { user: user.to_owned(), groups })
}

fn every_access() -> Vec<Access<'static>> {
    let mut all = Vec::new();
    for verb in VERBS {
        for group in GROUPS {
            for resource in RESOURCES {
                for subresource in SUBRESOURCES {
                    for namespace in [None, Some("a"), Some("b"), Some("c")] {
                        for name in [None, Some("x"), Some("y"), Some("z")] {
                            all.push(Access { verb, group, resource, subresource, namespace, name });
                        }
                    }
                }
            }
        }
    }
    all
}

/// Whether a JSON list has one of these texts.
fn has(list: &Value, any_of: &[&str]) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|text| any_of.contains(&text.as_str().unwrap())))
}

/// The rules that a caller has, read from the manifests without any of the code that is tested.
fn naive_rules<'m>(
    manifests: &'m [Value],
    user: &str,
    groups: &[&str],
    namespace: Option<&str>,
) -> Vec<&'m Value> {
    let is_mine = |binding: &&Value| {
        binding["subjects"].as_array().unwrap().iter().any(|subject| {
            let name = subject["name"].as_str().unwrap();
            if subject["kind"] == "User" { name == user } else { groups.contains(&name) }
        })
    };
    let counts = |binding: &&Value| {
        let here = binding["metadata"]["namespace"].as_str();
        binding["kind"] == "ClusterRoleBinding"
            || (binding["kind"] == "RoleBinding" && here.is_some() && here == namespace)
    };
    let of = |binding: &'m Value| {
        manifests.iter().filter(move |role| {
            let there = binding["roleRef"]["kind"] == "ClusterRole"
                || role["metadata"]["namespace"] == binding["metadata"]["namespace"];
            role["kind"] == binding["roleRef"]["kind"]
                && role["metadata"]["name"] == binding["roleRef"]["name"]
                && there
        })
    };
    let bindings = manifests.iter().filter(counts).filter(is_mine);
    bindings.flat_map(of).flat_map(|role| role["rules"].as_array().unwrap()).collect()
}

fn naive_allows(rules: &[&Value], access: &Access<'_>) -> bool {
    let Access { verb, group, resource, subresource, name, .. } = *access;
    let whole =
        if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
    let of_any = format!("*/{subresource}");
    rules.iter().any(|rule| {
        let named = rule["resourceNames"].as_array().is_none_or(Vec::is_empty)
            || name.is_some_and(|name| has(&rule["resourceNames"], &[name]));
        has(&rule["verbs"], &["*", verb])
            && has(&rule["apiGroups"], &["*", group])
            && has(&rule["resources"], &["*", &whole, &of_any])
            && named
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn it_permits_what_a_naive_reading_of_the_manifests_does(
        manifests in manifests(), user in 0..USERS.len(), groups in some(&USER_GROUPS, 0),
    ) {
        let user = USERS[user];
        let permissions = permissions(&manifests, user, &groups);
        for access in every_access() {
            let rules = naive_rules(&manifests, user, &groups, access.namespace);
            prop_assert_eq!(permissions.allows(&access), naive_allows(&rules, &access), "{:?}", access);
        }
        let rules = naive_rules(&manifests, user, &groups, None);
        for path in PATHS {
            let naive = rules.iter().any(|rule| {
                let urls = rule["nonResourceURLs"].as_array().cloned().unwrap_or_default();
                has(&rule["verbs"], &["*", "get"]) && urls.iter().any(|url| {
                    let url = url.as_str().unwrap();
                    url == path || (url.ends_with('*') && path.starts_with(&url[..url.len() - 1]))
                })
            });
            prop_assert_eq!(permissions.allows_path("get", path), naive, "{}", path);
        }
    }

    #[test]
    fn rules_that_are_covered_permit_nothing_new(mine in rules(true), wanted in rules(true)) {
        let manifests = |rules: &[Value]| {
            let role = json!({"kind": "ClusterRole", "name": "r"});
            let subjects = json!([{"kind": "User", "name": "ann"}]);
            vec![
                object("ClusterRole", None, "r", json!({"rules": rules})),
                object("ClusterRoleBinding", None, "b", json!({"roleRef": role, "subjects": subjects})),
            ]
        };
        let typed = |rules: &[Value]| -> Vec<PolicyRule> {
            let Spec::ClusterRole(role) = read(&manifests(rules)).remove(0).spec else { panic!("no role") };
            role.rules
        };
        let [has, gets] = [&mine, &wanted].map(|rules| permissions(&manifests(rules), "ann", &[]));
        let lacking = missing(&typed(&mine), &typed(&wanted));
        let gains = every_access().iter().any(|access| gets.allows(access) && !has.allows(access))
            || PATHS.iter().any(|path| gets.allows_path("get", path) && !has.allows_path("get", path));
        prop_assert!(!gains || !lacking.is_empty(), "{:?} grants {:?}", mine, wanted);
        prop_assert!(missing(&typed(&mine), &typed(&mine)).is_empty());
    }
}

#[test]
fn masters_may_do_everything_and_others_nothing() {
    let access = Access { verb: "delete", group: "batch", resource: "jobs", ..Access::default() };
    assert!(permissions(&[], "ann", &[MASTERS]).allows(&access));
    assert!(permissions(&[], "ann", &[MASTERS]).allows_path("get", "/metrics"));
    assert!(!permissions(&[], "ann", &["red"]).allows(&access));
}

#[test]
fn a_role_holds_in_its_namespace_and_for_its_names_only() {
    let role = json!({"rules": [
        {"verbs": ["get"], "apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": ["x"]},
        {"verbs": ["list"], "apiGroups": ["batch"], "resources": ["jobs"]},
    ]});
    let binding = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "Group", "name": "red"}],
    });
    let manifests = [object("Role", Some("a"), "r", role), object("RoleBinding", Some("a"), "b", binding)];
    let red = permissions(&manifests, "ann", &["red"]);
    let ask = |verb, namespace, name| Access {
        verb,
        group: "batch",
        resource: "jobs",
        subresource: "",
        namespace,
        name,
    };
    assert!(red.allows(&ask("get", Some("a"), Some("x"))) && red.allows(&ask("list", Some("a"), None)));
    for other in [
        ask("get", Some("a"), Some("y")),
        ask("get", Some("b"), Some("x")),
        ask("list", None, None),
        ask("list", Some("b"), None),
        ask("delete", Some("a"), Some("x")),
        Access { subresource: "log", ..ask("get", Some("a"), Some("x")) },
    ] {
        assert!(!red.allows(&other), "{other:?}");
    }
    assert!(!permissions(&manifests, "red", &[]).allows(&ask("list", Some("a"), None)));
}
