//! A watch that goes on: over the ends of single streams, over broken connections, and over a manager that forgot the
//! version asked for (410), in which case the objects are listed anew and the differences told as changes.
//!
//! Invariant: [`Watch::next`] tells each state of an object at most once, and the last state of every object eventually.

use super::{Client, Error, Lines, Selection, Status, text_at, with_type};
use meridian_shared::backoff;
use meridian_shared::time::Millis;
use reqwest::Method;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// The first pause after a stream broke.
const PAUSE_FIRST: Millis = Millis(250);
/// The longest pause between two tries.
const PAUSE_MAX: Millis = Millis::secs(10);
/// Tries in a row that may fail: with the pauses above about a minute, which a restart of a manager takes at most.
const TRIES_MAX: u32 = 12;
/// A stream that lasted this long was well, even if it brought nothing: managers end idle streams now and then.
const WELL_AFTER: Duration = Duration::from_secs(5);

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// It is new.
    Added,
    /// It is another one now.
    Modified,
    /// It is gone; the change carries its last state.
    Deleted,
}

impl ChangeKind {
    /// The word of the watch protocol.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// What happened.
    pub(crate) kind: ChangeKind,
    /// The object, with `apiVersion` and `kind`.
    pub(crate) object: Value,
}

/// A running watch.
#[derive(Debug)]
pub(crate) struct Watch {
    client: Client,
    selection: Selection,
    version: String,
    stream: Option<(Lines, Instant)>,
    known: BTreeMap<(String, String), Value>,
    ready: VecDeque<Change>,
    /// Tries in a row that brought nothing.
    failures: u32,
    seed: u64,
}

impl Watch {
    pub(super) async fn start(client: Client, selection: Selection) -> Result<(Vec<Value>, Self), Error> {
        let list = client.list(&selection).await?;
        let known = list.items.iter().map(|object| (key(object), object.clone())).collect();
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        let watch = Self {
            client,
            selection,
            version: list.version,
            stream: None,
            known,
            ready: VecDeque::new(),
            failures: 0,
            seed,
        };
        Ok((list.items, watch))
    }

    /// The next change. Waits for it as long as it takes; an error ends the watch.
    pub(crate) async fn next(&mut self) -> Result<Change, Error> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(change);
            }
            match self.advance().await {
                Ok(()) => {}
                Err(error) if error.is_gone() => {
                    self.stream = None;
                    self.relist_or_pause().await?;
                }
                Err(error) if error.is_passing() => {
                    self.stream = None;
                    self.pause(error).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads one line, after opening a stream if none is open.
    async fn advance(&mut self) -> Result<(), Error> {
        if self.stream.is_none() {
            let mut url = self.client.selection_url(&self.selection);
            url.query_pairs_mut()
                .append_pair("watch", "true")
                .append_pair("allowWatchBookmarks", "true")
                .append_pair("resourceVersion", &self.version);
            let response = self.client.send(self.client.request(Method::GET, url)).await?;
            self.stream = Some((Lines::new(response), Instant::now()));
        }
        let (stream, opened) = self.stream.as_mut().expect("just opened");
        let line = stream.next(&self.client).await;
        if opened.elapsed() >= WELL_AFTER {
            self.failures = 0;
        }
        match line? {
            Some(line) if line.is_empty() => Ok(()),
            Some(line) => self.take(&line),
            None => {
                self.stream = None;
                let why = "the stream ended".to_owned();
                self.pause(Error::Unreachable { server: self.client.base.to_string(), why, unsent: false })
                    .await
            }
        }
    }

    fn take(&mut self, line: &[u8]) -> Result<(), Error> {
        let malformed = |why: String| Error::Malformed { what: "a watch".to_owned(), why };
        let mut event: Value = serde_json::from_slice(line).map_err(|error| malformed(error.to_string()))?;
        let object = event.get_mut("object").map(Value::take).unwrap_or_default();
        let kind = match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "ADDED" => ChangeKind::Added,
            "MODIFIED" => ChangeKind::Modified,
            "DELETED" => ChangeKind::Deleted,
            "BOOKMARK" => {
                self.failures = 0;
                self.version = text_at(&object, "/metadata/resourceVersion");
                return Ok(());
            }
            "ERROR" => {
                let code = object
                    .get("code")
                    .and_then(Value::as_u64)
                    .and_then(|code| u16::try_from(code).ok())
                    .unwrap_or(500);
                return Err(Error::Status(Box::new(Status::read(code, object.to_string().as_bytes()))));
            }
            other => return Err(malformed(format!("`{other}` is not a type of event"))),
        };
        self.failures = 0;
        let version = text_at(&object, "/metadata/resourceVersion");
        if !version.is_empty() {
            self.version = version;
        }
        self.tell(kind, with_type(object, self.selection.kind));
        Ok(())
    }

    /// Queues a change unless it tells nothing new.
    fn tell(&mut self, kind: ChangeKind, object: Value) {
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
        self.ready.push_back(Change { kind, object });
    }

    async fn relist_or_pause(&mut self) -> Result<(), Error> {
        match self.client.list(&self.selection).await {
            Ok(list) => {
                self.version = list.version;
                let gone: Vec<Value> = {
                    let here: std::collections::BTreeSet<_> = list.items.iter().map(key).collect();
                    self.known
                        .iter()
                        .filter(|(key, _)| !here.contains(*key))
                        .map(|(_, object)| object.clone())
                        .collect()
                };
                gone.into_iter().for_each(|object| self.tell(ChangeKind::Deleted, object));
                for object in list.items {
                    let kind = if self.known.contains_key(&key(&object)) {
                        ChangeKind::Modified
                    } else {
                        ChangeKind::Added
                    };
                    self.tell(kind, object);
                }
                // a manager that forgets at once what it has just listed must not be asked in a tight loop
                if self.ready.is_empty() {
                    let forgot = Error::Unreachable {
                        server: self.client.base.to_string(),
                        why: "the version is forgotten again and again".to_owned(),
                        unsent: false,
                    };
                    return self.pause(forgot).await;
                }
                Ok(())
            }
            Err(error) if error.is_passing() => self.pause(error).await,
            Err(error) => Err(error),
        }
    }

    async fn pause(&mut self, error: Error) -> Result<(), Error> {
        if self.failures >= TRIES_MAX {
            return Err(Error::WatchLost { tries: self.failures, source: Box::new(error) });
        }
        tracing::info!(%error, failures = self.failures, "the watch is taken up again");
        let pause = backoff::wait(PAUSE_FIRST, PAUSE_MAX, self.failures, self.seed);
        self.failures += 1;
        tokio::time::sleep(Duration::from_millis(pause.0)).await;
        Ok(())
    }
}

fn key(object: &Value) -> (String, String) {
    (text_at(object, "/metadata/namespace"), text_at(object, "/metadata/name"))
}

fn version_of(object: &Value) -> String {
    text_at(object, "/metadata/resourceVersion")
}
