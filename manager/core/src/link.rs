//! The manager's half of the protocol with one agent: sessions, events, inventories, and answers.

pub mod adoption;
pub mod answers;
pub mod budget;
pub mod copies;
pub mod ends;
pub mod events;
pub mod inventory;
pub mod legs;
pub mod pod_placement;
pub mod pods;
pub mod scale_up;
pub mod session;
pub mod sync;
