//! Limits log lines that anybody on the network can cause: one per subject and minute, with the number of
//! suppressed lines.

use crate::locks;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time between two lines about one subject.
const PAUSE: Duration = Duration::from_secs(60);
/// Most subjects that are remembered. Beyond it, all are forgotten, so each may cause a line again.
const SUBJECTS_MAX: usize = 1_024;

/// When a line about each subject was printed, and how many lines were suppressed since.
#[derive(Debug)]
pub(crate) struct LogLimit<K>(Mutex<BTreeMap<K, (Instant, u64)>>);

impl<K> Default for LogLimit<K> {
    fn default() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }
}

impl<K: Ord> LogLimit<K> {
    /// If a line may be printed, returns the number of lines that were suppressed before it.
    pub(crate) fn permit(&self, subject: K, now: Instant) -> Option<u64> {
        let mut printed = locks::lock(&self.0);
        if printed.len() >= SUBJECTS_MAX && !printed.contains_key(&subject) {
            printed.clear();
        }
        match printed.get_mut(&subject) {
            Some((last, left_out)) if now.saturating_duration_since(*last) < PAUSE => {
                *left_out += 1;
                None
            }
            Some((last, left_out)) => {
                *last = now;
                Some(std::mem::take(left_out))
            }
            None => {
                printed.insert(subject, (now, 0));
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_causes_one_line_per_minute() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        let at = |subject, seconds| limit.permit(subject, start + Duration::from_secs(seconds));
        assert_eq!((at("eu", 0), at("eu", 1), at("us", 2), at("eu", 59)), (Some(0), None, Some(0), None));
        assert_eq!((at("eu", 60), at("eu", 61), at("eu", 120)), (Some(2), None, Some(1)));
        for subject in 0..5_000 {
            let name: &'static str = Box::leak(subject.to_string().into_boxed_str());
            at(name, 200);
        }
        assert!(limit.0.lock().unwrap().len() <= SUBJECTS_MAX);
    }
}
