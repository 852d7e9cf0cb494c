//! Structured output: JSON schemas, regular expressions and Lark grammars, compiled for one vocabulary.
//!
//! `llguidance` does the matching. What it says of a text is a function of the text alone, so a grammar is one more
//! processor of the sampler, and drafts change nothing under it either.

mod lark;
mod matcher;
mod multiples;
mod place;
mod repeats;
mod vocabulary;
mod weight;

use std::sync::Arc;

use foretoken_decode::constraint::Constraint;
use foretoken_formats::deep;
use foretoken_formats::tokenizer::Tokenizer;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::error::EngineError;
use matcher::GrammarMatcher;
use repeats::Repeats;
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

/// Most bytes of a schema: one with a list of ten thousand words, or a thousand properties, has fewer.
const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Most bytes of a regular expression.
const MAX_REGEX_BYTES: usize = 8 << 10;
/// Most bytes of a grammar without the schemas in it.
const MAX_LARK_BYTES: usize = 32 << 10;
/// For `llguidance` to follow as many rules and references as are accepted by calling itself.
const STACK_BYTES: usize = 64 << 20;
/// Most bytes of an error's words, which may quote the grammar.
const MAX_WORDS: usize = 400;

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
        let what = match grammar {
            Grammar::JsonSchema(_) | Grammar::JsonObject => "JSON schema",
            Grammar::Regex(_) => "regular expression",
            Grammar::Lark(_) => "grammar",
        };
        let matcher = deep::run(STACK_BYTES, || self.matcher(grammar));
        let matcher =
            matcher.unwrap_or_else(|error| Err(failed(what, &format!("there is no thread for it: {error}"))))?;
        Ok(Box::new(GrammarMatcher::new(matcher, self.vocab_size)))
    }

    fn matcher(&self, grammar: &Grammar) -> Result<Matcher, EngineError> {
        match grammar {
            Grammar::JsonSchema(text) => self.json_schema(&parse(text)?),
            Grammar::JsonObject => self.json_schema(&json!({ "type": "object" })),
            Grammar::Regex(regex) => {
                check_size("regular expression", regex.len(), MAX_REGEX_BYTES)?;
                let mut repeats = Repeats::default();
                repeats.regex(regex);
                repeats.judge().map_err(|why| failed("regular expression", &why))?;
                self.build(TopLevelGrammar::from_regex(regex)).map_err(|why| failed("regular expression", &why))
            }
            Grammar::Lark(text) => {
                let (schemas, rest) = lark::parts(text);
                check_size("grammar", rest.len(), MAX_LARK_BYTES)?;
                check_size("schemas in the grammar", text.len() - rest.len(), MAX_SCHEMA_BYTES)?;
                let mut repeats = Repeats::default();
                repeats.lark(&rest);
                repeats.judge().and_then(|()| check_schemas(&schemas)).map_err(|why| failed("grammar", &why))?;
                self.build(TopLevelGrammar::from_lark(text.clone())).map_err(|why| failed("grammar", &why))
            }
        }
    }

    fn json_schema(&self, schema: &Value) -> Result<Matcher, EngineError> {
        check_schemas(std::slice::from_ref(schema)).map_err(|why| failed("JSON schema", &why))?;
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
        initial_lexer_fuel: 200_000,
        step_lexer_fuel: 50_000,
        max_lexer_states: 100_000,
        max_grammar_size: 250_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

fn parse(text: &str) -> Result<Value, EngineError> {
    check_size("JSON schema", text.len(), MAX_SCHEMA_BYTES)?;
    serde_json::from_str(text).map_err(|error| failed("JSON schema", &format!("it is not JSON: {error}")))
}

fn check_size(what: &'static str, n: usize, most: usize) -> Result<(), EngineError> {
    match n > most {
        true => Err(failed(what, &format!("it has {n} bytes, and at most {most} are accepted"))),
        false => Ok(()),
    }
}

/// Whether a text can be made to fit these schemas, or one of them, without too much work.
fn check_schemas(schemas: &[Value]) -> Result<(), String> {
    weight::check(schemas)?;
    multiples::check(schemas)
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

/// `llguidance`'s words for an error, without its marks for those who want more of them, and not its panics' at all.
fn in_words(error: &str) -> String {
    if error.contains("panic: ") {
        return "it cannot be compiled: it is too large, or of a kind that is not supported".to_owned();
    }
    let words = error.replace("<non-verbose/>", "");
    let words = words.trim();
    match words.char_indices().map(|(at, _)| at).find(|at| *at >= MAX_WORDS) {
        Some(end) => format!("{}...", &words[..end]),
        None => words.to_owned(),
    }
}
