//! The behaviour of a simulated job, as the job describes it (pure).

use crate::job_run::Error;
use crate::job_run::JobSpec;
use meridian_objects::job;
use meridian_objects::job::simulated::{InvalidAnnotation, Simulated, parse_duration};
use meridian_shared::time::Millis;
use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;

/// Duration of a pod if its job does not set one.
pub const DURATION_DEFAULT: Millis = Millis::secs(30);
/// Shortest simulated duration, so that time passes at any speed.
const DURATION_MIN: Millis = Millis(1);

/// Speed of simulated jobs compared with real time.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Speed(f64);

impl Speed {
    pub const REAL: Self = Self(1.0);

    /// The real time of a simulated `length`, at least a millisecond.
    pub fn apply(self, length: Millis) -> Millis {
        Millis((length.0 as f64 / self.0).round() as u64).max(DURATION_MIN)
    }

    /// The real time of a simulated wait, which may be zero.
    pub fn apply_to_wait(self, length: Millis) -> Millis {
        if length == Millis(0) { length } else { self.apply(length) }
    }

    /// The simulated time of a real `length`.
    pub fn undo(self, length: Millis) -> Millis {
        Millis((length.0 as f64 * self.0).round() as u64)
    }
}

impl FromStr for Speed {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(speed) if (0.001..=1_000_000.0).contains(&speed) => Ok(Self(speed)),
            _ => Err(format!(
                "`{text}` is not a speed: use a number from 0.001 to 1000000, where 1 is real time"
            )),
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The behaviour of each pod of a simulated job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// In the job's time.
    pub duration: Millis,
    /// How much longer each pod takes than the one before, in the job's time.
    pub stagger: Millis,
    pub exit_code: i32,
    /// Number of failures before the first success, over all attempts.
    pub fail_first: u32,
}

impl Script {
    /// Reads the script of a job. Unreadable annotations are skipped; [`check`] refuses them before.
    pub fn of(spec: &JobSpec) -> Self {
        let (asked, _) = Simulated::read(&spec.annotations);
        let Simulated { duration, stagger, exit_code, fail_first } = asked;
        Self {
            duration: duration.or_else(|| slept(spec)).unwrap_or(DURATION_DEFAULT),
            stagger,
            exit_code: exit_code.into(),
            fail_first,
        }
    }
}

/// The Job that is simulated: the submitted one. For another kind, a Job with the gang's number of pods, all
/// with the template of the first pod set. Fails if the manifest can't be read.
pub fn job_of(manifest: &str) -> Result<JobSpec, Error> {
    let read: Value = serde_json::from_str(manifest).map_err(Error::NotAJob)?;
    let kind = job::of_object(&read);
    if kind.can_be_scaled() {
        return JobSpec::parse(manifest);
    }
    let pods = kind.pods(&read);
    let stand_in = json!({
        "metadata": read["metadata"],
        "spec": {
            "parallelism": pods, "completions": pods, "backoffLimit": 0,
            "template": kind.templates(&read).first(),
        },
    });
    JobSpec::parse(&stand_in.to_string())
}

/// Fails with a reason if a job can't be simulated.
pub fn check(spec: &JobSpec) -> Result<(), String> {
    if let Some(InvalidAnnotation { key, written, wanted, remedy }) =
        Simulated::read(&spec.annotations).1.first()
    {
        return Err(format!("annotation `{key}` is `{written}`, which is not {wanted}: {remedy}"));
    }
    if spec.width() == 0 {
        return Err("the job requests no pods: set `parallelism` and `completions` to at least 1".into());
    }
    Ok(())
}

/// The time that a job's command sleeps: `sleep 30`, `sh -c "…; sleep 1m"`, or just `120s`.
fn slept(spec: &JobSpec) -> Option<Millis> {
    let is_separator = |c: char| c.is_whitespace() || matches!(c, ';' | '&' | '|' | '\'' | '"' | '(' | ')');
    let words: Vec<&str> = spec
        .command
        .iter()
        .chain(&spec.args)
        .flat_map(|w| w.split(is_separator))
        .filter(|w| !w.is_empty())
        .collect();
    let is_sleep = |word: &str| word == "sleep" || word.ends_with("/sleep");
    words.windows(2).find(|pair| is_sleep(pair[0])).and_then(|pair| parse_duration(pair[1])).or_else(|| {
        words
            .iter()
            .filter(|w| w.ends_with(|c: char| c.is_ascii_alphabetic()))
            .find_map(|w| parse_duration(w))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_objects::job::{SIMULATED_DURATION, SIMULATED_EXIT_CODE, SIMULATED_FAIL_FIRST};
    use serde_json::json;

    fn script(annotations: serde_json::Value, command: &[&str], args: &[&str]) -> Result<Script, String> {
        let container = json!({"command": command, "args": args});
        let job = json!({
            "metadata": {"annotations": annotations},
            "spec": {"template": {"spec": {"containers": [container]}}},
        });
        let spec = JobSpec::parse(&job.to_string()).unwrap();
        check(&spec).map(|()| Script::of(&spec))
    }

    #[test]
    fn the_duration_is_read_from_the_command() {
        for (command, args, millis) in [
            (&[][..], &["120s"][..], 120_000),
            (&["sleep", "30"], &[], 30_000),
            (&["/bin/sleep"], &["1.5"], 1_500),
            (&["sh", "-c"], &["echo a; sleep 1m && echo b"], 60_000),
            (&["python", "train.py"], &["--epochs", "3"], DURATION_DEFAULT.0),
            (&[], &["1h30m"], 5_400_000),
        ] {
            assert_eq!(
                script(json!({}), command, args).unwrap().duration,
                Millis(millis),
                "{command:?} {args:?}"
            );
        }
    }

    #[test]
    fn a_job_of_another_kind_is_simulated_with_all_pods_of_its_gang() {
        let template = json!({"spec": {"containers": [{"command": ["sleep", "30"]}]}});
        let job_set = json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {"annotations": {SIMULATED_EXIT_CODE: "1"}},
            "spec": {"replicatedJobs": [
                {"name": "a", "template": {"spec": {"template": template}}},
                {"name": "b", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": template}}},
            ]},
        });
        let job = job_of(&job_set.to_string()).unwrap();
        assert_eq!((job.width(), job.completions, job.backoff_limit), (5, Some(5), 0));
        let script = Script::of(&job);
        assert_eq!((script.duration, script.exit_code), (Millis::secs(30), 1));
    }

    #[test]
    fn annotations_take_precedence_and_bad_ones_are_refused() {
        let all = json!({SIMULATED_DURATION: "250ms", SIMULATED_EXIT_CODE: "3", SIMULATED_FAIL_FIRST: "2"});
        assert_eq!(
            script(all, &["sleep", "9"], &[]).unwrap(),
            Script { duration: Millis(250), stagger: Millis(0), exit_code: 3, fail_first: 2 }
        );
        for (name, value) in [
            (SIMULATED_DURATION, "soon"),
            (SIMULATED_DURATION, "1x"),
            (SIMULATED_DURATION, ""),
            (SIMULATED_DURATION, "9999999h"),
            (SIMULATED_EXIT_CODE, "256"),
            (SIMULATED_FAIL_FIRST, "-1"),
        ] {
            assert!(script(json!({name: value}), &[], &[]).unwrap_err().contains(name), "{value}");
        }
    }

    #[test]
    fn speed_divides_and_never_reaches_zero() {
        assert_eq!("60".parse::<Speed>().unwrap().apply(Millis::mins(2)), Millis(2_000));
        assert_eq!("1000000".parse::<Speed>().unwrap().apply(Millis(5)), Millis(1));
        for bad in ["0", "-1", "NaN", "inf", "fast"] {
            assert!(bad.parse::<Speed>().is_err(), "{bad}");
        }
    }
}
