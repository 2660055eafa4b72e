//! The watch of one kind of objects, and how it reads its lists.
//!
//! An object that a list lacks counts as gone, so every list must show the server's current state, as lists
//! in pages do. A streamed list is the beginning of a watch: its first events are the objects, and a bookmark
//! with an annotation ends the list. The API server needs less memory and time for it. A streamed list shows
//! the current state if the request names no `resourceVersion` (Kubernetes API concepts, "Streaming lists").
//! kube's requests name version 0, which accepts any state of the server's cache, so [`consistent`] removes
//! the version.
//!
//! | a streamed list | what follows |
//! |---|---|
//! | ends with its bookmark | the watch goes on; the next list is streamed too |
//! | can't be asked for now: no connection, or status 401, 403 or 429 | it is asked for again |
//! | is refused with another status, as 422 without the feature `WatchList` | lists in pages from now on |
//! | breaks off, or has an error among its objects | lists in pages from now on |
//! | has no end in time: the server ignored `sendInitialEvents` | lists in pages from now on |
//!
//! The first list in pages begins anew. Until it is complete, no object counts as gone.

use crate::error;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::{Request, Uri};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch_objects};
use kube::{Api, Client};
use std::time::Duration;
use tokio::time::Instant;
use tower::BoxError;

/// Number of objects in one page of a list.
const PAGE: u32 = 500;
/// Longest time from the beginning of a streamed list to its end.
const STREAMED_WITHIN: Duration = Duration::from_secs(60);
/// The parameter of a request for a streamed list.
const STREAMED: &str = "sendInitialEvents=true";
/// Status codes that don't depend on streamed lists: lists in pages would get them too.
const ASK_AGAIN: [u16; 3] = [401, 403, 429];
/// The status code of a watch whose version the server has forgotten.
const GONE: u16 = 410;

/// What a watch shows, or why it shows nothing.
type Shown = Result<Event<DynamicObject>, watcher::Error>;

/// Follows the objects of one kind for ever.
pub(super) struct ObjectWatch {
    api: Api<DynamicObject>,
    config: watcher::Config,
    plural: String,
    events: BoxStream<'static, Shown>,
    lists: Lists,
}

/// How the watch reads its lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lists {
    Paged,
    Streamed(Progress),
}

/// State of a streamed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The next list must be requested.
    Wanted,
    /// The list has begun, and must end before this time.
    Begun(Instant),
    /// The list is complete, and the watch continues.
    Done,
}

impl ObjectWatch {
    /// `streams`: whether the server's streamed lists are known to show its current state.
    pub(super) fn new(
        client: Client,
        streams: bool,
        resource: &ApiResource,
        config: watcher::Config,
    ) -> Self {
        let lists = if streams { Lists::Streamed(Progress::Wanted) } else { Lists::Paged };
        let client = if streams { reading_consistently(client) } else { client };
        let api = Api::all_with(client, resource);
        let config = config.page_size(PAGE);
        let events = started(&api, &config, lists);
        Self { api, config, plural: resource.plural.clone(), events, lists }
    }

    /// The next event or failure. A failed watch is restarted without the caller.
    pub(super) async fn next(&mut self) -> Option<Shown> {
        loop {
            let Lists::Streamed(progress) = self.lists else { return self.events.next().await };
            let next = self.events.next();
            let shown = match progress {
                Progress::Begun(until) => tokio::time::timeout_at(until, next).await.ok(),
                Progress::Wanted | Progress::Done => Some(next.await),
            };
            let followed = match &shown {
                None => Err(format!("its streamed list has no end after {} s", STREAMED_WITHIN.as_secs())),
                Some(None) => return None,
                Some(Some(shown)) => after(progress, shown, Instant::now()),
            };
            match followed {
                Ok(progress) => {
                    self.lists = Lists::Streamed(progress);
                    return shown.flatten();
                }
                Err(why) => {
                    let resource = &self.plural;
                    tracing::info!(resource, why, "the API server is asked for lists in pages from now on");
                    self.lists = Lists::Paged;
                    self.events = started(&self.api, &self.config, self.lists);
                }
            }
        }
    }
}

fn started(api: &Api<DynamicObject>, config: &watcher::Config, lists: Lists) -> BoxStream<'static, Shown> {
    let config = match lists {
        Lists::Paged => config.clone(),
        Lists::Streamed(_) => config.clone().streaming_lists(),
    };
    watch_objects(api.clone(), config).default_backoff().boxed()
}

/// The state of a streamed list after an event or a failure. An error is the reason to stream no more lists.
fn after(progress: Progress, shown: &Shown, now: Instant) -> Result<Progress, String> {
    match (progress, shown) {
        // The stream ended before its list did, and kube begins again at once.
        (Progress::Begun(_), Ok(Event::Init)) => Err("its streamed list broke off".to_owned()),
        // kube would continue, and end the list without the object that it couldn't read.
        (Progress::Begun(_), Err(error)) => Err(words(error)),
        (Progress::Wanted | Progress::Done, Ok(Event::Init)) => Ok(Progress::Begun(now + STREAMED_WITHIN)),
        (_, Ok(Event::InitDone)) => Ok(Progress::Done),
        (Progress::Wanted, Err(error)) if is_refusal(error) => Err(words(error)),
        (Progress::Done, Err(error)) if begins_anew(error) => Ok(Progress::Wanted),
        (_, Ok(Event::InitApply(_) | Event::Apply(_) | Event::Delete(_)) | Err(_)) => Ok(progress),
    }
}

/// Whether the server refused to stream lists.
fn is_refusal(error: &watcher::Error) -> bool {
    let watcher::Error::WatchStartFailed(kube::Error::Api(status)) = error else { return false };
    !ASK_AGAIN.contains(&status.code)
}

/// Whether kube lists again after this failure, and doesn't only watch again.
fn begins_anew(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status) => status.code == GONE,
        watcher::Error::NoResourceVersion => true,
        _ => false,
    }
}

/// A client for the same server whose streamed lists are consistent reads.
fn reading_consistently(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let send = move |request| {
        let client = client.clone();
        async move { Ok::<_, BoxError>(client.send(consistent(request)?).await?) }
    };
    Client::new(tower::service_fn(send), namespace)
}

/// Removes the version from a request for a streamed list, so that the list shows the state at the time of
/// the request. Doesn't change other requests.
fn consistent<B>(mut request: Request<B>) -> Result<Request<B>, BoxError> {
    let uri = request.uri();
    let query = uri.query().unwrap_or("");
    if query.split('&').all(|pair| pair != STREAMED) {
        return Ok(request);
    }
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("resourceVersion=")).collect();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{}?{}", uri.path(), kept.join("&")).parse()?);
    *request.uri_mut() = Uri::from_parts(parts)?;
    Ok(request)
}

/// A failure of a watch in words.
pub(super) fn words(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(e)
        | watcher::Error::WatchStartFailed(e)
        | watcher::Error::WatchFailed(e) => error::words(e),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
