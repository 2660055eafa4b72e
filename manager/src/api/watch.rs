//! `watch`: changes as they are committed, one JSON object per line.
//!
//! Invariant: whoever goes on from the newest `resourceVersion` of a stream, bookmarks included, misses nothing. Several
//! changes may be of one version, because one commit made them: then all but the last carry the version before it.

use super::Api;
use super::error::Error;
use super::form::Form;
use super::query::Options;
use super::read;
use super::show::Shown;
use super::table::{self, Include};
use super::target::Target;
use crate::engine::{Change, Event, Gone, Handle, View, Watch};
use crate::metrics::Entered;
use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use futures::FutureExt as _;
use jiff::Timestamp;
use meridian_manager_core::facts::key::Key;
use meridian_shared::ids::RecordNumber;
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

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
    let all = || read::listed(reads, target, &options);
    let fresh = options.initial_events || options.version.is_none_or(|version| version.0 == 0);
    let (mut views, newest) =
        if fresh || options.selector.by_labels() { all() } else { (Vec::new(), reads.version()) };
    let since = match options.version.filter(|_| !fresh) {
        None => newest,
        Some(since) if since > newest => {
            return Err(Error::FutureVersion { asked: since.0, current: newest });
        }
        Some(since) => since,
    };
    let changes = reads.watch(since).map_err(|Gone| too_old(since))?;
    let (selected, others): (Vec<_>, Vec<_>) =
        views.drain(..).partition(|view| options.selector.selects(&view.key, &view.value));
    // objects that changed after `since` may have been selected then
    let hidden = if options.selector.by_labels() {
        others.iter().filter(|v| v.version <= since).map(|v| v.key.clone()).collect()
    } else {
        BTreeSet::new()
    };
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
        carried: None,
        told: since,
        stop: api.stop.clone(),
        ticks,
        end: Instant::now() + timeout,
        _permit: permit,
        _entered: api.handle.metrics().watchers.enter(),
    };
    if fresh {
        stream.begin(&selected, newest);
    }
    let lines = futures::stream::unfold(stream, |mut stream| async move {
        stream.next().await.map(|bytes| (Ok::<_, Infallible>(bytes), stream))
    });
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
    /// A change that waits for the next piece, and its word.
    carried: Option<(&'static str, Change)>,
    /// Everything up to this version has been sent.
    told: RecordNumber,
    stop: CancellationToken,
    ticks: Interval,
    end: Instant,
    _permit: OwnedSemaphorePermit,
    _entered: Entered,
}

impl Stream {
    fn begin(&mut self, views: &[Arc<View>], version: RecordNumber) {
        let lines: Vec<u8> =
            views.iter().flat_map(|view| self.lines.event("ADDED", view, view.version)).collect();
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
            if self.carried.is_some() {
                let next = self.at_hand();
                self.take(next);
                continue;
            }
            let changes = self.changes.as_mut()?;
            tokio::select! {
                biased;
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

    /// The next change, if it has been published already.
    fn at_hand(&mut self) -> Option<Result<Change, Gone>> {
        self.changes.as_mut().and_then(|changes| changes.next().now_or_never())
    }

    /// One change and all that are at hand behind it; says whether that was all.
    fn take(&mut self, mut next: Option<Result<Change, Gone>>) -> bool {
        let (mut bytes, mut last) = (Vec::new(), self.carried.take());
        while let Some(change) = next {
            match change {
                Ok(change) => {
                    if let Some(word) = self.word(&change) {
                        let at = change.at;
                        if let Some((word, before)) = last.replace((word, change)) {
                            let version = if before.at == at {
                                RecordNumber(at.0.saturating_sub(1))
                            } else {
                                before.at
                            };
                            bytes.extend(self.lines.event(word, &before.view, version));
                        }
                    }
                }
                Err(Gone) => {
                    // the reader is too slow for what is kept
                    bytes.extend(self.lines.error(&too_old(self.told)));
                    self.changes = None;
                    last = None;
                    break;
                }
            }
            if bytes.len() >= CHUNK_BYTES {
                self.carried = last;
                self.ready.push_back(bytes.into());
                return false;
            }
            next = self.at_hand();
        }
        if let Some((word, change)) = last {
            bytes.extend(self.lines.event(word, &change.view, change.at));
        }
        self.ready.push_back(bytes.into());
        true
    }

    /// What a change is to this reader; `None` where it is nothing.
    fn word(&mut self, change: &Change) -> Option<&'static str> {
        let Change { event, view, .. } = change;
        let key = &view.key;
        let namespace = self.lines.target.namespace.as_deref();
        let meant = key.kind == self.lines.target.kind
            && key.scope == self.options.scope
            && namespace.is_none_or(|namespace| key.namespace.as_deref() == Some(namespace));
        if !meant {
            return None;
        }
        let selected = self.options.selector.selects(key, &view.value);
        if !self.options.selector.by_labels() {
            return selected.then_some(match event {
                Event::Added => "ADDED",
                Event::Modified => "MODIFIED",
                Event::Deleted => "DELETED",
            });
        }
        let was_hidden = self.hidden.contains(key);
        match (event, selected) {
            (Event::Deleted, _) | (Event::Added | Event::Modified, true) => self.hidden.remove(key),
            (Event::Added | Event::Modified, false) => self.hidden.insert(key.clone()),
        };
        match (event, selected, was_hidden) {
            (Event::Added, true, _) | (Event::Modified, true, true) => Some("ADDED"),
            (Event::Modified, true, false) => Some("MODIFIED"),
            (Event::Deleted, _, false) | (Event::Modified, false, false) => Some("DELETED"),
            (Event::Added, false, _) | (Event::Modified, false, true) | (Event::Deleted, _, true) => None,
        }
    }

    fn bookmark(&mut self) {
        // a version and its changes are published together, so that what is not at hand now is newer than this
        let newest = self.handle.reads().version();
        let next = self.at_hand();
        if self.take(next) && self.changes.is_some() {
            if self.options.bookmarks {
                self.ready.push_back(self.lines.bookmark(newest, false).into());
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
    fn event(&self, word: &str, view: &View, at: RecordNumber) -> Vec<u8> {
        let shown = Shown::at(view, self.target.version, at);
        match self.form {
            Form::Json => line(&json!({"type": word, "object": shown.into_value()})),
            Form::Table => {
                let metadata = json!({"resourceVersion": at.to_string()});
                let table = table::table(
                    self.target.kind,
                    &[(&view.value, shown)],
                    metadata,
                    self.include,
                    Timestamp::now(),
                );
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
            Form::Json => {
                json!({"kind": self.target.kind.name(), "apiVersion": self.target.api_version(), "metadata": metadata})
            }
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
