//! When a run's copies are made, and when they are given back: before the job starts, and with its end.

use crate::facts::JobFacts;
use crate::runner::request::Request;

/// Which requests about the copies of one run are done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CopyState {
    pub(super) made: bool,
    pub(super) given_back: bool,
}

impl CopyState {
    /// The request before the start of the suspended `job`, if it needs one.
    pub(super) fn to_make(self, job: &JobFacts) -> Option<Request> {
        let is_due = job.suspended && !self.made && !job.copies.is_empty();
        let (object_uid, references) = (job.uid.clone(), job.copies.clone());
        is_due.then_some(Request::Copy { object_uid, references })
    }

    /// The request after the end of `job`. The copies are deleted with the job's object too, but that object
    /// stays for a while.
    pub(super) fn to_give_back(self, job: &JobFacts) -> Option<Request> {
        let is_due = !self.given_back && !job.copies.is_empty();
        let (object_uid, references) = (job.uid.clone(), job.copies.clone());
        is_due.then_some(Request::GiveCopiesBack { object_uid, references })
    }
}
