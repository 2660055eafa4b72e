//! Expands `$(NAME)` in commands, arguments and environment as Kubernetes does
//! (`pod.spec.containers[].env[].value`).
//!
//! `$$` is an escaped `$`, so `$$(NAME)` becomes `$(NAME)`. An undefined name stays as it is written.

pub(crate) fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_as_kubernetes_does() {
        let lookup = |name: &str| (name == "A").then_some("1");
        for (text, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(B)", "$(B)"),
            ("$A ${A} $", "$A ${A} $"),
            ("$(A", "$(A"),
            ("é$(A)é", "é1é"),
            ("", ""),
        ] {
            assert_eq!(expand(text, lookup), expected, "{text}");
        }
    }
}
