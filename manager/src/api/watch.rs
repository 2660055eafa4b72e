//! `watch`: changes as they are committed, one JSON object per line.
//!
//! Invariant: whoever goes on from the newest `resourceVersion` of a stream, bookmarks included, misses nothing. A bookmark
//! therefore names the version that was newest at the *last* tick, all of whose changes have been sent since.

use super::Api;
use super::error::Error;
use super::form::Form;
use super::port::{Change, Event, Gone, Handle, View, Watch};
use super::query::Options;
use super::read;
use super::show::Shown;
use super::table::{self, Include};
use super::target::Target;
use crate::metrics::Entered;
use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use futures::FutureExt as _;
use jiff::Timestamp;
use meridian_manager_core::input::Key;
use meridian_shared::ids::RecordNumber;
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// Open watches at most: each holds a connection's stream and a place in the engine's fan-out.
pub(crate) const WATCHES_MAX: usize = 2_000;
/// How long a watch takes that names no time; clients begin anew then, which spreads them over restarted managers.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30 * 60);
/// Longest watch.
const TIMEOUT_MAX: Duration = Duration::from_secs(2 * 60 * 60);
/// How often a version is told in between.
const BOOKMARK_EVERY: Duration = Duration::from_secs(30);
/// Lines that are ready are sent together, up to about this many bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// Starts a watch.
pub(crate) fn watch(api: &Api, target: &Target, mut options: Options, form: Form) -> Result<Response, Error> {
    if let Some(name) = &target.name {
        options.selector.only(name);
    }
    let busy = || Error::Busy(format!("{WATCHES_MAX} watches are open"));
    let permit = api.watches.clone().try_acquire_owned().map_err(|_| busy())?;
    let reads = api.handle.reads();
    let scope = options.scope.as_ref();
    let all = || reads.list(target.kind, target.namespace.as_deref(), scope);
    let fresh = options.initial_events || options.version.is_none_or(|version| version.0 == 0);
    let (mut views, newest) = if fresh || options.selector.by_labels() { all() } else { (Vec::new(), reads.version()) };
    let since = match options.version.filter(|_| !fresh) {
        None => newest,
        Some(since) if since > newest => return Err(Error::FutureVersion { asked: since.0, current: newest }),
        Some(since) => since,
    };
    let changes = reads.watch(since).map_err(|Gone| too_old(since))?;
    let (selected, others): (Vec<_>, Vec<_>) = views.drain(..).partition(|view| options.selector.selects(&view.key, &view.value));
    // objects that changed after `since` may have been selected then
    let hidden = if options.selector.by_labels() { others.iter().filter(|v| v.version <= since).map(|v| v.key.clone()).collect() } else { BTreeSet::new() };
    let include = read::include(&options)?;
    let timeout = options.timeout.unwrap_or(TIMEOUT_DEFAULT).min(TIMEOUT_MAX);
    let mut ticks = tokio::time::interval_at(Instant::now() + BOOKMARK_EVERY, BOOKMARK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stream = Stream {
        lines: Lines { target: target.clone(), form, include },
        handle: api.handle.clone(),
        changes: Some(changes),
        options,
        hidden,
        ready: VecDeque::new(),
        told: since,
        ticks,
        end: Instant::now() + timeout,
        _permit: permit,
        _entered: api.handle.metrics().watchers.enter(),
    };
    if fresh {
        stream.begin(&selected, newest);
    }
    let lines = futures::stream::unfold(stream, |mut stream| async move { stream.next().await.map(|bytes| (Ok::<_, Infallible>(bytes), stream)) });
    let mut response = Response::new(Body::from_stream(lines));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(response)
}

fn too_old(since: RecordNumber) -> Error {
    Error::Expired(format!("too old resource version: {since}; its changes are no longer kept"))
}

struct Stream {
    lines: Lines,
    handle: Handle,
    /// `None` once it is over.
    changes: Option<Watch>,
    options: Options,
    /// Objects that the label selector does not select, as far as the reader knows.
    hidden: BTreeSet<Key>,
    ready: VecDeque<Bytes>,
    /// Everything up to this version has been sent.
    told: RecordNumber,
    ticks: Interval,
    end: Instant,
    _permit: OwnedSemaphorePermit,
    _entered: Entered,
}

impl Stream {
    fn begin(&mut self, views: &[Arc<View>], version: RecordNumber) {
        let lines: Vec<u8> = views.iter().flat_map(|view| self.lines.event("ADDED", view)).collect();
        self.ready.push_back(lines.into());
        if self.options.initial_events && self.options.bookmarks {
            self.ready.push_back(self.lines.bookmark(version, true).into());
        }
    }

    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.ready.pop_front() {
                Some(bytes) if bytes.is_empty() => continue,
                Some(bytes) => return Some(bytes),
                None => {}
            }
            let changes = self.changes.as_mut()?;
            tokio::select! {
                biased;
                change = changes.next() => {
                    self.take(change);
                }
                () = tokio::time::sleep_until(self.end) => {
                    self.bookmark();
                    self.changes = None;
                }
                _ = self.ticks.tick() => self.bookmark(),
            }
        }
    }

    /// One change and all that are ready behind it; says whether that was all.
    fn take(&mut self, first: Result<Change, Gone>) -> bool {
        let mut bytes = Vec::new();
        let mut next = Some(first);
        while let Some(change) = next {
            match change {
                Ok(change) => bytes.extend(self.line(&change)),
                Err(Gone) => {
                    // the reader is too slow for what is kept, or the manager ends
                    bytes.extend(self.lines.error(&too_old(self.told)));
                    self.changes = None;
                    break;
                }
            }
            next = if bytes.len() < CHUNK_BYTES { self.changes.as_mut().and_then(|changes| changes.next().now_or_never()) } else { None };
        }
        let drained = bytes.len() < CHUNK_BYTES;
        self.ready.push_back(bytes.into());
        drained
    }

    fn line(&mut self, change: &Change) -> Vec<u8> {
        let Change { event, view } = change;
        let key = &view.key;
        let namespace = self.lines.target.namespace.as_deref();
        let meant = key.kind == self.lines.target.kind
            && key.scope == self.options.scope
            && namespace.is_none_or(|namespace| key.namespace.as_deref() == Some(namespace));
        if !meant {
            return Vec::new();
        }
        let selected = self.options.selector.selects(key, &view.value);
        if !self.options.selector.by_labels() {
            let word = match event {
                Event::Added => "ADDED",
                Event::Modified => "MODIFIED",
                Event::Deleted => "DELETED",
            };
            return if selected { self.lines.event(word, view) } else { Vec::new() };
        }
        let was_hidden = self.hidden.contains(key);
        match event {
            Event::Deleted => {
                self.hidden.remove(key);
            }
            Event::Added | Event::Modified if selected => {
                self.hidden.remove(key);
            }
            Event::Added | Event::Modified => {
                self.hidden.insert(key.clone());
            }
        }
        let word = match (event, selected) {
            (Event::Added, true) => "ADDED",
            (Event::Modified, true) if was_hidden => "ADDED",
            (Event::Modified, true) => "MODIFIED",
            (Event::Deleted, _) | (Event::Modified, false) if !was_hidden => "DELETED",
            (Event::Deleted, _) | (Event::Added | Event::Modified, false) => return Vec::new(),
        };
        self.lines.event(word, view)
    }

    fn bookmark(&mut self) {
        let newest = self.handle.reads().version();
        // changes up to `told` were handed to this watch a tick ago; what is not sent yet is ready now
        let drained = match self.changes.as_mut().and_then(|changes| changes.next().now_or_never()) {
            Some(change) => self.take(change),
            None => true,
        };
        if drained && self.changes.is_some() {
            if self.options.bookmarks {
                self.ready.push_back(self.lines.bookmark(self.told, false).into());
            }
            self.told = newest;
        }
    }
}

/// How events are written.
struct Lines {
    target: Target,
    form: Form,
    include: Include,
}

impl Lines {
    fn event(&self, word: &str, view: &View) -> Vec<u8> {
        let shown = Shown::new(view, self.target.version);
        match self.form {
            Form::Json => line(&json!({"type": word, "object": shown.into_value()})),
            Form::Table => {
                let metadata = json!({"resourceVersion": view.version.to_string()});
                let table = table::table(self.target.kind, &[(&view.value, shown)], metadata, self.include, Timestamp::now());
                line(&json!({"type": word, "object": table}))
            }
        }
    }

    fn bookmark(&self, version: RecordNumber, initial: bool) -> Vec<u8> {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.form {
            Form::Json => json!({"kind": self.target.kind.name(), "apiVersion": self.target.api_version(), "metadata": metadata}),
            Form::Table => table::table(self.target.kind, &[], metadata, self.include, Timestamp::now()),
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
