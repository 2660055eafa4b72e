//! Renews the certificate at two thirds of its lifetime, and swaps it in without dropping requests.

use super::Link;
use crate::identity::Keeper;
use meridian_shared::backoff;
use meridian_shared::time::{Millis, Wall};
use meridian_telemetry::with_causes;
use std::time::Duration;

/// First pause after a failed renewal. A third of the lifetime is left for further attempts.
const PAUSE_FIRST: Millis = Millis::secs(1);
/// Longest pause after a failed renewal.
const PAUSE_MAX: Millis = Millis::mins(5);
/// Longest sleep, because wall clocks are set and machines are suspended.
const CHECK_EVERY: Millis = Millis::mins(1);

/// Keeps the certificate of `keeper` fresh until it is dropped. `jitter` spreads agents that joined at the
/// same time.
pub async fn keep_fresh(keeper: &Keeper, link: &Link, now: impl Fn() -> Wall, jitter: u64) {
    let mut failures = 0_u32;
    loop {
        let left = keeper.current().renew_at(jitter).since(now());
        if left.0 > 0 {
            tokio::time::sleep(Duration::from_millis(left.min(CHECK_EVERY).0)).await;
            continue;
        }
        match keeper.renew(&link.client()).await {
            Ok(()) => {
                failures = 0;
                link.reconnect();
                // Always pause: with a short-lived certificate or a wrong clock, renewals would follow each
                // other at once.
                tokio::time::sleep(Duration::from_millis(PAUSE_FIRST.0)).await;
            }
            Err(error) => {
                let wait = backoff::wait(PAUSE_FIRST, PAUSE_MAX, failures, jitter);
                failures = failures.saturating_add(1);
                tracing::warn!(
                    failures,
                    not_after_ms = keeper.current().not_after.0,
                    "the certificate was not renewed, trying again: {}",
                    with_causes(&error)
                );
                tokio::time::sleep(Duration::from_millis(wait.0)).await;
            }
        }
    }
}
