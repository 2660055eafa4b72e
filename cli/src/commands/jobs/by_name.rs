//! The job that a name without a kind stands for.

use crate::client::Client;
use crate::error::Error;
use meridian_objects::job::JobKind;
use serde_json::Value;

/// The only job of this name, of whatever kind. Kinds that the user may not read don't count. Fails if there
/// is none, or if there are several.
pub(super) async fn find(client: &Client, namespace: &str, name: &str) -> Result<Value, Error> {
    let (mut found, mut refused) = (Vec::new(), None);
    for kind in JobKind::all().map(JobKind::kind) {
        match client.get(kind, Some(namespace), name).await {
            Ok(job) => found.push((kind, job)),
            Err(error) if error.is_not_found() || error.is_forbidden() => {
                refused.get_or_insert(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let names: Vec<String> = found.iter().map(|(kind, _)| format!("`{}/{name}`", kind.singular())).collect();
    match (found.pop(), refused) {
        (Some((_, job)), _) if found.is_empty() => Ok(job),
        (None, Some(error)) => Err(error.into()),
        _ => Err(Error::Refused(format!("several jobs have this name: write {}", names.join(" or ")))),
    }
}
