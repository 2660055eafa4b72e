//! Messages by which a worker cluster gets copies of ConfigMaps and Secrets of the management cluster. The
//! agent asks the manager, which reads the objects at that moment and stores nothing.
//!
//! ```text
//! agent                                              manager
//!   │ POST COPIES_PATH, a CopyRequest without a fence ──▶│  before the hold: what may be copied, by name
//!   │ POST COPIES_PATH, a CopyRequest with a fence ─────▶│  after the grant: the content of one object
//! ```
//!
//! Like logs, these are separate requests and never part of a sync, so no content gets into a journal.

use crate::ids::{Fence, OfferId, Uid};
use crate::protocol::{Reference, ReferenceKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub const COPIES_PATH: &str = "/agent/v1/copies";

/// Name and value of the label that permits copying a Secret of the management cluster.
pub const PERMITTED: (&str, &str) = ("meridian.dev/copy", "true");

/// Kinds of objects that can be copied. Both sides' settings use their text forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopiedKind {
    ConfigMaps,
    Secrets,
}

impl CopiedKind {
    pub const fn kind(self) -> ReferenceKind {
        match self {
            Self::ConfigMaps => ReferenceKind::ConfigMap,
            Self::Secrets => ReferenceKind::Secret,
        }
    }
}

impl FromStr for CopiedKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "config-maps" => Ok(Self::ConfigMaps),
            "secrets" => Ok(Self::Secrets),
            other => Err(format!("`{other}` can't be copied: use `config-maps`, `secrets` or both")),
        }
    }
}

/// A request about objects that the pods of one workload name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRequest {
    pub uid: Uid,
    /// The offer to this cluster, open or granted.
    pub offer: OfferId,
    /// The granted attempt. Without it no content is sent.
    pub fence: Option<Fence>,
    /// The objects. Only one if its content is requested.
    pub references: Vec<Reference>,
}

/// One entry for each reference of the request, in its order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyAnswer {
    pub objects: Vec<CopyOutcome>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyOutcome {
    /// The object exists and may be copied.
    Permitted,
    /// The object isn't copied, with the reason.
    Refused(Arc<str>),
    Content(Box<Content>),
}

/// Content of an object. Its debug form has no values, so that none gets into a log.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The type of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_type: Option<String>,
    /// Data as in the object: text in a ConfigMap, base64 in a Secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// Binary data of a ConfigMap, in base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub binary_data: BTreeMap<String, String>,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_is_fixed() {
        let request = CopyRequest {
            uid: Uid(1),
            offer: OfferId { epoch: 2, leadership: 3, counter: 4 },
            fence: Some(Fence { epoch: 2, leadership: 3, counter: 5 }),
            references: vec![Reference { kind: ReferenceKind::Secret, name: "token".into() }],
        };
        let text = concat!(
            r#"{"uid":"00000000-0000-0000-0000-000000000001","offer":"2-3-4","fence":"2-3-5","#,
            r#""references":[{"kind":"Secret","name":"token"}]}"#
        );
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        assert_eq!(serde_json::from_str::<CopyRequest>(text).unwrap(), request);
        let content = Content { data: BTreeMap::from([("k".into(), "dg==".into())]), ..Content::default() };
        let objects = vec![
            CopyOutcome::Permitted,
            CopyOutcome::Refused("no".into()),
            CopyOutcome::Content(Box::new(content)),
        ];
        let text = r#"{"objects":["Permitted",{"Refused":"no"},{"Content":{"data":{"k":"dg=="}}}]}"#;
        assert_eq!(serde_json::to_string(&CopyAnswer { objects }).unwrap(), text);
    }

    #[test]
    fn the_debug_form_of_content_has_no_values() {
        let data = BTreeMap::from([("password".to_owned(), "c2VjcmV0".to_owned())]);
        let content = Content { secret_type: None, data: data.clone(), binary_data: data };
        let answer = CopyAnswer { objects: vec![CopyOutcome::Content(Box::new(content))] };
        let text = format!("{answer:?}");
        assert!(!text.contains("c2VjcmV0") && text.contains("Content"), "{text}");
    }

    #[test]
    fn kinds_are_named_as_the_settings_name_them() {
        assert_eq!("config-maps".parse(), Ok(CopiedKind::ConfigMaps));
        assert_eq!("secrets".parse::<CopiedKind>().unwrap().kind(), ReferenceKind::Secret);
        let refused = "volumes".parse::<CopiedKind>().unwrap_err();
        assert_eq!(refused, "`volumes` can't be copied: use `config-maps`, `secrets` or both");
    }
}
