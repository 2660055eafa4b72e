//! Alerts about budgets that are used up too fast, with two windows each.

use super::{Alert, Case, case};
use crate::objectives::{ADMISSION_SECONDS, BURNS, Burn, Objective};
use crate::query::series;
use meridian_manager::metrics::{Metrics, Named};

pub(super) fn alerts(m: &Metrics) -> Vec<Alert> {
    let pairs = Objective::ALL.into_iter().flat_map(|of| BURNS.map(|burn| (of, burn)));
    pairs.map(|(of, burn)| alert(m, of, burn)).collect()
}

fn alert(m: &Metrics, of: Objective, burn: Burn) -> Alert {
    let (long, short, times) = (burn.long, burn.short, burn.rate);
    Alert {
        name: format!("Meridian{}Budget{}", of.name(), burn.name),
        expression: of.burns_too_fast(m, &burn),
        hold: "0m",
        severity: of.severity(&burn),
        summary: format!(
            "{}: for {long} and for {short}, the error budget was used {times} times too fast.",
            of.title()
        ),
        description: format!("Objective: {}.", of.description()),
        runbook: match of {
            Objective::Api => "slo-api",
            Objective::Admission => "slo-admission",
            Objective::Dispatch => "slo-dispatch",
        },
        of_agents: false,
        fires: events(m, of, "0+90x600", "0+10x600").fires(&[]),
        quiet: events(m, of, "0+100x600", "0x600"),
    }
}

/// Good and bad events of an objective. With 10 bad events of 100 every burn rate is exceeded, except for
/// admissions, where 5 of 100 are allowed: there all events are bad.
fn events(m: &Metrics, of: Objective, good: &str, bad: &str) -> Case {
    match of {
        Objective::Api => {
            let labels = |code| format!(r#"verb="get",resource="jobs",code="{code}""#);
            let of = |code| series(&m.api.requests, &labels(code));
            case("400m", [(of("200"), good), (of("503"), bad)])
        }
        Objective::Admission => {
            let name = m.kueue.events.checks_wait.name();
            let is_bad = bad != "0x600";
            let within = if is_bad { "0+1x600" } else { "0+100x600" };
            let labels = r#"cluster_queue="dws",priority_class="""#;
            let bucket = format!("{name}_bucket{{{labels},le=\"{ADMISSION_SECONDS}\"}}");
            case("400m", [(bucket, within), (format!("{name}_count{{{labels}}}"), "0+100x600")])
        }
        Objective::Dispatch => {
            let evicted = &m.kueue.events.evicted;
            let cause = r#"reason="AdmissionCheck",underlying_cause="ClusterLost""#;
            let labels = format!(r#"cluster_queue="dws",priority_class="",{cause}"#);
            let bad = if bad == "0x600" { bad } else { "0+30x600" };
            case("400m", [(series(evicted, &labels), bad), (series(&m.workloads.grants, ""), "0+100x600")])
        }
    }
}
