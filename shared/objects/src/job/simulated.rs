//! What a job asks of the simulated runner, in annotations that every other runner passes by.

use meridian_shared::time::Millis;
use std::collections::BTreeMap;

/// The annotation that says how long each pod takes in the simulated runner, such as `90s` or `1h30m`.
pub const SIMULATED_DURATION: &str = "simulated.meridian.dev/duration";
/// So much longer each pod takes there than the one before it, such as `10s`: without it all end together.
pub const SIMULATED_STAGGER: &str = "simulated.meridian.dev/stagger";
/// With which exit code each pod ends there.
pub const SIMULATED_EXIT_CODE: &str = "simulated.meridian.dev/exit-code";
/// How many pods fail there before the others go their way.
pub const SIMULATED_FAIL_FIRST: &str = "simulated.meridian.dev/fail-first";

/// Longer than any lease or run, and safely added to any moment.
const LENGTH_MAX: Millis = Millis::mins(366 * 24 * 60);

/// Characters of what can't be read that are repeated.
const SHOWN_CHARS_MAX: usize = 64;

/// What the annotations say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Simulated {
    /// How long a pod takes, where that is said.
    pub duration: Option<Millis>,
    /// So much longer than the one before it.
    pub stagger: Millis,
    /// With what each pod ends.
    pub exit_code: u8,
    /// So many failures come first, counted over all attempts.
    pub fail_first: u32,
}

/// An annotation that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Which.
    pub key: &'static str,
    /// What is written there, or how it begins.
    pub written: String,
    /// What it isn't.
    pub wanted: &'static str,
    /// What to write.
    pub remedy: &'static str,
}

impl Simulated {
    /// Reads them. What can't be read is as if it weren't there, and named besides.
    pub fn read(annotations: &BTreeMap<String, String>) -> (Self, Vec<Wrong>) {
        const A_LENGTH: (&str, &str) =
            ("length of time of at most a year", "write one such as `90s` or `1h30m`");
        let mut wrong = Vec::new();
        let duration = value(annotations, SIMULATED_DURATION, length, A_LENGTH, &mut wrong);
        let stagger =
            value(annotations, SIMULATED_STAGGER, length, A_LENGTH, &mut wrong).unwrap_or(Millis(0));
        let a_code = ("exit code", "write a whole number from 0 to 255, in quotes");
        let exit_code = value(annotations, SIMULATED_EXIT_CODE, |text| text.parse().ok(), a_code, &mut wrong)
            .unwrap_or(0);
        let a_number = ("number of pods", "write a whole number, in quotes");
        let fail_first =
            value(annotations, SIMULATED_FAIL_FIRST, |text| text.parse().ok(), a_number, &mut wrong)
                .unwrap_or(0);
        (Self { duration, stagger, exit_code, fail_first }, wrong)
    }
}

/// The value of one annotation, if it is there and can be read.
fn value<T>(
    annotations: &BTreeMap<String, String>,
    key: &'static str,
    read: fn(&str) -> Option<T>,
    (wanted, remedy): (&'static str, &'static str),
    wrong: &mut Vec<Wrong>,
) -> Option<T> {
    let written = annotations.get(key)?;
    let value = read(written.trim());
    wrong.extend(value.is_none().then(|| Wrong {
        key,
        written: written.chars().take(SHOWN_CHARS_MAX).collect(),
        wanted,
        remedy,
    }));
    value
}

/// A length of time as Go and `sleep` write it: `90`, `1.5`, `120s`, `1h30m`, `250ms`.
pub fn length(text: &str) -> Option<Millis> {
    let mut total = 0.0_f64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        let letters =
            rest[digits..].find(|c: char| !c.is_ascii_alphabetic()).map_or(rest.len(), |n| digits + n);
        total += number
            * match &rest[digits..letters] {
                "ms" => 1.0,
                "" | "s" => 1_000.0,
                "m" => 60_000.0,
                "h" => 3_600_000.0,
                "d" => 86_400_000.0,
                _ => return None,
            };
        rest = &rest[letters..];
    }
    (!text.is_empty() && total <= LENGTH_MAX.0 as f64).then_some(Millis(total.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(&str, &str)]) -> (Simulated, Vec<Wrong>) {
        Simulated::read(
            &entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        )
    }

    #[test]
    fn what_can_be_read_is_read() {
        assert_eq!(of(&[]), (Simulated::default(), Vec::new()));
        let all = [
            (SIMULATED_DURATION, "250ms"),
            (SIMULATED_STAGGER, "1h30m"),
            (SIMULATED_EXIT_CODE, "3"),
            (SIMULATED_FAIL_FIRST, "2"),
        ];
        let expect =
            Simulated { duration: Some(Millis(250)), stagger: Millis::mins(90), exit_code: 3, fail_first: 2 };
        assert_eq!(of(&all), (expect, Vec::new()));
        for (text, millis) in [("90", 90_000), ("1.5", 1_500), ("0s", 0), ("1d", 86_400_000)] {
            assert_eq!(length(text), Some(Millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_cannot_is_named_and_the_rest_counts() {
        for (key, text) in [
            (SIMULATED_DURATION, "soon"),
            (SIMULATED_DURATION, "1x"),
            (SIMULATED_DURATION, ""),
            (SIMULATED_DURATION, "-5s"),
            (SIMULATED_DURATION, "9999999h"),
            (SIMULATED_STAGGER, "1.2.3s"),
            (SIMULATED_EXIT_CODE, "256"),
            (SIMULATED_EXIT_CODE, "zero"),
        ] {
            let (read, wrong) = of(&[(key, text), (SIMULATED_FAIL_FIRST, "2")]);
            assert_eq!(read, Simulated { fail_first: 2, ..Simulated::default() }, "{text}");
            assert_eq!(
                wrong.iter().map(|wrong| (wrong.key, wrong.written.as_str())).collect::<Vec<_>>(),
                [(key, text)]
            );
        }
        assert_eq!(of(&[(SIMULATED_FAIL_FIRST, "-1"), (SIMULATED_EXIT_CODE, "-1")]).1.len(), 2);
    }
}
