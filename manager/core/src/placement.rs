pub mod capacity;
pub mod reservations;
