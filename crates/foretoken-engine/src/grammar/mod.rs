//! Structured output: JSON schemas, regular expressions and Lark grammars, compiled for one vocabulary.
//!
//! `llguidance` does the matching. What it says of a text is a function of the text alone, so a grammar is one more
//! processor of the sampler, and drafts change nothing under it either.

mod matcher;
mod multiples;
mod place;
mod vocabulary;

use std::sync::Arc;

use foretoken_decode::constraint::Constraint;
use foretoken_formats::tokenizer::Tokenizer;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::error::EngineError;
use matcher::GrammarMatcher;
use vocabulary::Vocabulary;

/// What a text has to look like.
#[derive(Clone, Debug, PartialEq)]
pub enum Grammar {
    /// A JSON schema, as text. The JSON is on one line, with a space after each comma and colon; a schema whose
    /// `x-guidance` says `"whitespace_flexible": true` leaves white space to the model.
    JsonSchema(String),
    /// Any JSON object.
    JsonObject,
    /// The whole text matches a regular expression, in the syntax of Rust's `regex`.
    Regex(String),
    /// A Lark grammar, in llguidance's dialect.
    Lark(String),
}

/// Most bytes of a schema or grammar.
const MAX_BYTES: usize = 1 << 20;

/// Makes constraints for one vocabulary. Building one takes a fraction of a second for a large vocabulary.
pub(crate) struct Compiler {
    factory: ParserFactory,
    vocab_size: usize,
}

impl Compiler {
    /// For the vocabulary of a model.
    pub fn new(tokenizer: &Arc<Tokenizer>) -> Result<Self, EngineError> {
        let vocabulary = Vocabulary::new(tokenizer.clone())?;
        let mut factory = ParserFactory::new_simple(&vocabulary.into_env())
            .map_err(|error| failed("vocabulary", &error.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Self { factory, vocab_size: tokenizer.vocab_size() })
    }

    /// A constraint in its initial state, or what is wrong with the grammar and where.
    pub fn compile(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, EngineError> {
        let matcher = match grammar {
            Grammar::JsonSchema(text) => self.json_schema(&parse(text)?)?,
            Grammar::JsonObject => self.json_schema(&json!({ "type": "object" }))?,
            Grammar::Regex(regex) => {
                check_size("regular expression", regex)?;
                self.build(TopLevelGrammar::from_regex(regex)).map_err(|why| failed("regular expression", &why))?
            }
            Grammar::Lark(text) => {
                check_size("grammar", text)?;
                multiples::check_lark(text).map_err(|why| failed("grammar", &why))?;
                self.build(TopLevelGrammar::from_lark(text.clone())).map_err(|why| failed("grammar", &why))?
            }
        };
        Ok(Box::new(GrammarMatcher::new(matcher, self.vocab_size)))
    }

    fn json_schema(&self, schema: &Value) -> Result<Matcher, EngineError> {
        multiples::check(schema).map_err(|why| failed("JSON schema", &why))?;
        let build = |schema: &Value| self.build(TopLevelGrammar::from_json_schema(on_one_line(schema)));
        build(schema).map_err(|why| {
            let (place, why) = place::find(schema, why, &|part| build(part).err());
            failed("JSON schema", &format!("at {place}: {why}"))
        })
    }

    fn build(&self, grammar: TopLevelGrammar) -> Result<Matcher, String> {
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(error) => Err(error),
            None => Ok(matcher),
        }
    }
}

/// Bounds on time and memory: a grammar may come from a stranger. A mask takes at most some tens of milliseconds.
fn limits() -> ParserLimits {
    ParserLimits {
        max_lexer_states: 100_000,
        max_grammar_size: 250_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

fn parse(text: &str) -> Result<Value, EngineError> {
    check_size("JSON schema", text)?;
    serde_json::from_str(text).map_err(|error| failed("JSON schema", &format!("it is not JSON: {error}")))
}

fn check_size(what: &'static str, text: &str) -> Result<(), EngineError> {
    match text.len() {
        n if n > MAX_BYTES => Err(failed(what, &format!("it has {n} bytes, and at most {MAX_BYTES} are accepted"))),
        _ => Ok(()),
    }
}

/// The schema with our choice of white space, where it makes none of its own.
fn on_one_line(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Value::Object(fields) = &mut schema {
        fields
            .entry("x-guidance")
            .or_insert_with(|| json!({ "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": " }));
    }
    schema
}

fn failed(what: &'static str, why: &str) -> EngineError {
    EngineError::Grammar { what, why: in_words(why) }
}

/// `llguidance`'s words for an error, without its marks for those who want more of them.
fn in_words(error: &str) -> String {
    error.replace("<non-verbose/>", "").trim().to_owned()
}
