//! Annotations for the simulated runner; every other runner ignores them.

use meridian_shared::time::Millis;
use std::collections::BTreeMap;

/// Run time of each pod, such as `90s` or `1h30m`.
pub const SIMULATED_DURATION: &str = "simulated.meridian.dev/duration";
/// Additional run time of each pod compared with the previous pod, such as `10s`. Without it all pods end
/// together.
pub const SIMULATED_STAGGER: &str = "simulated.meridian.dev/stagger";
/// Exit code of each pod.
pub const SIMULATED_EXIT_CODE: &str = "simulated.meridian.dev/exit-code";
/// Number of pods that fail before the others start to succeed.
pub const SIMULATED_FAIL_FIRST: &str = "simulated.meridian.dev/fail-first";

/// Longest duration: longer than any lease or run, and safe to add to any time.
const LENGTH_MAX: Millis = Millis::mins(366 * 24 * 60);

/// Characters of an invalid value that are repeated in a message.
const SHOWN_CHARS_MAX: usize = 64;

/// The annotations of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Simulated {
    pub duration: Option<Millis>,
    pub stagger: Millis,
    pub exit_code: u8,
    /// Number of pods that fail first, over all attempts.
    pub fail_first: u32,
}

/// An annotation that can't be read, with what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidAnnotation {
    pub key: &'static str,
    /// The value, or its beginning.
    pub written: String,
    /// The expected value, with its article.
    pub wanted: &'static str,
    pub remedy: &'static str,
}

impl Simulated {
    /// Reads the annotations. Invalid ones count as absent and are returned.
    pub fn read(annotations: &BTreeMap<String, String>) -> (Self, Vec<InvalidAnnotation>) {
        let mut invalid = Vec::new();
        let duration = DURATION.read(SIMULATED_DURATION, annotations, &mut invalid);
        let stagger = DURATION.read(SIMULATED_STAGGER, annotations, &mut invalid).unwrap_or(Millis(0));
        let exit_code = EXIT_CODE.read(SIMULATED_EXIT_CODE, annotations, &mut invalid).unwrap_or(0);
        let fail_first = POD_COUNT.read(SIMULATED_FAIL_FIRST, annotations, &mut invalid).unwrap_or(0);
        (Self { duration, stagger, exit_code, fail_first }, invalid)
    }
}

/// Text form of a type of value in an annotation.
struct Form<T> {
    parse: fn(&str) -> Option<T>,
    /// The expected value, with its article.
    wanted: &'static str,
    remedy: &'static str,
}

const DURATION: Form<Millis> = Form {
    parse: parse_duration,
    wanted: "a duration of at most a year",
    remedy: "write one such as `90s` or `1h30m`",
};
const EXIT_CODE: Form<u8> = Form {
    parse: |text| text.parse().ok(),
    wanted: "an exit code",
    remedy: "write a whole number from 0 to 255, in quotes",
};
const POD_COUNT: Form<u32> = Form {
    parse: |text| text.parse().ok(),
    wanted: "a number of pods",
    remedy: "write a whole number, in quotes",
};

impl<T> Form<T> {
    /// The value of one annotation, if it is present and valid.
    fn read(
        &self,
        key: &'static str,
        annotations: &BTreeMap<String, String>,
        invalid: &mut Vec<InvalidAnnotation>,
    ) -> Option<T> {
        let written = annotations.get(key)?;
        let value = (self.parse)(written.trim());
        invalid.extend(value.is_none().then(|| InvalidAnnotation {
            key,
            written: written.chars().take(SHOWN_CHARS_MAX).collect(),
            wanted: self.wanted,
            remedy: self.remedy,
        }));
        value
    }
}

/// A duration in the form of Go or `sleep`: `90`, `1.5`, `120s`, `1h30m`, `250ms`. `None` for any other text,
/// and for more than a year.
pub fn parse_duration(text: &str) -> Option<Millis> {
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

    fn of(entries: &[(&str, &str)]) -> (Simulated, Vec<InvalidAnnotation>) {
        Simulated::read(
            &entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        )
    }

    #[test]
    fn valid_annotations_are_read() {
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
            assert_eq!(parse_duration(text), Some(Millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_annotations_are_named_and_the_rest_counts() {
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
