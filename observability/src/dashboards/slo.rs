//! Objectives: what was kept in 30 days, and how fast the budget is used now.

use super::{Dashboard, Panel, Row};
use crate::objectives::Objective;
use meridian_manager::metrics::Metrics;

/// Time over which an objective is promised.
const PERIOD: &str = "30d";

pub(super) fn dashboard(m: &Metrics) -> Dashboard {
    Dashboard {
        uid: "meridian-slo",
        title: "Meridian: objectives",
        description: "Service level objectives and the burn rates of their budgets",
        variables: Vec::new(),
        rows: Objective::ALL.map(|objective| row(m, objective)).into(),
    }
}

const fn page(objective: Objective) -> &'static str {
    match objective {
        Objective::Api => "slo-api",
        Objective::Admission => "slo-admission",
        Objective::Dispatch => "slo-dispatch",
    }
}

fn row(m: &Metrics, objective: Objective) -> Row {
    let text = objective.description();
    let left = format!("1 - {}", objective.burn_rate(m, PERIOD));
    let burn = |window| objective.burn_rate(m, window);
    Row {
        title: objective.title(),
        panels: vec![
            Panel::number("Kept in 30 days", "percentunit", text)
                .query("", format!("1 - ({})", objective.bad_part(m, PERIOD)))
                .runbook(page(objective)),
            Panel::number("Budget left", "percentunit", "Part of the allowed bad events that is left")
                .query("", left)
                .runbook(page(objective)),
            Panel::lines("Burn rate", "none", "1 uses up the budget in exactly 30 days")
                .query("5 minutes", burn("5m"))
                .query("1 hour", burn("1h"))
                .query("6 hours", burn("6h"))
                .warn(6.0, 14.4)
                .runbook(page(objective)),
        ],
    }
}
