//! Bodies of requests: bounded in bytes and time, JSON, and cleared of fields that only the manager writes.

use crate::api::response::error::Error;
use crate::bounded_body::{self, BodyError, Rest};
use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use bytes::Bytes;
use meridian_objects::job::{CLUSTER_LABEL, JobKind};
use meridian_shared::ids::{ClusterName, RecordNumber, Uid};
use serde_json::Value;
use std::time::Duration;

/// Largest body that holds one object, in bytes, as in Kubernetes.
pub(crate) const OBJECT_BYTES_MAX: usize = 3 << 20;
/// Largest body that holds many objects, in bytes: 10,000 Jobs of 2 KB, and some reserve.
pub(crate) const MANY_BYTES_MAX: usize = 32 << 20;
/// Largest body of an action, in bytes; usual ones have a few dozen.
pub(crate) const ACTION_BYTES_MAX: usize = 64 << 10;
/// How long a body may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(60);

/// Reads the whole body. Fails if it is larger than `most` bytes, encoded, late or broken off.
pub(crate) async fn read(headers: &HeaderMap, body: Body, most: usize) -> Result<Bytes, Error> {
    if let Some(encoding) = headers.get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        return Err(Error::MediaType(format!(
            "the body has the content encoding `{}`: send it without encoding",
            String::from_utf8_lossy(encoding.as_bytes())
        )));
    }
    // a client that sent `Expect` gets the answer before it sends the body
    let rest = if headers.contains_key(EXPECT) { Rest::Unread } else { Rest::Discarded };
    let announced =
        headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let reading = async {
        match announced {
            Some(length) if length > most => Err(bounded_body::too_large(body, rest).await),
            _ => bounded_body::read(body, most, rest).await,
        }
    };
    match tokio::time::timeout(ARRIVAL, reading).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(BodyError::TooLarge)) => Err(Error::TooLarge(most)),
        Ok(Err(BodyError::Broken(error))) => Err(Error::BadRequest(format!("the body ended early: {error}"))),
        Err(_) => Err(Error::Slow(ARRIVAL.as_secs())),
    }
}

/// The body's media type without parameters, in lower case; empty if none is given.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|text| text.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Fails if the headers say that the body is not JSON.
pub(crate) fn must_be_json(headers: &HeaderMap) -> Result<(), Error> {
    match media_type(headers).as_str() {
        "" | "application/json" => Ok(()),
        other => Err(Error::MediaType(format!("the body is `{other}`: send `application/json`"))),
    }
}

/// Decodes JSON. Fails if the body is malformed or has another shape.
pub(crate) fn json<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::BadRequest(format!("the body can't be read: {error}")))
}

/// The state of an object that a client's write depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Precondition {
    /// The version that the client has read.
    pub(crate) version: Option<RecordNumber>,
    /// The uid that the client has read.
    pub(crate) uid: Option<Uid>,
}

/// Removes the metadata that only the manager writes, and returns the part of it that is a precondition.
pub(crate) fn take_precondition(object: &mut Value) -> Result<Precondition, Error> {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Ok(Precondition::default());
    };
    for name in [
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
    ] {
        metadata.remove(name);
    }
    let mut precondition = Precondition::default();
    let (version, uid) = (metadata.remove("resourceVersion"), metadata.remove("uid"));
    if let Some(version) = version.filter(|v| !is_empty(v)) {
        let number = version.as_str().and_then(|text| text.parse().ok());
        precondition.version = Some(RecordNumber(number.ok_or_else(|| {
            Error::BadRequest("metadata.resourceVersion: not a version of this manager".to_owned())
        })?));
    }
    if let Some(uid) = uid.filter(|uid| !is_empty(uid)) {
        let known = uid.as_str().and_then(|text| text.parse().ok());
        precondition.uid = Some(
            known.ok_or_else(|| Error::BadRequest("metadata.uid: not a uid of this manager".to_owned()))?,
        );
    }
    Ok(precondition)
}

/// Removes the label that names the cluster for which an object was read. If the label differs from `scope`,
/// or there is no scope, keeps it and returns its cluster. On a job the label is the user's own.
pub(crate) fn take_cluster_label(object: &mut Value, scope: Option<&ClusterName>) -> Option<String> {
    if object["kind"].as_str().is_some_and(|kind| JobKind::by_name(kind).is_some()) {
        return None;
    }
    let labels = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut)?;
    let named = labels.get(CLUSTER_LABEL)?.as_str()?.to_owned();
    if scope.is_none_or(|scope| named != scope.as_str()) {
        return Some(named);
    }
    labels.remove(CLUSTER_LABEL);
    if labels.is_empty() {
        object["metadata"].as_object_mut()?.remove("labels");
    }
    None
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value == ""
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cluster_label_is_removed_for_its_own_cluster_only() {
        let labelled = |cluster: &str| {
            json!({
                "kind": "ClusterQueue",
                "metadata": {"name": "q", "labels": {CLUSTER_LABEL: cluster}},
            })
        };
        let mut own = labelled("us");
        assert_eq!(take_cluster_label(&mut own, Some(&"us".into())), None);
        assert_eq!(own, json!({"kind": "ClusterQueue", "metadata": {"name": "q"}}));
        assert_eq!(take_cluster_label(&mut labelled("us"), Some(&"eu".into())), Some("us".to_owned()));
        assert_eq!(take_cluster_label(&mut labelled("us"), None), Some("us".to_owned()));
        let mut job = json!({"kind": "Job", "metadata": {"labels": {CLUSTER_LABEL: "us"}}});
        assert_eq!(take_cluster_label(&mut job.clone(), None), None);
        for odd in [
            json!(3),
            json!({}),
            json!({"metadata": {"labels": []}}),
            json!({"metadata": {"labels": {CLUSTER_LABEL: 3}}}),
        ] {
            job = odd;
            assert_eq!(take_cluster_label(&mut job, None), None);
        }
    }

    #[test]
    fn metadata_that_the_manager_writes_is_removed() {
        let uid = "00000000-0000-0000-0000-00000000000a";
        let mut object = json!({"metadata": {
            "name": "x", "generation": 3, "resourceVersion": "7", "uid": uid, "creationTimestamp": null,
        }});
        assert_eq!(
            take_precondition(&mut object).unwrap(),
            Precondition { version: Some(RecordNumber(7)), uid: Some(Uid(10)) }
        );
        assert_eq!(object, json!({"metadata": {"name": "x"}}));
        assert_eq!(
            take_precondition(&mut json!({"metadata": {"resourceVersion": "", "uid": null}})).unwrap(),
            Precondition::default()
        );
        for odd in [json!(3), json!([]), json!({"metadata": 3})] {
            assert_eq!(take_precondition(&mut odd.clone()).unwrap(), Precondition::default());
        }
        for wrong in [
            json!({"resourceVersion": "x"}),
            json!({"resourceVersion": 7}),
            json!({"uid": "x"}),
            json!({"uid": {}}),
        ] {
            assert!(take_precondition(&mut json!({"metadata": wrong})).is_err());
        }
    }
}
