//! How much of the manager one agent may take: requests at the same time, and requests per second. What it floods comes out
//! of its own budget.

use super::Failure;
use axum::http::StatusCode;
use dashmap::DashMap;
use meridian_shared::ids::ClusterName;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests of one agent at the same time: two syncs, a question for logs, and those that a lost connection left behind.
const AT_ONCE_MAX: usize = 8;
/// Requests of one agent per second, in the long run. News goes out once per round trip, so an honest agent is slower.
const PER_SECOND_MAX: f64 = 1_000.0;
/// Requests saved up at most.
const BURST_MAX: f64 = 2_000.0;

/// The budgets of all agents, bounded by the number of clusters with a verified certificate.
#[derive(Debug, Default)]
pub(super) struct Budgets(DashMap<ClusterName, Arc<Budget>>);

#[derive(Debug)]
struct Budget {
    at_once: Arc<Semaphore>,
    saved: Mutex<(f64, Instant)>,
}

impl Budgets {
    /// Takes one request out of the budget, for as long as the permit lives.
    pub(super) fn enter(&self, cluster: &ClusterName) -> Result<OwnedSemaphorePermit, Failure> {
        let budget = self.of(cluster);
        let too_many = |what: &str| {
            Failure::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!("cluster `{cluster}` sends too many requests {what}: wait a moment"),
            )
        };
        if !budget.spend(Instant::now()) {
            return Err(too_many("per second"));
        }
        Arc::clone(&budget.at_once).try_acquire_owned().map_err(|_| too_many("at the same time"))
    }

    fn of(&self, cluster: &ClusterName) -> Arc<Budget> {
        let fresh = || {
            Arc::new(Budget {
                at_once: Arc::new(Semaphore::new(AT_ONCE_MAX)),
                saved: Mutex::new((BURST_MAX, Instant::now())),
            })
        };
        Arc::clone(&self.0.entry(cluster.clone()).or_insert_with(fresh))
    }
}

impl Budget {
    fn spend(&self, now: Instant) -> bool {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let earned = now.saturating_duration_since(saved.1).as_secs_f64() * PER_SECOND_MAX;
        *saved = ((saved.0 + earned).min(BURST_MAX), now);
        let enough = saved.0 >= 1.0;
        if enough {
            saved.0 -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn one_agents_flood_is_its_own() {
        let budgets = Budgets::default();
        let (eu, us) = ("eu".into(), "us".into());
        let held: Vec<_> = (0..AT_ONCE_MAX).map(|_| budgets.enter(&eu).unwrap()).collect();
        assert_eq!(budgets.enter(&eu).unwrap_err().code, StatusCode::TOO_MANY_REQUESTS);
        assert!(budgets.enter(&us).is_ok());
        drop(held);
        assert!(budgets.enter(&eu).is_ok());
    }

    #[test]
    fn a_rate_is_earned_back_and_never_saved_without_end() {
        let budget = Budgets::default().of(&"eu".into());
        let now = Instant::now();
        let spent = (0..10_000).filter(|_| budget.spend(now)).count();
        assert!((2_000..=2_001).contains(&spent), "{spent}");
        let later = now + Duration::from_millis(10);
        assert_eq!((0..100).filter(|_| budget.spend(later)).count(), 10);
        let much_later = later + Duration::from_secs(3_600);
        assert_eq!((0..10_000).filter(|_| budget.spend(much_later)).count(), 2_000);
    }
}
