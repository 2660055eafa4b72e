//! The output of a run's pods, followed through the API server.

use super::supervisor::Order;
use super::{Shown, unknown};
use crate::error::words;
use crate::labels::RunKey;
use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, Client};
use meridian_agent_core::runtime::{CHUNK_BYTES_MAX, Error, LogChunk, LogSource};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

/// Pieces of output that wait for the reader. A slow reader slows the stream down.
const PIECES_WAITING: usize = 16;
/// Pause before new pods are looked for, and before a pod that has no output yet is asked again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The output of a run, read by tasks that end when this value is dropped.
#[derive(Debug)]
pub(super) struct PodLogs {
    pieces: mpsc::Receiver<Result<LogChunk, Error>>,
    ended: bool,
    task: JoinHandle<()>,
}

impl Drop for PodLogs {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LogSource for PodLogs {
    fn read(&mut self) -> Result<Option<LogChunk>, Error> {
        match self.pieces.try_recv() {
            Ok(piece) => piece.map(Some),
            Err(mpsc::error::TryRecvError::Empty) => Ok(None),
            Err(mpsc::error::TryRecvError::Disconnected) => {
                self.ended = true;
                Ok(None)
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.ended
    }
}

/// Follows the output of all pods of a run, or of one.
pub(super) fn follow(
    runtime: &Handle,
    client: Client,
    orders: mpsc::UnboundedSender<Order>,
    key: RunKey,
    only: Option<u32>,
) -> PodLogs {
    let (sender, pieces) = mpsc::channel(PIECES_WAITING);
    let task = runtime.spawn(async move {
        let mut streams = JoinSet::new();
        let mut followed = BTreeSet::new();
        let mut tries: BTreeMap<u32, u32> = BTreeMap::new();
        loop {
            let Some(shown) = show(&orders, key).await else {
                // Fails only if the reader is gone.
                let _ = sender.send(Err(Error::new(unknown(key)))).await;
                return;
            };
            for (name, index) in shown.pods {
                if only.is_some_and(|only| only != index) || !followed.insert(name.clone()) {
                    continue;
                }
                let number = tries.entry(index).or_insert(0);
                let api = Api::namespaced(client.clone(), &shown.namespace);
                streams.spawn(stream(api, name, index, *number, sender.clone()));
                *number += 1;
            }
            if shown.has_ended && streams.is_empty() {
                return;
            }
            tokio::select! {
                Some(_) = streams.join_next() => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = sender.closed() => return,
            }
        }
    });
    PodLogs { pieces, ended: false, task }
}

async fn show(orders: &mpsc::UnboundedSender<Order>, key: RunKey) -> Option<Shown> {
    let (reply, shown) = oneshot::channel();
    orders.send(Order::Show { key, reply }).ok()?;
    shown.await.ok()?
}

/// Sends what one pod printed, from its first line until its end.
async fn stream(
    pods: Api<Pod>,
    name: String,
    pod: u32,
    attempt: u32,
    pieces: mpsc::Sender<Result<LogChunk, Error>>,
) {
    let params = LogParams { follow: true, ..LogParams::default() };
    let mut lines = loop {
        match pods.log_stream(&name, &params).await {
            Ok(lines) => break lines,
            // The container has not started.
            Err(kube::Error::Api(status)) if status.code == 400 => tokio::time::sleep(LOOK_AGAIN).await,
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(error) => {
                let why = format!("cannot read the output of pod `{name}`: {}", words(&error));
                let _ = pieces.send(Err(Error::new(why))).await;
                return;
            }
        }
    };
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    loop {
        match lines.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(n) => {
                let bytes = buffer[..n].to_vec();
                if pieces.send(Ok(LogChunk { pod, attempt, bytes })).await.is_err() {
                    return;
                }
            }
        }
    }
}
