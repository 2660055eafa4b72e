//! A watch that survives the end of single streams, broken connections, and expired resource versions (410):
//! then the objects are listed again, and the differences become events.
//!
//! Invariant: [`Watch::next`] returns each state of an object at most once, and eventually the last state of
//! every object.

use super::error::Error;
use super::http::{Client, text_at};
use super::objects::{Selection, with_type};
use super::retry::{HEALTHY_AFTER, Retry};
use super::status::Status;
use super::stream_lines::StreamLines;
use reqwest::Method;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Modified,
    /// The event carries the object's last state.
    Deleted,
}

impl ChangeKind {
    /// The `type` of the watch protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WatchEvent {
    pub(crate) kind: ChangeKind,
    /// With `apiVersion` and `kind`.
    pub(crate) object: Value,
}

#[derive(Debug)]
pub(crate) struct Watch {
    client: Client,
    selection: Selection,
    version: String,
    stream: Option<(StreamLines, Instant)>,
    /// The last known state of each object, by namespace and name.
    known: BTreeMap<(String, String), Value>,
    ready: VecDeque<WatchEvent>,
    retry: Retry,
}

impl Client {
    /// Lists the selected objects, and watches them from the list's version on. Fails if the list does.
    pub(crate) async fn watch(&self, selection: Selection) -> Result<(Vec<Value>, Watch), Error> {
        let list = self.list(&selection).await?;
        let known = list.items.iter().map(|object| (key(object), object.clone())).collect();
        let watch = Watch {
            client: self.clone(),
            selection,
            version: list.version,
            stream: None,
            known,
            ready: VecDeque::new(),
            retry: Retry::new(),
        };
        Ok((list.items, watch))
    }
}

impl Watch {
    /// Waits for the next event. Fails after too many failures in a row, or if the manager refuses.
    pub(crate) async fn next(&mut self) -> Result<WatchEvent, Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            match self.read_line().await {
                Ok(()) => {}
                Err(error) if error.is_expired() => {
                    self.stream = None;
                    self.relist_or_pause().await?;
                }
                Err(error) if error.is_temporary() => {
                    self.stream = None;
                    self.pause(error).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads one line, after opening a stream if none is open.
    async fn read_line(&mut self) -> Result<(), Error> {
        if self.stream.is_none() {
            let mut url = self.client.selection_url(&self.selection);
            url.query_pairs_mut()
                .append_pair("watch", "true")
                .append_pair("allowWatchBookmarks", "true")
                .append_pair("resourceVersion", &self.version);
            let response = self.client.send(self.client.request(Method::GET, url)).await?;
            self.stream = Some((StreamLines::new(response), Instant::now()));
        }
        let (stream, opened) = self.stream.as_mut().expect("just opened");
        let line = stream.next(&self.client).await;
        if opened.elapsed() >= HEALTHY_AFTER {
            self.retry.reset();
        }
        match line? {
            Some(line) if line.is_empty() => Ok(()),
            Some(line) => self.handle_line(&line),
            None => {
                self.stream = None;
                let ended = self.interrupted("the stream ended");
                self.pause(ended).await
            }
        }
    }

    fn handle_line(&mut self, line: &[u8]) -> Result<(), Error> {
        let malformed = |why: String| Error::Malformed { request: "a watch".to_owned(), why };
        let mut event: Value = serde_json::from_slice(line).map_err(|error| malformed(error.to_string()))?;
        let object = event.get_mut("object").map(Value::take).unwrap_or_default();
        let kind = match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "ADDED" => ChangeKind::Added,
            "MODIFIED" => ChangeKind::Modified,
            "DELETED" => ChangeKind::Deleted,
            "BOOKMARK" => {
                self.retry.reset();
                self.version = version_of(&object);
                return Ok(());
            }
            "ERROR" => {
                let code = object.get("code").and_then(Value::as_u64);
                let code = code.and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
                return Err(Error::Status(Box::new(Status::read(code, object.to_string().as_bytes()))));
            }
            other => return Err(malformed(format!("unknown event type `{other}`"))),
        };
        self.retry.reset();
        let version = version_of(&object);
        if !version.is_empty() {
            self.version = version;
        }
        self.enqueue(kind, with_type(object, self.selection.kind));
        Ok(())
    }

    /// Queues an event unless the object's state is known already.
    fn enqueue(&mut self, kind: ChangeKind, object: Value) {
        if self.selection.name.as_ref().is_some_and(|name| text_at(&object, "/metadata/name") != *name) {
            return;
        }
        let key = key(&object);
        match kind {
            ChangeKind::Deleted => {
                if self.known.remove(&key).is_none() {
                    return;
                }
            }
            ChangeKind::Added | ChangeKind::Modified => {
                let before = self.known.insert(key, object.clone());
                if before.is_some_and(|before| {
                    version_of(&before) == version_of(&object) && !version_of(&object).is_empty()
                }) {
                    return;
                }
            }
        }
        self.ready.push_back(WatchEvent { kind, object });
    }

    async fn relist_or_pause(&mut self) -> Result<(), Error> {
        let list = match self.client.list(&self.selection).await {
            Ok(list) => list,
            Err(error) if error.is_temporary() => return self.pause(error).await,
            Err(error) => return Err(error),
        };
        self.version = list.version;
        let listed: BTreeSet<_> = list.items.iter().map(key).collect();
        let gone: Vec<Value> =
            self.known.iter().filter(|(key, _)| !listed.contains(*key)).map(|(_, o)| o.clone()).collect();
        gone.into_iter().for_each(|object| self.enqueue(ChangeKind::Deleted, object));
        for object in list.items {
            let is_known = self.known.contains_key(&key(&object));
            let kind = if is_known { ChangeKind::Modified } else { ChangeKind::Added };
            self.enqueue(kind, object);
        }
        if self.ready.is_empty() {
            // Don't ask in a tight loop if each listed version expires at once.
            let expired = self.interrupted("each listed resource version expires at once");
            return self.pause(expired).await;
        }
        Ok(())
    }

    fn interrupted(&self, why: &str) -> Error {
        Error::Unreachable { server: self.client.server(), why: why.to_owned(), unsent: false }
    }

    async fn pause(&mut self, error: Error) -> Result<(), Error> {
        tracing::info!(%error, "resuming the watch");
        self.retry.pause().await.map_err(|tries| Error::WatchLost { tries, source: Box::new(error) })
    }
}

fn key(object: &Value) -> (String, String) {
    (text_at(object, "/metadata/namespace"), text_at(object, "/metadata/name"))
}

fn version_of(object: &Value) -> String {
    text_at(object, "/metadata/resourceVersion")
}
