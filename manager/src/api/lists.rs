//! Lists in pieces: each piece is rendered when the reader has taken the previous one, so that memory doesn't
//! grow with the length of a list.
//!
//! A list holds a [`Listing`] and at most two pieces. The list of a reader that takes nothing for some time
//! breaks off, and its listing is freed. The listings of all lists together are bounded, and so is each
//! caller's share.

use super::pages::{self, PageStart};
use crate::api::callers::{CallerShares, Share};
use crate::api::request::accept::ResponseFormat;
use crate::api::request::query::Options;
use crate::api::request::resource_path::ResourcePath;
use crate::api::request::selector::Selector;
use crate::api::response::error::Error;
use crate::api::response::json_bytes;
use crate::api::response::rendered::RenderedObject;
use crate::api::response::table::{Include, Table};
use crate::engine::{Gone, Listing};
use crate::metrics::{ApiMetrics, Entered};
use axum::body::{Body, Bytes};
use axum::response::Response;
use jiff::Timestamp;
use meridian_views::asker::Asker;
use serde::Serialize;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

/// Limits on lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListLimits {
    /// Objects in the listings of all running lists. An object costs about 100 bytes, and about a kilobyte if
    /// it changes while the list runs.
    pub objects: usize,
    /// Objects in the running lists of one caller. A longer list counts as this many.
    pub objects_per_caller: usize,
    /// Running lists of more than one piece.
    pub running: usize,
    pub running_per_caller: usize,
    /// Objects in the listings that are kept for later pages. The newest listing is always kept.
    pub kept_objects: usize,
    /// Bytes after which a piece is full.
    pub piece_bytes: usize,
    /// How long a piece may wait for the reader.
    pub stall: Duration,
}

impl Default for ListLimits {
    fn default() -> Self {
        Self {
            objects: 2_000_000,
            objects_per_caller: 250_000,
            running: 64,
            running_per_caller: 8,
            kept_objects: 500_000,
            piece_bytes: 128 << 10,
            stall: Duration::from_secs(30),
        }
    }
}

/// Most listings that are created at the same time, because each copies references under the lock that
/// commits need.
const SNAPSHOTS_MAX: usize = 2;

/// Resources that all running lists use together.
#[derive(Debug)]
pub(crate) struct RunningLists {
    limits: ListLimits,
    snapshots: Semaphore,
    objects: CallerShares<String>,
    running: CallerShares<String>,
}

impl RunningLists {
    pub(crate) fn new(limits: ListLimits) -> Self {
        Self {
            limits,
            snapshots: Semaphore::new(SNAPSHOTS_MAX),
            objects: CallerShares::new(limits.objects_per_caller, limits.objects),
            running: CallerShares::new(limits.running_per_caller, limits.running),
        }
    }

    /// How long a piece of an answer may wait for its reader.
    pub(crate) fn stall(&self) -> Duration {
        self.limits.stall
    }

    /// Permission to create a listing.
    pub(crate) async fn snapshot_permit(&self) -> SemaphorePermit<'_> {
        self.snapshots.acquire().await.expect("the semaphore is never closed")
    }

    /// The caller's share for a list of this many objects. Fails if too little is left by the caller's other
    /// lists, or by those of all callers.
    pub(crate) fn admit(&self, caller: &str, objects: usize) -> Result<Share<String>, Error> {
        self.objects.take(caller.to_owned(), objects).ok_or_else(|| {
            Error::Busy(format!(
                "too many objects in running lists: at most {} per caller and {} in all; use `limit`, and \
                 read lists to their end",
                self.limits.objects_per_caller, self.limits.objects
            ))
        })
    }

    /// The answer with a list. Its first piece is rendered here; a list of one piece is sent whole.
    pub(super) async fn answer(
        &self,
        caller: &str,
        mut list: List,
        metrics: &ApiMetrics,
    ) -> Result<Response, Error> {
        list.piece_bytes = self.limits.piece_bytes;
        let (list, first) = rendered(list).await?;
        let first = match first? {
            Piece::Last(bytes) => return Ok(json_bytes(bytes)),
            piece @ Piece::More(_) => piece,
        };
        let slot = self.running.take(caller.to_owned(), 1).ok_or_else(|| {
            Error::Busy(format!(
                "too many long lists are being read: at most {} per caller and {} in all; read to their end",
                self.limits.running_per_caller, self.limits.running
            ))
        })?;
        let (pieces, waiting) = mpsc::channel(1);
        tokio::spawn(produce(list, first, pieces, self.limits.stall, metrics.clone()));
        let reader = ListStream { waiting, is_over: false, _slot: slot, _open: metrics.lists.enter() };
        let mut response = json_bytes(Body::from_stream(futures::stream::unfold(reader, ListStream::next)));
        response.extensions_mut().insert(LongList);
        Ok(response)
    }
}

/// Marks an answer that is a list of more than one piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongList;

/// A list, or a page of one, that is being written.
pub(super) struct List {
    pub(super) listing: Arc<Listing>,
    pub(super) target: ResourcePath,
    pub(super) selector: Selector,
    form: ListForm,
    /// Position of the next object in the listing.
    at: usize,
    /// How many more objects the page may have.
    left: usize,
    /// Id of the listing in a `continue` token, if there is a next page.
    id: u128,
    /// The user that reads the list.
    asker: Asker,
    piece_bytes: usize,
    begun: bool,
    first: bool,
    _share: Share<String>,
}

/// How the objects are written.
enum ListForm {
    Objects,
    Rows(Table, Include, Timestamp),
}

enum Piece {
    More(Bytes),
    /// The end of the list.
    Last(Bytes),
}

impl List {
    /// The page that begins at `start`, as `asker` may read it.
    pub(super) fn new(
        start: PageStart,
        target: &ResourcePath,
        options: &Options,
        form: (ResponseFormat, Include),
        share: Share<String>,
        asker: Asker,
    ) -> Self {
        let PageStart { listing, at, id } = start;
        let form = match form {
            (ResponseFormat::Json, _) => ListForm::Objects,
            (ResponseFormat::Table, include) => {
                ListForm::Rows(Table::new(target.kind), include, Timestamp::now())
            }
        };
        Self {
            listing,
            target: target.clone(),
            selector: options.selector.clone(),
            form,
            at,
            left: options.limit.unwrap_or(usize::MAX),
            id,
            asker,
            piece_bytes: 0,
            begun: false,
            first: true,
            _share: share,
        }
    }

    /// The next piece. Fails if an object that was deleted since the list began is no longer kept.
    fn piece(&mut self) -> Result<Piece, Error> {
        let mut bytes = Vec::new();
        if !std::mem::replace(&mut self.begun, true) {
            self.open(&mut bytes);
        }
        while self.left > 0 && self.at < self.listing.len() {
            if bytes.len() >= self.piece_bytes {
                return Ok(Piece::More(bytes.into()));
            }
            let view = self.listing.view(self.at, &self.asker).map_err(|Gone| {
                Error::Expired("too many objects were deleted while the list was read".to_owned())
            })?;
            self.at += 1;
            let Some(view) = view.filter(|view| self.selector.selects(&view.key, &view.value)) else {
                continue;
            };
            self.left -= 1;
            if !std::mem::replace(&mut self.first, false) {
                bytes.push(b',');
            }
            let shown = RenderedObject::new(&view, self.target.version);
            match &self.form {
                ListForm::Objects => write(&mut bytes, &shown),
                ListForm::Rows(table, include, now) => {
                    write(&mut bytes, &table.row(&view.value, &shown, *include, *now));
                }
            }
        }
        bytes.extend_from_slice(b"],\"metadata\":");
        write(&mut bytes, &self.metadata());
        bytes.push(b'}');
        Ok(Piece::Last(bytes.into()))
    }

    fn open(&self, bytes: &mut Vec<u8>) {
        let (head, items) = match &self.form {
            ListForm::Objects => (
                json!({
                    "kind": format!("{}List", self.target.kind.name()),
                    "apiVersion": self.target.api_version(),
                }),
                "items",
            ),
            ListForm::Rows(table, ..) => (
                json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": table.definitions(),
                }),
                "rows",
            ),
        };
        write(bytes, &head);
        // drop the closing brace: the items and the metadata belong into the same object
        bytes.pop();
        bytes.extend_from_slice(format!(",\"{items}\":[").as_bytes());
    }

    /// The list's metadata. It comes last, because only the end of a page shows where the next one begins.
    fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.listing.version().to_string()});
        let remaining = self.listing.len() - self.at;
        if remaining > 0 {
            metadata["continue"] = json!(pages::encode(self.id, self.at));
            // as in Kubernetes, no count with a selector: how many of the remaining objects it selects isn't
            // known
            if self.selector == Selector::default() {
                metadata["remainingItemCount"] = json!(remaining);
            }
        }
        metadata
    }
}

fn write(bytes: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(bytes, value).expect("objects have text keys and plain values");
}

/// Renders the next piece on a blocking thread, because views of jobs are read from the journal.
async fn rendered(mut list: List) -> Result<(List, Result<Piece, Error>), Error> {
    let rendering = tokio::task::spawn_blocking(move || {
        let piece = list.piece();
        (list, piece)
    });
    rendering.await.map_err(|error| Error::Internal(format!("a list could not be made: {error}")))
}

/// Sends the pieces of a list, each when the reader has taken the previous one. If this ends early, the
/// receiver gets no last piece and breaks off the answer.
async fn produce(
    mut list: List,
    mut piece: Piece,
    pieces: mpsc::Sender<Piece>,
    stall: Duration,
    metrics: ApiMetrics,
) {
    loop {
        let is_last = matches!(piece, Piece::Last(_));
        match tokio::time::timeout(stall, pieces.send(piece)).await {
            Ok(Ok(())) if is_last => return,
            Ok(Ok(())) => {}
            // the reader has gone away
            Ok(Err(_)) => return,
            Err(_) => return metrics.lists_broken_off.inc(["stalled"]),
        }
        piece = match rendered(list).await {
            Ok((next, Ok(piece))) => {
                list = next;
                piece
            }
            Ok((_, Err(error))) | Err(error) => {
                tracing::info!(%error, "a list broke off");
                return metrics.lists_broken_off.inc(["expired"]);
            }
        };
    }
}

/// The reader's end of a long list.
struct ListStream {
    waiting: mpsc::Receiver<Piece>,
    is_over: bool,
    _slot: Share<String>,
    _open: Entered,
}

impl ListStream {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if self.is_over {
            return None;
        }
        match self.waiting.recv().await {
            Some(Piece::More(bytes)) => Some((Ok(bytes), self)),
            Some(Piece::Last(bytes)) => {
                self.is_over = true;
                Some((Ok(bytes), self))
            }
            None => {
                self.is_over = true;
                Some((Err(io::Error::other("the list broke off: read it again")), self))
            }
        }
    }
}
