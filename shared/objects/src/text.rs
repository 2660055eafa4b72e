//! Parses texts into trees of values with positions: [`yaml`] and [`json`] are the parsers, [`syntax`] has
//! the tree.

pub(crate) mod json;
pub(crate) mod syntax;
pub(crate) mod yaml;
