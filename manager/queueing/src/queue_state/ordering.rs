//! Order of the pending workloads of a queue, by the rules that apply to it.

use crate::model::{QueueId, ShapeId, WorkloadId};
use crate::names::Id;
use crate::pending::{
    COUNTED_MAX, ClassKey, HeadBlocks, Pending, PendingPosition, PositionCounts, PreemptorOrder, QueueOrder,
    WorkloadsAhead,
};
use crate::queue_state::QueueState;

impl QueueState {
    /// Evaluates `ask` with the ordering rules of a queue.
    pub(crate) fn ask_ordered<'a, R>(
        &'a self,
        queue: QueueId,
        ask: impl FnOnce(&'a Pending, &QueueOrder<'_>) -> R,
    ) -> R {
        let by_usage = self.orders_by_usage(queue);
        let usage = |local: &str| self.weighted_usage(local);
        let preemptor_order =
            match (self.settings.gates.prioritize_preemptors && by_usage, self.queue(queue).setup.strict) {
                // The local queues of stopped victims have less usage now, so ordering by usage would give
                // the victims the released quota back.
                (true, _) => PreemptorOrder::First,
                (false, false) => PreemptorOrder::Sticky,
                (false, true) => PreemptorOrder::Regular,
            };
        let order = QueueOrder {
            usage: by_usage.then_some(&usage),
            preemptor_order,
            starved: self.starved_head(queue).filter(|_| by_usage),
        };
        ask(&self.pending[queue.index()], &order)
    }

    /// All pending workloads of a queue, active or parked, in order.
    pub fn pending_order(&self, queue: QueueId) -> Vec<WorkloadId> {
        self.ask_ordered(queue, Pending::ordered)
    }

    /// The first workload of a queue, active or parked.
    pub fn first_in_queue(&self, queue: QueueId) -> Option<WorkloadId> {
        let favored_positions = self.favored_positions(queue);
        self.ask_ordered(queue, |pending, order| pending.first_of_all(order, &favored_positions))
    }

    /// The favored workloads that are pending in a queue.
    fn favored_positions(&self, queue: QueueId) -> Vec<(ClassKey, PendingPosition)> {
        let pending = &self.pending[queue.index()];
        let all = self
            .starved_head(queue)
            .into_iter()
            .chain(pending.preemptor())
            .filter(|id| self.workloads.get(id).is_some());
        let mut all: Vec<(ClassKey, PendingPosition)> = all
            .map(|id| self.position_of(id))
            .filter(|(class, position)| pending.contains(class, position))
            .collect();
        all.dedup();
        all
    }

    /// The next workload to evaluate.
    pub fn head(&self, queue: QueueId) -> Option<WorkloadId> {
        self.ask_ordered(queue, Pending::head).map(|(position, _)| position.workload)
    }

    /// The workloads before a pending workload, computed once for several questions.
    pub fn workloads_ahead(&self, id: WorkloadId) -> Option<WorkloadsAhead<'_>> {
        let of = self.workloads.get(&id).filter(|of| of.holding.is_none())?;
        let (class, position) = self.position_of(id);
        let pending = &self.pending[of.queue.index()];
        if !pending.contains(&class, &position) {
            return None;
        }
        let favored_positions = self.favored_positions(of.queue);
        Some(self.ask_ordered(of.queue, |pending, order| {
            pending.before(order, &position, &class.0, &favored_positions, COUNTED_MAX)
        }))
    }

    /// The position of a pending workload in its queue.
    pub fn position_counts(&self, id: WorkloadId) -> Option<PositionCounts> {
        self.workloads_ahead(id).map(|ahead| ahead.position_counts())
    }

    /// Number of pending workloads of a queue, by shape.
    pub(crate) fn pending_by_shape(&self, queue: QueueId) -> impl Iterator<Item = (ShapeId, usize)> + '_ {
        self.pending[queue.index()].by_shape()
    }

    /// Whether a workload is favored over the regular order.
    pub fn is_favored(&self, id: WorkloadId) -> bool {
        self.workloads.get(&id).is_some() && (self.is_starved(id) || self.is_preemptor(id))
    }

    /// All favored workloads.
    pub fn favored_workloads(&self) -> impl Iterator<Item = WorkloadId> + '_ {
        let all = self.starved_heads().chain(self.pending.iter().filter_map(Pending::preemptor));
        all.filter(|id| self.is_favored(*id))
    }

    /// Whether a workload would be evaluated if the head of its queue were gone.
    pub fn is_behind(&self, id: WorkloadId, head: WorkloadId) -> bool {
        let Some(of) = self.workloads.get(&id).filter(|of| of.holding.is_none() && head != id) else {
            return false;
        };
        let (class, position) = self.position_of(id);
        self.pending[of.queue.index()].is_active(&class, &position)
    }

    /// The head that an active workload waits behind, and why the head stays. `None` for the head itself and
    /// for parked workloads.
    pub fn waits_behind(&self, id: WorkloadId) -> Option<(WorkloadId, HeadBlocks)> {
        let of = self.workloads.get(&id)?;
        let head = self.head(of.queue).filter(|head| self.is_behind(id, *head))?;
        let blocks = if self.is_starved(head) {
            HeadBlocks::Starved
        } else if self.is_preemptor(head) {
            HeadBlocks::Preempting
        } else if self.queue(of.queue).setup.strict {
            HeadBlocks::Strict
        } else {
            HeadBlocks::Evaluating
        };
        Some((head, blocks))
    }

    /// Whether the workload is the preemptor of its queue.
    pub(crate) fn is_preemptor(&self, workload: WorkloadId) -> bool {
        let queue = self.workloads[&workload].queue;
        self.pending[queue.index()].preemptor() == Some(workload)
    }

    /// Whether a workload is the preemptor of its queue and a victim in its tree is still stopping.
    pub(crate) fn awaits_victims(&self, workload: WorkloadId) -> bool {
        if !self.is_preemptor(workload) {
            return false;
        }
        let Some(node) = self.node_of(workload) else { return false };
        let tree = self.forest.node(node).tree;
        let mut queues = self.forest.tree(tree).queues.iter().filter_map(|node| self.queue_at(*node));
        queues.any(|queue| self.queue(queue).has_stopping())
    }
}
