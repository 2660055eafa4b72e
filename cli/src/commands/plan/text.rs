//! Plans for people: tables, and reasons as sentences.

use crate::printable;
use crate::table::{Cell, Table};
use meridian_planning::report::{
    Borrowing, Ending, Evicted, Holder, PodSet, Preempted, Report, Share, State, Summary, Use, Waiting,
};
use meridian_planning::what_if::{Kind, Loss, Moved};
use meridian_planning::{WhatIf, what_if};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a report says. `wide` adds limits and paths.
pub(super) fn plan(report: &Report, wide: bool, colour: bool) -> String {
    let mut page = Page { text: String::new(), colour };
    page.line(&ran(report));
    page.line(&counted(&report.summary));
    if report.summary.workloads == 0 {
        page.line("there is no job and no workload to decide on: give their files too");
    }
    page.holders("Hold quota", &report.admitted);
    page.preempted(&report.preempted);
    page.evicted(&report.evicted);
    for replaced in &report.replaced {
        page.line(&format!(
            "  in cycle {}, `{}` is replaced by its newer slice `{}`",
            replaced.cycle, replaced.workload, replaced.by
        ));
    }
    page.waiting("Wait", report.waiting.iter().map(|w| (None, w)).collect());
    page.quota(report, wide);
    page.shares(report, wide);
    page.notes(&report.notes);
    page.text
}

/// What a comparison says.
pub(super) fn what_if(report: &WhatIf, colour: bool) -> String {
    let mut page = Page { text: String::new(), colour };
    page.changes(report);
    page.line(&format!("before: {}", counted(&report.before)));
    page.line(&format!("after:  {}", counted(&report.after)));
    if report.is_empty() {
        let unjudged = report.changes.iter().any(|of| of.not_judged && of.change != Kind::Unchanged);
        page.line(if unjudged {
            "\nas far as it is judged, no workload gains or loses by it; the notes say what isn't"
        } else {
            "\nno workload gains or loses by it"
        });
    }
    page.holders("Would be admitted", &report.admitted);
    page.preempted(&report.preempted);
    page.evicted(&report.evicted);
    page.waiting("Would wait", report.starved.iter().map(|s| (Some(s.loss), &s.waiting)).collect());
    page.moved(&report.moved);
    if !report.lost.is_empty() {
        page.line("\nWould not take part any more; the notes say why:");
        report.lost.iter().for_each(|name| page.line(&format!("  {name}")));
    }
    page.notes(&report.notes);
    page.text
}

fn some(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

fn ran(report: &Report) -> String {
    let cycles = some(report.run.cycles as usize, "cycle");
    let heads = if report.run.heads_per_queue == 1 {
        String::new()
    } else {
        format!(" with up to {} workloads of each queue", report.run.heads_per_queue)
    };
    match report.run.end {
        Ending::Settled => format!("{cycles}{heads}: nothing changes any more"),
        Ending::CyclesReached => format!("{cycles}{heads}, as asked for"),
        Ending::Unsettled => {
            format!("{cycles}{heads}: things still change, and more cycles would not end that")
        }
    }
}

fn counted(summary: &Summary) -> String {
    let mut parts = vec![format!("{} admitted", summary.admitted)];
    let further = [
        (summary.quota_reserved, "with quota, awaiting a check or a place"),
        (summary.stopping, "stopping"),
        (summary.waiting, "waiting"),
        (summary.blocked_for_good, "of them for good"),
    ];
    parts.extend(
        further.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")),
    );
    if summary.preemptions > 0 {
        parts.push(some(summary.preemptions, "preemption"));
    }
    format!("{}: {}", some(summary.workloads, "workload"), parts.join(", "))
}

/// `3 of 4` where fewer start than were asked for.
fn pods(set: &PodSet) -> String {
    if set.count == set.of { set.count.to_string() } else { format!("{} of {}", set.count, set.of) }
}

/// A pod set's resources by flavor: `spot: cpu 12, nvidia.com/gpu 8`.
fn flavors(set: &PodSet) -> Vec<(String, String)> {
    let mut by_flavor: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (resource, given) in &set.resources {
        by_flavor.entry(&given.flavor).or_default().push(format!("{resource} {}", given.amount));
    }
    by_flavor.into_iter().map(|(flavor, amounts)| (flavor.to_owned(), amounts.join(", "))).collect()
}

fn borrows(borrowing: Option<&Borrowing>) -> String {
    match borrowing {
        None => String::new(),
        Some(Borrowing { level: 0, .. }) => "no".to_owned(),
        Some(Borrowing { level, cohort: None }) => format!("level {level}"),
        Some(Borrowing { level, cohort: Some(cohort) }) => format!("from {cohort} (level {level})"),
    }
}

fn share(share: &Share) -> String {
    if share.weighted == i64::MAX { "unlimited".to_owned() } else { share.weighted.to_string() }
}

/// The text so far.
struct Page {
    text: String,
    colour: bool,
}

impl Page {
    fn line(&mut self, line: &str) {
        writeln!(self.text, "{}", printable::lines(line)).expect("writing to a string can't fail");
    }

    fn table(&mut self, title: &str, mut table: Table) {
        if !table.is_empty() {
            self.line(&format!("\n{title}:"));
            self.text.push_str(&table.text(self.colour));
        }
    }

    fn holders(&mut self, title: &str, holders: &[Holder]) {
        let mut table = Table::new([
            "WORKLOAD",
            "QUEUE",
            "POD SET",
            "PODS",
            "FLAVOR",
            "RESOURCES",
            "BORROWS",
            "STATE",
            "CYCLE",
        ]);
        for holder in holders {
            let cycle = holder.cycle.map_or_else(|| "before".to_owned(), |cycle| cycle.to_string());
            for set in &holder.pod_sets {
                let flavors = flavors(set);
                let nothing = [(String::new(), String::new())];
                for (flavor, resources) in if flavors.is_empty() { nothing.as_slice() } else { &flavors } {
                    table.push(vec![
                        Cell::new(&holder.workload),
                        Cell::new(&holder.cluster_queue),
                        Cell::new(&set.name),
                        Cell::new(pods(set)),
                        Cell::new(flavor),
                        Cell::new(resources),
                        Cell::new(borrows(holder.borrowing.as_ref())),
                        Cell::state(holder.state.word()),
                        Cell::new(&cycle),
                    ]);
                }
            }
        }
        self.table(title, table);
        for holder in holders {
            if !holder.checks.is_empty() {
                self.line(&format!("  `{}` awaits {}", holder.workload, holder.checks.join(", ")));
            }
            if holder.state == State::QuotaReserved && holder.pod_sets.iter().any(|set| set.topology_pending)
            {
                self.line(&format!("  `{}` awaits its place in the topology", holder.workload));
            }
            for why in &holder.reasons {
                self.line(&format!("  `{}`: {}", holder.workload, why.message));
            }
        }
        self.placements(holders);
    }

    fn placements(&mut self, holders: &[Holder]) {
        let mut table = Table::new(["WORKLOAD", "POD SET", "PODS", "DOMAIN", "LEVELS"]);
        for holder in holders {
            for (set, topology) in
                holder.pod_sets.iter().filter_map(|set| Some((set, set.topology.as_ref()?)))
            {
                for domain in &topology.domains {
                    table.push(vec![
                        Cell::new(&holder.workload),
                        Cell::new(&set.name),
                        Cell::new(domain.count.to_string()),
                        Cell::new(domain.values.join(" / ")),
                        Cell::new(topology.levels.join(" / ")),
                    ]);
                }
            }
        }
        self.table("Places", table);
    }

    fn preempted(&mut self, preempted: &[Preempted]) {
        let mut table = Table::new(["PREEMPTED", "QUEUE", "BY", "ITS QUEUE", "REASON", "CYCLE"]);
        for one in preempted {
            table.push(vec![
                Cell::new(&one.workload),
                Cell::new(&one.path),
                Cell::new(&one.by),
                Cell::new(&one.by_path),
                Cell::new(&one.reason),
                Cell::new(one.cycle.to_string()),
            ]);
        }
        self.table("Told to stop", table);
        preempted.iter().for_each(|one| self.line(&format!("  {}", one.message)));
    }

    fn evicted(&mut self, evicted: &[Evicted]) {
        evicted.iter().for_each(|one| self.line(&format!("  in cycle {}, {}", one.cycle, one.message)));
    }

    fn waiting(&mut self, title: &str, waiting: Vec<(Option<Loss>, &Waiting)>) {
        let loses = waiting.iter().any(|(loss, _)| loss.is_some());
        let headers = ["WORKLOAD", "QUEUE", "PLACE", "PRIORITY", "OBSTACLE", "WHY"];
        let mut table = Table::new(
            headers.into_iter().take(2).chain(loses.then_some("LOSES")).chain(headers.into_iter().skip(2)),
        );
        for (loss, one) in &waiting {
            let loss = loss.map(|loss| match loss {
                Loss::Preempted => "preempted",
                Loss::Evicted => "evicted",
                Loss::NotAdmitted => "not admitted",
                Loss::BlockedForGood => "blocked for good",
                Loss::Waits => "comes and waits",
            });
            let mut row = vec![Cell::new(&one.workload), Cell::new(&one.cluster_queue)];
            row.extend(loses.then(|| Cell::new(loss.unwrap_or_default())));
            row.extend([
                Cell::new(format!("{} of {}", one.position, one.of)),
                Cell::new(one.priority.to_string()),
                Cell::new(one.obstacle.as_deref().unwrap_or_default()),
                Cell::new(&one.message),
            ]);
            table.push(row);
        }
        self.table(title, table);
        let mut table = Table::new(["WORKLOAD", "POD SET", "FLAVOR", "RESOURCE", "REASON"]);
        for (_, one) in &waiting {
            if let Some(alike) = &one.alike {
                table.push(vec![
                    Cell::new(&one.workload),
                    Cell::new(""),
                    Cell::new(""),
                    Cell::new(""),
                    Cell::new(format!("as `{alike}`, which is alike")),
                ]);
                continue;
            }
            for why in &one.reasons {
                let text = |text: &Option<String>| Cell::new(text.as_deref().unwrap_or_default());
                table.push(vec![
                    Cell::new(&one.workload),
                    text(&why.pod_set),
                    text(&why.flavor),
                    text(&why.resource),
                    Cell::new(&why.message),
                ]);
            }
        }
        self.table("Reasons", table);
    }

    fn quota(&mut self, report: &Report, wide: bool) {
        let usual = ["NAME", "FLAVOR", "RESOURCE", "USED", "NOMINAL", "BORROWED", "LENT", "AVAILABLE"];
        let limits = ["BORROWING LIMIT", "LENDING LIMIT"];
        let mut table = Table::new(usual.into_iter().chain(limits.into_iter().filter(|_| wide)));
        let queues =
            report.queues.iter().flat_map(|queue| queue.quota.iter().map(|of| (queue.name.clone(), of)));
        let cohorts = report
            .cohorts
            .iter()
            .flat_map(|cohort| cohort.quota.iter().map(|of| (format!("cohort {}", cohort.name), of)));
        for (name, of) in queues.chain(cohorts) {
            let Use {
                flavor,
                resource,
                nominal,
                used,
                borrowed,
                lent,
                available,
                borrowing_limit,
                lending_limit,
            } = of;
            let mut row: Vec<Cell> = [&name, flavor, resource, used, nominal, borrowed, lent, available]
                .iter()
                .map(Cell::new)
                .collect();
            if wide {
                row.extend(
                    [borrowing_limit, lending_limit]
                        .map(|limit| Cell::new(limit.as_deref().unwrap_or_default())),
                );
            }
            table.push(row);
        }
        self.table("Quota", table);
    }

    fn shares(&mut self, report: &Report, wide: bool) {
        let usual = ["NAME", "SHARE", "DOMINANT", "WEIGHT", "HOLDING", "WAITING", "STRATEGY"];
        let mut table = Table::new(usual.into_iter().chain(wide.then_some("PATH")));
        for queue in &report.queues {
            let mut row = vec![
                Cell::new(&queue.name),
                Cell::new(share(&queue.share)),
                Cell::new(queue.share.dominant_resource.as_deref().unwrap_or_default()),
                Cell::new(&queue.share.weight),
                Cell::new(queue.holding.to_string()),
                Cell::new(queue.waiting.to_string()),
                Cell::new(&queue.strategy),
            ];
            row.extend(wide.then(|| Cell::new(&queue.path)));
            table.push(row);
        }
        for cohort in &report.cohorts {
            let mut row = vec![
                Cell::new(format!("cohort {}", cohort.name)),
                Cell::new(share(&cohort.share)),
                Cell::new(cohort.share.dominant_resource.as_deref().unwrap_or_default()),
                Cell::new(&cohort.share.weight),
                Cell::new(""),
                Cell::new(""),
                Cell::new(""),
            ];
            row.extend(wide.then(|| Cell::new(&cohort.path)));
            table.push(row);
        }
        self.table("Shares", table);
        for queue in report.queues.iter() {
            if let Some(why) = &queue.inactive {
                self.line(&format!("  `{}` admits nothing: {why}", queue.name));
            }
        }
    }

    fn changes(&mut self, report: &WhatIf) {
        for what_if::Change { object, change, not_judged: _ } in &report.changes {
            let word = match change {
                Kind::Added => "would be added",
                Kind::Replaced => "would be changed",
                Kind::Unchanged => "is there as it is",
            };
            self.line(&format!("{object} {word}"));
        }
    }

    fn moved(&mut self, moved: &[Moved]) {
        let mut table = Table::new(["WORKLOAD", "QUEUE", "HOLDS", "WOULD HOLD"]);
        for one in moved {
            let queue = if one.from_cluster_queue == one.to_cluster_queue {
                one.to_cluster_queue.clone()
            } else {
                format!("{} -> {}", one.from_cluster_queue, one.to_cluster_queue)
            };
            table.push(vec![
                Cell::new(&one.workload),
                Cell::new(queue),
                Cell::new(held(&one.from)),
                Cell::new(held(&one.to)),
            ]);
        }
        self.table("Would hold other quota", table);
    }

    fn notes(&mut self, notes: &[String]) {
        if !notes.is_empty() {
            self.line("\nNotes:");
            notes.iter().for_each(|note| self.line(&format!("  {note}")));
        }
    }
}

/// All pod sets in a cell: `main 3 of 4: spot cpu 12`.
fn held(sets: &[PodSet]) -> String {
    let one = |set: &PodSet| {
        let flavors: Vec<String> =
            flavors(set).into_iter().map(|(flavor, resources)| format!("{flavor} {resources}")).collect();
        format!("{} {}: {}", set.name, pods(set), flavors.join(", "))
    };
    sets.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
