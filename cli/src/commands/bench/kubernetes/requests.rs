//! Requests that an API server has answered, from the text of its `/metrics`, and their number for each job.

use std::collections::BTreeMap;

/// The counter of answered requests. Kubernetes calls it stable.
const COUNTER: &str = "apiserver_request_total{";
/// Verbs that change nothing.
const READS: [&str; 3] = ["GET", "LIST", "WATCH"];
/// Kinds of requests with fewer per job are left out: other users send them.
const PER_JOB_MIN: f64 = 0.01;

/// A kind of request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Request {
    /// The verb, such as `POST`, or `APPLY` for a server-side apply.
    pub(super) verb: String,
    /// Such as `jobs` or `jobs/status`.
    pub(super) resource: String,
}

/// Requests since the start of an API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counts(BTreeMap<Request, f64>);

impl Counts {
    /// Requests for resources in a text of metrics. `None` if the text has no such counter.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut counts = None;
        for line in text.lines() {
            let Some(sample) = line.strip_prefix(COUNTER) else { continue };
            let counts: &mut BTreeMap<Request, f64> = counts.get_or_insert_default();
            let Some((labels, value)) = sample.rsplit_once("} ") else { continue };
            let resource = label(labels, "resource").unwrap_or_default();
            let number = value.split(' ').next().and_then(|number| number.parse::<f64>().ok());
            let (Some(verb), Some(number)) = (label(labels, "verb"), number) else { continue };
            if resource.is_empty() {
                continue;
            }
            let resource = match label(labels, "subresource") {
                None | Some("") => resource.to_owned(),
                Some(subresource) => format!("{resource}/{subresource}"),
            };
            *counts.entry(Request { verb: verb.to_owned(), resource }).or_default() += number;
        }
        counts.map(Self)
    }

    /// Requests since `before`. A server that was started again in between has counted from zero.
    pub(super) fn since(&self, before: &Self) -> Self {
        let more = self.0.iter().map(|(request, now)| {
            let then = before.0.get(request).copied().unwrap_or_default();
            (request.clone(), if *now >= then { now - then } else { *now })
        });
        Self(more.collect())
    }

    /// The number of requests that change something.
    pub(super) fn writes(&self) -> f64 {
        let writes = self.0.iter().filter(|(request, _)| !READS.contains(&request.verb.as_str()));
        writes.map(|(_, number)| number).sum()
    }

    /// Requests for each of `jobs`, without the requests that the idle deployment makes: `idle` are those in
    /// a time that was `share` of this one.
    pub(super) fn per_job(&self, idle: &Self, share: f64, jobs: u32) -> BTreeMap<Request, f64> {
        let each = self.0.iter().map(|(request, number)| {
            let anyway = idle.0.get(request).copied().unwrap_or_default() * share;
            (request.clone(), (number - anyway) / f64::from(jobs))
        });
        each.filter(|(_, each)| *each >= PER_JOB_MIN).collect()
    }
}

/// The value of a label among `name="value"` pairs. Labels of this counter have no escaped characters.
fn label<'t>(labels: &'t str, name: &str) -> Option<&'t str> {
    labels.split("\",").find_map(|pair| {
        let (key, value) = pair.split_once("=\"")?;
        (key == name).then(|| value.trim_end_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = r#"# HELP apiserver_request_total [STABLE] Counter of apiserver requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="0",resource="",subresource="/healthz",verb="GET"} 9
apiserver_request_total{code="200",resource="jobs",subresource="status",verb="APPLY"} 40
apiserver_request_total{code="201",resource="jobs",subresource="",verb="POST"} 98
apiserver_request_total{code="409",resource="jobs",subresource="",verb="POST"} 2
apiserver_request_total{code="200",resource="leases",subresource="",verb="GET"} 1e+01
apiserver_request_duration_seconds_count{resource="jobs",verb="POST"} 100
"#;

    fn counts(numbers: &[(&str, &str, f64)]) -> Counts {
        let of = |(verb, resource, number): &(&str, &str, f64)| (request(verb, resource), *number);
        Counts(numbers.iter().map(of).collect())
    }

    fn request(verb: &str, resource: &str) -> Request {
        Request { verb: verb.to_owned(), resource: resource.to_owned() }
    }

    #[test]
    fn requests_are_summed_by_verb_and_resource() {
        let read = Counts::read(METRICS).unwrap();
        let all = [("APPLY", "jobs/status", 40.0), ("POST", "jobs", 100.0), ("GET", "leases", 10.0)];
        assert_eq!(read, counts(&all));
        assert_eq!(read.writes(), 140.0);
    }

    #[test]
    fn metrics_of_another_program_are_recognized() {
        assert_eq!(Counts::read("process_cpu_seconds_total 4\n"), None);
        assert_eq!(Counts::read(""), None);
    }

    #[test]
    fn requests_of_the_idle_time_are_no_jobs() {
        let before = counts(&[("POST", "jobs", 5.0), ("PUT", "leases", 100.0)]);
        let after = counts(&[("POST", "jobs", 15.0), ("PUT", "leases", 140.0), ("GET", "nodes", 0.01)]);
        let idle = counts(&[("PUT", "leases", 20.0)]);
        let each = after.since(&before).per_job(&idle, 2.0, 10);
        assert_eq!(each, BTreeMap::from([(request("POST", "jobs"), 1.0)]));
    }

    #[test]
    fn a_server_that_was_started_again_counts_from_zero() {
        let (before, after) = (counts(&[("POST", "jobs", 50.0)]), counts(&[("POST", "jobs", 8.0)]));
        assert_eq!(after.since(&before), after);
    }
}
