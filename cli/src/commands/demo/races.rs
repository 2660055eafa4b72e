//! The first act: capacity that must be asked for. Gangs race in all regions, and pools shrink to zero.

use super::acts::Demo;
use super::history::{Answer, Ask, JobHistory, Run};
use super::tracker::{JobTracker, T4};
use crate::error::Error;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const REGIONS: usize = 3;
/// The region whose T4 nodes are out of stock at first, by the example `flex-start-fleet`.
const WITHOUT_STOCK: &str = "asia-southeast1";
/// The region with a small limit on open requests, by the same example.
const WITH_LIMIT: &str = "us-east4";
/// Most accelerator-seconds that may be held twice in a whole demo: one gang for a second.
const HELD_TWICE_MAX: f64 = 3.0;
/// Simulated run time of each gang: a fraction of its maximum of ten minutes.
const GANG_DURATION: &str = "160s";
const POD_DURATION: &str = "60s";

/// The jobs of this act.
struct Submitted {
    gangs: Vec<String>,
    t4: String,
    a100: String,
    h100: String,
}

impl Submitted {
    fn all(&self) -> Vec<String> {
        self.gangs.iter().chain([&self.t4, &self.a100, &self.h100]).cloned().collect()
    }
}

impl Demo<'_> {
    /// Four gangs of three GPUs ask for nodes in three regions, each with quota for one gang and one region
    /// without stock. A T4 starts soon, an A100 later, and an H100 waits.
    pub(super) async fn race_in_three_regions(&mut self) -> Result<(), Error> {
        let jobs = self.submit_all().await?;
        let all = jobs.all();
        let have_answered = |tracker: &JobTracker| {
            let answered = |name: &String, regions| tracker.seen(name).answers().len() >= regions;
            jobs.gangs.iter().all(|name| answered(name, REGIONS)) && answered(&jobs.h100, 2)
        };
        self.wait_until("each region has answered", &all, have_answered).await?;
        // The last gang meets the request limit of one region.
        self.explain_pending("default", &jobs.gangs[3]).await?;
        let has_started = |tracker: &JobTracker, name: &String| !tracker.seen(name).runs.is_empty();
        let two_started =
            |tracker: &JobTracker| jobs.gangs.iter().filter(|name| has_started(tracker, name)).count() >= 2;
        self.wait_until("two gangs run", &all, two_started).await?;
        let waiting = jobs.gangs.iter().find(|name| !has_started(&self.tracker, name)).cloned();
        for name in waiting.iter().chain([&jobs.h100]) {
            self.explain_pending("default", name).await?;
        }
        let mut ending = jobs.gangs.clone();
        ending.extend([jobs.t4.clone(), jobs.a100.clone()]);
        self.wait_until_finished(&ending).await?;
        let is_at_zero = |tracker: &JobTracker| tracker.history().pools.values().all(|pool| pool.now() == 0);
        self.wait_until("the T4 pools are at zero nodes", &all, is_at_zero).await?;
        self.check_races(&jobs);
        self.check_pools();
        self.check_kinds(&jobs);
        Ok(())
    }

    async fn submit_all(&mut self) -> Result<Submitted, Error> {
        let mut gangs = Vec::new();
        for number in 1..=4 {
            gangs.push(self.submit_gang("default", &format!("gang {number}"), GANG_DURATION).await?);
        }
        let t4 = self.submit_pod("T4", T4, 1, POD_DURATION).await?;
        let a100 = self.submit_pod("A100", "nvidia-tesla-a100", 1, POD_DURATION).await?;
        let h100 = self.submit_pod("H100", "nvidia-h100-80gb", 8, POD_DURATION).await?;
        let jobs = Submitted { gangs, t4, a100, h100 };
        let message = "7 jobs submitted: 4 gangs with 3 T4 each; a T4, an A100 and 8 H100 for one pod each";
        self.narrator.tell_with("submitted", message, json!({"jobs": jobs.all()}))?;
        Ok(jobs)
    }

    fn check_races(&mut self, jobs: &Submitted) {
        let tracker = &self.tracker;
        let seen = || jobs.gangs.iter().map(|name| tracker.seen(name));
        let asked: Vec<usize> = seen().map(|job| job.asked_regions().len()).collect();
        let in_all = asked.iter().all(|regions| *regions == REGIONS);
        let numbers = asked.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let asked_observed = format!("the gangs asked {numbers} regions");

        let regions_of = |answer: Answer| -> BTreeSet<&str> {
            let all = seen().flat_map(|job| job.answers());
            all.filter(|(_, answers)| answers.contains(&answer)).map(|(region, _)| region).collect()
        };
        let answered = seen().all(|job| job.answers().len() == REGIONS);
        let own = answered
            && regions_of(Answer::OutOfStock) == BTreeSet::from([WITHOUT_STOCK])
            && regions_of(Answer::RequestLimit) == BTreeSet::from([WITH_LIMIT]);
        let mut all_answers: BTreeMap<&str, BTreeSet<Answer>> = BTreeMap::new();
        for (region, answers) in seen().flat_map(|job| job.answers()) {
            all_answers.entry(region).or_default().extend(answers);
        }
        let words = |answers: &BTreeSet<Answer>| {
            answers.iter().map(|answer| answer.words()).collect::<Vec<_>>().join(", ")
        };
        let own_observed: Vec<String> =
            all_answers.iter().map(|(region, answers)| format!("{region}: {}", words(answers))).collect();

        let wins: Vec<String> = seen()
            .flat_map(|job| &job.races)
            .map(|race| format!("{} {:.1}s", race.winner, race.took))
            .collect();
        let held_elsewhere = seen()
            .flat_map(|job| &job.races)
            .flat_map(|race| &race.losers)
            .any(|(_, answer)| *answer == Answer::Held);
        let each_once = wins.len() == jobs.gangs.len() && seen().all(|job| job.runs.len() == 1);
        let first_wins = each_once && !held_elsewhere;
        let in_stock = ran_in_stock(&seen().collect::<Vec<_>>());
        let open: Vec<&str> =
            seen().flat_map(|job| &job.races).flat_map(|race| &race.open_after).map(String::as_str).collect();
        let losers: usize = seen().flat_map(|job| &job.races).map(|race| race.losers.len()).sum();
        let withdrawn = open.is_empty() && losers > 0;
        let observed = format!("{losers} requests lost, {} still open", open.len());
        self.narrator.check("each gang asks every region", in_all, asked_observed);
        self.narrator.check("each region says why it waits", own, own_observed.join("; "));
        self.narrator.check("the first region with nodes wins", first_wins, wins.join(", "));
        let stock = if in_stock { "no run began there meanwhile" } else { "a run began there meanwhile" };
        self.narrator.check("a region out of stock delays no gang", in_stock && own && each_once, stock);
        self.narrator.check("losing requests are withdrawn at once", withdrawn, observed);
    }

    fn check_pools(&mut self) {
        let pools = &self.tracker.history().pools;
        let levels: Vec<String> = pools
            .iter()
            .map(|(region, pool)| format!("{region} {} to {}", pool.peak(), pool.now()))
            .collect();
        let shrunk = pools.len() == REGIONS && pools.values().all(|pool| pool.peak() > 0 && pool.now() == 0);
        self.narrator.check("unused pools shrink to zero", shrunk, levels.join(", "));
    }

    fn check_kinds(&mut self, jobs: &Submitted) {
        let began = |name: &String| self.tracker.seen(name).runs.first().map(|run| run.from);
        let (t4, a100, h100) = (began(&jobs.t4), began(&jobs.a100), began(&jobs.h100));
        let reasons: Vec<String> = self
            .tracker
            .seen(&jobs.h100)
            .open_answers()
            .into_iter()
            .map(|(region, answer)| format!("{region} {}", answer.words()))
            .collect();
        let in_order = matches!((t4, a100), (Some(t4), Some(a100)) if t4 < a100) && h100.is_none();
        let kept = in_order && reasons.len() == 2;
        let seconds = |at: Option<f64>| at.map_or("never".to_owned(), |at| format!("{at:.1}s"));
        let observed = format!(
            "T4 {}, A100 {}, H100 {}: {}",
            seconds(t4),
            seconds(a100),
            seconds(h100),
            reasons.join(", ")
        );
        self.narrator.check("T4 soon, A100 later, H100 waits", kept, observed);
    }

    /// Checks how much capacity was held in vain in the whole demo. Fails if the manager doesn't answer.
    pub(super) async fn check_held_twice(&mut self) -> Result<(), Error> {
        let held = self.tracker.held_twice().await?;
        let starting = self.tracker.history().started_in_vain();
        let observed =
            format!("{held:.1} accelerator-seconds held twice, {starting:.1} more while nodes started");
        let more = json!({"heldTwice": held, "startedInVain": starting});
        self.narrator.tell_with("held-twice", &observed, more)?;
        self.narrator.check("hardly anything is held twice", held <= HELD_TWICE_MAX, observed);
        Ok(())
    }
}

/// Whether no gang began to run in a region while the region said that it was out of stock.
fn ran_in_stock(gangs: &[&JobHistory]) -> bool {
    let asks = gangs.iter().flat_map(|gang| &gang.asks);
    let gaps: Vec<&Ask> = asks.filter(|ask| ask.answer == Answer::OutOfStock).collect();
    let is_during = |gap: &Ask, run: &Run| {
        gap.region == run.region && run.from > gap.from && gap.until.is_none_or(|until| run.from < until)
    };
    gangs.iter().flat_map(|gang| &gang.runs).all(|run| !gaps.iter().any(|gap| is_during(gap, run)))
}
