//! Python functions with a docstring, as prompts: the signature and the docstring are given, the body is to be written.

use serde::Serialize;

use super::{TokenFile, Vocabulary};
use crate::TrainError;
use crate::rng::Rng;

/// The shortest body, in bytes, that makes a function worth completing.
const MIN_BODY: usize = 64;

/// A prompt, as a line of the JSONL file that `foretoken bench decode` reads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionPrompt {
    /// The document's number in its token file, and the function's name.
    pub id: String,
    /// A name for the group.
    pub category: &'static str,
    /// The function's name; its presence says that the prompt is continued as it stands.
    pub entry_point: String,
    /// Signature and docstring, to the end of the docstring's last line.
    pub prompt: String,
    /// What follows the function's end in its document, as far as it is wanted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub then: String,
}

/// A function found in a text.
#[derive(Debug, PartialEq)]
struct Function<'a> {
    name: &'a str,
    prompt: &'a str,
    then: &'a str,
}

/// Up to `n` prompts of at most `max_bytes`, two of a document at most, the documents in an order drawn from the seed; with
/// up to `then` bytes of what follows the functions.
pub fn function_prompts(
    file: &TokenFile,
    vocabulary: &Vocabulary,
    n: usize,
    max_bytes: usize,
    then: usize,
    seed: u64,
) -> Result<Vec<FunctionPrompt>, TrainError> {
    let mut prompts = Vec::new();
    for document in Rng::new(seed, "prompts").permutation(file.n_documents()) {
        let range = file.document(document as usize);
        let (tokens, _) = file.window(range.start, range.len() - 1)?;
        let bytes = vocabulary.decode(&tokens);
        let Ok(text) = std::str::from_utf8(&bytes) else { continue };
        let fits = |function: &Function<'_>| function.prompt.len() <= max_bytes && function.prompt.is_ascii();
        for Function { name, prompt, then: rest } in functions(text).into_iter().filter(fits).take(2) {
            prompts.push(FunctionPrompt {
                id: format!("{document}/{name}"),
                category: "python",
                entry_point: name.to_owned(),
                prompt: prompt.to_owned(),
                then: rest[..rest.floor_char_boundary(then)].to_owned(),
            });
            if prompts.len() == n {
                return Ok(prompts);
            }
        }
    }
    Ok(prompts)
}

/// The functions with a docstring and a body of some length.
fn functions(text: &str) -> Vec<Function<'_>> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut starts = vec![0];
    starts.extend(lines.iter().scan(0, |end, line| {
        *end += line.len();
        Some(*end)
    }));
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix("def ") else { continue };
        let Some((name, _)) = rest.split_once('(') else { continue };
        let Some(signature) = signature(&lines[i..]) else { continue };
        let Some(docstring) = docstring(&lines[i + signature..]) else { continue };
        let body = i + signature + docstring;
        let indent = line.len() - line.trim_start().len();
        let inside = |line: &&&str| line.trim().is_empty() || line.len() - line.trim_start().len() > indent;
        let lines = lines[body..].iter().take_while(inside);
        let (len, n_lines) = lines.enumerate().fold((0, 0), |(len, n_lines), (i, line)| {
            (len + line.trim().len(), if line.trim().is_empty() { n_lines } else { i + 1 })
        });
        if len >= MIN_BODY {
            let (prompt, then) = (&text[starts[i]..starts[body]], &text[starts[body + n_lines]..]);
            found.push(Function { name, prompt, then });
        }
    }
    found
}

/// Lines of the signature that starts here: brackets closed, a colon at the end.
fn signature(lines: &[&str]) -> Option<usize> {
    let mut open = 0i32;
    for (i, line) in lines.iter().enumerate().take(12) {
        open +=
            line.chars().map(|c| i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'))).sum::<i32>();
        if open == 0 {
            return line.trim_end().ends_with(':').then_some(i + 1);
        }
    }
    None
}

/// Lines of the docstring that starts here.
fn docstring(lines: &[&str]) -> Option<usize> {
    let first = lines.first()?.trim().trim_start_matches('r');
    let quotes = ["\"\"\"", "'''"].into_iter().find(|quotes| first.starts_with(quotes))?;
    if first[3..].contains(quotes) {
        return first.ends_with(quotes).then_some(1);
    }
    let last = lines.iter().skip(1).take(40).position(|line| line.contains(quotes))? + 1;
    lines[last].trim_end().ends_with(quotes).then_some(last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::TokenWriter;

    const TEXT: &str = r#"
class A:
    def short(self):
        """Too short."""
        return 1

    def method(self, a: dict[str, int],
               b=(1, 2)):
        """Adds.

        Twice.
        """
        total = sum(a.values()) + sum(b)
        return total + total if self.twice else total

def none(x):
    return x * 1000000000000000000000000000000000000000000000000000000000000

def last(x):
    '''One line.'''
    return [value for value in x if value is not None and value != self.zero]
"#;

    #[test]
    fn functions_with_a_docstring_and_a_body() {
        let found = functions(TEXT);
        assert_eq!(found.iter().map(|function| function.name).collect::<Vec<_>>(), ["method", "last"]);
        let Function { prompt, then, .. } = found[0];
        assert!(prompt.starts_with("    def method(self") && prompt.ends_with("        Twice.\n        \"\"\"\n"));
        assert!(then.starts_with("\ndef none(x):\n"));
        assert_eq!(found[1].prompt, "def last(x):\n    '''One line.'''\n");
        assert_eq!(found[1].then, "");
    }

    #[test]
    fn prompts_come_from_the_documents_of_a_token_file() {
        let folder = crate::scratch::Scratch::new();
        let path = folder.path().join("a.tokens");
        let mut writer = TokenWriter::default();
        writer.push(b"def f():\n    pass\n");
        writer.push(TEXT.as_bytes());
        writer.write(&path).unwrap();
        let file = TokenFile::open(&path).unwrap();
        let prompts = function_prompts(&file, &Vocabulary::bytes(), 5, 200, 9, 1).unwrap();
        assert_eq!(prompts.iter().map(|p| p.then.as_str()).collect::<Vec<_>>(), ["\ndef none", ""]);
        assert_eq!(prompts.iter().map(|p| p.id.as_str()).collect::<Vec<_>>(), ["1/method", "1/last"]);
        assert_eq!(function_prompts(&file, &Vocabulary::bytes(), 5, 100, 0, 1).unwrap().len(), 1);
    }
}
