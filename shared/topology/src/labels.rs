//! What may be a label (Kubernetes' rules for label keys and values), so that a selector that can't be meant is refused.

use meridian_shared::gang::{Operator, Requirement};

/// Longest name part of a key, and longest value.
const NAME_BYTES_MAX: usize = 63;
/// Longest prefix of a key.
const PREFIX_BYTES_MAX: usize = 253;

/// Whether `key` can be a label key: a name, or a DNS subdomain, a slash and a name.
pub(crate) fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_name(key),
        Some((prefix, name)) => is_name(name) && is_subdomain(prefix),
    }
}

/// Whether `value` can be a label value: empty or a name.
pub(crate) fn is_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

/// Whether the values of `requirement` are what its operator wants.
pub(crate) fn is_requirement(requirement: &Requirement) -> bool {
    let values = &requirement.values;
    is_key(&requirement.key)
        && match requirement.operator {
            Operator::In | Operator::NotIn => {
                !values.is_empty() && values.iter().all(|value| is_value(value))
            }
            Operator::Exists | Operator::DoesNotExist => values.is_empty(),
            Operator::Gt | Operator::Lt => {
                matches!(values.as_slice(), [value] if value.parse::<i64>().is_ok())
            }
        }
}

fn is_name(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= NAME_BYTES_MAX
        && ends(text.chars().next())
        && ends(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(plain) && part.ends_with(plain) && part.chars().all(|c| plain(c) || c == '-')
    };
    text.len() <= PREFIX_BYTES_MAX && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_kubernetes() {
        for key in ["a", "kubernetes.io/hostname", "A.b_c-d", "x-y.z/0"] {
            assert!(is_key(key), "{key}");
        }
        for key in ["", "/a", "a/", "a/b/c", "-a", "a-", "A.b/c", "a b", &"a".repeat(64)] {
            assert!(!is_key(key), "{key}");
        }
        assert!(is_value("") && is_value("r1") && !is_value("no spaces") && !is_value(".a"));
    }

    #[test]
    fn operators_want_their_values() {
        let check = |operator, values: &[&str]| {
            is_requirement(&Requirement {
                key: "a".into(),
                operator,
                values: values.iter().map(|v| (*v).into()).collect(),
            })
        };
        assert!(check(Operator::In, &["a"]) && !check(Operator::In, &[]) && !check(Operator::Exists, &["a"]));
        assert!(
            check(Operator::Gt, &["5"]) && !check(Operator::Gt, &["x"]) && !check(Operator::Lt, &["1", "2"])
        );
    }
}
