//! Validation of label keys, values and selector requirements, with the rules of Kubernetes.

use meridian_shared::gang::{Operator, Requirement};

/// Maximum length of a value, and of the name part of a key.
const NAME_BYTES_MAX: usize = 63;
/// Maximum length of the prefix of a key.
const PREFIX_BYTES_MAX: usize = 253;

/// Whether `key` is a valid label key: a name, optionally with a DNS subdomain and a slash before it.
pub(super) fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_name(key),
        Some((prefix, name)) => is_name(name) && is_subdomain(prefix),
    }
}

/// Whether `value` is a valid label value: empty or a name.
pub(super) fn is_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

/// Whether the number and form of the values match the operator.
pub(super) fn is_requirement(requirement: &Requirement) -> bool {
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
