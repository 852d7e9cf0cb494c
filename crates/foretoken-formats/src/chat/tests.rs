//! Templates in small; the real ones are in `tests/chat_reference.rs`.

use super::*;

fn user(content: &str) -> [Message; 1] {
    [Message::new("user", content)]
}

#[track_caller]
fn check(source: &str, expected: &str) {
    let template = ChatTemplate::new(source, "<s>", "</s>").unwrap();
    assert_eq!(template.render_at(&user("hi"), true, Some(1_709_210_096)).unwrap(), expected);
}

#[track_caller]
fn fails(source: &str, parts: &[&str]) {
    let rendered = ChatTemplate::new(source, "", "").and_then(|template| template.render(&user("hi"), false));
    let message = rendered.unwrap_err().to_string();
    assert!(parts.iter().all(|part| message.contains(part)), "{message:?} should name {parts:?}");
}

#[test]
fn templates_see_what_they_expect() {
    check("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ add_generation_prompt }}", "<s>hi</s>True");
    check("{{ messages[0]['content'].strip().upper() }}", "HI");
    check("{%- if tools %}no{% endif %}{{ '<b>' }}", "<b>");
    check("{% for m in messages %}\n  {% if true %}\nx\n  {% endif %}\n{% endfor %}\n", "x\n");
}

#[test]
fn json_is_python_s() {
    check(
        r#"{{ {"b": [1, 2.5, none, true], "a": "é<\n"} | tojson }}"#,
        "{\"b\": [1, 2.5, null, true], \"a\": \"é<\\n\"}",
    );
    check("{{ {'a': [], 'b': [1]} | tojson(indent=2) }}", "{\n  \"a\": [],\n  \"b\": [\n    1\n  ]\n}");
    check(
        "{{ {'b': 1, 'a': 'é'} | tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}",
        "{\"a\":\"\\u00e9\",\"b\":1}",
    );
}

#[test]
fn the_date_is_handed_in() {
    check(
        "{{ strftime_now('%A %d %B %Y %H:%M:%S, %-m/%y %I%p %%') }}",
        "Thursday 29 February 2024 12:34:56, 2/24 12PM %",
    );
    fails("{{ strftime_now('%Y') }}", &["no date was given"]);
}

#[test]
fn failures_say_where_and_why() {
    fails("{% if %}", &["line 1", "syntax error"]);
    fails("a\n{{ raise_exception('roles must alternate') }}", &["refuses these messages: roles must alternate"]);
    fails("a\n\n{{ messages[0].content.nothing() }}", &["line 3"]);
    fails("{{ none.x.y }}", &["line 1"]);
    fails(&" ".repeat(MAX_TEMPLATE_BYTES + 1), &["65537"]);
}

#[test]
fn endless_and_swelling_templates_stop() {
    fails("{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}", &["too long"]);
    fails(
        "{% set ns = namespace(x='xxxxxxxx') %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        &["too long"],
    );
    fails("{{ 'x' * 999999999999 }}", &["line 1"]);
    fails("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", &["line 1"]);
    fails("{% for a in range(100) %}{{ 'x' * 100000 }}{% endfor %}", &["longer than"]);
}

#[test]
fn tags_are_measured_to_their_last_end() {
    for (source, expected) in [
        ("plain { } text", 0),
        ("{{ x }} and text {% y %}", 4),
        ("{{ {'a': {'b': 1}} + 1 }}", 22),
        ("{%- if x -%}", 9),
        ("{{ never ended", 12),
    ] {
        assert_eq!(longest_tag(source), expected, "{source}");
    }
}

#[test]
fn templates_see_tools_and_more_of_a_message() {
    let source = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% for m in messages %}[{{ m.role }}:{{ m.content }}\
{% for call in m.tool_calls %}{{ call.function.name }}({{ call.function.arguments | tojson }}){% endfor %}]{% endfor %}\
{{ 'thinking' if enable_thinking else 'quick' }}{{ messages | length }}";
    let template = ChatTemplate::new(source, "", "").unwrap();
    let call = serde_json::json!([{ "function": { "name": "f", "arguments": { "b": 1, "a": [] } } }]);
    let mut said = Message::new("assistant", "");
    said.more.insert("tool_calls".into(), call);
    let conversation = Conversation {
        messages: vec![Message::new("user", "hi"), said],
        tools: vec![serde_json::json!({ "name": "f" })],
        variables: serde_json::Map::from_iter([
            ("enable_thinking".to_owned(), true.into()),
            ("messages".to_owned(), "not the messages".into()),
        ]),
    };
    let rendered = template.render_conversation(&conversation, false, None).unwrap();
    assert_eq!(rendered, "{\"name\": \"f\"}[user:hi][assistant:f({\"b\": 1, \"a\": []})]thinking2");
    let plain = template.render(&user("hi"), false).unwrap();
    assert_eq!(plain, "[user:hi]quick1");
}
