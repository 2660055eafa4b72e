//! Lists in pages. The listing is kept until its last page is requested, so that all pages have one version.
//!
//! Kubernetes reads later pages from the past; here the listing itself is kept. If it is too old, or was
//! evicted by later ones, the client must list again (410), as with any old version.

use crate::api::response::error::Error;
use crate::engine::Listing;
use crate::locks;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Most listings that are kept.
const LISTS_MAX: usize = 64;
/// Most listings of one caller that are kept.
const LISTS_PER_CALLER_MAX: usize = 16;
/// How long a listing is kept; as in Kubernetes.
const KEPT: Duration = Duration::from_secs(5 * 60);
/// Longest token in bytes; ours have 35.
const TOKEN_BYTES_MAX: usize = 64;

/// Listings that were not read to their end.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Most objects in all listings, unless the newest alone has more.
    objects_max: usize,
    lists: Mutex<VecDeque<KeptList>>,
}

#[derive(Debug)]
struct KeptList {
    id: u128,
    begun: Instant,
    caller: String,
    /// Identifies the query, so that a token is valid for its own query only.
    query_key: String,
    listing: Arc<Listing>,
}

/// Where a page begins.
#[derive(Debug)]
pub(crate) struct PageStart {
    pub(crate) listing: Arc<Listing>,
    pub(crate) at: usize,
    /// Identifies the listing in the tokens of later pages.
    pub(crate) id: u128,
}

impl Pages {
    pub(crate) fn new(objects_max: usize) -> Self {
        Self { objects_max, lists: Mutex::default() }
    }

    /// The page that `token` stands for. Fails if the token is malformed, or if its listing is no longer
    /// kept.
    pub(crate) fn next(&self, query_key: &str, token: &str) -> Result<PageStart, Error> {
        let (id, at) = decode(token)
            .ok_or_else(|| Error::BadRequest("continue: not a token of this manager".to_owned()))?;
        let lists = locks::lock(&self.lists);
        let list = lists
            .iter()
            .find(|list| list.id == id && list.query_key == query_key && list.begun.elapsed() < KEPT);
        let list =
            list.ok_or_else(|| Error::Expired("The provided continue parameter is too old".to_owned()))?;
        Ok(PageStart { listing: Arc::clone(&list.listing), at, id })
    }

    /// Keeps a listing for later pages, and evicts older ones: the caller's own, or if there are too many in
    /// all, the oldest.
    pub(crate) fn keep(&self, caller: &str, query_key: &str, listing: Arc<Listing>) -> PageStart {
        let id = uuid::Uuid::new_v4().as_u128();
        let start = PageStart { listing: Arc::clone(&listing), at: 0, id };
        let mut lists = locks::lock(&self.lists);
        lists.retain(|list| list.begun.elapsed() < KEPT);
        let is_own = |list: &KeptList| list.caller == caller;
        if lists.iter().filter(|list| is_own(list)).count() >= LISTS_PER_CALLER_MAX
            && let Some(oldest) = lists.iter().position(is_own)
        {
            lists.remove(oldest);
        }
        let mut objects = listing.len() + lists.iter().map(|list| list.listing.len()).sum::<usize>();
        while lists.len() >= LISTS_MAX || objects > self.objects_max {
            let Some(oldest) = lists.pop_front() else { break };
            objects -= oldest.listing.len();
        }
        let (caller, query_key) = (caller.to_owned(), query_key.to_owned());
        lists.push_back(KeptList { id, begun: Instant::now(), caller, query_key, listing });
        start
    }
}

/// The token of the page that begins at a position of the listing with this id.
pub(crate) fn encode(id: u128, start: usize) -> String {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend((start as u64).to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(token: &str) -> Option<(u128, usize)> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let bytes: [u8; 24] = URL_SAFE_NO_PAD.decode(token).ok()?.try_into().ok()?;
    let (id, start) = bytes.split_at(16);
    Some((
        u128::from_be_bytes(id.try_into().ok()?),
        usize::try_from(u64::from_be_bytes(start.try_into().ok()?)).ok()?,
    ))
}
