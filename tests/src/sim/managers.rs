//! Managers: the real core and the real journal, in the order that the real engine has.
//!
//! One turn is: select inputs, apply each, apply a scheduling turn, answer agents, commit, reply. A commit
//! takes time, and the process can end before it, in it, after it and between two replies.
//!
//! Only this module drives the manager's core; everything else in the simulator reads its world.

mod commit;
mod describe;
mod explanations;
mod process;
mod turn;
