//! What the demo prints: a line per event, then the timeline, a table of jobs and one of promises; or JSON
//! documents.

use super::report;
use super::timeline;
use super::tracker::JobTracker;
use crate::commands::jobs::explanation::Explanation;
use crate::error::Error;
use crate::output::streams::{DocumentFormat, Streams};
use crate::output::table::{Cell, Table, painted};
use crate::output::wrap::{PAGE_COLUMNS, hang};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Columns of `  12.3s  `.
const TIME_COLUMNS: usize = 9;

/// A promise, and whether the demo saw it kept.
pub(super) struct Verdict {
    pub(super) promise: &'static str,
    pub(super) kept: bool,
    pub(super) observed: String,
}

pub(super) struct Narrator<'s> {
    out: &'s mut Streams,
    format: Option<DocumentFormat>,
    began: Instant,
    verdicts: Vec<Verdict>,
}

impl<'s> Narrator<'s> {
    pub(super) fn begin(out: &'s mut Streams, format: Option<DocumentFormat>) -> Self {
        Self { out, format, began: Instant::now(), verdicts: Vec::new() }
    }

    /// The moment from which times count.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Prints an event.
    pub(super) fn tell(&mut self, event: &str, message: &str) -> Result<(), Error> {
        self.tell_with(event, message, json!({}))
    }

    /// Prints an event; `more` only in documents.
    pub(super) fn tell_with(&mut self, event: &str, message: &str, more: Value) -> Result<(), Error> {
        if self.tell_document(event, message, more)? {
            return Ok(());
        }
        let time = self.time();
        self.out.line(hang(&time, message, PAGE_COLUMNS))?;
        self.out.flush()
    }

    /// Prints why a job is pending: its headline, and a line per region.
    pub(super) fn tell_pending(&mut self, answer: Value) -> Result<(), Error> {
        let explanation = Explanation::parse(answer.clone()).map_err(|why| Error::render("text", why))?;
        if self.tell_document("why", &explanation.headline(usize::MAX), answer)? {
            return Ok(());
        }
        let columns = PAGE_COLUMNS - TIME_COLUMNS;
        let headline = explanation.headline(columns);
        let lines = std::iter::once(headline).chain(explanation.region_lines(columns));
        let text = lines.collect::<Vec<_>>().join("\n");
        let time = self.time();
        self.out.line(format!("{time}{}", text.replace('\n', &format!("\n{:TIME_COLUMNS$}", ""))))?;
        self.out.flush()
    }

    /// Prints the event as a document, if documents are wanted.
    fn tell_document(&mut self, event: &str, message: &str, more: Value) -> Result<bool, Error> {
        let Some(format) = self.format else { return Ok(false) };
        let at = self.began.elapsed().as_secs_f64();
        self.out.document(format, &json!({"at": at, "event": event, "words": message, "more": more}))?;
        self.out.flush()?;
        Ok(true)
    }

    fn time(&self) -> String {
        format!("{:6.1}s  ", self.began.elapsed().as_secs_f64())
    }

    /// Prints to standard error.
    pub(super) fn note(&mut self, message: &str) {
        self.out.note(message);
    }

    /// Records a promise and what was observed of it.
    pub(super) fn check(&mut self, promise: &'static str, kept: bool, observed: impl Into<String>) {
        self.verdicts.push(Verdict { promise, kept, observed: observed.into() });
    }

    fn is_all_kept(&self, played: bool) -> bool {
        played && self.verdicts.iter().all(|verdict| verdict.kept)
    }

    /// The report of what was seen, as HTML.
    pub(super) fn report(&self, tracker: &JobTracker, played: bool) -> String {
        report::html(tracker.history(), &self.verdicts, self.is_all_kept(played))
    }

    /// Prints timeline and verdicts; returns whether every promise was kept.
    pub(super) fn conclude(&mut self, tracker: &JobTracker, played: bool) -> Result<bool, Error> {
        let all_kept = self.is_all_kept(played);
        if let Some(format) = self.format {
            let at = self.began.elapsed().as_secs_f64();
            self.out.document(format, &json!({"at": at, "event": "timeline", "seen": tracker.history()}))?;
            let verdicts: Vec<Value> = self
                .verdicts
                .iter()
                .map(|Verdict { promise, kept, observed }| {
                    json!({"promise": promise, "kept": kept, "seen": observed})
                })
                .collect();
            let document = json!({"at": at, "event": "verdict", "kept": all_kept, "verdicts": verdicts});
            self.out.document(format, &document)?;
            return Ok(all_kept);
        }
        let timeline = timeline::text(tracker.history(), self.out.colour);
        self.out.line("")?;
        self.out.raw(timeline.as_bytes())?;
        let mut jobs = Table::new(["JOB", "IS", "STATE", "RAN IN"]);
        for (seen, job) in tracker.summary() {
            let regions: Vec<&str> = seen.runs.iter().map(|run| run.region.as_str()).collect();
            let cells = [Cell::new(&seen.name), Cell::new(&seen.title), Cell::state(&job.state)];
            jobs.push(cells.into_iter().chain([Cell::new(regions.join(", then "))]).collect());
        }
        let mut promises = Table::new(["RESULT", "PROMISE", "OBSERVED"]);
        for Verdict { promise, kept, observed } in &self.verdicts {
            let result = if *kept { "kept" } else { "BROKEN" };
            promises.push(vec![Cell::state(result), Cell::new(promise), Cell::new(observed)]);
        }
        for mut table in [jobs, promises] {
            let text = table.page(self.out.colour, PAGE_COLUMNS);
            self.out.line("")?;
            self.out.raw(text.as_bytes())?;
        }
        self.out.line("")?;
        let conclusion = if all_kept { "every promise was kept" } else { "not every promise was kept" };
        self.out.line(painted(conclusion, all_kept, self.out.colour))?;
        self.out.flush()?;
        Ok(all_kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_job_has_a_line_per_region() {
        let cluster = |region: &str| {
            let reason = "1 of 4 free";
            json!({"cluster": region, "region": region, "verdict": "no-room", "reason": reason})
        };
        let answer = json!({
            "name": "dws-job-8ncpw", "state": "Pending",
            "summary": "pending: no cluster has 3 free nvidia.com/gpu",
            "clusters": [cluster("europe-west4"), cluster("us-east4"), cluster("asia-southeast1")],
        });
        let (mut out, answers, _) = Streams::captured();
        Narrator::begin(&mut out, None).tell_pending(answer).unwrap();
        let text = answers.text();
        let (time, rest) = text.split_at(TIME_COLUMNS);
        assert!(time.ends_with("s  "), "{text}");
        assert_eq!(
            rest.lines().collect::<Vec<_>>(),
            [
                "dws-job-8ncpw  Pending  no cluster has 3 free nvidia.com/gpu",
                "           europe-west4      1 of 4 free",
                "           us-east4          1 of 4 free",
                "           asia-southeast1   1 of 4 free",
            ]
        );
    }
}
