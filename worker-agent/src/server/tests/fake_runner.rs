//! A runner that notes its orders; the test reports its events.

use super::JOB;
use super::manager::PATIENCE;
use crate::job_run;
use meridian_agent_core::runtime::{
    self, Answer, Enforcement, Found, LogChunk, LogSource, PodPlacement, Runner, Start,
};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::{RunnerKind, Size};
use meridian_shared::time::{Mono, Now};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// An order to the runner.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    Start(Box<Start>, Now),
    Renew(Uid, Fence, Mono),
    Move(Uid, Fence, u32, Vec<String>),
    ScaleDown(Uid, Fence, Size),
    Stop(Uid, Fence),
}

#[derive(Clone, Debug)]
pub(super) struct FakeRunner {
    pub(super) orders: Arc<Mutex<Vec<Order>>>,
    found: Vec<Found>,
    changed: watch::Sender<u64>,
}

impl FakeRunner {
    pub(super) fn new(found: Vec<Found>) -> Self {
        Self { orders: Arc::default(), found, changed: watch::Sender::new(0) }
    }

    fn note(&self, order: Order) {
        self.orders.lock().unwrap().push(order);
        self.changed.send_modify(|n| *n += 1);
    }

    pub(super) fn starts(&self) -> usize {
        self.orders.lock().unwrap().iter().filter(|t| matches!(t, Order::Start(..))).count()
    }

    pub(super) async fn until(&self, what: &str, is: impl Fn(&Order) -> bool) -> Order {
        let mut changes = self.changed.subscribe();
        let waiting = async {
            loop {
                changes.borrow_and_update();
                if let Some(order) = self.orders.lock().unwrap().iter().find(|t| is(t)) {
                    return order.clone();
                }
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap_or_else(|_| panic!("the runner never got the order: {what}"))
    }
}

impl Runner for FakeRunner {
    fn kind(&self) -> RunnerKind {
        RunnerKind::Simulated
    }
    fn name(&self) -> &'static str {
        "fake"
    }
    fn enforcement(&self) -> Enforcement {
        Enforcement::Guarded
    }
    fn start(&mut self, start: Start, decided: Now) {
        self.note(Order::Start(Box::new(start), decided));
    }
    fn renew(&mut self, uid: Uid, fence: Fence, deadline: Mono, _decided: Now) {
        self.note(Order::Renew(uid, fence, deadline));
    }
    fn stop(&mut self, uid: Uid, fence: Fence) {
        self.note(Order::Stop(uid, fence));
    }
    fn move_pods(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>) {
        self.note(Order::Move(uid, fence, number, placement.into_iter().map(|place| place.node).collect()));
    }
    fn scale_down(&mut self, uid: Uid, fence: Fence, size: Size) {
        self.note(Order::ScaleDown(uid, fence, size));
    }
    fn scale_up(&mut self, uid: Uid, fence: Fence, number: u32, placement: Vec<PodPlacement>, _size: Size) {
        self.note(Order::Move(uid, fence, number, placement.into_iter().map(|place| place.node).collect()));
    }
    fn adopt(&mut self) -> Answer<'_, Result<Vec<Found>, runtime::Error>> {
        Box::pin(std::future::ready(Ok(self.found.clone())))
    }
    fn forget(&mut self, _uid: Uid, _fence: Fence) {}
    fn logs(&self, uid: Uid, fence: Fence, pod: Option<u32>) -> Result<Box<dyn LogSource>, runtime::Error> {
        if uid != JOB {
            return Err(job_run::Error::Unknown { uid, fence }.into());
        }
        let bytes = b"one\ntwo\nthree\n".to_vec();
        Ok(Box::new(LogText(Some(LogChunk { pod: pod.unwrap_or(0), attempt: 0, bytes }))))
    }
}

/// The whole output of a run that has ended.
#[derive(Debug)]
struct LogText(Option<LogChunk>);

impl LogSource for LogText {
    fn read(&mut self) -> Result<Option<LogChunk>, runtime::Error> {
        Ok(self.0.take())
    }

    fn has_ended(&self) -> bool {
        self.0.is_none()
    }
}
