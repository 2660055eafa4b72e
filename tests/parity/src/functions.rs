//! Small functions of groups 1 to 4: partial admission's search, policies, priorities, shares, penalties.

use crate::case::{Case, items, queue, text};
use crate::quota::bare_queue;
use crate::verdict::{Differences, Verdict};
use anyhow::bail;
use meridian_queueing::model::Displaces;
use meridian_queueing::preempt::may_displace;
use meridian_queueing::reduce;
use meridian_queueing::share::Share;
use meridian_queueing::tree::WEIGHT_ONE;

pub(crate) fn search(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let mut sets = Vec::new();
    for set in items(&case.act()["podSets"]) {
        let count = u32::try_from(set["count"].as_u64().unwrap_or(0))?;
        sets.push((count, set["minCount"].as_u64().map_or(Ok(count), u32::try_from)?));
    }
    let most = case.act()["fitsWhenTotalAtMost"].as_u64().unwrap_or(0);
    let mut fits = |counts: &[u32]| {
        let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        (total <= most).then_some(total)
    };
    let found = reduce::search(&sets, &mut fits);
    let mut differences = Differences::default();
    let expected = (case.expect()["found"] == true).then(|| case.expect()["total"].as_u64().unwrap_or(0));
    differences.decision("total", &found, &expected);
    Ok(differences.verdict())
}

pub(crate) fn policy(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let policy = match text(&case.act()["policy"]) {
        "Never" => Displaces::Never,
        "" => Displaces::Unset,
        "LowerPriority" => Displaces::LowerPriority,
        "LowerOrNewerEqualPriority" => Displaces::LowerOrNewerEqualPriority,
        "Any" => Displaces::Any,
        other => bail!("`{other}` is no policy"),
    };
    let (loaded, act) = (case.load(), case.act());
    let (preemptor, candidate) = (case.workload(&act["preemptor"])?, case.workload(&act["candidate"])?);
    let rank = |workload| (loaded.priority(workload), loaded.since(workload));
    let mut differences = Differences::default();
    differences.decision(
        "satisfied",
        &may_displace(policy, rank(preemptor), rank(candidate)),
        &(case.expect()["satisfied"] == true),
    );
    Ok(differences.verdict())
}

pub(crate) fn priority(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let workload = case.workload(&case.act()["workload"])?;
    let (effective, base) = (case.load().priority(workload), i64::from(workload.priority()));
    let (is, expect) = ([effective, base, effective - base], case.expect());
    let mut differences = Differences::default();
    differences.decision(
        "priority",
        &is,
        &["effective", "base", "boost"].map(|field| expect[field].as_i64().unwrap_or(0)),
    );
    Ok(differences.verdict())
}

pub(crate) fn weighted_share(case: &Case<'_>) -> anyhow::Result<Verdict> {
    let number = |field: &str| {
        let written = &case.act()[field];
        written.as_f64().or_else(|| written.as_str()?.parse().ok()).unwrap_or(0.0)
    };
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "weights are small")]
    let weight = (number("fairWeight") * WEIGHT_ONE as f64).round() as i64;
    let share = Share::of_ratio(number("unweightedRatio"), weight).weighted();
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
    let id = match loaded.brain.find(&workload.meta.key()) {
        Some(id) => id,
        None => {
            let queue = queue(&loaded.brain, name)?;
            loaded.await_in(workload, queue)
        }
    };
    let mut differences = Differences::default();
    differences.decision("penalty", &loaded.brain.charges_penalty(id), &(case.expect()["penalty"] == true));
    Ok(differences.verdict())
}
