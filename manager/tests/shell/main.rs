//! The manager's shells together: identities over a real port, the engine over a disk that fails, agents over the link, and
//! the program itself. One binary, because each links the whole manager.

mod engine;
mod faults;
mod identity;
mod link;
mod program;
mod restart;
mod rig;
