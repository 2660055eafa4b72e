//! Where the objects come from: exported files, or the cluster itself.

use crate::args::MigrateSource;
use crate::commands::api_servers;
use crate::error::Error;
use crate::files;
use crate::session::Session;
use meridian_manager_kubernetes::preview;
use serde_json::Value;

pub(super) async fn read(session: &mut Session, source: &MigrateSource) -> Result<Vec<Value>, Error> {
    if source.files.is_empty() {
        let (named, context) = session.named_cluster();
        let connection = api_servers::open(named, context).await?;
        return preview::read(&connection.client).await.map_err(api_servers::refused);
    }
    let mut objects = Vec::new();
    for (name, text) in files::texts(&source.files, &mut session.stdin)? {
        let documents: Vec<Value> =
            documents(&text).map_err(|why| Error::Refused(format!("`{name}` can't be read: {why}")))?;
        documents.into_iter().for_each(|document| flatten(document, &mut objects));
    }
    Ok(objects)
}

fn documents(text: &str) -> Result<Vec<Value>, String> {
    // Large exports are JSON more often than not, and its reader is faster.
    if text.trim_start().starts_with(['{', '[']) {
        return serde_json::Deserializer::from_str(text)
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string());
    }
    serde_saphyr::from_multiple(text).map_err(|error| error.to_string())
}

/// The objects of a document: itself, or the items of a list.
fn flatten(document: Value, objects: &mut Vec<Value>) {
    match document {
        Value::Array(items) => items.into_iter().for_each(|item| flatten(item, objects)),
        Value::Object(mut fields) if fields.get("items").is_some_and(Value::is_array) => {
            flatten(fields.remove("items").unwrap_or_default(), objects);
        }
        object @ Value::Object(_) => objects.push(object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The flags that name the same source again, for commands that are printed.
pub(super) fn words(session: &Session, source: &MigrateSource) -> String {
    let (kubeconfig, context) = session.named_cluster();
    let mut words = String::new();
    if source.files.is_empty() {
        kubeconfig
            .iter()
            .for_each(|path| words += &format!(" --kubeconfig {}", quoted(&path.to_string_lossy())));
        context.iter().for_each(|name| words += &format!(" --context {}", quoted(name)));
    } else {
        words += " -f";
        source.files.iter().for_each(|path| words += &format!(" {}", quoted(&path.to_string_lossy())));
    }
    words
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@+=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
