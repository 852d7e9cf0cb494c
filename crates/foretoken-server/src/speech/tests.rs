//! However a text is cut into pieces, what is told of it is the same.

use super::*;

fn form(calls: CallForm) -> Form {
    Form { calls: Some(calls), names: Arc::new(["f".to_owned(), "g".to_owned()]), thinks: true }
}

fn content(text: &str) -> Vec<Part> {
    vec![Part::Content(text.into())]
}

fn thought(text: &str) -> Vec<Part> {
    vec![Part::Thought(text.into())]
}

fn call(name: &str, arguments: &str) -> Vec<Part> {
    vec![Part::Call(name.into()), Part::Arguments(arguments.into())]
}

#[track_caller]
fn check(form: Form, start: Start, text: &str, expected: &[Vec<Part>]) {
    for size in 1..=text.len() {
        let mut speech = Speech::new(form.clone(), start);
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let at = (size..rest.len()).find(|&at| rest.is_char_boundary(at)).unwrap_or(rest.len());
            speech.push(&rest[..at], &mut parts);
            rest = &rest[at..];
        }
        speech.finish(&mut parts);
        assert_eq!(parts, expected.concat(), "in pieces of {size}");
    }
}

#[test]
fn plain_text_stays_as_it_is() {
    let text = " a < b <tool> é [TOOL <think\n";
    for calls in [CallForm::Tagged, CallForm::Bare, CallForm::Listed, CallForm::Marked] {
        check(form(calls), Start::Content, text, &[content(text)]);
    }
    let text = "<think>no</think><tool_call>{}</tool_call> \n";
    check(Form::default(), Start::Content, text, &[content(text)]);
}

#[test]
fn thoughts_end_at_their_tag() {
    let form = form(CallForm::Tagged);
    check(form.clone(), Start::Thought, "\nwell\n</think>\n\nyes ", &[thought("well"), content("yes ")]);
    check(form.clone(), Start::Content, "<think>\na < b\n</think>\n\nyes", &[thought("a < b"), content("yes")]);
    check(form, Start::Thought, "no end", &[thought("no end")]);
}

#[test]
fn tagged_calls_follow_each_other() {
    let text = "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": \"</tool_call>}\"}}\n</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>";
    let calls = [content("Let me see."), call("f", "{\"b\": 1, \"a\": \"</tool_call>}\"}"), call("g", "{}")];
    check(form(CallForm::Tagged), Start::Content, text, &calls);
    let text =
        "<think>f it is</think>\n<tool_call>{\"name\": \"x\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>\nDone.";
    check(
        form(CallForm::Tagged),
        Start::Content,
        text,
        &[thought("f it is"), call("x", "{\"a\": 1}"), content("Done.")],
    );
}

#[test]
fn bare_calls_are_the_whole_answer_and_name_a_function() {
    let form = form(CallForm::Bare);
    let text = "\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"a\": {\"b\": []}}}";
    check(form.clone(), Start::Content, text, &[call("f", "{\"a\": {\"b\": []}}")]);
    let text = "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"x\": 1}}";
    check(form.clone(), Start::Content, text, &[call("f", "{}"), call("g", "{\"x\": 1}")]);
    for text in [
        "{\"name\": \"h\", \"parameters\": {}}",
        "{\"city\": \"Paris\"} {\"name\": \"f\", \"parameters\": {}}",
        "<b> {\"name\": \"f\", \"parameters\": {}}",
        "Yes: {\"name\": \"f\", \"parameters\": {}}",
        "<|python_tag|>print(1)",
        "{\"name",
    ] {
        check(form.clone(), Start::Content, text, &[content(text)]);
    }
    let text = "<think>hm</think>{\"name\": \"f\", \"parameters\": {}}";
    check(form, Start::Content, text, &[thought("hm"), call("f", "{}")]);
}

#[test]
fn listed_and_marked_calls_come_after_their_mark() {
    let listed = "[{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}, \"id\": \"123456789\"}, {\"name\": \"g\", \"arguments\": {}}]";
    let calls = [call("f", "{\"a\": \"]\"}"), call("g", "{}")];
    check(form(CallForm::Listed), Start::Content, &format!("[TOOL_CALLS] {listed}"), &calls);
    check(form(CallForm::Listed), Start::Call, listed, &calls);
    let text = format!("Well. [TOOL_CALLS]{listed} That's it");
    check(form(CallForm::Listed), Start::Content, &text, &[content("Well."), calls.concat(), content("That's it")]);
    let text = "[TOOL_CALLS]f[ARGS]{\"a\": \"]\"}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}";
    check(form(CallForm::Marked), Start::Content, text, &calls);
}

#[test]
fn what_is_no_call_is_text() {
    let tagged = form(CallForm::Tagged);
    for text in ["<tool_call>{oops</tool_call> x", "a <tool_call>{\"name\": ", "a\n<tool_call> </tool_call>"] {
        check(tagged.clone(), Start::Content, text, &[content(text)]);
    }
    check(form(CallForm::Listed), Start::Content, "[TOOL_CALLS] none", &[content("[TOOL_CALLS] none")]);
    for text in ["[TOOL_CALLS] no one", "[TOOL_CALLS]f x {}"] {
        check(form(CallForm::Marked), Start::Content, text, &[content(text)]);
    }
}

#[test]
fn what_breaks_off_is_told_as_far_as_it_came() {
    let text = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"Par";
    check(form(CallForm::Tagged), Start::Content, text, &[call("f", "{\"a\": \"Par")]);
    let text = "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_";
    check(form(CallForm::Tagged), Start::Content, text, &[call("f", "{}")]);
}

#[test]
fn arguments_come_as_they_are_written() {
    let mut speech = Speech::new(form(CallForm::Tagged), Start::Content);
    let mut told = |piece: &str| {
        let mut parts = Vec::new();
        speech.push(piece, &mut parts);
        parts
    };
    assert_eq!(told("<tool_call>\n{\"name\": \"f\""), []);
    assert_eq!(told(", \"arguments\": {"), call("f", "{"));
    assert_eq!(told("\"a\": "), [Part::Arguments("\"a\": ".into())]);
    assert_eq!(told("1}}\n</tool"), [Part::Arguments("1}".into())]);
    assert_eq!(told("_call>"), []);
}
