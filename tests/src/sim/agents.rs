//! Agents: the real agent core over a store that may fail, in a process that may end between any two steps.
//!
//! One turn of an agent is: apply inputs, make the result durable, do the effects. Gangs belong to the
//! machine, and outlive the agent.

mod effects;
mod holds;
mod hostile;
mod link;
mod priorities;
mod process;
mod situations;
mod store;
mod tolerations;
mod turn;
