//! The figures of a run, next to Kueue's own.

use super::ideal::{self, Ideal};
use super::run::ScenarioRun;
use super::scenario::{Class, KueueResults, Scenario, job_name};
use crate::commands::bench::figures::{Figure, quantile};

/// The figures of one run; they are means over thousands of workloads, so there is no spread.
pub(super) fn figures(scenario: &Scenario, run: &ScenarioRun) -> Vec<Figure> {
    let report = Report::of(scenario, run);
    let mut all = report.throughput();
    all.extend(report.efficiency(&ideal::simulate(scenario)));
    all.extend(report.cost());
    all.extend(report.admission_times());
    all
}

struct Report<'r> {
    scenario: &'r Scenario,
    run: &'r ScenarioRun,
    /// Time from due to the first grant, in milliseconds, sorted, for each class.
    waits_ms: [Vec<f64>; 3],
    /// CPUs times seconds between grant and end, over all attempts.
    cpu_seconds: f64,
    jobs: f64,
    wall_s: f64,
}

impl<'r> Report<'r> {
    fn of(scenario: &'r Scenario, run: &'r ScenarioRun) -> Self {
        let mut waits_ms: [Vec<f64>; 3] = Default::default();
        let mut cpu_seconds = 0.0;
        for one in scenario.submissions() {
            let class = &scenario.classes[one.class];
            let Some(workload) = run.workloads.get(&job_name(class, one)) else { continue };
            cpu_seconds += workload.granted_s * class.cpu as f64;
            if let Some(granted) = run.admissions.first_ms.get(&workload.uid) {
                waits_ms[one.class].push((granted - run.began_ms) as f64 - one.due_ms as f64);
            }
        }
        waits_ms.iter_mut().for_each(|of_class| of_class.sort_by(f64::total_cmp));
        let (jobs, wall_s) = (scenario.jobs() as f64, run.wall.as_secs_f64());
        Self { scenario, run, waits_ms, cpu_seconds, jobs, wall_s }
    }

    fn figure(&self, title: impl Into<String>, unit: &'static str, value: f64, note: String) -> Figure {
        Figure::of(self.scenario.name, title, unit, &[value], note)
    }

    /// `Kueue 351.1 on its CI, 410.0 on two cores`
    fn kueues(&self, value: impl Fn(&KueueResults) -> f64) -> String {
        let measured = self.scenario.measured.as_ref();
        let measured = measured.map(|kueue| format!(", {:.1} on two cores", value(kueue)));
        format!("Kueue {:.1} on its CI{}", value(&self.scenario.published), measured.unwrap_or_default())
    }

    fn throughput(&self) -> Vec<Figure> {
        let Self { jobs, wall_s, .. } = self;
        let grants = self.run.admissions.grants;
        let wall_note = format!("{jobs} workloads; {}", self.kueues(|kueue| kueue.wall_s));
        let rate_note = format!(
            "{grants} grants, those after preemptions included; {}",
            self.kueues(|kueue| jobs / kueue.wall_s)
        );
        vec![
            self.figure("wall", "s", *wall_s, wall_note),
            self.figure("admissions", "1/s", jobs / wall_s, rate_note),
        ]
    }

    fn efficiency(&self, ideal: &Ideal) -> Vec<Figure> {
        let quota = (self.scenario.queues() * self.scenario.nominal_cpu) as f64;
        let usage = 100.0 * self.cpu_seconds / quota / self.wall_s;
        let floor = self.scenario.floor_s();
        let usage_note = self.kueues(|kueue| kueue.usage_pct);
        let floor_note = format!("with all quota in use it would take {floor:.1}s");
        let ideal_note = format!("{} runs are preempted even then", ideal.preempted);
        vec![
            self.figure("usage of nominal quota, grant to end", "%", usage, usage_note),
            self.figure(
                "work done, of the work that nominal quota allows",
                "%",
                100.0 * floor / self.wall_s,
                floor_note,
            ),
            self.figure("wall if only runs took time", "s", ideal.wall_ms as f64 / 1_000.0, ideal_note),
        ]
    }

    fn cost(&self) -> Vec<Figure> {
        let (before, after) = (&self.run.before, &self.run.after);
        let cpu = |title: &str, seconds: f64| {
            let each = format!("{:.2} ms per workload", 1_000.0 * seconds / self.jobs);
            self.figure(title, "s", seconds, each)
        };
        let commits = after.commits.saturating_sub(before.commits) as f64;
        let records = after.records.saturating_sub(before.records) as f64;
        let records_note = format!("{:.1} per workload", records / self.jobs);
        let latest_ms = self.run.latest_send.as_secs_f64() * 1_000.0;
        vec![
            cpu("CPU of the manager", after.manager_cpu_s - before.manager_cpu_s),
            cpu("CPU of three agents", after.agents_cpu_s - before.agents_cpu_s),
            self.figure("durable commits of the manager", "1/s", commits / self.wall_s, String::new()),
            self.figure("records", "1/s", records / self.wall_s, records_note),
            self.figure("latest send", "ms", latest_ms, "delay caused by the bench itself".to_owned()),
        ]
    }

    fn admission_times(&self) -> Vec<Figure> {
        let classes = self.scenario.classes.iter().zip(&self.waits_ms).enumerate();
        let figure = |(index, (class, waits)): (usize, (&Class, &Vec<f64>))| {
            let mean = waits.iter().sum::<f64>() / waits.len().max(1) as f64;
            let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|q| quantile(waits, q));
            let kueue = self.kueues(|kueue| kueue.admission_s[index]);
            let note = format!("P50 {p50:.0}, P95 {p95:.0}, P99 {p99:.0} ms; {kueue} s");
            self.figure(format!("mean time to admission, {}", class.name), "ms", mean, note)
        };
        classes.map(figure).collect()
    }
}
