//! In which form a client wants its answer: objects as JSON, or a table that is made here.

use super::error::Error;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// A form of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects.
    Json,
    /// `meta.k8s.io/v1` `Table`.
    Table,
}

impl Form {
    /// The first form of the `Accept` headers that is spoken here.
    pub(crate) fn wanted(headers: &HeaderMap) -> Result<Self, Error> {
        let mut any = false;
        for header in headers.get_all(ACCEPT) {
            let Ok(text) = header.to_str() else { continue };
            for range in text.split(',').map(str::trim).filter(|range| !range.is_empty()) {
                any = true;
                if let Some(form) = Self::of(range) {
                    return Ok(form);
                }
            }
        }
        if any { Err(Error::NotAcceptable) } else { Ok(Self::Json) }
    }

    fn of(range: &str) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
            return None;
        }
        let (mut shape, mut group, mut version) = (None, None, None);
        for part in parts {
            match part.split_once('=') {
                Some(("as", value)) => shape = Some(value),
                Some(("g", value)) => group = Some(value),
                Some(("v", value)) => version = Some(value),
                Some(("q", "0" | "0.0" | "0.00" | "0.000")) => return None,
                _ => {}
            }
        }
        match shape {
            None => Some(Self::Json),
            Some("Table") if group == Some("meta.k8s.io") && version == Some("v1") => Some(Self::Table),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn the_first_known_form_is_taken() {
        let check = |accept: &'static str, expect: Result<Form, Error>| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(Form::wanted(&headers), expect, "{accept}");
        };
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            Ok(Form::Table),
        );
        check("application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json", Ok(Form::Json));
        check("application/vnd.kubernetes.protobuf,application/json", Ok(Form::Json));
        check("*/*", Ok(Form::Json));
        check("", Ok(Form::Json));
        check("text/html", Err(Error::NotAcceptable));
        check("application/json;q=0", Err(Error::NotAcceptable));
        check("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", Err(Error::NotAcceptable));
        assert_eq!(Form::wanted(&HeaderMap::new()), Ok(Form::Json));
    }
}
