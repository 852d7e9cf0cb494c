//! Bounds `multipleOf`: whether a number is a multiple of n is found out by an automaton with n states, which `llguidance`
//! builds without counting the steps. A stranger's schema would keep a processor busy for minutes.

use serde_json::{Number, Value};

/// States at most: a second's work.
const MOST: u128 = 100_000;
/// Most digits after the decimal point.
const MOST_DIGITS: u32 = 9;
/// With any of these the multiples of several places may have to be kept at once.
const COMBINING: [&str; 6] = ["allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if"];

/// Refuses schemas, of which one text may have to fit all, whose multiples are too large, with the reason.
pub(super) fn check(schemas: &[Value]) -> Result<(), String> {
    let mut found = Found::default();
    schemas.iter().for_each(|schema| found.read(schema));
    found.judge()
}

#[derive(Default)]
struct Found {
    multiples: Vec<Number>,
    combined: bool,
}

impl Found {
    fn read(&mut self, schema: &Value) {
        match schema {
            Value::Object(fields) => {
                self.combined |= COMBINING.iter().any(|word| fields.contains_key(*word));
                if let Some(Value::Number(number)) = fields.get("multipleOf") {
                    self.multiples.push(number.clone());
                }
                fields.values().for_each(|value| self.read(value));
            }
            Value::Array(values) => values.iter().for_each(|value| self.read(value)),
            _ => {}
        }
    }

    fn judge(&self) -> Result<(), String> {
        let mut all: (u128, u32) = (1, 0);
        for number in &self.multiples {
            let one = decimal(number).filter(|&(digits, places)| digits <= MOST && places <= MOST_DIGITS);
            let Some(one) = one else {
                return Err(format!("multipleOf {number} has too many digits: at most {MOST} can be kept"));
            };
            all = common(all, one);
            if self.combined && all.0 > MOST {
                let n = all.0;
                return Err(format!("its multipleOf may have to be kept together, as {n}; at most {MOST} can be"));
            }
        }
        Ok(())
    }
}

/// A number's digits and how many of them stand after the decimal point; nothing when they are too many to count.
fn decimal(number: &Number) -> Option<(u128, u32)> {
    let text = number.to_string();
    let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits: u128 = format!("{}{fraction}", whole.trim_start_matches('-')).parse().ok()?;
    let places = i64::try_from(fraction.len()).ok()? - exponent.parse::<i64>().ok()?;
    match u32::try_from(places) {
        Ok(places) => Some((digits, places)),
        Err(_) => Some((digits.checked_mul(10_u128.checked_pow(u32::try_from(-places).ok()?)?)?, 0)),
    }
}

/// The least common multiple, as digits and places; as large as can be when it cannot be counted.
fn common((a, a_places): (u128, u32), (b, b_places): (u128, u32)) -> (u128, u32) {
    let places = a_places.max(b_places);
    let scaled = |digits: u128, own: u32| digits.saturating_mul(10_u128.saturating_pow(places - own));
    let (a, b) = (scaled(a, a_places), scaled(b, b_places));
    if a == 0 || b == 0 {
        return (a.max(b), places);
    }
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a.saturating_mul(b / x), places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn large_multiples_are_refused_wherever_they_hide() {
        for good in [
            json!({ "multipleOf": 86400 }),
            json!({ "properties": { "a": { "multipleOf": 0.01 }, "b": { "multipleOf": 3600 }, "c": { "multipleOf": 77 } } }),
            json!({ "multipleOf": 1e3, "properties": { "multipleOf": { "type": "string" } } }),
            json!({ "allOf": [{ "multipleOf": 60 }, { "multipleOf": 90.0 }] }),
        ] {
            assert_eq!(check(std::slice::from_ref(&good)), Ok(()), "{good}");
        }
        for bad in [
            json!({ "multipleOf": 12345678 }),
            json!({ "multipleOf": 1e30 }),
            json!({ "multipleOf": 1e-12 }),
            json!({ "items": [{ "not": { "multipleOf": 999_983 } }] }),
            json!({ "allOf": [{ "multipleOf": 9973 }, { "multipleOf": 9967 }] }),
            json!({ "$ref": "#/$defs/a", "multipleOf": 9973, "$defs": { "a": { "multipleOf": 0.9967 } } }),
        ] {
            assert!(check(&[json!(true), bad.clone()]).is_err(), "{bad}");
        }
    }
}
