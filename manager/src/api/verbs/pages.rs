//! Long lists in pages. The rest of a list is cached until it is requested, so that all pages have one
//! version.
//!
//! Kubernetes reads later pages from the past; here the views themselves are cached. If the rest is too old,
//! or was evicted from the cache, the client must list again (410), as with any old version.

use crate::api::response::error::Error;
use crate::engine::View;
use crate::locks;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use meridian_shared::ids::RecordNumber;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Most lists in the cache.
const LISTS_MAX: usize = 64;
/// Views in all cached lists. A job's view has about 10 KiB, so they take half a gigabyte at most. A longer
/// list is sent in one piece, which the conventions permit.
const VIEWS_MAX: usize = 50_000;
/// How long the rest of a list is cached; as in Kubernetes.
const KEPT: Duration = Duration::from_secs(5 * 60);
/// Longest token in bytes; ours have 35.
const TOKEN_BYTES_MAX: usize = 64;

/// Lists that were not read to their end.
#[derive(Debug, Default)]
pub(crate) struct Pages(Mutex<VecDeque<List>>);

#[derive(Debug)]
struct List {
    id: u128,
    begun: Instant,
    /// Identifies the query, so that a token is valid for its own query only.
    query_key: String,
    version: RecordNumber,
    views: Arc<[Arc<View>]>,
}

/// A part of a list.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) views: Vec<Arc<View>>,
    /// The version of the whole list.
    pub(crate) version: RecordNumber,
    /// The `continue` token of the next page.
    pub(crate) token: Option<String>,
    /// Number of objects after this page.
    pub(crate) remaining: usize,
}

impl Pages {
    /// The first page of a list. The rest is cached.
    pub(crate) fn first(
        &self,
        query_key: &str,
        views: Vec<Arc<View>>,
        version: RecordNumber,
        limit: Option<usize>,
    ) -> Page {
        match limit {
            Some(limit) if limit < views.len() && views.len() <= VIEWS_MAX => {
                let id = uuid::Uuid::new_v4().as_u128();
                let list = List {
                    id,
                    begun: Instant::now(),
                    query_key: query_key.to_owned(),
                    version,
                    views: views.into(),
                };
                let page = list.page(0, limit);
                self.keep(list);
                page
            }
            _ => Page { views, version, token: None, remaining: 0 },
        }
    }

    /// The page that `token` stands for. Fails if the token is malformed, or if its list is no longer cached.
    pub(crate) fn next(&self, query_key: &str, token: &str, limit: Option<usize>) -> Result<Page, Error> {
        let (id, start) = decode(token)
            .ok_or_else(|| Error::BadRequest("continue: not a token of this manager".to_owned()))?;
        let lists = locks::lock(&self.0);
        let list = lists
            .iter()
            .find(|list| list.id == id && list.query_key == query_key && list.begun.elapsed() < KEPT);
        let list =
            list.ok_or_else(|| Error::Expired("The provided continue parameter is too old".to_owned()))?;
        Ok(list.page(start, limit.unwrap_or(usize::MAX)))
    }

    fn keep(&self, list: List) {
        let mut lists = locks::lock(&self.0);
        lists.retain(|list| list.begun.elapsed() < KEPT);
        let mut views = list.views.len() + lists.iter().map(|list| list.views.len()).sum::<usize>();
        while lists.len() >= LISTS_MAX || views > VIEWS_MAX {
            let Some(oldest) = lists.pop_front() else { break };
            views -= oldest.views.len();
        }
        lists.push_back(list);
    }
}

impl List {
    fn page(&self, start: usize, limit: usize) -> Page {
        let start = start.min(self.views.len());
        let end = start.saturating_add(limit).min(self.views.len());
        let remaining = self.views.len() - end;
        let token = (remaining > 0).then(|| encode(self.id, end));
        Page { views: self.views[start..end].to_vec(), version: self.version, token, remaining }
    }
}

fn encode(id: u128, start: usize) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_manager_core::facts::key::Key;
    use meridian_objects::Kind;
    use serde_json::Value;

    fn views(count: usize) -> Vec<Arc<View>> {
        let view = |i| View {
            key: Key::global(Kind::Cohort, &format!("c{i}")),
            version: RecordNumber(i),
            value: Arc::new(Value::Null),
        };
        (0..count as u64).map(|i| Arc::new(view(i))).collect()
    }

    #[test]
    fn pages_are_of_one_list() {
        let pages = Pages::default();
        let first = pages.first("q", views(5), RecordNumber(9), Some(2));
        assert_eq!((first.views.len(), first.remaining), (2, 3));
        let token = first.token.unwrap();
        let second = pages.next("q", &token, Some(2)).unwrap();
        assert_eq!(
            (second.views[0].version, second.remaining, second.version),
            (RecordNumber(2), 1, RecordNumber(9))
        );
        // the same page again, as after a lost response
        assert_eq!(pages.next("q", &token, Some(2)).unwrap().views[0].version, RecordNumber(2));
        let last = pages.next("q", &second.token.unwrap(), None).unwrap();
        assert_eq!((last.views.len(), last.token), (1, None));
        assert!(matches!(pages.next("other", &token, None), Err(Error::Expired(_))));
        assert!(matches!(pages.next("q", "nonsense", None), Err(Error::BadRequest(_))));
        assert!(matches!(Pages::default().next("q", &token, None), Err(Error::Expired(_))));
        assert_eq!(pages.first("q", views(2), RecordNumber(9), Some(2)).token, None);
    }

    #[test]
    fn the_oldest_list_is_evicted_first() {
        let pages = Pages::default();
        let tokens: Vec<String> = (0..=LISTS_MAX)
            .map(|_| pages.first("q", views(3), RecordNumber(1), Some(1)).token.unwrap())
            .collect();
        assert!(matches!(pages.next("q", &tokens[0], None), Err(Error::Expired(_))));
        assert!(pages.next("q", &tokens[1], None).is_ok());
    }
}
