//! Machines with their gangs, and the processes of agents and managers: their state, and what each can do
//! alone.
//!
//! Steps that concern several of them are methods of `Simulation`, in `agents`, `machines` and `managers`.

pub(crate) mod agent;
pub(crate) mod gang;
pub(crate) mod machine;
pub(crate) mod manager;
pub(crate) mod nodes;
pub(crate) mod runner;
