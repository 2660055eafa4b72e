//! Lists that several charts repeat, because a chart can't read another one.

use crate::Violations;
use crate::tree::Tree;
use std::collections::BTreeSet;

/// The template of each chart with the kinds of jobs by API group: file and name.
const JOB_KINDS: [(&str, &str); 2] = [
    ("manifests/helm/meridian-agent/templates/rbac.yaml", "meridian-agent.jobKinds"),
    ("manifests/helm/meridian-manager/templates/rbac.yaml", "meridian-manager.jobKinds"),
];
/// The values of the agent's chart, and their schema. Both list the kinds of jobs without groups.
const AGENT_VALUES: &str = "manifests/helm/meridian-agent/values.yaml";
const AGENT_SCHEMA: &str = "manifests/helm/meridian-agent/values.schema.json";

/// All lists of kinds of jobs in the charts are equal.
pub fn job_kinds(tree: &Tree) -> Violations {
    let text = |path: &str| tree.get(path).map_or("", |file| &file.text);
    let templates = JOB_KINDS.map(|(path, name)| {
        let defined = text(path).split_once(&format!("define \"{name}\"")).map_or("", |(_, rest)| rest);
        let body = defined.split_once("}}").map_or("", |(_, rest)| rest);
        body.split_once("{{").map_or("", |(body, _)| body.trim())
    });
    let mut violations = Vec::new();
    if templates[0].is_empty() || templates[0] != templates[1] {
        violations.push(format!("`jobKinds` of {} and {} differ", JOB_KINDS[0].0, JOB_KINDS[1].0));
    }
    let of_template: BTreeSet<String> = lists(templates[0], ": ").flatten().collect();
    for (path, before) in [(AGENT_VALUES, "jobKinds: "), (AGENT_SCHEMA, "\"enum\": ")] {
        let listed = lists(text(path), before).find(|list| list.contains("jobs"));
        if listed.is_none_or(|listed| listed != of_template) {
            violations.push(format!("`jobKinds` of {path} isn't that of {}", JOB_KINDS[0].0));
        }
    }
    violations
}

/// The lists in brackets that follow `before`.
fn lists<'t>(text: &'t str, before: &'t str) -> impl Iterator<Item = BTreeSet<String>> + 't {
    let bodies = text.split(before).skip(1).filter_map(|rest| rest.strip_prefix('[')?.split(']').next());
    bodies.map(|body| body.split(',').map(|item| item.trim().trim_matches('"').to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(agent: &str, manager: &str, values: &str, schema: &str) -> Tree {
        let define = |of: &str, kinds: &str| {
            format!("rules\n{{{{- define \"meridian-{of}.jobKinds\" -}}}}\n{kinds}\n{{{{- end }}}}\n")
        };
        Tree::of(&[
            (JOB_KINDS[0].0, &define("agent", agent)),
            (JOB_KINDS[1].0, &define("manager", manager)),
            (AGENT_VALUES, &format!("kubernetes:\n  jobKinds: [{values}]\n")),
            (AGENT_SCHEMA, &format!("{{\"enum\": [\"a\"]}}\n{{\"enum\": [{schema}]}}")),
        ])
    }

    #[test]
    fn equal_lists_are_accepted() {
        let kinds = "batch: [jobs]\nray.io: [rayclusters, rayjobs]";
        let violations = job_kinds(&tree(
            kinds,
            kinds,
            "jobs, rayjobs, rayclusters",
            "\"jobs\", \"rayclusters\", \"rayjobs\"",
        ));
        assert_eq!(violations, Vec::<String>::new());
    }

    #[test]
    fn a_kind_that_one_list_lacks_is_found() {
        let (all, few) = ("batch: [jobs]\nray.io: [rayjobs]", "batch: [jobs]");
        let (values, schema) = ("jobs, rayjobs", "\"jobs\", \"rayjobs\"");
        let count = |agent, manager, values, schema| job_kinds(&tree(agent, manager, values, schema)).len();
        assert_eq!(count(all, all, values, schema), 0);
        assert_eq!(count(all, few, values, schema), 1);
        assert_eq!(count(few, few, values, schema), 2);
        assert_eq!(count(all, all, "jobs", schema), 1);
        assert_eq!(count(all, all, values, "\"jobs\""), 1);
        assert_eq!(job_kinds(&Tree::of(&[])).len(), 3);
    }
}
