//! The job that a request names: by its kind and name, by its name alone, or by its workload's name.

use crate::api::access::User;
use crate::api::response::error::{Error, Subject};
use crate::engine::Reads;
use meridian_manager_core::facts::key::Key;
use meridian_objects::Kind;
use meridian_objects::job::JobKind;

/// The job or workload that a request names.
pub(super) struct NamedJob {
    /// The job and its workload; `None` if no job has this name.
    found: Option<[Key; 2]>,
    /// The job as the request names it.
    named: Key,
    by_workload: bool,
}

impl NamedJob {
    /// Finds the job. Fails if the kind isn't a kind of job, or if several jobs that the user may read have
    /// this name.
    pub(super) fn of(
        reads: &Reads,
        user: &User,
        namespace: &str,
        name: &str,
        kind: Option<&str>,
    ) -> Result<Self, Error> {
        let kind = kind.map(kind_of).transpose()?;
        let key = |kind| Key::namespaced(kind, namespace, name);
        let jobs = match kind {
            Some(Kind::Workload) => Vec::new(),
            Some(kind) => vec![key(kind)],
            None => reads.jobs_named(namespace, name),
        };
        let (readable, rest): (Vec<Key>, Vec<Key>) =
            jobs.into_iter().partition(|job| user.asker().may_name(job));
        if readable.len() > 1 {
            let names: Vec<String> =
                readable.iter().map(|job| format!("`{}/{name}`", job.kind.singular())).collect();
            return Err(Error::Conflict(format!(
                "several jobs have this name: write {}",
                names.join(" or ")
            )));
        }
        let job = readable.into_iter().chain(rest).next();
        let found = match &job {
            Some(job) => reads.job_and_workload(job),
            None => reads.job_and_workload(&key(Kind::Workload)),
        };
        let by_workload = job.is_none() && found.is_some();
        Ok(Self { found, named: job.unwrap_or_else(|| key(JobKind::usual().kind())), by_workload })
    }

    /// The job, or the name of a missing job as requested.
    pub(super) fn job(&self) -> &Key {
        self.found.as_ref().map_or(&self.named, |[job, _]| job)
    }

    /// Whether the request names the workload.
    pub(super) fn by_workload(&self) -> bool {
        self.by_workload
    }

    /// The unique name of its workload. Fails if there is no such job.
    pub(super) fn workload(&self) -> Result<&str, Error> {
        let missing = || Error::NotFound(Subject::new(self.named.kind, &self.named.name));
        self.found.as_ref().map(|[_, workload]| &*workload.name).ok_or_else(missing)
    }
}

fn kind_of(word: &str) -> Result<Kind, Error> {
    let kind = Kind::from_word(word).filter(|kind| kind.is_job() || *kind == Kind::Workload);
    kind.ok_or_else(|| Error::BadRequest(format!("`kind`: `{word}` is neither a kind of job nor `workload`")))
}
