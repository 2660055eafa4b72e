//! Texts into trees of values with places: [`yaml`] and [`json`] read, [`syntax`] is what they give.

pub(crate) mod json;
pub(crate) mod syntax;
pub(crate) mod yaml;
