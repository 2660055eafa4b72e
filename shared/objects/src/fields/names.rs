//! Names, label keys and label values that Kubernetes accepts (RFC 1123 and the API conventions).

/// Most characters of a name that is a DNS subdomain.
pub(crate) const MAX_SUBDOMAIN_CHARS: usize = 253;
/// Most characters of a name that is a DNS label, and of a label's value.
pub(crate) const MAX_LABEL_CHARS: usize = 63;

/// Whether `text` is a DNS label: lower-case letters, digits and `-`, not at the ends.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LABEL_CHARS
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

/// Whether `text` is a DNS subdomain: labels joined by dots. As in Kubernetes, only the whole length is
/// bounded.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let ends = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let bytes = part.as_bytes();
        ends(bytes.first())
            && ends(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    text.len() <= MAX_SUBDOMAIN_CHARS && text.split('.').all(part)
}

/// Whether `text` can be a segment of a URL's path.
pub(crate) fn is_path_segment(text: &str) -> bool {
    !["", ".", ".."].contains(&text)
        && text.len() <= MAX_SUBDOMAIN_CHARS
        && !text.contains(['/', '%'])
        && !text.contains(char::is_control)
}

fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= MAX_LABEL_CHARS
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Whether `text` is a label key (or a resource name): an optional DNS prefix, a slash and a name.
pub(crate) fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_qualified_part(name),
        None => is_qualified_part(text),
    }
}

/// Whether `text` is a label value, which may be empty.
pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_qualified_part(text)
}

/// Whether `text` is a key of a ConfigMap or Secret.
pub(crate) fn is_config_key(text: &str) -> bool {
    (1..=MAX_SUBDOMAIN_CHARS).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && text != "."
        && !text.starts_with("..")
}

/// Whether `text` names a port: a service name of RFC 6335.
pub(crate) fn is_port_name(text: &str) -> bool {
    text.len() <= 15
        && is_dns_label(text)
        && !text.contains("--")
        && text.bytes().any(|b| b.is_ascii_lowercase())
}

/// Whether `text` is a relative path that doesn't leave its start. It may be empty.
pub(crate) fn is_relative_path(text: &str) -> bool {
    !text.starts_with('/') && text.split('/').all(|part| part != "..")
}

/// Whether `text` can name an environment variable: printable ASCII without `=`.
pub(crate) fn is_variable_name(text: &str) -> bool {
    text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=')
}

/// Whether `text` names a parameter of the kernel: parts of lower-case letters, digits, `-` and `_`.
pub(crate) fn is_sysctl_name(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| {
        part.bytes().next().is_some_and(alphanumeric)
            && part.bytes().all(|byte| alphanumeric(byte) || matches!(byte, b'-' | b'_'))
    };
    text.len() <= MAX_SUBDOMAIN_CHARS && text.split(['.', '/']).all(part)
}

/// Whether `text` names a finalizer: with a domain, or one of Kubernetes' own.
pub(crate) fn is_finalizer(text: &str) -> bool {
    let own = ["orphan", "foregroundDeletion", "kubernetes"].contains(&text);
    own || (text.contains('/') && is_label_key(text))
}

/// A valid name close to `text`, for a remedy.
pub(crate) fn closest_name(text: &str) -> Option<String> {
    let mapped: String = text
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
        .collect();
    let trimmed: String =
        mapped.trim_matches(|c| c == '-' || c == '.').chars().take(MAX_LABEL_CHARS).collect();
    is_dns_subdomain(&trimmed).then_some(trimmed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kubernetes() {
        assert!(
            is_dns_label("a-1")
                && !is_dns_label("-a")
                && !is_dns_label("a.b")
                && !is_dns_label("")
                && !is_dns_label("A")
        );
        assert!(
            is_dns_subdomain("a.b-c.d")
                && !is_dns_subdomain("a..b")
                && !is_dns_subdomain("a_b")
                && !is_dns_subdomain(&"a".repeat(254))
        );
        assert!(
            is_label_key("nvidia.com/gpu")
                && is_label_key("cpu")
                && !is_label_key("/x")
                && !is_label_key("a/b/c")
                && !is_label_key("")
        );
        assert!(
            is_label_value("")
                && is_label_value("A_b.c-1")
                && !is_label_value("a b")
                && !is_label_value("eu,us")
        );
        assert!(is_path_segment("system:a") && !is_path_segment("..") && !is_path_segment("a/b"));
        assert!(is_config_key("a_b.C") && !is_config_key("a/b") && !is_config_key("..x"));
        assert!(is_port_name("http-2") && !is_port_name("80") && !is_port_name("a--b"));
        assert!(!is_port_name("longer-than-fifteen") && !is_port_name("Http"));
        assert!(is_relative_path("a/b") && !is_relative_path("/a") && !is_relative_path("a/../.."));
        assert!(is_variable_name("my.var-1") && !is_variable_name("a=b") && !is_variable_name("a\u{7}"));
        assert_eq!(closest_name("My Queue!").as_deref(), Some("my-queue"));
        assert_eq!(closest_name("???"), None);
    }
}
