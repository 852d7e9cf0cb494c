//! Where in a JSON schema the fault is: the smallest part that is refused alone.

use serde_json::Value;

use super::weight::size;

/// Keywords that hold a schema, a list of schemas or schemas by name.
const ONE: &[&str] = &["items", "additionalProperties", "not", "contains", "additionalItems", "propertyNames"];
const LISTS: &[&str] = &["anyOf", "oneOf", "allOf", "prefixItems", "items"];
const NAMED: &[&str] = &["properties", "patternProperties", "$defs", "definitions"];
/// What references may point to.
const SHARED: &[&str] = &["$defs", "definitions", "$schema", "x-guidance"];

/// Values in all parts that are tried, and for each try: the place of a fault in a large schema may be told less closely.
const MOST_TRIED: u64 = 20_000;
const FOR_EACH_TRY: u64 = 200;

/// The place of the fault as a JSON pointer from `#`, and what is said of it. `fault` says why a schema is refused.
pub(super) fn find(schema: &Value, why: String, fault: &dyn Fn(&Value) -> Option<String>) -> (String, String) {
    let (mut place, mut why, mut here) = ("#".to_owned(), why, schema);
    let mut tried = 0;
    let mut fault_of = |part: &Value| {
        if tried > MOST_TRIED {
            return None;
        }
        let part = with_shared(part, schema);
        tried += size(&part) + FOR_EACH_TRY;
        fault(&part)
    };
    while let Some((step, part, because)) = parts(here).into_iter().find_map(|(step, part)| {
        let because = fault_of(part)?;
        Some((step, part, because))
    }) {
        place.push_str(&step);
        (here, why) = (part, because);
    }
    (place, why)
}

/// The schemas directly inside, with the way to each.
fn parts(schema: &Value) -> Vec<(String, &Value)> {
    let Value::Object(fields) = schema else { return Vec::new() };
    let mut parts = Vec::new();
    for (key, value) in fields {
        let key = key.as_str();
        match value {
            Value::Object(_) if ONE.contains(&key) => parts.push((format!("/{key}"), value)),
            Value::Array(list) if LISTS.contains(&key) => {
                parts.extend(list.iter().enumerate().map(|(index, part)| (format!("/{key}/{index}"), part)));
            }
            Value::Object(named) if NAMED.contains(&key) => {
                parts.extend(named.iter().map(|(name, part)| (format!("/{key}/{name}"), part)));
            }
            _ => {}
        }
    }
    parts
}

/// A part with what its references need.
fn with_shared(part: &Value, whole: &Value) -> Value {
    let mut part = part.clone();
    if let (Value::Object(fields), Value::Object(whole)) = (&mut part, whole) {
        for &key in SHARED {
            if let Some(value) = whole.get(key) {
                fields.entry(key).or_insert_with(|| value.clone());
            }
        }
    }
    part
}
