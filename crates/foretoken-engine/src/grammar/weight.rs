//! Bounds the work that a JSON schema is. `llguidance` follows references as deep as they go, on its stack, and multiplies
//! out what `allOf` and its like combine, without counting the cost. A stranger's schema would overflow the one and keep a
//! processor busy with the other, so both are estimated from above, before anything is built.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::repeats::Repeats;

/// Schemas, each once however often it is referred to. Time grows with their square, and with the stack's depth.
const MOST_SCHEMAS: usize = 1500;
/// Steps to combine schemas: about a second's work.
const MOST_STEPS: u64 = 10_000_000;
/// Patterns that one text has to match together. `llguidance` gives up at four or five, and its time doubles with each.
const MOST_PATTERNS: u64 = 8;
/// Patterns for the names of one object's properties: each pair is compared.
const MOST_NAME_PATTERNS: u64 = 50;
/// Bytes of all patterns together.
const MOST_PATTERN_BYTES: usize = 16 << 10;

/// Keywords that say nothing of a text, or are looked at only when something refers to them.
const SILENT: [&str; 15] = [
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "default",
    "definitions",
    "description",
    "examples",
    "id",
    "readOnly",
    "title",
    "writeOnly",
];
/// Keywords whose schemas are combined with what stands beside them.
const COMBINED: [&str; 6] = ["$ref", "allOf", "anyOf", "const", "enum", "oneOf"];
/// The types of a schema that names none.
const ALL_TYPES: u64 = 6;

/// Refuses schemas that are together too much work, with the reason.
pub(super) fn check(schemas: &[Value]) -> Result<(), String> {
    let mut total = Work::default();
    for schema in schemas {
        let mut scale = Scale::new(schema, total);
        scale.weigh(schema);
        total = scale.work;
    }
    total.judge()
}

/// What is counted of all schemas.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    schemas: usize,
    steps: u64,
    pattern_bytes: usize,
    repeats: Repeats,
    /// The most of all weights.
    patterns: u64,
    /// The most of all weights.
    name_patterns: u64,
}

impl Work {
    fn judge(&self) -> Result<(), String> {
        let bounds = [
            (self.schemas as u64, MOST_SCHEMAS as u64, "schemas inside each other, properties among them"),
            (self.pattern_bytes as u64, MOST_PATTERN_BYTES as u64, "bytes of patterns"),
            (self.patterns, MOST_PATTERNS, "patterns for the same text"),
            (self.name_patterns, MOST_NAME_PATTERNS, "patterns for the names of the same object"),
        ];
        match bounds.into_iter().find(|(n, most, _)| n > most) {
            // What is beyond the bound is not counted to its end.
            Some((_, most, what)) => Err(format!("it has more than {most} {what}")),
            None if self.steps > MOST_STEPS => {
                Err("it combines too many alternatives: say what is common to them once, or leave allOf away".into())
            }
            None => self.repeats.judge(),
        }
    }

    fn pattern(&mut self, pattern: &str) {
        self.pattern_bytes += pattern.len();
        self.repeats.regex(pattern);
    }
}

/// What a reference points to, as `llguidance` reads it.
fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    if reference == "#" {
        return Some(root);
    }
    let path = reference.strip_prefix("#/")?;
    path.split('/').filter(|_| !path.is_empty()).try_fold(root, |value, step| match value {
        Value::Array(list) => list.get(step.parse::<usize>().ok()?),
        value => value.get(step),
    })
}

/// How much a schema is once all is put together. From above, so that sums and products saturate.
#[derive(Clone, Copy, Debug)]
struct Weight {
    /// Schemas in it.
    size: u64,
    /// Alternatives, its own or those of a schema inside that another may have to be combined with.
    kinds: u64,
    /// Patterns for one text.
    patterns: u64,
    /// Patterns for names of one object.
    name_patterns: u64,
}

impl Weight {
    const ONE: Self = Self { size: 1, kinds: 1, patterns: 0, name_patterns: 0 };

    /// One of two.
    fn or(self, other: Self) -> Self {
        Self {
            size: self.size.saturating_add(other.size),
            kinds: self.kinds.saturating_add(other.kinds),
            patterns: self.patterns.max(other.patterns),
            name_patterns: self.name_patterns.max(other.name_patterns),
        }
    }

    /// Both at once.
    fn and(self, other: Self) -> Self {
        let (one, two) = (self.size.saturating_mul(other.kinds), other.size.saturating_mul(self.kinds));
        Self {
            size: one.saturating_add(two),
            kinds: self.kinds.saturating_mul(other.kinds),
            patterns: self.patterns.saturating_add(other.patterns),
            name_patterns: self.name_patterns.saturating_add(other.name_patterns),
        }
    }
}

struct Scale<'a> {
    root: &'a Value,
    /// Names of properties that stand in more than one place: these may have to be combined.
    shared: HashSet<&'a str>,
    /// What references weigh; a schema inside itself weighs little there, since it is built once.
    known: HashMap<&'a str, Weight>,
    work: Work,
}

impl<'a> Scale<'a> {
    fn new(root: &'a Value, work: Work) -> Self {
        let (mut seen, mut shared) = (HashSet::new(), HashSet::new());
        names(root, &mut |name| {
            if !seen.insert(name) {
                shared.insert(name);
            }
        });
        Self { root, shared, known: HashMap::new(), work }
    }

    fn weigh(&mut self, schema: &'a Value) -> Weight {
        self.work.schemas += 1;
        let Value::Object(fields) = schema else { return Weight::ONE };
        if self.work.schemas > MOST_SCHEMAS {
            return Weight::ONE;
        }
        let mut whole: Option<Weight> = None;
        let own = fields.keys().any(|key| !SILENT.contains(&key.as_str()) && !COMBINED.contains(&key.as_str()));
        if own {
            whole = Some(self.own(fields));
        }
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("allOf", Value::Array(parts)) => {
                    for part in parts {
                        let part = self.weigh(part);
                        self.add(&mut whole, part);
                    }
                }
                ("anyOf" | "oneOf", Value::Array(parts)) => {
                    let one = parts.iter().map(|part| self.weigh(part)).reduce(Weight::or).unwrap_or(Weight::ONE);
                    if key == "oneOf" {
                        // Each is compared with each.
                        self.work.steps = self.work.steps.saturating_add(one.kinds.saturating_mul(one.size));
                    }
                    self.add(&mut whole, one);
                }
                ("enum" | "const", value) => self.add(&mut whole, Weight { size: size(value), ..Weight::ONE }),
                ("$ref", Value::String(reference)) => {
                    let target = self.reference(reference);
                    self.add(&mut whole, target);
                }
                _ => {}
            }
        }
        let whole = whole.unwrap_or(Weight::ONE);
        self.work.patterns = self.work.patterns.max(whole.patterns);
        self.work.name_patterns = self.work.name_patterns.max(whole.name_patterns);
        whole
    }

    fn add(&mut self, whole: &mut Option<Weight>, part: Weight) {
        *whole = Some(match *whole {
            None => part,
            Some(before) => {
                self.work.steps = self.work.steps.saturating_add(before.size.saturating_mul(part.size));
                before.and(part)
            }
        });
    }

    fn reference(&mut self, reference: &'a str) -> Weight {
        if let Some(known) = self.known.get(reference) {
            return *known;
        }
        self.known.insert(reference, Weight::ONE);
        let weight = resolve(self.root, reference).map_or(Weight::ONE, |target| self.weigh(target));
        self.known.insert(reference, weight);
        weight
    }

    /// What a schema says itself, with the schemas inside.
    fn own(&mut self, fields: &'a serde_json::Map<String, Value>) -> Weight {
        // Each type is a schema of its own. They are no alternatives: those of one type are combined with the same of another.
        let types = match fields.get("type") {
            Some(Value::Array(types)) => types.len() as u64,
            Some(_) => 1,
            None => ALL_TYPES,
        };
        let is_text = |key: &str| u64::from(fields.get(key).is_some_and(Value::is_string));
        let patterns = is_text("pattern") + is_text("format");
        let mut own = Weight { size: types, patterns, ..Weight::ONE };
        for (key, value) in fields.iter().filter(|(key, _)| !COMBINED.contains(&key.as_str())) {
            match (key.as_str(), value) {
                ("pattern", Value::String(pattern)) => self.work.pattern(pattern),
                ("properties", Value::Object(named)) => {
                    for (name, part) in named {
                        let part = self.weigh(part);
                        let alone = Weight { size: part.size, ..Weight::ONE };
                        own = own.beside(if self.shared.contains(name.as_str()) { part } else { alone });
                    }
                }
                ("patternProperties", Value::Object(named)) => {
                    own.name_patterns = own.name_patterns.max(named.len() as u64);
                    for (name, part) in named {
                        self.work.pattern(name);
                        own = own.beside(self.weigh(part));
                    }
                }
                (key, _) if SILENT.contains(&key) => {}
                (_, part @ Value::Object(_)) => own = own.beside(self.weigh(part)),
                (_, Value::Array(parts)) => {
                    for part in parts.iter().filter(|part| part.is_object()) {
                        own = own.beside(self.weigh(part));
                    }
                }
                _ => {}
            }
        }
        own
    }
}

impl Weight {
    /// With a schema inside.
    fn beside(self, inner: Self) -> Self {
        let kinds = self.kinds.max(inner.kinds);
        Self { kinds, ..self.or(inner) }
    }
}

/// The names of all properties, one by one.
fn names<'a>(value: &'a Value, found: &mut impl FnMut(&'a str)) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Object(named)) = fields.get("properties") {
                named.keys().for_each(|name| found(name));
            }
            fields.values().for_each(|value| names(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

/// Values in a value, itself included.
pub(super) fn size(value: &Value) -> u64 {
    match value {
        Value::Object(fields) => 1 + fields.values().map(size).sum::<u64>(),
        Value::Array(values) => 1 + values.iter().map(size).sum::<u64>(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A schema of `n` definitions, each of which `link` makes of a reference to the next.
    fn chain(n: usize, link: impl Fn(Value) -> Value) -> Value {
        let next = |index: usize| json!({ "$ref": format!("#/$defs/{index}") });
        let mut definitions: serde_json::Map<_, _> =
            (0..n).map(|index| (index.to_string(), link(next(index + 1)))).collect();
        definitions.insert(n.to_string(), json!({ "type": "string" }));
        json!({ "$ref": "#/$defs/0", "$defs": definitions })
    }

    #[test]
    fn real_schemas_are_no_trouble() {
        let text = json!({ "type": ["string", "null"], "pattern": "^[a-z]+$" });
        let optional = json!({ "anyOf": [text, { "type": "null" }] });
        let many =
            |n: usize, what: &Value| -> Value { (0..n).map(|index| (format!("p{index}"), what.clone())).collect() };
        let base = |n: usize| json!({ "properties": { format!("base{n}"): optional, "id": { "type": "integer" } } });
        let expression = json!({ "anyOf": [{ "type": "number" }, {
            "type": "object", "properties": { "left": { "$ref": "#" }, "right": { "$ref": "#" } }, "required": ["left"],
        }] });
        for good in [
            json!(true),
            json!({ "type": "object", "properties": many(300, &optional) }),
            json!({ "enum": (0..10_000).map(|n| format!("word {n}")).collect::<Vec<_>>() }),
            json!({ "allOf": (0..12).map(base).collect::<Vec<_>>() }),
            json!({ "oneOf": (0..100).map(|n| json!({ "properties": { "kind": { "const": n } } })).collect::<Vec<_>>() }),
            json!({ "$ref": "#/$defs/a", "description": "x", "$defs": { "a": { "items": { "$ref": "#/$defs/a" } } } }),
            expression,
            chain(500, |next| json!({ "type": "object", "properties": { "next": next } })),
        ] {
            assert_eq!(check(std::slice::from_ref(&good)), Ok(()), "{:.200}", good.to_string());
        }
    }

    #[test]
    fn what_multiplies_is_refused() {
        let pattern = |n: usize| json!({ "type": "string", "pattern": format!(".*{n}.*") });
        let alternatives = |n: usize| {
            let one = |m: usize| json!({ "type": "object", "properties": { format!("p{n}_{m}"): true } });
            json!({ "anyOf": (0..20).map(one).collect::<Vec<_>>() })
        };
        let of_x = |n: usize| json!({ "properties": { "x": alternatives(n) } });
        let names = |n: usize| json!({ "patternProperties": { format!("^a{n}"): true, format!("^b{n}"): true } });
        let all = |part: &dyn Fn(usize) -> Value, n: usize| json!({ "allOf": (0..n).map(part).collect::<Vec<_>>() });
        let large: Value = (0..1000).map(|n| (format!("p{n}"), json!(true))).collect();
        for (bad, why) in [
            (all(&pattern, 12), "patterns for the same text"),
            (json!({ "properties": { "a": { "items": all(&pattern, 9) } } }), "patterns for the same text"),
            (all(&names, 30), "patterns for the names"),
            (all(&alternatives, 6), "alternatives"),
            (all(&of_x, 6), "alternatives"),
            (json!({ "properties": large, "enum": vec![1; 20_000] }), "alternatives"),
            (json!({ "oneOf": vec![json!({ "enum": vec![1; 100] }); 400] }), "alternatives"),
            (
                chain(60, |next| json!({ "type": "object", "properties": { "a": { "allOf": [next, next] } } })),
                "alternatives",
            ),
            (chain(1000, |next| json!({ "items": next })), "schemas"),
            (json!({ "pattern": "a*".repeat(2000) }), "repetitions"),
            (json!({ "pattern": "a".repeat(70_000) }), "bytes of patterns"),
        ] {
            let said = check(&[json!(true), bad.clone()]).expect_err(&format!("{:.200}", bad.to_string()));
            assert!(said.contains(why), "{said}: {:.200}", bad.to_string());
        }
    }
}
