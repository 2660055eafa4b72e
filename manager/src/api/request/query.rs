//! The query of a request: the options of the Kubernetes API, parsed once.

use super::selector::Selector;
use crate::api::response::error::Error;
use axum::extract::Query;
use axum::http::Uri;
use meridian_objects::FieldValidation;
use meridian_shared::ids::{ClusterName, RecordNumber};
use std::time::Duration;

/// Most parameters in one request.
const PARAMETERS_MAX: usize = 64;

/// How to match the `resourceVersion` of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionMatch {
    Exact,
    NotOlderThan,
}

/// The supported options. Others, such as `fieldManager` or `pretty`, are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) selector: Selector,
    pub(crate) watch: bool,
    /// 0 means any version.
    pub(crate) version: Option<RecordNumber>,
    pub(crate) version_match: Option<VersionMatch>,
    /// Most objects in one answer.
    pub(crate) limit: Option<usize>,
    /// The `continue` token of the previous page.
    pub(crate) token: Option<String>,
    /// Longest duration of a watch.
    pub(crate) timeout: Option<Duration>,
    /// Whether a watch sends bookmarks.
    pub(crate) bookmarks: bool,
    /// Whether a watch begins with all existing objects, followed by a bookmark.
    pub(crate) initial_events: bool,
    /// Validate only, and change nothing.
    pub(crate) dry_run: bool,
    /// Treatment of unknown fields in a written object.
    pub(crate) validation: FieldValidation,
    /// Selects the caps and settings of one worker cluster.
    pub(crate) scope: Option<ClusterName>,
    /// Content of each table row; the default is metadata.
    pub(crate) include: Option<String>,
}

impl Options {
    /// Reads the query of `uri`. Fails on malformed, contradicting or too many parameters.
    pub(crate) fn parse(uri: &Uri) -> Result<Self, Error> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| Error::BadRequest(format!("the query can't be read: {error}")))?;
        if pairs.len() > PARAMETERS_MAX {
            return Err(Error::BadRequest(format!("the query has more than {PARAMETERS_MAX} parameters")));
        }
        let mut options = Self::default();
        let (mut labels, mut fields) = (String::new(), String::new());
        for (name, value) in pairs {
            match name.as_str() {
                "labelSelector" => labels = value,
                "fieldSelector" => fields = value,
                "watch" => options.watch = flag(&value),
                "allowWatchBookmarks" => options.bookmarks = flag(&value),
                "sendInitialEvents" => options.initial_events = flag(&value),
                "resourceVersion" if !value.is_empty() => {
                    options.version = Some(RecordNumber(number(&name, &value)?))
                }
                "resourceVersionMatch" if !value.is_empty() => {
                    options.version_match = Some(version_match(&value)?)
                }
                "limit" => {
                    options.limit = usize::try_from(number(&name, &value)?).ok().filter(|limit| *limit > 0)
                }
                "continue" if !value.is_empty() => options.token = Some(value),
                "timeoutSeconds" => options.timeout = Some(Duration::from_secs(number(&name, &value)?)),
                "dryRun" => options.dry_run |= dry_run(&value)?,
                "fieldValidation" => options.validation = field_validation(&value)?,
                "cluster" if !value.is_empty() => options.scope = Some(ClusterName::new(value)),
                "includeObject" => options.include = Some(value),
                _ => {}
            }
        }
        options.selector = Selector::parse(&labels, &fields)?;
        options.check()?;
        Ok(options)
    }

    /// Fails if options contradict each other.
    fn check(&self) -> Result<(), Error> {
        let wrong = |text: &str| Err(Error::BadRequest(text.to_owned()));
        if self.initial_events && !self.watch {
            return wrong("`sendInitialEvents` is for watches only");
        }
        if self.initial_events && self.version_match != Some(VersionMatch::NotOlderThan) {
            return wrong("`sendInitialEvents` needs `resourceVersionMatch=NotOlderThan`");
        }
        if self.watch && self.version_match.is_some() && !self.initial_events {
            return wrong("`resourceVersionMatch` is forbidden for watches without `sendInitialEvents`");
        }
        if self.version_match.is_some() && self.version.is_none() && !self.initial_events {
            return wrong("`resourceVersionMatch` needs a `resourceVersion`");
        }
        if self.version_match == Some(VersionMatch::Exact) && self.version == Some(RecordNumber(0)) {
            return wrong("`resourceVersionMatch=Exact` needs a `resourceVersion` that is not 0");
        }
        if self.token.is_some() && self.version.is_some_and(|version| version.0 != 0) {
            return wrong("`resourceVersion` is not allowed together with `continue`");
        }
        Ok(())
    }
}

/// A flag as Kubernetes reads it: a parameter without a value is true.
fn flag(value: &str) -> bool {
    !value.eq_ignore_ascii_case("false") && value != "0"
}

fn number(name: &str, value: &str) -> Result<u64, Error> {
    value
        .parse()
        .map_err(|_| Error::BadRequest(format!("{name}: Invalid value: \"{value}\": must be a whole number")))
}

fn version_match(value: &str) -> Result<VersionMatch, Error> {
    match value {
        "Exact" => Ok(VersionMatch::Exact),
        "NotOlderThan" => Ok(VersionMatch::NotOlderThan),
        other => Err(Error::BadRequest(format!(
            "resourceVersionMatch: Unsupported value: \"{other}\": supported values: `Exact`, `NotOlderThan`"
        ))),
    }
}

/// Reads one `dryRun` stage. Fails for any stage other than `All`.
pub(crate) fn dry_run(value: &str) -> Result<bool, Error> {
    match value {
        "All" => Ok(true),
        "" => Ok(false),
        other => {
            Err(Error::BadRequest(format!("dryRun: Unsupported value: \"{other}\": supported values: `All`")))
        }
    }
}

/// Reads `fieldValidation`; no value is the default.
pub(crate) fn field_validation(value: &str) -> Result<FieldValidation, Error> {
    FieldValidation::from_word(value).ok_or_else(|| {
        Error::BadRequest(format!(
            "fieldValidation: Unsupported value: \"{value}\": supported values: `Ignore`, `Warn`, `Strict`"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read() {
        let options = Options::parse(
            &"/x?watch&resourceVersion=7&timeoutSeconds=3&allowWatchBookmarks=1&pretty=x".parse().unwrap(),
        )
        .unwrap();
        assert_eq!(
            (options.watch, options.version, options.timeout),
            (true, Some(RecordNumber(7)), Some(Duration::from_secs(3)))
        );
        assert!(options.bookmarks && !options.dry_run);
        let options = Options::parse(
            &"/x?watch=false&limit=0&continue=&dryRun=All&cluster=eu&resourceVersion=".parse().unwrap(),
        )
        .unwrap();
        assert_eq!(
            (options.watch, options.limit, options.token, options.version, options.dry_run),
            (false, None, None, None, true)
        );
        assert_eq!(options.scope, Some(ClusterName::new("eu")));
        assert_eq!(options.validation, FieldValidation::Warn);
        let options = Options::parse(&"/x?fieldValidation=Strict".parse().unwrap()).unwrap();
        assert_eq!(options.validation, FieldValidation::Strict);
    }

    #[test]
    fn nonsense_is_refused() {
        for query in [
            "limit=-1",
            "limit=x",
            "resourceVersion=abc",
            "timeoutSeconds=1.5",
            "dryRun=Some",
            "fieldValidation=strict",
            "resourceVersionMatch=Exact",
            "resourceVersionMatch=Exact&resourceVersion=0",
            "resourceVersionMatch=Near&resourceVersion=1",
            "sendInitialEvents=true",
            "watch=true&sendInitialEvents=true",
            "watch=true&resourceVersion=1&resourceVersionMatch=NotOlderThan",
            "continue=x&resourceVersion=5",
            "labelSelector=(",
            "fieldSelector=spec.x%3D1",
        ] {
            let error = Options::parse(&format!("/x?{query}").parse().unwrap());
            assert!(matches!(error, Err(Error::BadRequest(_))), "{query}: {error:?}");
        }
    }
}
