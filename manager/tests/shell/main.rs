//! Tests of the shells together: identities over a real port, the engine on a faulty disk, agents over the
//! sync protocol, and the program itself. One binary, because each test binary links the whole manager.

mod api_port;
mod connections;
mod damage;
mod engine;
mod faults;
mod identity;
mod link;
mod program;
mod restart;
mod rig;
