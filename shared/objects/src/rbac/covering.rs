//! Checks whether rules permit everything that other rules permit, so that users can't grant permissions that
//! they don't have.

use super::rules::{ALL, contains, path_matches};
use crate::spec::PolicyRule;

/// The parts of `wanted` that no rule of `owned` covers, each with one verb and one resource or path. As in
/// Kubernetes, one rule has to cover a part alone.
pub fn missing<'o>(
    owned: impl IntoIterator<Item = &'o PolicyRule>,
    wanted: &[PolicyRule],
) -> Vec<PolicyRule> {
    let owned: Vec<&PolicyRule> = owned.into_iter().collect();
    let is_missing = |part: &PolicyRule| !owned.iter().any(|rule| covers(rule, part));
    wanted.iter().flat_map(parts).filter(is_missing).collect()
}

/// A rule as parts with one verb, and one group and resource or one path each.
fn parts(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |text: &String| vec![text.clone()];
    let mut all = Vec::new();
    for verb in &rule.verbs {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                let part = PolicyRule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    ..PolicyRule::default()
                };
                match rule.resource_names.as_slice() {
                    [] => all.push(part),
                    names => {
                        all.extend(
                            names.iter().map(|n| PolicyRule { resource_names: one(n), ..part.clone() }),
                        );
                    }
                }
            }
        }
        let path =
            |path| PolicyRule { verbs: one(verb), non_resource_urls: one(path), ..PolicyRule::default() };
        all.extend(rule.non_resource_urls.iter().map(path));
    }
    all
}

/// Whether one rule permits everything that a part does.
fn covers(owned: &PolicyRule, part: &PolicyRule) -> bool {
    let all_in = |list: &[String], of: &[String]| of.iter().all(|item| contains(list, item));
    all_in(&owned.verbs, &part.verbs)
        && all_in(&owned.api_groups, &part.api_groups)
        && part.resources.iter().all(|resource| covers_resource(&owned.resources, resource))
        && (part.resources.is_empty() || covers_names(owned, part))
        && part.non_resource_urls.iter().all(|path| covers_path(&owned.non_resource_urls, path))
}

fn covers_resource(owned: &[String], resource: &str) -> bool {
    let of_any = resource.split_once('/').map(|(_, sub)| format!("{ALL}/{sub}"));
    contains(owned, resource) || of_any.is_some_and(|of_any| owned.contains(&of_any))
}

fn covers_names(owned: &PolicyRule, part: &PolicyRule) -> bool {
    let names = &part.resource_names;
    owned.resource_names.is_empty()
        || (!names.is_empty() && names.iter().all(|name| owned.resource_names.contains(name)))
}

/// Whether paths of a rule cover a path or a pattern. A pattern is treated like a path: the `*` at the end of
/// an owned pattern also matches the `*` of the other.
fn covers_path(owned: &[String], path: &str) -> bool {
    owned.iter().any(|pattern| path_matches(pattern, path))
}
