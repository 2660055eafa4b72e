//! The manager's warnings about an accepted request: `Warning` headers (RFC 7234, section 5.5), as Kubernetes
//! sends them.

use reqwest::header::{HeaderMap, WARNING};

/// The texts in their order. A value that isn't in the standard form is shown unchanged.
pub(super) fn parse(headers: &HeaderMap) -> Vec<String> {
    let values =
        headers.get_all(WARNING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    values.map(|value| unquote(&value).unwrap_or(value)).collect()
}

/// The text of `299 - "text"`.
fn unquote(value: &str) -> Option<String> {
    let (_, after) = value.split_once(" \"")?;
    let mut text = String::new();
    let mut rest = after.chars();
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' => text.push(rest.next()?),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    #[test]
    fn quoted_texts_are_unquoted() {
        let mut headers = HeaderMap::new();
        for value in
            ["299 - \"say \\\"a\\\" \\\\ b — c\"", "299 kube \"x\" \"Sat, 25 Aug 2012 23:34:45 GMT\"", "z"]
        {
            headers.append(WARNING, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        assert_eq!(parse(&headers), ["say \"a\" \\ b — c", "x", "z"]);
    }
}
