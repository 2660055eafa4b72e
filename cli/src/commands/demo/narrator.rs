//! What the demo prints: a line per event, then a table of jobs and a table of promises; or JSON documents.

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
struct Verdict {
    promise: &'static str,
    kept: bool,
    observed: String,
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
    pub(super) fn judge(&mut self, promise: &'static str, kept: bool, observed: impl Into<String>) {
        self.verdicts.push(Verdict { promise, kept, observed: observed.into() });
    }

    /// Prints the verdicts; returns whether every promise was kept.
    pub(super) fn conclude(&mut self, tracker: &JobTracker, played: bool) -> Result<bool, Error> {
        let all_kept = played && self.verdicts.iter().all(|verdict| verdict.kept);
        if let Some(format) = self.format {
            let at = self.began.elapsed().as_secs_f64();
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
        let mut jobs = Table::new(["JOB", "STATE", "ATTEMPTS", "RAN IN"]);
        for (name, job, regions) in tracker.summary() {
            let attempts = job.attempts.to_string();
            let cells = [Cell::new(name), Cell::state(&job.state), Cell::new(&attempts)];
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
