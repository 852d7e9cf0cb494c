//! Calls of tools in the forms that models write them, told while they are written: the name as soon as it is certain, then
//! the arguments as they come.

use super::Part;
use super::json::{self, Named, Nesting};

/// How a model writes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// `<tool_call>{"name": ..., "arguments": ...}</tool_call>`, as Hermes and Qwen models do.
    Tagged,
    /// `{"name": ..., "parameters": ...}` and nothing before it but perhaps `<|python_tag|>`, as Llama 3 does.
    Bare,
    /// `[TOOL_CALLS][{"name": ..., "arguments": ...}, ...]`, as Mistral's models do.
    Listed,
    /// `[TOOL_CALLS]name[ARGS]{...}`, as Mistral's newer models do.
    Marked,
}

const TAG: (&str, &str) = ("<tool_call>", "</tool_call>");
/// What Llama 3 may put before a call.
pub(super) const PYTHON: &str = "<|python_tag|>";
const LIST: &str = "[TOOL_CALLS]";
const ARGUMENTS: &str = "[ARGS]";

impl CallForm {
    /// The form that a chat template shows its model; `None` when it shows none, or one that is not known here.
    pub fn of_template(source: &str) -> Option<Self> {
        let has = |text: &str| source.contains(text);
        // Others put arguments between tags of their own.
        let is_json = !has("<function=") && !has("<arg_key>");
        match () {
            () if !has("tools") => None,
            () if has(TAG.0) => is_json.then_some(Self::Tagged),
            () if has(LIST) && has(ARGUMENTS) => Some(Self::Marked),
            () if has(LIST) => Some(Self::Listed),
            () if has(PYTHON) || has("\"parameters\": dictionary") => Some(Self::Bare),
            () => None,
        }
    }

    /// What begins a call in the midst of a text.
    pub fn opening(self) -> Option<&'static str> {
        match self {
            Self::Tagged => Some(TAG.0),
            Self::Bare => None,
            Self::Listed | Self::Marked => Some(LIST),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Before the name is certain.
    Name,
    /// In the arguments; whether an object is around them.
    Arguments(Nesting, bool),
    /// In the object, after the arguments.
    Rest(Nesting),
    /// After a call.
    After,
}

/// Reads calls that follow each other.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    form: CallForm,
    stage: Stage,
    /// What has been taken for the beginning of a call.
    opening: String,
}

/// What came of looking at the text that is held.
pub(super) enum Looked {
    /// It is not enough.
    Unclear,
    /// A part of it was understood.
    Read,
    /// The calls are over before it.
    Over,
    /// It is no call, and this was taken for the beginning of one.
    NoCall(String),
}

impl Calls {
    /// After `opening`.
    pub fn new(form: CallForm, opening: String) -> Self {
        Self { form, stage: Stage::Name, opening }
    }

    /// Looks at what is held, takes out what it understands, and tells it. `names`: the functions that there are.
    pub fn look(&mut self, held: &mut String, names: &[String], parts: &mut Vec<Part>) -> Looked {
        match &mut self.stage {
            Stage::Name => self.name(held, names, parts),
            Stage::Arguments(nesting, in_object) => {
                let end = nesting.take(held);
                let after = if *in_object { Stage::Rest(Nesting::in_object()) } else { Stage::After };
                let text: String = held.drain(..end.unwrap_or(held.len())).collect();
                tell(text, parts);
                end.map_or(Looked::Unclear, |_| self.go(after))
            }
            Stage::Rest(nesting) => match nesting.take(held) {
                Some(end) => {
                    held.drain(..end);
                    self.go(Stage::After)
                }
                None => {
                    held.clear();
                    Looked::Unclear
                }
            },
            Stage::After => self.after(held),
        }
    }

    /// What was taken for the beginning of a call, if there is nothing more to come.
    pub fn unclear(&self) -> Option<&str> {
        matches!(self.stage, Stage::Name).then_some(self.opening.as_str())
    }

    fn go(&mut self, stage: Stage) -> Looked {
        self.stage = stage;
        Looked::Read
    }

    fn name(&mut self, held: &mut String, names: &[String], parts: &mut Vec<Part>) -> Looked {
        let mut start = skip(held, 0);
        if self.form == CallForm::Bare {
            match begins(&held[start..], PYTHON) {
                Begins::Perhaps => return Looked::Unclear,
                Begins::Yes => start = skip(held, start + PYTHON.len()),
                Begins::No => {}
            }
        }
        if self.form == CallForm::Listed && held[start..].starts_with('[') {
            start = skip(held, start + 1);
        }
        let found = match self.form {
            CallForm::Marked => marked(&held[start..]),
            _ => json::named(&held[start..]),
        };
        // Without a tag around it, only a function's name tells a call from other JSON.
        let is_known = |name: &String| self.form != CallForm::Bare || names.contains(name);
        match found {
            Named::Unclear => Looked::Unclear,
            Named::Open(name, at) if is_known(&name) => {
                held.drain(..start + at);
                parts.push(Part::Call(name));
                self.go(Stage::Arguments(Nesting::default(), self.form != CallForm::Marked))
            }
            Named::Whole(name, arguments, end) if is_known(&name) => {
                held.drain(..start + end);
                parts.push(Part::Call(name));
                tell(arguments, parts);
                self.go(Stage::After)
            }
            _ => Looked::NoCall(std::mem::take(&mut self.opening)),
        }
    }

    fn after(&mut self, held: &mut String) -> Looked {
        let start = skip(held, 0);
        let rest = &held[start..];
        if rest.is_empty() {
            return Looked::Unclear;
        }
        let (mark, then) = match (self.form, rest.as_bytes()[0]) {
            (CallForm::Tagged, _) => (TAG.1, None),
            (CallForm::Bare, b';') => (";", Some(Stage::Name)),
            (CallForm::Bare, b'{') => ("", Some(Stage::Name)),
            (CallForm::Bare, _) => return Looked::Over,
            (CallForm::Listed, b',') => (",", Some(Stage::Name)),
            (CallForm::Listed, b']') => ("]", None),
            (CallForm::Listed | CallForm::Marked, _) => (LIST, Some(Stage::Name)),
        };
        match begins(rest, mark) {
            Begins::Perhaps => return Looked::Unclear,
            Begins::No => return Looked::Over,
            Begins::Yes => {}
        }
        self.opening = held.drain(..start + mark.len()).collect();
        match then {
            Some(stage) => self.go(stage),
            None => Looked::Over,
        }
    }
}

/// `name[ARGS]{`, perhaps with an id in between, or nothing.
fn marked(text: &str) -> Named {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let Some(len) = text.find(|c| !is_name(c)) else { return Named::Unclear };
    if len == 0 {
        return Named::No;
    }
    let Some(at) = text[len..].find('{') else {
        return if text[len..].len() > 64 { Named::No } else { Named::Unclear };
    };
    let between = text[len..len + at].trim();
    let is_mark = between.is_empty() || (between.starts_with('[') && between.ends_with(ARGUMENTS));
    if is_mark { Named::Open(text[..len].to_owned(), len + at) } else { Named::No }
}

fn tell(text: String, parts: &mut Vec<Part>) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Arguments(last)) => last.push_str(&text),
        _ => parts.push(Part::Arguments(text)),
    }
}

/// The first byte from `at` on that is no white space.
fn skip(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_start().len()
}

enum Begins {
    Yes,
    No,
    Perhaps,
}

/// Whether a text, of which this is the beginning, begins with a mark.
fn begins(text: &str, mark: &str) -> Begins {
    match () {
        () if text.starts_with(mark) => Begins::Yes,
        () if mark.starts_with(text) => Begins::Perhaps,
        () => Begins::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_tell_the_form() {
        let of = CallForm::of_template;
        assert_eq!(of("{% if tools %}{\"name\": <function-name>}\n<tool_call>"), Some(CallForm::Tagged));
        assert_eq!(of("{% if tools %}<tool_call>\n<function=example>"), None);
        assert_eq!(of("{{ tools }} {\"name\": function name, \"parameters\": dictionary of"), Some(CallForm::Bare));
        assert_eq!(of("[AVAILABLE_TOOLS]{{ tools }}[TOOL_CALLS]"), Some(CallForm::Listed));
        assert_eq!(of("{{ tools }}[TOOL_CALLS]{{ name }}[ARGS]"), Some(CallForm::Marked));
        assert_eq!(of("<tool_call>"), None);
        assert_eq!(of("{{ messages }}"), None);
    }
}
