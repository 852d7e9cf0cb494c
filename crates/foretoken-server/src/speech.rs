//! Tells apart what a model thinks, says and calls, while it writes. A tag may come in any number of pieces.

use serde_json::Value;

const TAGS: [(&str, &str); 2] = [("<think>", "</think>"), ("<tool_call>", "</tool_call>")];
const THINK: usize = 0;
const CALL: usize = 1;

/// What is told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// `<tool_call>` begins a call.
    pub calls_tools: bool,
    /// `<think>` begins a thought.
    pub thinks: bool,
}

/// A part of what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Said to the reader.
    Content(String),
    /// Thought before.
    Thought(String),
    /// A call: the function's name and its arguments as JSON.
    Call {
        /// The function's name.
        name: String,
        /// Its arguments as JSON.
        arguments: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Content,
    Thought,
    Call,
}

/// Reads a text piece by piece.
#[derive(Clone, Debug)]
pub struct Speech {
    form: Form,
    inside: Inside,
    /// Not told yet: perhaps the beginning of a tag, or a call up to now.
    held: String,
    /// Nothing but white space was said, thought or called since a tag: it is left out.
    fresh: bool,
    /// Calls so far.
    n_calls: usize,
}

impl Speech {
    /// A reader at the beginning of an answer; `thinking`: the prompt has ended with `<think>`.
    pub fn new(form: Form, thinking: bool) -> Self {
        let inside = if thinking { Inside::Thought } else { Inside::Content };
        Self { form, inside, held: String::new(), fresh: thinking, n_calls: 0 }
    }

    /// Calls told so far.
    pub fn n_calls(&self) -> usize {
        self.n_calls
    }

    /// Takes the next piece and tells what is certain.
    pub fn push(&mut self, piece: &str, parts: &mut Vec<Part>) {
        self.held.push_str(piece);
        while let Some((at, len, next)) = self.next_tag() {
            let before = self.held[..at].to_owned();
            let tag = self.held[at..at + len].to_owned();
            self.held.drain(..at + len);
            self.fresh = match self.inside {
                Inside::Call => self.call(&before, &tag, parts),
                Inside::Content | Inside::Thought => {
                    self.tell(before.trim_end(), parts);
                    true
                }
            };
            self.inside = next;
        }
        if self.inside != Inside::Call {
            let sure = self.held.len() - self.may_begin_tag();
            let text: String = self.held.drain(..sure).collect();
            self.tell(&text, parts);
        }
    }

    /// Tells what is left at the end. A call that was not closed is text.
    pub fn finish(&mut self, parts: &mut Vec<Part>) {
        let rest = std::mem::take(&mut self.held);
        if self.inside == Inside::Call {
            self.inside = Inside::Content;
            self.tell(&format!("{}{rest}", TAGS[CALL].0), parts);
        } else {
            self.tell(&rest, parts);
        }
    }

    /// The tags that mean something here, and what comes after each.
    fn tags(&self) -> impl Iterator<Item = (&'static str, Inside)> + use<> {
        let (form, inside) = (self.form, self.inside);
        let all = [
            (TAGS[THINK].0, Inside::Thought, inside == Inside::Content && form.thinks),
            (TAGS[THINK].1, Inside::Content, inside == Inside::Thought),
            (TAGS[CALL].0, Inside::Call, inside == Inside::Content && form.calls_tools),
            (TAGS[CALL].1, Inside::Content, inside == Inside::Call),
        ];
        all.into_iter().filter(|(_, _, here)| *here).map(|(tag, next, _)| (tag, next))
    }

    /// Where the first tag in what is held begins, its length, and what comes after it.
    fn next_tag(&self) -> Option<(usize, usize, Inside)> {
        let found = self.tags().filter_map(|(tag, next)| Some((self.held.find(tag)?, tag.len(), next)));
        found.min_by_key(|(at, _, _)| *at)
    }

    /// Bytes at the end of what is held that may be the beginning of a tag, or white space that a tag would swallow.
    fn may_begin_tag(&self) -> usize {
        let begins = |tag: &str| (1..tag.len()).rev().find(|&n| self.held.ends_with(&tag[..n])).unwrap_or(0);
        let tag = self.tags().map(|(tag, _)| begins(tag)).max().unwrap_or(0);
        let before = &self.held[..self.held.len() - tag];
        let swallows = self.inside == Inside::Thought || self.form.calls_tools;
        let white = if swallows { before.len() - before.trim_end().len() } else { 0 };
        tag + white
    }

    fn tell(&mut self, text: &str, parts: &mut Vec<Part>) {
        let text = if self.fresh { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        self.fresh = false;
        match (self.inside, parts.last_mut()) {
            (Inside::Thought, Some(Part::Thought(last))) | (Inside::Content, Some(Part::Content(last))) => {
                last.push_str(text)
            }
            (Inside::Thought, _) => parts.push(Part::Thought(text.to_owned())),
            _ => parts.push(Part::Content(text.to_owned())),
        }
    }

    /// A closed call, and whether it is one. What is none is told as it was written.
    fn call(&mut self, text: &str, closing: &str, parts: &mut Vec<Part>) -> bool {
        let call = parse_call(text);
        match call {
            Some(call) => {
                self.n_calls += 1;
                parts.push(call);
                true
            }
            None => {
                self.inside = Inside::Content;
                self.fresh = false;
                self.tell(&format!("{}{text}{closing}", TAGS[CALL].0), parts);
                false
            }
        }
    }
}

fn parse_call(text: &str) -> Option<Part> {
    let value: Value = serde_json::from_str(text.trim()).ok()?;
    let name = value.get("name")?.as_str()?.to_owned();
    let arguments = match value.get("arguments").or_else(|| value.get("parameters")) {
        None => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    Some(Part::Call { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Form = Form { calls_tools: true, thinks: true };

    fn content(text: &str) -> Part {
        Part::Content(text.into())
    }

    fn thought(text: &str) -> Part {
        Part::Thought(text.into())
    }

    fn call(name: &str, arguments: &str) -> Part {
        Part::Call { name: name.into(), arguments: arguments.into() }
    }

    /// However the text is cut into pieces, the parts are the same.
    #[track_caller]
    fn check(form: Form, thinking: bool, text: &str, expected: &[Part]) {
        for size in 1..=text.len() {
            let mut speech = Speech::new(form, thinking);
            let mut parts = Vec::new();
            let mut rest = text;
            while !rest.is_empty() {
                let at = (size..rest.len()).find(|&at| rest.is_char_boundary(at)).unwrap_or(rest.len());
                speech.push(&rest[..at], &mut parts);
                rest = &rest[at..];
            }
            speech.finish(&mut parts);
            assert_eq!(parts, expected, "in pieces of {size}");
            assert_eq!(speech.n_calls(), expected.iter().filter(|part| matches!(part, Part::Call { .. })).count());
        }
    }

    #[test]
    fn plain_text_stays_as_it_is() {
        check(ALL, false, " a < b <tool> é <think\n", &[content(" a < b <tool> é <think\n")]);
        let text = "<think>no</think><tool_call>{}</tool_call>";
        check(Form::default(), false, text, &[content(text)]);
    }

    #[test]
    fn thoughts_end_at_their_tag() {
        check(ALL, true, "\nwell\n</think>\n\nyes ", &[thought("well"), content("yes ")]);
        check(ALL, false, "<think>\na < b\n</think>\n\nyes", &[thought("a < b"), content("yes")]);
        check(ALL, true, "no end", &[thought("no end")]);
    }

    #[test]
    fn calls_come_whole_and_several_after_each_other() {
        let text = "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": \"</x>\"}}\n</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>";
        check(ALL, false, text, &[content("Let me see."), call("f", "{\"b\":1,\"a\":\"</x>\"}"), call("g", "{}")]);
    }

    #[test]
    fn what_is_no_call_is_text() {
        let text = "<tool_call>{oops</tool_call> x";
        check(ALL, false, text, &[content(text)]);
        check(ALL, false, "a <tool_call>{\"name\": ", &[content("a<tool_call>{\"name\": ")]);
    }
}
