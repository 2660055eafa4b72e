//! What the API asks of the engine, over a world in memory: it decides as the real one does and keeps nothing.

use crate::journal::{self, AuditNumber, Reader, Visit};
use crate::metrics::Metrics;
use meridian_manager_core::input::{Bodies, Input, Key, Outcome, Reply};
use meridian_manager_core::record::Record;
use meridian_manager_core::{Config, Start, World};
use meridian_objects::Kind;
use meridian_shared::ids::{ClusterName, ContentHash, JournalId, RecordNumber};
use meridian_shared::mac::ReceiptKey;
use meridian_shared::time::{Mono, Now, Wall};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::broadcast;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("gone")]
pub struct Gone;
#[derive(Debug, Clone)]
pub struct View {
    pub key: Key,
    pub version: RecordNumber,
    pub value: Arc<serde_json::Value>,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Added,
    Modified,
    Deleted,
}
#[derive(Debug, Clone)]
pub struct Change {
    pub event: Event,
    pub view: Arc<View>,
}
#[derive(Debug)]
pub struct Watch {
    since: RecordNumber,
    backlog: std::collections::VecDeque<Change>,
    rx: broadcast::Receiver<Change>,
}
impl Watch {
    pub async fn next(&mut self) -> Result<Change, Gone> {
        if let Some(change) = self.backlog.pop_front() {
            return Ok(change);
        }
        loop {
            let change = self.rx.recv().await.map_err(|_| Gone)?;
            if change.view.version > self.since {
                return Ok(change);
            }
        }
    }
}
#[derive(Default, Debug)]
struct Published {
    version: RecordNumber,
    views: BTreeMap<Key, Arc<View>>,
    history: Vec<Change>,
}
#[derive(Debug, Clone)]
pub struct Reads {
    published: Arc<Mutex<Published>>,
    tx: broadcast::Sender<Change>,
    pub oldest: Arc<Mutex<RecordNumber>>,
}
impl Reads {
    pub fn version(&self) -> RecordNumber {
        self.published.lock().unwrap().version
    }
    pub fn get(&self, key: &Key) -> Option<Arc<View>> {
        self.published.lock().unwrap().views.get(key).cloned()
    }
    pub fn list(&self, kind: Kind, namespace: Option<&str>, scope: Option<&ClusterName>) -> (Vec<Arc<View>>, RecordNumber) {
        let p = self.published.lock().unwrap();
        let all = p.views.values().filter(|v| v.key.kind == kind && v.key.scope.as_ref() == scope);
        (all.filter(|v| namespace.is_none_or(|n| v.key.namespace.as_deref() == Some(n))).cloned().collect(), p.version)
    }
    pub fn watch(&self, since: RecordNumber) -> Result<Watch, Gone> {
        if since < *self.oldest.lock().unwrap() {
            return Err(Gone);
        }
        let p = self.published.lock().unwrap();
        let backlog = p.history.iter().filter(|c| c.view.version > since).cloned().collect();
        Ok(Watch { since: p.version, backlog, rx: self.tx.subscribe() })
    }
}
#[derive(Default, Debug)]
struct Kept(BTreeMap<ContentHash, Arc<str>>);
impl Bodies for Kept {
    fn body(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.0.get(&hash).cloned()
    }
}
#[derive(Debug, Default)]
pub struct Audit(Mutex<Vec<Vec<u8>>>);
impl Reader for Audit {
    fn body(&self, _: ContentHash) -> Result<Option<Vec<u8>>, journal::Error> {
        Ok(None)
    }
    fn audit(&self, from: AuditNumber, until: AuditNumber, visit: Visit<'_, AuditNumber>) -> Result<(), journal::Error> {
        for (i, line) in self.0.lock().unwrap().iter().enumerate() {
            let n = i as u64 + 1;
            if n >= from.0 && n < until.0 {
                let _ = visit(AuditNumber(n), line);
            }
        }
        Ok(())
    }
    fn audit_head(&self) -> Result<Option<(AuditNumber, Vec<u8>)>, journal::Error> {
        let all = self.0.lock().unwrap();
        Ok(all.last().map(|l| (AuditNumber(all.len() as u64), l.clone())))
    }
}
struct Inner {
    world: World,
    bodies: Kept,
}
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Mutex<Inner>>,
    reads: Reads,
    audit: Arc<Audit>,
    metrics: Metrics,
    pub down: Arc<Mutex<bool>>,
}
impl Handle {
    pub fn stand_in() -> Self {
        let mut world = World::empty(JournalId(1), Config::new(ReceiptKey([7; 32])));
        let bodies = Kept::default();
        world.lead(Start { id: 1, recovery: None, fresh: true, now: now() }, &bodies);
        let (tx, _) = broadcast::channel(10_000);
        let reads = Reads { published: Arc::default(), tx, oldest: Arc::default() };
        Self { inner: Arc::new(Mutex::new(Inner { world, bodies })), reads, audit: Arc::default(), metrics: Metrics::new("0"), down: Arc::default() }
    }
    pub async fn ask(&self, input: Input) -> Result<Reply, Unavailable> {
        if *self.down.lock().unwrap() {
            return Err(Unavailable("the journal is away".into()));
        }
        let mut inner = self.inner.lock().unwrap();
        let Inner { world, bodies } = &mut *inner;
        let out = world.apply(now(), input, bodies);
        let reply = out.reply.clone();
        self.publish(world, bodies, out);
        let out = world.apply(now(), Input::Turn, bodies);
        self.publish(world, bodies, out);
        Ok(reply)
    }
    fn publish(&self, world: &World, bodies: &mut Kept, out: Outcome) {
        bodies.0.extend(out.bodies);
        for (_, record) in &out.records {
            if let Record::Audited(line) = record {
                self.audit.0.lock().unwrap().push(serde_json::to_vec(line).unwrap());
            }
        }
        let mut p = self.reads.published.lock().unwrap();
        p.version = world.state.last;
        for key in out.changed {
            let before = p.views.get(&key).cloned();
            let change = match (world.render(&key, bodies, now()), before) {
                (Some(value), before) => {
                    let view = Arc::new(View { key: key.clone(), version: p.version, value: Arc::new(value) });
                    p.views.insert(key, view.clone());
                    Change { event: if before.is_some() { Event::Modified } else { Event::Added }, view }
                }
                (None, Some(before)) => {
                    p.views.remove(&key);
                    Change { event: Event::Deleted, view: Arc::new(View { version: p.version, ..(*before).clone() }) }
                }
                (None, None) => continue,
            };
            p.history.push(change.clone());
            let _ = self.reads.tx.send(change);
        }
    }
    pub async fn explain(&self, namespace: &str, name: &str) -> Option<serde_json::Value> {
        let inner = self.inner.lock().unwrap();
        inner.world.explain(inner.world.uid_of(namespace, name)?, now())
    }
    pub async fn recovery(&self) -> serde_json::Value {
        serde_json::json!({"open": self.inner.lock().unwrap().world.state.recovery.is_some()})
    }
    pub fn reads(&self) -> &Reads {
        &self.reads
    }
    pub fn journal(&self) -> Arc<dyn Reader> {
        self.audit.clone()
    }
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
    pub fn leading(&self) -> bool {
        true
    }
}
fn now() -> Now {
    Now { mono: Mono(1_000), wall: Wall(1_795_219_199_999) }
}
