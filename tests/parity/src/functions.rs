//! Groups 1 to 4, small functions: the search of partial admission, preemption policies, priorities, shares,
//! penalties.

use crate::case::Case;
use crate::json::{bare_queue, items, number, text};
use crate::state::queue;
use crate::verdict::{Differences, Verdict};
use anyhow::bail;
use meridian_queueing::model::PreemptionRule;
use meridian_queueing::pod_set_reducer;
use meridian_queueing::preemption::may_preempt;
use meridian_queueing::quota::Share;
use meridian_queueing::quota::WEIGHT_ONE;

pub(crate) fn search(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let mut sets = Vec::new();
    for set in items(&case.act()["podSets"]) {
        let count = number(&set["count"])?;
        sets.push((count, set["minCount"].as_u64().map_or(Ok(count), u32::try_from)?));
    }
    let most = case.act()["fitsWhenTotalAtMost"].as_u64().unwrap_or(0);
    let mut fits = |counts: &[u32]| {
        let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        (total <= most).then_some(total)
    };
    let found = pod_set_reducer::search(&sets, &mut fits);
    let mut differences = Differences::default();
    let expected = (case.expect()["found"] == true).then(|| case.expect()["total"].as_u64().unwrap_or(0));
    differences.decision("total", &found, &expected);
    Ok(differences.verdict())
}

pub(crate) fn policy(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let policy = match text(&case.act()["policy"]) {
        "Never" => PreemptionRule::Never,
        "" => PreemptionRule::Unset,
        "LowerPriority" => PreemptionRule::LowerPriority,
        "LowerOrNewerEqualPriority" => PreemptionRule::LowerOrNewerEqualPriority,
        "Any" => PreemptionRule::Any,
        other => bail!("`{other}` is not a preemption policy"),
    };
    let (loaded, act) = (case.load(), case.act());
    let (preemptor, candidate) = (case.workload(&act["preemptor"])?, case.workload(&act["candidate"])?);
    let rank = |workload| (loaded.priority(workload), loaded.queue_time(workload));
    let mut differences = Differences::default();
    differences.decision(
        "satisfied",
        &may_preempt(policy, rank(preemptor), rank(candidate)),
        &(case.expect()["satisfied"] == true),
    );
    Ok(differences.verdict())
}

pub(crate) fn priority(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let workload = case.workload(&case.act()["workload"])?;
    let (effective, base) = (case.load().priority(workload), i64::from(workload.priority()));
    let expect = case.expect();
    let mut differences = Differences::default();
    differences.decision(
        "priority",
        &[effective, base, effective - base],
        &["effective", "base", "boost"].map(|field| expect[field].as_i64().unwrap_or(0)),
    );
    Ok(differences.verdict())
}

pub(crate) fn weighted_share(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let float = |field: &str| {
        let value = &case.act()[field];
        value.as_f64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0.0)
    };
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "weights are small")]
    let weight = (float("fairWeight") * WEIGHT_ONE as f64).round() as i64;
    let share = Share::of_ratio(float("unweightedRatio"), weight).weighted();
    let serialized = if share.is_infinite() { "+Inf".to_owned() } else { share.to_string() };
    let mut differences = Differences::default();
    differences.decision("share", &serialized.as_str(), &text(&case.expect()["serialized"]));
    Ok(differences.verdict())
}

pub(crate) fn penalty(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let act = case.act();
    let workload = case.workload(&act["workload"])?;
    let name = workload.status.admission.as_ref().map_or("cq", |admission| &admission.cluster_queue);
    let by_usage = text(&act["admissionMode"]) == "UsageBasedAdmissionFairSharing";
    let mut loaded = case.load_with(&[bare_queue(name, by_usage)?]);
    let id = match loaded.state.find(&workload.meta.key()) {
        Some(id) => id,
        None => {
            let queue = queue(&loaded.state, name)?;
            loaded.add_pending(workload, queue)
        }
    };
    let mut differences = Differences::default();
    differences.decision("penalty", &loaded.state.charges_penalty(id), &(case.expect()["penalty"] == true));
    Ok(differences.verdict())
}
