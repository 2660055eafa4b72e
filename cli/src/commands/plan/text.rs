//! Plans and comparisons as text for a terminal of 80 columns.

mod listing;

use crate::output::printable;
use listing::{Listing, Row, push_wrapped};
use meridian_planning::WhatIf;
use meridian_planning::decide::Ending;
use meridian_planning::report::{
    AssignedPodSet, BorrowedFrom, EvictedWorkload, Holder, HolderState, PlanReport, PlanSummary,
    PreemptedWorkload, QuotaUsage, ReplacedSlice, ShareStatus, WaitingWorkload,
};
use meridian_planning::what_if::{ChangeKind, Loss, MovedWorkload, ObjectChange, WorkloadLoss};
use meridian_shared::counted::counted;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A plan. `wide` adds limits and paths, in more than 80 columns.
pub(super) fn plan(report: &PlanReport, wide: bool, colour: bool) -> String {
    let mut page = Page { text: String::new(), colour };
    page.sentence(&cycles_text(report));
    page.sentence(&summary_text(&report.summary));
    if report.summary.workloads == 0 {
        page.sentence(match report.notes.is_empty() {
            true => "no workload is queued: add the files of jobs",
            false => "no workload is queued: add the files of jobs, or see the notes",
        });
    }
    page.holders("Admitted", &report.admitted);
    page.preempted(&report.preempted);
    page.evicted(&report.evicted);
    page.replaced(&report.replaced);
    page.waiting("Pending", report.waiting.iter().map(|waiting| (None, waiting)));
    page.quota(report, wide);
    page.notes(&report.notes);
    page.text
}

/// A comparison of two plans.
pub(super) fn what_if(report: &WhatIf, colour: bool) -> String {
    let mut page = Page { text: String::new(), colour };
    report.changes.iter().for_each(|change| page.sentence(&change_text(change)));
    page.sentence(&format!("before: {}", summary_text(&report.before)));
    page.sentence(&format!("after:  {}", summary_text(&report.after)));
    if report.is_empty() {
        let partial = report.changes.iter().any(|c| c.not_evaluated && c.change != ChangeKind::Unchanged);
        page.sentence("");
        page.sentence(if partial {
            "no workload is affected by the changes that plans evaluate; see the notes"
        } else {
            "no workload is affected"
        });
    }
    page.holders("Would be admitted", &report.admitted);
    page.preempted(&report.preempted);
    page.evicted(&report.evicted);
    page.waiting(
        "Would wait",
        report.starved.iter().map(|WorkloadLoss { loss, waiting }| (Some(*loss), waiting)),
    );
    page.moved(&report.moved);
    page.lost(&report.lost);
    page.notes(&report.notes);
    page.text
}

fn cycles_text(report: &PlanReport) -> String {
    let cycles = counted(report.run.cycles, "cycle");
    let heads = match report.run.heads_per_queue {
        1 => String::new(),
        heads => format!(" with up to {heads} workloads per queue"),
    };
    match report.run.end {
        Ending::Settled => format!("{cycles}{heads}: nothing changes any more"),
        Ending::CyclesReached => format!("{cycles}{heads}, as requested"),
        Ending::Unsettled => {
            format!("{cycles}{heads}: decisions still change, and more cycles would not settle them")
        }
    }
}

fn summary_text(summary: &PlanSummary) -> String {
    let mut parts = vec![format!("{} admitted", summary.admitted)];
    let optional = [
        (summary.quota_reserved, "with quota reserved"),
        (summary.stopping, "stopping"),
        (summary.waiting, "pending"),
    ];
    parts.extend(
        optional.iter().filter(|(count, _)| *count > 0).map(|(count, state)| format!("{count} {state}")),
    );
    if summary.blocked_for_good > 0
        && let Some(pending) = parts.last_mut()
    {
        write!(pending, " ({} for good)", summary.blocked_for_good).expect("writing to a string can't fail");
    }
    if summary.preemptions > 0 {
        parts.push(counted(summary.preemptions, "preemption"));
    }
    format!("{}: {}", counted(summary.workloads, "workload"), parts.join(", "))
}

fn change_text(change: &ObjectChange) -> String {
    let effect = match change.change {
        ChangeKind::Added => "would be added",
        ChangeKind::Replaced => "would be changed",
        ChangeKind::Unchanged => "is unchanged",
    };
    format!("{} {effect}", change.object)
}

/// `3 of 4` after partial admission.
fn pods_text(set: &AssignedPodSet) -> String {
    if set.count == set.of { set.count.to_string() } else { format!("{} of {}", set.count, set.of) }
}

/// One text per flavor: `spot: 12 cpu, 8 nvidia.com/gpu`.
fn flavor_texts(set: &AssignedPodSet) -> Vec<String> {
    let mut by_flavor: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (resource, assigned) in &set.resources {
        by_flavor.entry(&assigned.flavor).or_default().push(format!("{} {resource}", assigned.amount));
    }
    by_flavor.into_iter().map(|(flavor, amounts)| format!("{flavor}: {}", amounts.join(", "))).collect()
}

/// All pod sets: `main 3 of 4 (spot: 12 cpu)`.
fn pod_sets_text(sets: &[AssignedPodSet]) -> String {
    let text =
        |set: &AssignedPodSet| format!("{} {} ({})", set.name, pods_text(set), flavor_texts(set).join("; "));
    if sets.is_empty() { "nothing".to_owned() } else { sets.iter().map(text).collect::<Vec<_>>().join(", ") }
}

fn borrowing_text(borrowing: Option<&BorrowedFrom>) -> String {
    match borrowing {
        None | Some(BorrowedFrom { level: 0, .. }) => String::new(),
        Some(BorrowedFrom { level, cohort: None }) => format!("level {level}"),
        Some(BorrowedFrom { cohort: Some(cohort), .. }) => cohort.clone(),
    }
}

/// `share 100 (nvidia.com/gpu), weight 0.5`.
fn share_text(share: &ShareStatus) -> String {
    let weighted =
        if share.weighted == i64::MAX { "unlimited".to_owned() } else { share.weighted.to_string() };
    let resource = share.dominant_resource.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    format!("share {weighted}{resource}, weight {}", share.weight)
}

const fn loss_text(loss: Loss) -> &'static str {
    match loss {
        Loss::Preempted => "preempted",
        Loss::Evicted => "evicted",
        Loss::NotAdmitted => "not admitted",
        Loss::BlockedForGood => "blocked for good",
        Loss::Waits => "new",
    }
}

fn holder_details(holder: &Holder) -> Vec<String> {
    let several = holder.pod_sets.len() > 1;
    let mut details = Vec::new();
    for set in &holder.pod_sets {
        let name = if several { format!("{} ({} pods) ", set.name, pods_text(set)) } else { String::new() };
        details.extend(flavor_texts(set).into_iter().map(|flavor| format!("{name}{flavor}")));
        let topology = set.topology.as_ref();
        for domain in topology.into_iter().flat_map(|topology| &topology.domains) {
            let pods = counted(domain.count, "pod");
            details.push(format!("{name}{pods} in {}", domain.values.join("/")));
        }
    }
    if !holder.checks.is_empty() {
        details.push(format!("waits for admission checks: {}", holder.checks.join(", ")));
    }
    if holder.state == HolderState::QuotaReserved && holder.pod_sets.iter().any(|set| set.topology_pending) {
        details.push("waits for its topology assignment".to_owned());
    }
    details.extend(holder.reasons.iter().map(|reason| reason.message.clone()));
    details
}

/// Total number of pods: `4 of 8` after partial admission.
fn all_pods_text(sets: &[AssignedPodSet]) -> String {
    let count: u32 = sets.iter().map(|set| set.count).sum();
    let of: u32 = sets.iter().map(|set| set.of).sum();
    if count == of { count.to_string() } else { format!("{count} of {of}") }
}

fn waiting_details(waiting: &WaitingWorkload) -> Vec<String> {
    let mut details = vec![waiting.message.clone()];
    if let Some(equivalent) = &waiting.alike {
        details.push(format!("same reasons as `{equivalent}`, which is equivalent"));
        return details;
    }
    for reason in &waiting.reasons {
        let pod_set = reason.pod_set.as_ref().map(|name| format!("pod set {name}: ")).unwrap_or_default();
        details.push(format!("- {pod_set}{}", reason.message));
    }
    details
}

/// The text so far.
struct Page {
    text: String,
    colour: bool,
}

impl Page {
    fn sentence(&mut self, sentence: &str) {
        push_wrapped(&mut self.text, "", sentence);
    }

    fn title(&mut self, title: &str) {
        self.text.push('\n');
        self.text.push_str(title);
        self.text.push_str(":\n");
    }

    fn listing(&mut self, title: &str, listing: &Listing) {
        if !listing.is_empty() {
            self.title(title);
            self.text.push_str(&listing.text(self.colour));
        }
    }

    fn holders(&mut self, title: &str, holders: &[Holder]) {
        let mut listing = Listing::new(["WORKLOAD", "QUEUE", "STATE", "CYCLE", "PODS", "BORROWS FROM"]);
        for holder in holders {
            let row = Row::new([
                holder.workload.clone(),
                holder.cluster_queue.clone(),
                holder.state.name().to_owned(),
                holder.cycle.map_or_else(|| "before".to_owned(), |cycle| cycle.to_string()),
                all_pods_text(&holder.pod_sets),
                borrowing_text(holder.borrowing.as_ref()),
            ]);
            listing.push(row.with_details(holder_details(holder)));
        }
        self.listing(title, &listing);
    }

    fn preempted(&mut self, preempted: &[PreemptedWorkload]) {
        let mut listing = Listing::new(["WORKLOAD", "BY", "REASON", "CYCLE"]);
        for preemption in preempted {
            let row = Row::new([
                preemption.workload.clone(),
                preemption.by.clone(),
                preemption.reason.clone(),
                preemption.cycle.to_string(),
            ]);
            listing.push(row.with_details([preemption.message.clone()]));
        }
        self.listing("Preempted", &listing);
    }

    fn evicted(&mut self, evicted: &[EvictedWorkload]) {
        let mut listing = Listing::new(["WORKLOAD", "QUEUE", "REASON", "CYCLE"]);
        for eviction in evicted {
            let row = Row::new([
                eviction.workload.clone(),
                eviction.cluster_queue.clone(),
                eviction.reason.clone(),
                eviction.cycle.to_string(),
            ]);
            listing.push(row.with_details([eviction.message.clone()]));
        }
        self.listing("Evicted", &listing);
    }

    fn replaced(&mut self, replaced: &[ReplacedSlice]) {
        let mut listing = Listing::new(["SLICE", "REPLACED BY", "CYCLE"]);
        for slice in replaced {
            listing.push(Row::new([slice.workload.clone(), slice.by.clone(), slice.cycle.to_string()]));
        }
        self.listing("Replaced", &listing);
    }

    fn waiting<'w>(
        &mut self,
        title: &str,
        waiting: impl Iterator<Item = (Option<Loss>, &'w WaitingWorkload)> + Clone,
    ) {
        let with_loss = waiting.clone().any(|(loss, _)| loss.is_some());
        let loss_header = with_loss.then_some("LOSS");
        let headers = ["WORKLOAD", "QUEUE"].into_iter().chain(loss_header);
        let mut listing = Listing::new(headers.chain(["POSITION", "PRIORITY", "REASON"]));
        for (loss, waiting) in waiting {
            let mut cells = vec![waiting.workload.clone(), waiting.cluster_queue.clone()];
            if with_loss {
                cells.push(loss.map_or("", loss_text).to_owned());
            }
            cells.push(format!("{} of {}", waiting.position, waiting.of));
            cells.push(waiting.priority.to_string());
            cells.push(waiting.obstacle.clone().unwrap_or_default());
            listing.push(Row::new(cells).with_details(waiting_details(waiting)));
        }
        self.listing(title, &listing);
    }

    fn quota(&mut self, report: &PlanReport, wide: bool) {
        for queue in &report.queues {
            let cohort = queue.cohort.as_ref().filter(|_| !wide);
            let mut facts = vec![share_text(&queue.share)];
            facts.extend(cohort.map(|cohort| format!("cohort {cohort}")));
            facts.push(format!("{} holding", queue.holding));
            facts.push(format!("{} pending", queue.waiting));
            facts.push(queue.strategy.clone());
            facts.extend(wide.then(|| format!("path {}", queue.path)));
            self.title(&format!("Cluster queue {}", printable::line(&queue.name)));
            push_wrapped(&mut self.text, "  ", &facts.join(", "));
            if let Some(why) = &queue.inactive {
                push_wrapped(&mut self.text, "  ", &format!("inactive: {why}"));
            }
            self.quota_table(&queue.quota, wide);
        }
        for cohort in &report.cohorts {
            let mut facts = vec![share_text(&cohort.share)];
            facts.extend(wide.then(|| format!("path {}", cohort.path)));
            self.title(&format!("Cohort {}", printable::line(&cohort.name)));
            push_wrapped(&mut self.text, "  ", &facts.join(", "));
            self.quota_table(&cohort.quota, wide);
        }
    }

    fn quota_table(&mut self, quota: &[QuotaUsage], wide: bool) {
        let headers = ["  FLAVOR", "RESOURCE", "USED", "NOMINAL", "BORROWED", "LENT", "AVAILABLE"];
        let limits = ["BORROWING LIMIT", "LENDING LIMIT"].into_iter().filter(|_| wide);
        let mut listing = Listing::new(headers.into_iter().chain(limits));
        for usage in quota {
            let mut cells = vec![format!("  {}", usage.flavor)];
            let amounts = [
                &usage.resource,
                &usage.used,
                &usage.nominal,
                &usage.borrowed,
                &usage.lent,
                &usage.available,
            ];
            cells.extend(amounts.into_iter().cloned());
            if wide {
                cells.extend(
                    [&usage.borrowing_limit, &usage.lending_limit].map(|l| l.clone().unwrap_or_default()),
                );
            }
            listing.push(Row::new(cells));
        }
        if listing.is_empty() {
            return;
        }
        let text = if wide { listing.table(self.colour) } else { listing.text(self.colour) };
        self.text.push_str(&text);
    }

    fn moved(&mut self, moved: &[MovedWorkload]) {
        let mut listing = Listing::new(["WORKLOAD", "QUEUE"]);
        for workload in moved {
            let queue = if workload.from_cluster_queue == workload.to_cluster_queue {
                workload.to_cluster_queue.clone()
            } else {
                format!("{} -> {}", workload.from_cluster_queue, workload.to_cluster_queue)
            };
            let details = [
                format!("from: {}", pod_sets_text(&workload.from)),
                format!("to: {}", pod_sets_text(&workload.to)),
            ];
            listing.push(Row::new([workload.workload.clone(), queue]).with_details(details));
        }
        self.listing("Would hold other quota", &listing);
    }

    fn lost(&mut self, lost: &[String]) {
        if !lost.is_empty() {
            self.title("Would no longer be queued (see the notes)");
            lost.iter().for_each(|name| push_wrapped(&mut self.text, "  ", name));
        }
    }

    fn notes(&mut self, notes: &[String]) {
        if !notes.is_empty() {
            self.title("Notes");
            notes.iter().for_each(|note| push_wrapped(&mut self.text, "  ", note));
        }
    }
}

#[cfg(test)]
mod tests;
