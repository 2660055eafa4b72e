//! Decides what is done with one copy when a job begins and when it has ended. Pure.

use super::{Content, ObjectMeta, Owner, Reference};
use crate::labels::{self, COPY_OF, MANAGED_BY, UID};
use serde_json::{Value, json};

/// What a job needs of an object that its pods name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Arrival {
    /// The cluster's own object is used, or the copy exists already.
    Nothing,
    Create {
        owners: Vec<Value>,
    },
    /// Another job has the copy. It gets the current content, and one more owner.
    Replace {
        owners: Vec<Value>,
        version: String,
    },
}

/// What is done with a copy when a job has ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Departure {
    /// The object isn't a copy, or isn't this job's.
    Nothing,
    Delete {
        uid: String,
        version: String,
    },
    /// Other jobs use the copy.
    Leave {
        owners: Vec<Value>,
    },
}

pub(super) fn arrival(there: Option<&ObjectMeta>, owner: &Owner) -> Arrival {
    let Some(there) = there else { return Arrival::Create { owners: vec![reference_to(owner)] } };
    let mut owners = owners_of(there);
    if !labels::is_copy(there) || owners.iter().any(|of| is(of, owner)) {
        return Arrival::Nothing;
    }
    owners.push(reference_to(owner));
    Arrival::Replace { owners, version: there.resource_version.clone().unwrap_or_default() }
}

pub(super) fn departure(there: &ObjectMeta, owner: &Owner) -> Departure {
    let mut owners = owners_of(there);
    if !labels::is_copy(there) || !owners.iter().any(|of| is(of, owner)) {
        return Departure::Nothing;
    }
    owners.retain(|of| !is(of, owner));
    if owners.is_empty() {
        let version = there.resource_version.clone().unwrap_or_default();
        return Departure::Delete { uid: there.uid.clone().unwrap_or_default(), version };
    }
    Departure::Leave { owners }
}

fn is(reference: &Value, owner: &Owner) -> bool {
    reference["uid"] == owner.object_uid.as_str()
}

fn owners_of(metadata: &ObjectMeta) -> Vec<Value> {
    let owners = metadata.owner_references.iter().flatten();
    owners.map(|owner| serde_json::to_value(owner).unwrap_or_default()).collect()
}

/// The job as one of several owners: none of them controls the copy.
fn reference_to(owner: &Owner) -> Value {
    json!({
        "apiVersion": owner.kind.api_version(), "kind": owner.kind.name(), "name": owner.name,
        "uid": owner.object_uid,
    })
}

/// The copy as it is written.
pub(super) fn manifest(
    reference: &Reference,
    owner: &Owner,
    content: &Content,
    owners: &[Value],
    version: Option<&str>,
) -> Value {
    let Content { secret_type, data, binary_data } = content;
    let mut copy = json!({
        "apiVersion": "v1",
        "kind": reference.kind.name(),
        "metadata": {
            "name": &*reference.name,
            "namespace": owner.namespace,
            "labels": {
                MANAGED_BY.0: MANAGED_BY.1, COPY_OF.0: COPY_OF.1, UID: owner.uid.to_string(),
            },
            "ownerReferences": owners,
        },
        "data": data,
    });
    if let Some(version) = version {
        copy["metadata"]["resourceVersion"] = json!(version);
    }
    if let Some(secret_type) = secret_type {
        copy["type"] = json!(secret_type);
    }
    if !binary_data.is_empty() {
        copy["binaryData"] = json!(binary_data);
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_objects::job::JobKind;
    use meridian_shared::ids::{Fence, Uid};
    use meridian_shared::protocol::ReferenceKind;
    use std::collections::BTreeMap;

    fn owner(object_uid: &str) -> Owner {
        Owner {
            kind: JobKind::usual(),
            namespace: "ml".into(),
            name: format!("job-{object_uid}"),
            object_uid: object_uid.into(),
            uid: Uid(7),
            fence: Fence { epoch: 1, leadership: 2, counter: 3 },
        }
    }

    /// The copy that these jobs own, as the API server has it.
    fn copy(owners: &[&Owner]) -> ObjectMeta {
        let reference = Reference { kind: ReferenceKind::Secret, name: "token".into() };
        let owners: Vec<Value> = owners.iter().map(|owner| reference_to(owner)).collect();
        let made = manifest(&reference, &owner("a"), &Content::default(), &owners, None);
        let mut metadata: ObjectMeta = serde_json::from_value(made["metadata"].clone()).unwrap();
        (metadata.uid, metadata.resource_version) = (Some("u".into()), Some("9".into()));
        metadata
    }

    #[test]
    fn a_copy_says_where_it_is_from_and_which_job_it_belongs_to() {
        let reference = Reference { kind: ReferenceKind::Secret, name: "token".into() };
        let content = Content {
            secret_type: Some("Opaque".into()),
            data: BTreeMap::from([("token".to_owned(), "dg==".to_owned())]),
            ..Content::default()
        };
        let made = manifest(&reference, &owner("a"), &content, &[reference_to(&owner("a"))], None);
        let labels = &made["metadata"]["labels"];
        assert_eq!(labels["meridian.dev/copy-of"], "management-cluster");
        assert_eq!(labels["app.kubernetes.io/managed-by"], "meridian");
        assert_eq!(labels["meridian.dev/uid"], Uid(7).to_string());
        let of = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "job-a", "uid": "a"}]);
        assert_eq!(made["metadata"]["ownerReferences"], of);
        assert_eq!((&made["kind"], &made["type"]), (&json!("Secret"), &json!("Opaque")));
        assert_eq!(made["data"], json!({"token": "dg=="}));
        assert_eq!(made["binaryData"], Value::Null);
    }

    #[test]
    fn an_object_that_the_agent_did_not_make_is_never_touched() {
        let mut foreign = copy(&[&owner("a")]);
        foreign.labels.as_mut().unwrap().remove(COPY_OF.0);
        assert_eq!(arrival(Some(&foreign), &owner("b")), Arrival::Nothing);
        assert_eq!(departure(&foreign, &owner("a")), Departure::Nothing);
        let mut imitated = copy(&[&owner("a")]);
        imitated.labels.as_mut().unwrap().insert(MANAGED_BY.0.into(), "Helm".into());
        assert_eq!(arrival(Some(&imitated), &owner("b")), Arrival::Nothing);
        assert_eq!(departure(&imitated, &owner("a")), Departure::Nothing);
        assert_eq!(arrival(None, &owner("a")), Arrival::Create { owners: vec![reference_to(&owner("a"))] });
    }

    #[test]
    fn a_copy_lasts_until_the_last_of_its_jobs_has_ended() {
        let (a, b) = (owner("a"), owner("b"));
        let alone = copy(&[&a]);
        assert_eq!(arrival(Some(&alone), &a), Arrival::Nothing, "an earlier try made it");
        let Arrival::Replace { owners, version } = arrival(Some(&alone), &b) else { panic!("it is shared") };
        assert_eq!((owners.len(), version.as_str()), (2, "9"));
        let shared = copy(&[&a, &b]);
        assert_eq!(departure(&shared, &a), Departure::Leave { owners: vec![reference_to(&b)] });
        let deleted = Departure::Delete { uid: "u".into(), version: "9".into() };
        assert_eq!(departure(&copy(&[&b]), &b), deleted);
        assert_eq!(departure(&copy(&[&b]), &a), Departure::Nothing, "it is not this job's any more");
    }
}
