//! `labelSelector` and `fieldSelector` of a list or a watch.

use crate::api::response::error::Error;
use meridian_manager_core::facts::key::Key;
use meridian_objects::selector::{self, FieldSelector};
use meridian_shared::gang::LabelSelector;
use serde_json::Value;
use std::collections::BTreeMap;

const NAME: &str = "metadata.name";
/// The supported fields.
const FIELDS: [&str; 2] = [NAME, "metadata.namespace"];

/// Selects objects by labels, name and namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selector {
    /// Reads both selectors; empty ones select everything. Fails if one is malformed or too long.
    pub(crate) fn parse(labels: &str, fields: &str) -> Result<Self, Error> {
        let bad_request = |error: selector::Error| Error::BadRequest(error.to_string());
        Ok(Self {
            labels: selector::parse_labels(labels).map_err(bad_request)?,
            fields: FieldSelector::parse(fields, &FIELDS).map_err(bad_request)?,
        })
    }

    /// Narrows the selection to one name.
    pub(crate) fn restrict_to(&mut self, name: &str) {
        self.fields.require(NAME, name);
    }

    /// The name to which the selection is restricted, if any.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.required(NAME)
    }

    /// Whether labels are selected: then a change of an object can change whether it is selected.
    pub(crate) fn by_labels(&self) -> bool {
        !self.labels.match_expressions.is_empty()
    }

    /// Whether this object is selected.
    pub(crate) fn selects(&self, key: &Key, value: &Value) -> bool {
        let field =
            |name| if name == NAME { &*key.name } else { key.namespace.as_deref().unwrap_or_default() };
        self.fields.matches(field) && (!self.by_labels() || self.labels.matches(&labels_of(value)))
    }
}

fn labels_of(value: &Value) -> BTreeMap<String, String> {
    let labels = value.pointer("/metadata/labels").and_then(Value::as_object);
    labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_objects::Kind;
    use serde_json::json;

    #[test]
    fn selectors_select() {
        let key = Key::namespaced(Kind::Job, "default", "train");
        let job =
            json!({"metadata": {"labels": {"team": "vision", "n": "7", "kueue.x-k8s.io/queue-name": "q"}}});
        let check = |labels: &str, fields: &str, expect: bool| {
            assert_eq!(
                Selector::parse(labels, fields).unwrap().selects(&key, &job),
                expect,
                "{labels} {fields}"
            );
        };
        for yes in [
            "",
            "team=vision",
            "team==vision,n>3",
            "team in (vision, nlp),!debug",
            "team!=x,absent!=x",
            "kueue.x-k8s.io/queue-name",
            "n notin (1,2),n<9",
        ] {
            check(yes, "", true);
        }
        for no in ["team=x", "debug", "!team", "team notin (vision)", "team in (a,b)", "n>7"] {
            check(no, "", false);
        }
        check("", "metadata.name=train", true);
        check("", "metadata.name!=train", false);
        check("team=vision", "metadata.name==train,metadata.namespace=default", true);
        check("", "metadata.namespace=other", false);
    }

    #[test]
    fn malformed_selectors_are_explained() {
        for (labels, fields, why) in [
            ("a=b,,c", "", "there is nothing between two commas"),
            ("a in (b", "", "`(` without `)`"),
            ("a of (b)", "", "`of` is neither `in` nor `notin`"),
            ("a=b c", "", "`b c` is not a label value"),
            ("n>x", "", "not a whole number"),
            ("", "status.phase=Running", "field label not supported: `status.phase`"),
            ("", "metadata.name", "is not `FIELD=VALUE`"),
            (&"a".repeat(selector::SELECTOR_BYTES_MAX + 1), "", "more than"),
        ] {
            let error = Selector::parse(labels, fields).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
