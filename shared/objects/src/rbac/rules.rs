//! Checks whether one rule permits one request.

use super::Access;
use crate::spec::PolicyRule;

pub(super) const ALL: &str = "*";

pub(super) fn allows(rule: &PolicyRule, access: &Access<'_>) -> bool {
    allows_some(rule, access.verb, access.group, (access.resource, access.subresource))
        && (rule.resource_names.is_empty()
            || access.name.is_some_and(|name| rule.resource_names.iter().any(|other| other == name)))
}

/// Whether a rule permits this for an object of any name.
pub(super) fn allows_some(
    rule: &PolicyRule,
    verb: &str,
    group: &str,
    (resource, subresource): (&str, &str),
) -> bool {
    contains(&rule.verbs, verb)
        && contains(&rule.api_groups, group)
        && rule.resources.iter().any(|pattern| matches(pattern, resource, subresource))
}

pub(super) fn allows_path(rule: &PolicyRule, verb: &str, path: &str) -> bool {
    contains(&rule.verbs, verb) && rule.non_resource_urls.iter().any(|pattern| path_matches(pattern, path))
}

/// Whether a list of a rule has `item` or `*`.
pub(super) fn contains(list: &[String], item: &str) -> bool {
    list.iter().any(|other| other == item || other == ALL)
}

/// Whether `pattern` matches a resource, or a subresource of it.
fn matches(pattern: &str, resource: &str, subresource: &str) -> bool {
    match pattern.split_once('/') {
        _ if pattern == ALL => true,
        None => subresource.is_empty() && pattern == resource,
        Some((of, sub)) => !subresource.is_empty() && sub == subresource && (of == ALL || of == resource),
    }
}

/// Whether `pattern` matches a path. A `*` at its end matches any rest.
pub(super) fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == path || pattern.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}
