//! Limits on each agent's requests: concurrent ones, and requests per second. An agent that floods uses up
//! only its own budget.

use super::request::Failure;
use crate::locks;
use axum::http::StatusCode;
use dashmap::DashMap;
use meridian_shared::ids::ClusterName;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Concurrent requests of one agent: two syncs, one for log requests, and some left over from a lost
/// connection.
const AT_ONCE_MAX: usize = 8;
/// Requests of one agent per second, on average. A correct agent is slower, because it sends at most one
/// request per round trip.
const PER_SECOND_MAX: f64 = 1_000.0;
/// Most requests that an agent can save up.
const BURST_MAX: f64 = 2_000.0;

/// The budgets of all agents, bounded by the number of clusters with a verified certificate.
#[derive(Debug, Default)]
pub(super) struct Budgets(DashMap<ClusterName, Arc<Budget>>);

#[derive(Debug)]
struct Budget {
    at_once: Arc<Semaphore>,
    saved: Mutex<Saved>,
}

/// Requests that an agent may send at once, at a given time.
#[derive(Debug)]
struct Saved {
    requests: f64,
    at: Instant,
}

impl Budgets {
    /// Takes one request out of the budget, for as long as the permit lives. Fails if the budget is used up.
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
                saved: Mutex::new(Saved { requests: BURST_MAX, at: Instant::now() }),
            })
        };
        Arc::clone(&self.0.entry(cluster.clone()).or_insert_with(fresh))
    }
}

impl Budget {
    fn spend(&self, now: Instant) -> bool {
        let mut saved = locks::lock(&self.saved);
        let earned = now.saturating_duration_since(saved.at).as_secs_f64() * PER_SECOND_MAX;
        *saved = Saved { requests: (saved.requests + earned).min(BURST_MAX), at: now };
        let enough = saved.requests >= 1.0;
        if enough {
            saved.requests -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_flood_uses_up_one_agents_budget_only() {
        let budgets = Budgets::default();
        let (eu, us) = ("eu".into(), "us".into());
        let held: Vec<_> = (0..AT_ONCE_MAX).map(|_| budgets.enter(&eu).unwrap()).collect();
        assert_eq!(budgets.enter(&eu).unwrap_err().code, StatusCode::TOO_MANY_REQUESTS);
        assert!(budgets.enter(&us).is_ok());
        drop(held);
        assert!(budgets.enter(&eu).is_ok());
    }

    #[test]
    fn the_budget_refills_up_to_its_limit() {
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
