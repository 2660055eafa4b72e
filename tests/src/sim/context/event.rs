//! Everything that can happen at a moment of a simulation.

use crate::sim::scenario::Fault;
use meridian_agent_core::{HoldEvent, ProviderEvent};
use meridian_manager::host::leadership::{LeadershipPlan, StartMode};
use meridian_manager_core::facts::input::Input;
use meridian_manager_core::facts::outcome::Reply;
use meridian_shared::protocol::{Lane, SyncAnswer, SyncRequest};

/// Something that happens at a moment. Hosts are named by index; `life` and `turn` are compared with the
/// host's own, so that an event of an ended process, or of a turn that was scheduled anew, does nothing.
#[derive(Debug)]
pub(crate) enum SimEvent {
    ManagerStarts {
        manager: usize,
        life: u64,
        mode: StartMode,
    },
    ManagerLeads {
        manager: usize,
        life: u64,
        plan: LeadershipPlan,
    },
    ManagerTurn {
        manager: usize,
        turn: u64,
    },
    CommitEnds {
        manager: usize,
        life: u64,
    },
    ManagerReloads {
        manager: usize,
        life: u64,
    },
    RequestArrives {
        manager: usize,
        agent: usize,
        life: u64,
        request: Box<SyncRequest>,
    },
    AnswerArrives {
        agent: usize,
        life: u64,
        transmission: u64,
        answer: Box<SyncAnswer>,
    },
    AgentStarts {
        agent: usize,
        life: u64,
    },
    AgentTurn {
        agent: usize,
        turn: u64,
    },
    AnswerTimeout {
        agent: usize,
        life: u64,
        lane: Lane,
        transmission: u64,
    },
    ProviderReports {
        agent: usize,
        life: u64,
        event: ProviderEvent,
    },
    /// The cluster answers about a hold.
    HoldReports {
        agent: usize,
        life: u64,
        event: HoldEvent,
    },
    MachineTick {
        machine: usize,
        turn: u64,
    },
    UnguardedEnd {
        machine: usize,
    },
    MachineThaws {
        machine: usize,
    },
    ManagerThaws {
        manager: usize,
    },
    DiskHeals {
        manager: usize,
    },
    UserRequestArrives {
        manager: usize,
        id: u64,
        input: Box<Input>,
    },
    UserReplyArrives {
        id: u64,
        history: u32,
        reply: Box<Reply>,
    },
    UserRequestTimeout {
        id: u64,
    },
    UsersAct,
    OperatorsAct,
    Backup,
    FaultStrikes(Fault),
    NodeFails,
    NodeReturns {
        machine: usize,
        node: u32,
    },
    FaultsEnd,
    EndCheck,
}
