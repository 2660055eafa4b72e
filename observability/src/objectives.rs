//! Service level objectives: a part of bad events that is allowed, and how fast it is used up.
//!
//! Burn rates are those of Google's SRE workbook for a budget of 30 days: 14.4 uses 2 % of it in an hour, 6
//! uses 5 % in six hours. Each burn rate has two windows: the long one shows that the problem matters, the
//! short one that it lasts.

use crate::query::{observed, rate_over, sum, within};
use meridian_manager::metrics::Metrics;

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Objective {
    /// Requests to the API don't fail because of the manager.
    Api,
    /// Workloads with quota get a cluster within [`ADMISSION_SECONDS`].
    Admission,
    /// Granted workloads don't lose their cluster by a failure.
    Dispatch,
}

/// Bound of the admission objective; a bucket of the histogram.
pub(crate) const ADMISSION_SECONDS: &str = "20";

/// A pair of windows and the burn rate above which both alert.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burn {
    pub(crate) name: &'static str,
    pub(crate) long: &'static str,
    pub(crate) short: &'static str,
    pub(crate) rate: &'static str,
    pub(crate) severity: &'static str,
}

pub(crate) const BURNS: [Burn; 2] = [
    Burn { name: "Fast", long: "1h", short: "5m", rate: "14.4", severity: "critical" },
    Burn { name: "Slow", long: "6h", short: "30m", rate: "6", severity: "warning" },
];

impl Objective {
    pub(crate) const ALL: [Self; 3] = [Self::Api, Self::Admission, Self::Dispatch];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Api => "Api",
            Self::Admission => "Admission",
            Self::Dispatch => "Dispatch",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Api => "API availability",
            Self::Admission => "Admission latency",
            Self::Dispatch => "Dispatch success",
        }
    }

    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Api => "99.9 % of requests over 30 days are answered without a status of 500 or above",
            Self::Admission => "95 % of workloads get a cluster within 20 s of their quota, over 30 days",
            Self::Dispatch => {
                "99 % of grants over 30 days don't end by a lost cluster, lost nodes, a refused grant or a \
                 slow start"
            }
        }
    }

    /// The allowed part of bad events.
    pub(crate) const fn budget(self) -> &'static str {
        match self {
            Self::Api => "0.001",
            Self::Admission => "0.05",
            Self::Dispatch => "0.01",
        }
    }

    /// The part of bad events in a window. Not a number while there are no events at all.
    pub(crate) fn bad_part(self, m: &Metrics, window: &str) -> String {
        match self {
            Self::Api => {
                let requests = &m.api.requests;
                let failed = sum("", &rate_over(requests, r#"code=~"5..""#, window));
                let all = sum("", &rate_over(requests, "", window));
                format!("({failed} or vector(0)) / {all}")
            }
            Self::Admission => {
                let waits = &m.kueue.events.checks_wait;
                format!("1 - {} / {}", within(waits, ADMISSION_SECONDS, window), observed(waits, window))
            }
            Self::Dispatch => {
                let evicted = &m.kueue.events.evicted;
                let causes = [
                    r#"reason=~"NodeFailures|PodsReadyTimeout""#,
                    r#"underlying_cause=~"ClusterLost|GrantRefused""#,
                ];
                let failed = causes
                    .map(|cause| format!("({} or vector(0))", sum("", &rate_over(evicted, cause, window))));
                let grants = sum("", &rate_over(&m.workloads.grants, "", window));
                format!("({}) / {grants}", failed.join(" + "))
            }
        }
    }

    /// How many times faster than allowed the budget is used in a window.
    pub(crate) fn burn_rate(self, m: &Metrics, window: &str) -> String {
        format!("({}) / {}", self.bad_part(m, window), self.budget())
    }

    /// Severity of an alert about its burn rate. Never `critical` for admissions: if providers must make
    /// nodes first, minutes from quota to a cluster are usual.
    pub(crate) const fn severity(self, burn: &Burn) -> &'static str {
        match self {
            Self::Admission => "warning",
            Self::Api | Self::Dispatch => burn.severity,
        }
    }

    pub(crate) fn burns_too_fast(self, m: &Metrics, burn: &Burn) -> String {
        let above = |window| format!("({}) > {}", self.burn_rate(m, window), burn.rate);
        format!("({}) and ({})", above(burn.long), above(burn.short))
    }
}
