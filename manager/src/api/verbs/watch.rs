//! The verb `watch`: changes as they are committed, one JSON object per line.
//!
//! Invariant: a client that continues from the newest `resourceVersion` of a stream, bookmarks included,
//! misses nothing. One commit may make several changes of the same version. All but the last of them carry
//! the previous version, so that a client that stops in between gets the rest.

use super::read;
use crate::api::access::{ObjectAccess, OpenStream, User};
use crate::api::callers::Share;
use crate::api::request::accept::ResponseFormat;
use crate::api::request::query::Options;
use crate::api::request::resource_path::ResourcePath;
use crate::api::response::error::Error;
use crate::api::response::rendered::RenderedObject;
use crate::api::response::table::{self, Include};
use crate::api::state::{Api, WATCHES_MAX, WATCHES_PER_CALLER_MAX};
use crate::engine::{Gone, Handle, Listing, View, Watch, WatchEvent, WatchEventType};
use crate::metrics::Entered;
use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use futures::FutureExt as _;
use jiff::Timestamp;
use meridian_manager_core::facts::key::Key;
use meridian_shared::ids::RecordNumber;
use meridian_views::asker::Asker;
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// Duration of a watch without `timeoutSeconds`. Clients then start a new watch, which spreads them over
/// restarted managers.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30 * 60);
const TIMEOUT_MAX: Duration = Duration::from_secs(2 * 60 * 60);
/// Time between two bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(30);
/// Lines that are ready are sent together, up to about this many bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// Starts a watch. Fails if too many are open, or if the requested version is too old or doesn't exist yet.
pub(crate) async fn watch(
    api: &Api,
    user: &User,
    access: ObjectAccess,
    target: &ResourcePath,
    mut options: Options,
    form: ResponseFormat,
) -> Result<Response, Error> {
    if let Some(name) = &target.name {
        options.selector.restrict_to(name);
    }
    let place = place(api, user)?;
    let include = read::include(&options)?;
    let reads = api.handle.reads();
    let fresh = options.initial_events || options.version.is_none_or(|version| version.0 == 0);
    let listing = if fresh || options.selector.by_labels() {
        Some(read::snapshot(api, target, &options).await?)
    } else {
        None
    };
    let newest = listing.as_ref().map_or_else(|| reads.version(), Listing::version);
    let since = match options.version.filter(|_| !fresh) {
        None => newest,
        Some(since) if since > newest => {
            return Err(Error::FutureVersion { asked: since.0, current: newest });
        }
        Some(since) => since,
    };
    let changes = reads.watch(since, user.asker()).map_err(|Gone| too_old(since))?;
    let share = match &listing {
        Some(listing) => Some(api.lists.admit(&user.name, listing.len())?),
        None => None,
    };
    let (listing, hidden) = match listing {
        Some(listing) if options.selector.by_labels() => {
            let (listing, hidden) = hidden_at(listing, &options, since, user.asker()).await?;
            (Some(listing), hidden)
        }
        listing => (listing, BTreeSet::new()),
    };
    let initial = listing.zip(share).filter(|_| fresh);
    let timeout = options.timeout.unwrap_or(TIMEOUT_DEFAULT).min(TIMEOUT_MAX);
    let mut ticks = tokio::time::interval_at(Instant::now() + BOOKMARK_EVERY, BOOKMARK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = Stream {
        lines: Lines { target: target.clone(), form, include },
        right: api.authority.open(user, access),
        asker: user.asker(),
        handle: api.handle.clone(),
        initial: initial.map(|(listing, share)| Initial { listing, at: 0, _share: share }),
        changes: Some(changes),
        options,
        hidden,
        ready: VecDeque::new(),
        held_back: None,
        sent: since,
        stop: api.stop.clone(),
        ticks,
        end: Instant::now() + timeout,
        _place: place,
        _entered: api.handle.metrics().api.watchers.enter(),
    };
    let lines = futures::stream::unfold(stream, |mut stream| async move {
        stream.next().await.map(|bytes| (Ok::<_, Infallible>(bytes), stream))
    });
    let mut response = Response::new(Body::from_stream(lines));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(response)
}

/// A place among the open watches. The management cluster's controllers need none: they watch each kind only
/// once, and users' watches must not block them.
fn place(api: &Api, user: &User) -> Result<Option<Share<String>>, Error> {
    if user.is_management_cluster() {
        return Ok(None);
    }
    api.watches.take_one(user.name.clone()).map(Some).map_err(|own| {
        Error::Busy(format!(
            "too many watches are open: you have {own}; at most {WATCHES_PER_CALLER_MAX} per user and \
             {WATCHES_MAX} in all are possible; close some"
        ))
    })
}

/// The objects that the selector doesn't select, without objects that changed after `since`, because these
/// may have been selected then. Runs on a blocking thread, because views are rendered.
async fn hidden_at(
    listing: Listing,
    options: &Options,
    since: RecordNumber,
    asker: Asker,
) -> Result<(Listing, BTreeSet<Key>), Error> {
    let selector = options.selector.clone();
    let selecting = tokio::task::spawn_blocking(move || {
        let view = |at| listing.view(at, &asker).map_err(|Gone| too_old(since));
        let mut hidden = BTreeSet::new();
        for at in 0..listing.len() {
            if let Some(view) = view(at)?
                && view.version <= since
                && !selector.selects(&view.key, &view.value)
            {
                hidden.insert(view.key.clone());
            }
        }
        Ok((listing, hidden))
    });
    selecting.await.map_err(|error| Error::Internal(format!("a watch could not begin: {error}")))?
}

fn too_old(since: RecordNumber) -> Error {
    Error::Expired(format!("too old resource version: {since}; its changes are no longer kept"))
}

/// One open watch.
struct Stream {
    lines: Lines,
    right: OpenStream,
    /// The user that reads the watch.
    asker: Asker,
    handle: Handle,
    /// The objects that existed at the start of the watch, until all are sent.
    initial: Option<Initial>,
    /// `None` once the watch is over.
    changes: Option<Watch>,
    options: Options,
    /// Objects that the client doesn't know, because the label selector didn't select them.
    hidden: BTreeSet<Key>,
    ready: VecDeque<Bytes>,
    /// An event that waits for the next chunk, with its type.
    held_back: Option<(&'static str, WatchEvent)>,
    /// All changes up to this version have been sent.
    sent: RecordNumber,
    stop: CancellationToken,
    ticks: Interval,
    end: Instant,
    _place: Option<Share<String>>,
    _entered: Entered,
}

/// The start of a watch: all objects that exist then.
struct Initial {
    listing: Listing,
    /// Position of the next object.
    at: usize,
    _share: Share<String>,
}

impl Stream {
    /// Prepares the next chunk of the objects that existed at the start.
    fn begin(&mut self, mut initial: Initial) {
        let mut bytes = Vec::new();
        while initial.at < initial.listing.len() {
            if bytes.len() >= CHUNK_BYTES {
                self.initial = Some(initial);
                return self.ready.push_back(bytes.into());
            }
            match initial.listing.view(initial.at, &self.asker) {
                Ok(Some(view)) if self.options.selector.selects(&view.key, &view.value) => {
                    bytes.extend(self.lines.event("ADDED", &view, view.version));
                }
                Ok(_) => {}
                Err(Gone) => {
                    bytes.extend(self.lines.error(&too_old(self.sent)));
                    self.changes = None;
                    return self.ready.push_back(bytes.into());
                }
            }
            initial.at += 1;
        }
        if self.options.initial_events && self.options.bookmarks {
            bytes.extend(self.lines.bookmark(initial.listing.version(), true));
        }
        self.ready.push_back(bytes.into());
    }

    /// The next chunk; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(right) = self.right.change().now_or_never() {
                self.go_on(right);
            }
            match self.ready.pop_front() {
                Some(bytes) if bytes.is_empty() => continue,
                Some(bytes) => return Some(bytes),
                None => {}
            }
            if let Some(initial) = self.initial.take() {
                self.begin(initial);
                continue;
            }
            if self.held_back.is_some() {
                let next = self.poll_next();
                self.take(next);
                continue;
            }
            let changes = self.changes.as_mut()?;
            tokio::select! {
                biased;
                right = self.right.change() => self.go_on(right),
                change = changes.next() => {
                    self.take(Some(change));
                }
                () = self.stop.cancelled() => self.changes = None,
                () = tokio::time::sleep_until(self.end) => {
                    self.bookmark();
                    self.changes = None;
                }
                _ = self.ticks.tick() => self.bookmark(),
            }
        }
    }

    /// Continues the watch with the user's current rights, or ends it.
    fn go_on(&mut self, right: Result<User, Error>) {
        match (right, &mut self.changes) {
            (Ok(user), Some(changes)) => {
                self.asker = user.asker();
                changes.show_to(user.asker());
            }
            (Err(error), Some(_)) => {
                self.ready.clear();
                (self.initial, self.held_back, self.changes) = (None, None, None);
                self.ready.push_back(self.lines.error(&error).into());
            }
            (_, None) => {}
        }
    }

    /// The next event, if it has been published already.
    fn poll_next(&mut self) -> Option<Result<WatchEvent, Gone>> {
        self.changes.as_mut().and_then(|changes| changes.next().now_or_never())
    }

    /// Writes one event and all that follow it without waiting. Returns false if the chunk was full before
    /// that.
    fn take(&mut self, mut next: Option<Result<WatchEvent, Gone>>) -> bool {
        let (mut bytes, mut last) = (Vec::new(), self.held_back.take());
        while let Some(change) = next {
            match change {
                Ok(change) => {
                    if let Some(event_type) = self.event_type(&change) {
                        let at = change.at;
                        if let Some((event_type, before)) = last.replace((event_type, change)) {
                            let version = if before.at == at {
                                RecordNumber(at.0.saturating_sub(1))
                            } else {
                                before.at
                            };
                            bytes.extend(self.lines.event(event_type, &before.view, version));
                        }
                    }
                }
                Err(Gone) => {
                    // the ring of changes overtook the client, because the client reads too slowly
                    bytes.extend(self.lines.error(&too_old(self.sent)));
                    self.changes = None;
                    last = None;
                    break;
                }
            }
            if bytes.len() >= CHUNK_BYTES {
                self.held_back = last;
                self.ready.push_back(bytes.into());
                return false;
            }
            next = self.poll_next();
        }
        if let Some((event_type, change)) = last {
            bytes.extend(self.lines.event(event_type, &change.view, change.at));
        }
        self.ready.push_back(bytes.into());
        true
    }

    /// The type of a change for this client; `None` if the client doesn't see the change.
    fn event_type(&mut self, change: &WatchEvent) -> Option<&'static str> {
        let WatchEvent { event, view, .. } = change;
        let key = &view.key;
        let namespace = self.lines.target.namespace.as_deref();
        let in_scope = key.kind == self.lines.target.kind
            && key.scope == self.options.scope
            && namespace.is_none_or(|namespace| key.namespace.as_deref() == Some(namespace));
        if !in_scope {
            return None;
        }
        let selected = self.options.selector.selects(key, &view.value);
        if !self.options.selector.by_labels() {
            return selected.then_some(match event {
                WatchEventType::Added => "ADDED",
                WatchEventType::Modified => "MODIFIED",
                WatchEventType::Deleted => "DELETED",
            });
        }
        let was_hidden = self.hidden.contains(key);
        match (event, selected) {
            (WatchEventType::Deleted, _) | (WatchEventType::Added | WatchEventType::Modified, true) => {
                self.hidden.remove(key)
            }
            (WatchEventType::Added | WatchEventType::Modified, false) => self.hidden.insert(key.clone()),
        };
        match (event, selected, was_hidden) {
            (WatchEventType::Added, true, _) | (WatchEventType::Modified, true, true) => Some("ADDED"),
            (WatchEventType::Modified, true, false) => Some("MODIFIED"),
            (WatchEventType::Deleted, _, false) | (WatchEventType::Modified, false, false) => Some("DELETED"),
            (WatchEventType::Added, false, _)
            | (WatchEventType::Modified, false, true)
            | (WatchEventType::Deleted, _, true) => None,
        }
    }

    fn bookmark(&mut self) {
        // a version and its changes are published together, so a change that can't be read now is newer than
        // `newest`
        let newest = self.handle.reads().version();
        let next = self.poll_next();
        if self.take(next) && self.changes.is_some() {
            if self.options.bookmarks {
                self.ready.push_back(self.lines.bookmark(newest, false).into());
            }
            self.sent = newest;
        }
    }
}

/// The format of the events.
struct Lines {
    target: ResourcePath,
    form: ResponseFormat,
    include: Include,
}

impl Lines {
    fn event(&self, event_type: &str, view: &View, at: RecordNumber) -> Vec<u8> {
        let shown = RenderedObject::at(view, self.target.version, at);
        match self.form {
            ResponseFormat::Json => line(&json!({"type": event_type, "object": shown.into_value()})),
            ResponseFormat::Table => {
                let metadata = json!({"resourceVersion": at.to_string()});
                let table = table::table(
                    self.target.kind,
                    &[(&view.value, shown)],
                    metadata,
                    self.include,
                    Timestamp::now(),
                );
                line(&json!({"type": event_type, "object": table}))
            }
        }
    }

    fn bookmark(&self, version: RecordNumber, initial: bool) -> Vec<u8> {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.form {
            ResponseFormat::Json => {
                json!({
                    "kind": self.target.kind.name(), "apiVersion": self.target.api_version(),
                    "metadata": metadata,
                })
            }
            ResponseFormat::Table => {
                table::table(self.target.kind, &[], metadata, self.include, Timestamp::now())
            }
        };
        line(&json!({"type": "BOOKMARK", "object": object}))
    }

    fn error(&self, error: &Error) -> Vec<u8> {
        line(&json!({"type": "ERROR", "object": error.status()}))
    }
}

fn line(event: &Value) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(event).expect("events have text keys and plain values");
    bytes.push(b'\n');
    bytes
}
