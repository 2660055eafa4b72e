//! The manager's remarks on a request that it accepted: `Warning` headers (RFC 7234, section 5.5), as Kubernetes sends them.

use reqwest::header::{HeaderMap, WARNING};

/// The texts of all of them, in their order. What isn't written as the RFC has it is shown as it is: a remark is worth reading all the same.
pub(super) fn all(headers: &HeaderMap) -> Vec<String> {
    let values =
        headers.get_all(WARNING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    values.map(|value| unquoted(&value).unwrap_or(value)).collect()
}

/// The text of `299 - "text"`.
fn unquoted(value: &str) -> Option<String> {
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
    fn remarks_are_read_back_as_they_were_said() {
        let mut headers = HeaderMap::new();
        for value in
            ["299 - \"say \\\"a\\\" \\\\ b — c\"", "299 kube \"x\" \"Sat, 25 Aug 2012 23:34:45 GMT\"", "odd"]
        {
            headers.append(WARNING, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        assert_eq!(all(&headers), ["say \"a\" \\ b — c", "x", "odd"]);
    }
}
