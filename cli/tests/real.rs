//! The real `meridian` binary, started as an operator starts it: real processes, sockets, disks and signals.
//!
//! One binary, so that these tests wait for one another instead of fighting for the machine (see [`real::stage`]).

mod real {
    mod accelerators;
    mod copies;
    mod crew;
    mod disks;
    mod door;
    mod faults;
    mod gangs;
    mod hostile;
    mod leases;
    mod partitions;
    mod processes;
    mod stage;
    mod stores;
    mod story;
}
