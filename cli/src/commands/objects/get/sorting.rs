//! `get --sort-by`: by size if every value is a number or a quantity, else as text; objects without the field
//! first.

use crate::output::template::Path;
use meridian_objects::quantity;
use serde_json::Value;

/// Sorts items by what is at the path in their objects; equal ones keep their order.
pub(super) fn sort<T>(items: &mut [T], path: &Path, object: impl Fn(&T) -> &Value) {
    let first = |item: &T| {
        let object = object(item);
        path.find(object, object).into_iter().next().filter(|found| !found.is_null()).cloned()
    };
    let found: Vec<Value> = items.iter().filter_map(first).collect();
    // Sizes and texts have no common order, and a name such as `70m` is a size only by chance.
    if found.iter().all(|value| amount(value).is_some()) {
        items.sort_by_cached_key(|item| first(item).as_ref().and_then(amount));
    } else {
        items.sort_by_cached_key(|item| first(item).as_ref().map(text));
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
            sort(&mut objects, &Path::parse(".x").unwrap(), |object| object);
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

    #[test]
    fn values_that_are_not_all_sizes_are_compared_as_text() {
        let names = ["9", "job-1", "70m", "10", "7b", "1e3", "a"];
        let mut expected = names;
        expected.sort_unstable();
        // If only some pairs were compared as sizes, the result would depend on the order before.
        for turn in 0..names.len() {
            let mut objects = names.map(|name| json!({"metadata": {"name": name}}));
            objects.rotate_left(turn);
            sort(&mut objects, &Path::parse(".metadata.name").unwrap(), |object| object);
            assert_eq!(objects.map(|object| object["metadata"]["name"].clone()), expected.map(Value::from));
        }
    }
}
