//! Parses the text of single settings.

use crate::audit::keeper::Retention;
use meridian_manager_core::config::STARVATION_GUARD_DEFAULT;
use meridian_objects::settings::Invalid;
use meridian_objects::{ResourceRules, quantity};
use meridian_queueing::settings::{AdmissionFairSharing, FairSharing, FairStrategy};
use meridian_shared::time::Millis;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Longest duration of any setting: a year. More is a mistake.
const DURATION_MAX: Millis = Millis::mins(366 * 24 * 60);

/// Admission fair sharing, with the field names of Kueue's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct FiledFairSharing {
    usage_half_life_time: String,
    usage_sampling_interval: Option<String>,
    #[serde(default)]
    resource_weights: BTreeMap<String, f64>,
}

/// The strategies of fair sharing; `None` if it is off. Fails on an unknown strategy.
pub(super) fn parse_fair_sharing(strategies: &[String]) -> Result<Option<FairSharing>, Invalid> {
    let parse = |text: &String| match text.as_str() {
        "LessThanOrEqualToFinalShare" => Ok(FairStrategy::LessThanOrEqualToFinalShare),
        "LessThanInitialShare" => Ok(FairStrategy::LessThanInitialShare),
        other => Err(Invalid::new(
            "fair-sharing",
            format!(
                "`{other}` is not a strategy: use `LessThanOrEqualToFinalShare` and \
                 `LessThanInitialShare`, or `on`, or `off`"
            ),
        )),
    };
    match strategies {
        [] => Ok(None),
        [off] if off == "off" => Ok(None),
        [on] if on == "on" => Ok(Some(FairSharing::default())),
        strategies => {
            Ok(Some(FairSharing { strategies: strategies.iter().map(parse).collect::<Result<_, _>>()? }))
        }
    }
}

/// Admission fair sharing from the flag, else from the file; `None` if it is off. Fails if it is malformed.
pub(super) fn parse_admission_fair_sharing(
    given: Option<&str>,
    filed: Option<FiledFairSharing>,
) -> Result<Option<AdmissionFairSharing>, Invalid> {
    let invalid = |what: String| Invalid::new("admission-fair-sharing", what);
    match (given, filed) {
        (Some("off"), _) | (None, None) => Ok(None),
        (Some(text), _) => text.parse().map(Some).map_err(invalid),
        (None, Some(filed)) => filed.read().map(Some).map_err(invalid),
    }
}

impl FiledFairSharing {
    fn read(self) -> Result<AdmissionFairSharing, String> {
        let Self { usage_half_life_time, usage_sampling_interval, resource_weights } = self;
        let weight = |(resource, weight): (String, f64)| {
            let nano =
                AdmissionFairSharing::weight(&format!("resourceWeights.{resource}"), &weight.to_string())?;
            Ok((resource, nano))
        };
        Ok(AdmissionFairSharing {
            half_life_ms: AdmissionFairSharing::time("usageHalfLifeTime", &usage_half_life_time)?,
            sampling_ms: usage_sampling_interval
                .map_or(Ok(AdmissionFairSharing::SAMPLING_USUAL_MS), |text| {
                    AdmissionFairSharing::interval("usageSamplingInterval", &text)
                })?,
            resource_weights: resource_weights.into_iter().map(weight).collect::<Result<_, String>>()?,
        })
    }
}

/// The rules by which pods' requests are translated for quota.
pub(super) fn parse_resources(filed: Option<&serde_json::Value>) -> Result<ResourceRules, Invalid> {
    let invalid = |what: String| Invalid::new("resources", what);
    filed.map(ResourceRules::from_json).transpose().map(Option::unwrap_or_default).map_err(invalid)
}

/// Waiting time after which the starvation guard applies; `None` if it is off.
pub(super) fn parse_guard(text: Option<&str>) -> Result<Option<Millis>, Invalid> {
    match text {
        None => Ok(Some(STARVATION_GUARD_DEFAULT)),
        Some("off") => Ok(None),
        Some(text) => duration("starvation-guard", text).map(Some).map_err(|invalid| invalid.or("`off`")),
    }
}

/// Default size of a segment's lines: a few hundred thousand lines.
const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
/// Least size of a segment's lines. Smaller segments would only increase their number.
const SEGMENT_BYTES_MIN: u64 = 4 << 10;

/// How large segments of the audit log are, and how many are kept.
pub(super) fn parse_retention(
    size: Option<&str>,
    keep_segments: Option<u64>,
    keep_size: Option<&str>,
) -> Result<Retention, Invalid> {
    let bytes = |flag, text: &str| {
        let wrong = || Invalid::new(flag, format!("`{text}` is not a size, such as `64Mi`"));
        quantity::parse("memory", text).ok().and_then(|bytes| u64::try_from(bytes).ok()).ok_or_else(wrong)
    };
    let segment_bytes = size.map_or(Ok(SEGMENT_BYTES_DEFAULT), |text| bytes("audit-segment-size", text))?;
    if segment_bytes < SEGMENT_BYTES_MIN {
        let what = format!("`{segment_bytes}` bytes are too few; the least is `{SEGMENT_BYTES_MIN}`");
        return Err(Invalid::new("audit-segment-size", what));
    }
    let bytes_max = keep_size.map(|text| bytes("audit-keep-size", text)).transpose()?;
    Ok(Retention { segment_bytes, segments_max: keep_segments, bytes_max })
}

/// A duration with a unit. Fails if it is malformed, zero or too long.
pub(super) fn duration(flag: &'static str, text: &str) -> Result<Millis, Invalid> {
    let parsed = text
        .trim()
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|d| u64::try_from(d.as_millis()).ok())
        .map(Millis);
    match parsed {
        Some(millis) if millis > Millis(0) && millis <= DURATION_MAX => Ok(millis),
        _ => Err(Invalid::new(
            flag,
            format!(
                "`{text}` is not a duration of up to a year; write a number with a unit, such as `90s`, \
                 `15m` or `2h`"
            ),
        )),
    }
}
