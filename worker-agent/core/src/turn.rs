//! One turn of the agent: an input in, writes and effects out.

use crate::durable::{StoreOp, Writes};
use crate::runtime::{
    HoldEvent, HoldOrder, NodeRequest, NodeSpec, PodPlacement, ProviderEvent, ReferenceCheck, RunnerEvent,
    Start,
};
use meridian_shared::ids::{Fence, OfferId, Uid};
use meridian_shared::packing::Block;
use meridian_shared::protocol::{Size, SyncAnswer};
use meridian_shared::time::Mono;
use std::collections::BTreeMap;

/// Inputs of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// An answer to one of the agent's transmissions.
    Answer(Box<SyncAnswer>),
    Runner(RunnerEvent),
    Provider(ProviderEvent),
    Hold(HoldEvent),
    /// The complete inventory.
    Nodes {
        nodes: Vec<NodeSpec>,
        /// Nodes that the provider can still make: `nodes` is the number of further nodes of each shape.
        pools: Vec<Block>,
    },
    /// The kinds of jobs that the cluster can't run, each with the reason. All others can be run.
    UnavailableKinds(BTreeMap<String, String>),
    /// Time has passed.
    Tick,
}

/// Results of one input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// Writes, made durable first in one transaction.
    writes: Writes,
    /// Actions, done afterwards in this order.
    effects: Vec<Effect>,
}

impl Outcome {
    /// The writes, to add to them.
    pub(crate) fn writes(&mut self) -> &mut Writes {
        &mut self.writes
    }

    /// Adds an effect after all others.
    pub(crate) fn act(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Adds effects after all others, in this order.
    pub(crate) fn act_all(&mut self, effects: impl IntoIterator<Item = Effect>) {
        self.effects.extend(effects);
    }

    /// What is to be made durable before any effect is done.
    pub fn store(&self) -> &[StoreOp] {
        self.writes.ops()
    }

    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// The effects alone, for an agent whose store nobody reads.
    pub fn into_effects(self) -> Vec<Effect> {
        self.effects
    }

    /// The writes, to be made durable first in one transaction, and the effects, to be done afterwards.
    pub fn into_parts(self) -> (Vec<StoreOp>, Vec<Effect>) {
        (self.writes.into_ops(), self.effects)
    }
}

/// An action of the shell. Every effect is idempotent, because a restarted agent doesn't know which effects
/// were carried out, and repeats them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Starts a gang. Idempotent by (uid, fence).
    Start(Box<Start>),
    /// Extends the deadline of a lease.
    Renew {
        uid: Uid,
        fence: Fence,
        /// Nothing may run at or after this moment of boot time.
        deadline: Mono,
    },
    /// Moves the pods with a changed placement and leaves all others alone. Each moved pod starts on its new
    /// node only after it was seen ended on the old one. Attempt, fence and lease stay. Idempotent by (uid,
    /// fence, number).
    Move {
        uid: Uid,
        fence: Fence,
        /// Number of this move within the attempt, from 1.
        number: u32,
        /// All pods, in the order of the start.
        placement: Vec<PodPlacement>,
    },
    /// Continues an attempt with fewer pods: ends the surplus pods, then reports
    /// [`RunnerEvent::Reclaimable`]. Idempotent by (uid, fence, size).
    ScaleDown { uid: Uid, fence: Fence, size: Size },
    /// Starts the added pods and leaves all others alone. The answer is [`RunnerEvent::Moved`] with the same
    /// number. Idempotent by (uid, fence, number).
    ScaleUp {
        uid: Uid,
        fence: Fence,
        /// Counts together with the moves of this attempt.
        number: u32,
        /// All pods, in the order of the start; added pods come last.
        placement: Vec<PodPlacement>,
        size: Size,
    },
    /// Stops an attempt, known or not: the runner occupies its name, then reports `Ended`.
    Stop { uid: Uid, fence: Fence },
    /// The manager has recorded the end of an attempt: only people still need its logs and objects.
    Settle { uid: Uid, fence: Fence },
    /// Removes what is left of a run after its tombstone was dropped.
    Forget { uid: Uid, fence: Fence },
    /// Looks up what an offer's pods name. Only with [`crate::HoldSettings::checks_references`].
    Check(ReferenceCheck),
    /// Holds an allocation in the cluster too. Only where [`crate::HoldSettings::way`] needs it.
    Secure(HoldOrder),
    /// Requests nodes from the provider.
    Provision(NodeRequest),
    /// Gives back what was requested, provided or held in the cluster for an offer.
    Deprovision { offer: OfferId },
    /// There is news for the manager: send it without waiting for the poll.
    SendNews,
    /// The manager follows a newer session or a clone of this ledger: exit.
    Superseded,
}
