//! Finds objects that are in a set of files more than once.

use super::problem::{FilePosition, Located};
use super::reader::ReadDocument;
use crate::kind::Kind;
use crate::object::Object;
use crate::spec::Spec;
use crate::spec::multikueue::PROVISIONING_CONTROLLER;
use std::sync::Arc;

/// The first file that configures a provider, and so belongs to a worker cluster.
pub(super) fn worker_file<T: ReadDocument>(objects: &[Located<T>]) -> Option<Arc<str>> {
    let is_workers = |object: &Object| match &object.spec {
        Spec::ProvisioningRequestConfig(_) => true,
        Spec::AdmissionCheck(check) => check.controller_name == PROVISIONING_CONTROLLER,
        _ => false,
    };
    objects
        .iter()
        .find(|located| located.value.object().is_some_and(is_workers))
        .map(|located| located.place.file.clone())
}

pub(super) fn twin_remedy(
    kind: Option<Kind>,
    here: &FilePosition,
    there: &FilePosition,
    worker_file: Option<&Arc<str>>,
) -> String {
    match kind {
        Some(Kind::ClusterQueue | Kind::ResourceFlavor | Kind::LocalQueue) if here.file != there.file => {
            let file =
                worker_file.filter(|file| **file == here.file || **file == there.file).unwrap_or(&here.file);
            format!(
                "a worker cluster's file has the same names as the manager's, but other numbers: apply the \
                worker's file with `apply --cluster NAME -f {file}`"
            )
        }
        Some(Kind::ClusterQueue | Kind::ResourceFlavor | Kind::LocalQueue) => {
            "keep one of them; if one is a worker cluster's, put it into a file of its own and apply that \
                with `apply --cluster NAME -f FILE`"
                .to_owned()
        }
        _ => "keep one of them, or give one another name".to_owned(),
    }
}
