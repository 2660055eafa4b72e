//! Tests that need more than one crate: the seeded simulator. Its binary is `sim`; CI runs it through
//! `tests/seeds.rs`.

pub mod sim;

use tikv_jemallocator::Jemalloc;

/// A quarter of a simulation's time is spent on memory.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;
