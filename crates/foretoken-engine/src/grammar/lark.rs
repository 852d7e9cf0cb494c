//! The JSON schemas in a Lark grammar, which are bounded as others are.

use serde_json::{Deserializer, Value};

/// The schemas after every `%json`, and the grammar without them. What is no JSON is refused where the grammar is read.
pub(super) fn parts(grammar: &str) -> (Vec<Value>, String) {
    let (mut found, mut rest, mut end) = (Vec::new(), String::new(), 0);
    for (at, word) in grammar.match_indices("%json") {
        let begins = at + word.len();
        let mut values = Deserializer::from_str(&grammar[begins..]).into_iter::<Value>();
        let Some(Ok(schema)) = values.next() else { continue };
        found.push(schema);
        // The word may stand in a text inside a schema.
        if begins >= end {
            rest.push_str(&grammar[end..begins]);
            end = begins + values.byte_offset();
        }
    }
    rest.push_str(&grammar[end..]);
    (found, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas_are_found_wherever_they_stand() {
        let text = "start: a %json {\"type\": \"null\"} b\na: %json\n true\nb: %lark {\nstart: %json {\"multiple\\u004ff\": 7}\n}";
        let (found, rest) = parts(text);
        assert_eq!(found, [json!({ "type": "null" }), json!(true), json!({ "multipleOf": 7 })]);
        assert_eq!(rest, "start: a %json b\na: %json\nb: %lark {\nstart: %json\n}");
        let inside = r#"start: %json {"const": "%json {}"} b"#;
        assert_eq!(parts(inside), (vec![json!({ "const": "%json {}" }), json!({})], "start: %json b".into()));
        assert_eq!(parts("start: %json { \nx"), (vec![], "start: %json { \nx".into()));
    }
}
