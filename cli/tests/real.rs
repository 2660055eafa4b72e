//! The real `meridian` binary, started as an operator starts it: real processes, sockets, disks and signals.
//!
//! One test binary, so that the tests run one after another instead of competing for the machine (`sandbox`).

mod real {
    mod accelerators;
    mod agent_stores;
    mod faults;
    mod fleet;
    mod full_disk;
    mod gangs;
    mod hostile;
    mod leases;
    mod newcomer;
    mod partitions;
    mod processes;
    mod recovery;
    mod rest;
    mod sandbox;
}
