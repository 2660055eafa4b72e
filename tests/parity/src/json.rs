//! Reads the JSON of cases.

use anyhow::{Context, anyhow, bail};
use meridian_objects::plan::PlanObject;
use meridian_objects::quantity;
use meridian_queueing::flavors::Mode;
use meridian_shared::gang::Amounts;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Amounts by flavor and resource.
pub(crate) type FlavorUsage = BTreeMap<String, Amounts>;

/// The items of an array; none if the value isn't an array.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The fields of an object; none if the value isn't an object.
pub(crate) fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// The text; empty if the value isn't a string.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The strings of an array.
pub(crate) fn texts<C: FromIterator<String>>(value: &Value) -> C {
    items(value).iter().map(|item| text(item).to_owned()).collect()
}

/// The strings of an object's fields.
pub(crate) fn text_map(value: &Value) -> BTreeMap<String, String> {
    fields(value).map(|(key, value)| (key.clone(), text(value).to_owned())).collect()
}

/// Fails for negative numbers and for those beyond 32 bits. A missing number is 0.
pub(crate) fn number(value: &Value) -> anyhow::Result<u32> {
    Ok(u32::try_from(value.as_i64().unwrap_or(0))?)
}

pub(crate) fn object(value: &Value) -> anyhow::Result<PlanObject> {
    PlanObject::lenient(value).map_err(|error| anyhow!("{}: {error}", text(&value["metadata"]["name"])))
}

/// A time in milliseconds since the Unix epoch.
pub(crate) fn time(value: &Value) -> anyhow::Result<i64> {
    let time: jiff::Timestamp = text(value).parse().context("now")?;
    Ok(time.as_millisecond())
}

/// A duration in Go's notation, in milliseconds. A missing duration is 0.
pub(crate) fn duration(value: &Value) -> anyhow::Result<i64> {
    let (mut rest, mut sum) = (text(value), 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let milliseconds = match unit {
            "h" => 3_600_000.0,
            "m" => 60_000.0,
            "s" => 1_000.0,
            "ms" => 1.0,
            other => bail!("`{other}` is not a unit of time"),
        };
        sum += number.parse::<f64>().context("duration")? * milliseconds;
        rest = after;
    }
    #[expect(clippy::cast_possible_truncation, reason = "durations of cases are small")]
    let sum = sum.round() as i64;
    Ok(sum)
}

pub(crate) fn amounts(value: &Value) -> anyhow::Result<Amounts> {
    let mut amounts = Amounts::new();
    for (resource, quantity) in fields(value) {
        let amount = match quantity::from_json(resource, quantity) {
            _ if quantity == "unlimited" => i64::MAX,
            Err(quantity::Error::TooLarge(_)) => i64::MAX,
            read => read?,
        };
        amounts.insert(resource.clone(), amount);
    }
    Ok(amounts)
}

/// Leaves out zeros, because missing entries are zero.
pub(crate) fn flavor_usage(value: &Value) -> anyhow::Result<FlavorUsage> {
    let mut usage = FlavorUsage::new();
    for (flavor, resources) in fields(value) {
        for (resource, amount) in amounts(resources)?.into_iter().filter(|(_, amount)| *amount != 0) {
            usage.entry(flavor.clone()).or_default().insert(resource, amount);
        }
    }
    Ok(usage)
}

/// Kueue's name of an assignment mode.
pub(crate) fn mode(name: &Value) -> anyhow::Result<Mode> {
    Ok(match text(name) {
        "NoFit" => Mode::NoFit,
        "Preempt" => Mode::Preempt,
        "DeferredFit" => Mode::DeferredFit,
        "Fit" => Mode::Fit,
        other => bail!("`{other}` is not an assignment mode"),
    })
}

/// A cluster queue without quota, for cases that name queues without declaring them.
pub(crate) fn bare_queue(name: &str, usage_based: bool) -> anyhow::Result<PlanObject> {
    let mode = if usage_based { "UsageBasedAdmissionFairSharing" } else { "NoAdmissionFairSharing" };
    object(&json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name},
        "spec": {
            "queueingStrategy": "BestEffortFIFO", "namespaceSelector": {},
            "admissionScope": {"admissionMode": mode},
        },
    }))
}
