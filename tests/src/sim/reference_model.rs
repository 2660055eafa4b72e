//! What the specification demands, written a second time from its text and as simply as possible.
//!
//! Nothing here shares code with the manager, so that a mistake there isn't repeated here.

pub(crate) mod quota_forest;
pub(crate) mod residency;
