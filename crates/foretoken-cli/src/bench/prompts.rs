//! Prompt files: one JSON object a line, with a category and a prompt or turns.

use std::collections::BTreeMap;
use std::path::Path;

use foretoken_engine::{Grammar, ModelFile, TokenId};
use foretoken_formats::chat::Message;
use foretoken_formats::tokenizer::Special;
use serde::Deserialize;

use crate::error::CliError;
use crate::prompt::read_text;

/// One prompt of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// Its name in reports.
    pub id: String,
    /// What kind it is of.
    pub category: String,
    /// The text.
    pub text: String,
    /// Whether the text is continued as it stands; otherwise it is a user's message.
    pub raw: bool,
    /// What the answer has to look like.
    pub schema: Option<Grammar>,
}

#[derive(Deserialize)]
struct Line {
    id: Option<String>,
    category: Option<String>,
    prompt: Option<String>,
    #[serde(default)]
    turns: Vec<String>,
    /// Functions to complete (the HumanEval set) have one.
    entry_point: Option<String>,
    /// A JSON schema.
    schema: Option<serde_json::Value>,
}

/// Reads a file.
pub fn read(path: &Path) -> Result<Vec<Prompt>, CliError> {
    let text = read_text(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let prompts: Vec<Prompt> = lines
        .map(|(index, line)| {
            parse(index + 1, line).map_err(|found| CliError::BadFile {
                path: path.into(),
                found: format!("line {}: {found}", index + 1),
                wanted:
                    r#"each line is an object such as {"category": "qa", "prompt": "Why?"}, or with "turns": ["Why?"]"#
                        .into(),
            })
        })
        .collect::<Result<_, _>>()?;
    match prompts.is_empty() {
        true => Err(CliError::BadFile {
            path: path.into(),
            found: "there are no prompts".into(),
            wanted: "give a file with one JSON object a line".into(),
        }),
        false => Ok(prompts),
    }
}

fn parse(number: usize, line: &str) -> Result<Prompt, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let text = line.prompt.or_else(|| line.turns.into_iter().next());
    Ok(Prompt {
        id: line.id.unwrap_or_else(|| format!("line {number}")),
        raw: line.entry_point.is_some() || line.category.as_deref() == Some("humaneval"),
        category: line.category.unwrap_or_else(|| "all prompts".into()),
        schema: line.schema.map(|schema| Grammar::JsonSchema(schema.to_string())),
        text: text.ok_or("there is neither a prompt nor a turn")?,
    })
}

/// At most `limit` prompts of each category, spread over the file; then in the file's order.
pub fn choose(prompts: Vec<Prompt>, category: Option<&str>, limit: Option<usize>) -> Vec<Prompt> {
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    for prompt in &prompts {
        *sizes.entry(prompt.category.clone()).or_default() += 1;
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut chosen = prompts;
    chosen.retain(|prompt| {
        let index = seen.entry(prompt.category.clone()).or_default();
        let (i, n) = (*index, sizes[&prompt.category]);
        *index += 1;
        let limit = limit.unwrap_or(n).min(n);
        // The i-th of n is taken when it is the first in one of `limit` equal parts.
        let part = |i: usize| i * limit / n;
        let is_first = i == 0 || part(i) != part(i - 1);
        category.is_none_or(|wanted| wanted == prompt.category) && limit > 0 && is_first
    });
    chosen
}

impl Prompt {
    /// Its tokens. Without a chat template every prompt is continued as it stands.
    pub fn encode(&self, file: &ModelFile) -> Result<Vec<TokenId>, CliError> {
        if self.raw || file.chat_template().is_none() {
            return Ok(file.encode(&self.text, Special::AsText)?);
        }
        Ok(file.encode_chat(&[Message::new("user", &self.text)], Special::AsText)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_prompts() {
        let parsed = parse(3, r#"{"category": "qa", "turns": ["Why?", "And then?"]}"#).unwrap();
        assert_eq!(
            parsed,
            Prompt { id: "line 3".into(), category: "qa".into(), text: "Why?".into(), raw: false, schema: None }
        );
        assert!(parse(1, r#"{"prompt": "def f():", "entry_point": "f"}"#).unwrap().raw);
        assert!(parse(1, r#"{"category": "qa"}"#).is_err());
    }

    #[test]
    fn a_limit_takes_as_many_of_each_category_and_spreads_them() {
        let prompt = |i: usize, category: &str| Prompt {
            id: i.to_string(),
            category: category.into(),
            text: String::new(),
            raw: false,
            schema: None,
        };
        let all: Vec<Prompt> = (0..20).map(|i| prompt(i, if i < 15 { "a" } else { "b" })).collect();
        for limit in 1..=15 {
            let chosen = choose(all.clone(), None, Some(limit));
            let of = |category: &str| chosen.iter().filter(|p| p.category == category).count();
            assert_eq!((of("a"), of("b")), (limit, limit.min(5)), "limit {limit}");
        }
        let ids: Vec<String> = choose(all.clone(), Some("a"), Some(3)).into_iter().map(|p| p.id).collect();
        assert_eq!(ids, ["0", "5", "10"]);
        assert_eq!(choose(all, None, None).len(), 20);
    }
}
