//! `get --sort-by`: numbers and quantities by size, everything else as text; objects without the field first.

use crate::output::template::Path;
use meridian_objects::quantity;
use serde_json::Value;
use std::cmp::Ordering;

/// Sorts objects by what is at the path; equal ones keep their order.
pub(super) fn sort(objects: &mut [Value], path: &Path) {
    objects.sort_by(|a, b| compare(path, a, b));
}

pub(super) fn compare(path: &Path, a: &Value, b: &Value) -> Ordering {
    let first = |object| path.find(object, object).into_iter().next().filter(|found| !found.is_null());
    match (first(a), first(b)) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(a), Some(b)) => match (amount(a), amount(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => text(a).cmp(&text(b)),
        },
    }
}

/// A number or a quantity, in billionths.
fn amount(value: &Value) -> Option<i128> {
    match value {
        Value::Number(_) | Value::String(_) => quantity::nano_from_json(value).ok(),
        _ => None,
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_are_compared_as_sizes() {
        let check = |values: Value, expect: Value| {
            let mut objects: Vec<Value> =
                values.as_array().unwrap().iter().map(|value| json!({"x": value})).collect();
            objects.push(json!({}));
            sort(&mut objects, &Path::parse(".x").unwrap());
            let sorted: Vec<&Value> = objects.iter().filter_map(|object| object.get("x")).collect();
            assert!(objects[0].get("x").is_none() && json!(sorted) == expect, "{objects:?}");
        };
        check(json!([10, 9, -1]), json!([-1, 9, 10]));
        check(json!(["1Gi", "900Mi", "2"]), json!(["2", "900Mi", "1Gi"]));
        check(
            json!(["2026-11-21T10:00:00Z", "2026-11-21T09:00:00Z"]),
            json!(["2026-11-21T09:00:00Z", "2026-11-21T10:00:00Z"]),
        );
        check(json!([true, false]), json!([false, true]));
    }
}
