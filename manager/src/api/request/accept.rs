//! The format that a client accepts: objects as JSON, or a table rendered by the server.

use crate::api::response::error::Error;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseFormat {
    /// The objects themselves.
    Json,
    /// A `Table` of `meta.k8s.io/v1`.
    Table,
}

impl ResponseFormat {
    /// The first supported format in the `Accept` headers. Fails if they name only unsupported formats.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Self, Error> {
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
    fn the_first_supported_format_is_used() {
        let check = |accept: &'static str, expect: Result<ResponseFormat, Error>| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(ResponseFormat::from_headers(&headers), expect, "{accept}");
        };
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,\
             application/json",
            Ok(ResponseFormat::Table),
        );
        check(
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json",
            Ok(ResponseFormat::Json),
        );
        check("application/vnd.kubernetes.protobuf,application/json", Ok(ResponseFormat::Json));
        check("*/*", Ok(ResponseFormat::Json));
        check("", Ok(ResponseFormat::Json));
        check("text/html", Err(Error::NotAcceptable));
        check("application/json;q=0", Err(Error::NotAcceptable));
        check("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", Err(Error::NotAcceptable));
        assert_eq!(ResponseFormat::from_headers(&HeaderMap::new()), Ok(ResponseFormat::Json));
    }
}
