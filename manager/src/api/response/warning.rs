//! Warnings to an accepted request, as `Warning` headers (RFC 7234, section 5.5) that `kubectl` prints.

use axum::http::header::WARNING;
use axum::http::{HeaderMap, HeaderValue};
use meridian_shared::counted::counted_with;

/// Most bytes of all warnings of one answer, as in Kubernetes, because clients limit the size of headers.
const BYTES_MAX: usize = 4 * 1024;
/// Most bytes of one warning.
const ONE_BYTES_MAX: usize = 512;

/// Adds each warning once. If some don't fit, the last header says how many were omitted.
pub(crate) fn add(headers: &mut HeaderMap, remarks: &[String]) {
    let (mut added, mut bytes): (Vec<&str>, usize) = (Vec::new(), 0);
    let mut left_out = 0;
    for remark in remarks {
        if added.contains(&remark.as_str()) {
            continue;
        }
        let value = quoted(remark);
        if bytes + value.len() > BYTES_MAX {
            left_out += 1;
            continue;
        }
        bytes += value.len();
        added.push(remark);
        append(headers, &value);
    }
    if left_out > 0 {
        append(headers, &quoted(&format!("{} omitted", counted_with(left_out, "more warning", "is", "are"))));
    }
}

fn append(headers: &mut HeaderMap, quoted: &str) {
    let value = HeaderValue::try_from(format!("299 - \"{quoted}\""))
        .expect("control characters were replaced, and all other characters are valid in a header");
    headers.append(WARNING, value);
}

fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for c in text.chars() {
        if quoted.len() > ONE_BYTES_MAX {
            quoted.push_str("...");
            break;
        }
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_becomes_a_valid_header() {
        let mut headers = HeaderMap::new();
        add(&mut headers, &["say \"a\"\nb — c".to_owned(), "x".to_owned(), "x".to_owned()]);
        let all: Vec<&[u8]> = headers.get_all(WARNING).iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(all, ["299 - \"say \\\"a\\\" b — c\"".as_bytes(), b"299 - \"x\""]);
    }

    #[test]
    fn too_many_warnings_are_cut() {
        let mut headers = HeaderMap::new();
        add(&mut headers, &(0..100).map(|i| format!("{i}{}", "y".repeat(1_000))).collect::<Vec<_>>());
        let bytes: usize = headers.get_all(WARNING).iter().map(HeaderValue::len).sum();
        assert!(bytes < BYTES_MAX + 500, "{bytes}");
        assert!(headers.get_all(WARNING).iter().any(|w| w.to_str().unwrap().contains(" omitted")));
    }
}
