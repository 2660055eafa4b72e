//! Users and operators: the objects of the fleet, jobs, and changes of rules at any moment.
//!
//! Every request is repeated until it is answered, and what was acknowledged must be remembered (P1).

mod actions;
mod activity_changes;
mod delivery;
mod durability;
mod operators;
mod priorities;
mod resize_changes;
