//! JSON that is still being written: where a value ends, and what an object has said so far.

/// Finds the end of an object, a list or a string, whose text comes in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Nesting {
    /// Inside an object.
    pub fn in_object() -> Self {
        Self { depth: 1, ..Self::default() }
    }

    /// Reads on, and returns how many bytes belong to the value when it ends in them.
    pub fn take(&mut self, text: &str) -> Option<usize> {
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => continue,
            }
            if self.depth == 0 && !self.in_string {
                return Some(at + 1);
            }
        }
        None
    }
}

/// The bytes of the value that a text begins with; `None` when its end has not come.
fn value_len(text: &str) -> Option<usize> {
    match text.as_bytes().first()? {
        b'{' | b'[' | b'"' => Nesting::default().take(text),
        _ => text.find([',', '}', ']', ' ', '\n']),
    }
}

/// What the object that names a function and its arguments has said so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// Not enough to tell.
    Unclear,
    /// It names no function.
    No,
    /// Its arguments begin at a byte.
    Open(String, usize),
    /// It has ended at a byte, and these were the arguments.
    Whole(String, String, usize),
}

/// Reads such an object, which has to begin at once.
pub(super) fn named(text: &str) -> Named {
    let (mut name, mut arguments) = (None, None);
    let mut at = 0;
    let skip = |at: usize| at + text[at..].len() - text[at..].trim_start().len();
    if text.is_empty() {
        return Named::Unclear;
    }
    loop {
        let first = at == 0;
        match text.as_bytes().get(at) {
            None => return Named::Unclear,
            Some(b'{') if first => {}
            Some(b',') if !first => {}
            Some(b'}') if !first => {
                let whole = |name| Named::Whole(name, arguments.unwrap_or_else(|| "{}".to_owned()), at + 1);
                return name.map_or(Named::No, whole);
            }
            Some(_) => return Named::No,
        }
        at = skip(at + 1);
        match text.as_bytes().get(at) {
            None => return Named::Unclear,
            Some(b'"') => {}
            // An empty object, or a comma before the end.
            Some(b'}') => continue,
            Some(_) => return Named::No,
        }
        let Some(len) = value_len(&text[at..]) else { return Named::Unclear };
        let Ok(key) = serde_json::from_str::<String>(&text[at..at + len]) else { return Named::No };
        at = skip(at + len);
        match text.as_bytes().get(at) {
            None => return Named::Unclear,
            Some(b':') => at = skip(at + 1),
            Some(_) => return Named::No,
        }
        let holds_arguments = matches!(key.as_str(), "arguments" | "parameters");
        if !holds_arguments && !matches!(key.as_str(), "name" | "type" | "id") {
            return Named::No;
        }
        match (&name, text.as_bytes().get(at)) {
            (_, None) => return Named::Unclear,
            (Some(_), Some(b'{')) if holds_arguments => return Named::Open(name.unwrap_or_default(), at),
            _ => {}
        }
        let Some(len) = value_len(&text[at..]) else { return Named::Unclear };
        let value = &text[at..at + len];
        match key.as_str() {
            "name" => match serde_json::from_str(value) {
                Ok(text) => name = Some(text),
                Err(_) => return Named::No,
            },
            _ if holds_arguments => match as_arguments(value) {
                Some(text) => arguments = Some(text),
                None => return Named::No,
            },
            _ => {}
        }
        at = skip(at + len);
    }
}

/// Arguments are an object; some models write it into a string, or nothing.
fn as_arguments(value: &str) -> Option<String> {
    match value.as_bytes()[0] {
        b'{' => Some(value.to_owned()),
        b'"' => serde_json::from_str(value).ok(),
        b'n' => Some("{}".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_where_its_brackets_close() {
        for (text, len) in [
            ("{\"a\": [1, \"}\\\"\"]} x", Some(17)),
            ("\"a\\\\\" x", Some(5)),
            ("[[]", None),
            ("{\"", None),
            ("1, 2", Some(1)),
            ("true", None),
        ] {
            assert_eq!(value_len(text), len, "{text}");
        }
    }

    #[test]
    fn a_function_is_named_before_or_after_its_arguments() {
        let whole = |arguments: &str, at| Named::Whole("f".into(), arguments.into(), at);
        for (text, expected) in [
            ("{\"name\": \"f\", \"arguments\": {\"a", Named::Open("f".into(), 27)),
            ("{\"type\": \"function\", \"name\": \"f\", \"parameters\": {", Named::Open("f".into(), 48)),
            ("{\"arguments\": {\"a\": 1}, \"name\": \"f\"}x", whole("{\"a\": 1}", 36)),
            ("{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}", whole("{\"a\": 1}", 37)),
            ("{\"name\":\"f\",\"arguments\":null}", whole("{}", 29)),
            ("{\"name\":\"f\"}", whole("{}", 12)),
            ("{\"na", Named::Unclear),
            ("{\"name\": \"f\", \"arg", Named::Unclear),
            ("", Named::Unclear),
            ("{}", Named::No),
            ("{\"city\": \"P", Named::No),
            ("{\"name\": 7}", Named::No),
            ("{oops", Named::No),
            ("[]", Named::No),
        ] {
            assert_eq!(named(text), expected, "{text}");
        }
    }
}
