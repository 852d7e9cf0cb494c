//! Options for what a text has to look like, and for who accepts guesses.

use std::path::PathBuf;

use clap::Args;
use foretoken_decode::constraint::Constraint;
use foretoken_engine::{AcceptorKind, Grammar, ModelFile};

use crate::error::CliError;
use crate::prompt::read_text;

/// At most one of these. The text ends where it is complete.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Structure")]
#[group(multiple = false)]
pub struct StructureOptions {
    /// The text is JSON of this schema, given as a file or as it is. It comes on one line, unless the schema's
    /// "x-guidance" has "whitespace_flexible": true
    #[arg(long, value_name = "FILE|JSON")]
    pub schema: Option<String>,

    /// The text is a JSON object
    #[arg(long)]
    pub json_object: bool,

    /// The whole text matches this regular expression
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    pub regex: Option<String>,

    /// The text is of the Lark grammar in this file, in the dialect of llguidance
    #[arg(long, value_name = "FILE")]
    pub grammar: Option<PathBuf>,
}

impl StructureOptions {
    /// The constraint for a model; `None` when any text will do.
    pub fn constraint(&self, file: &ModelFile) -> Result<Option<Box<dyn Constraint>>, CliError> {
        self.chosen()?.map(|grammar| Ok(file.constraint(&grammar)?)).transpose()
    }

    fn chosen(&self) -> Result<Option<Grammar>, CliError> {
        Ok(match self {
            Self { schema: Some(schema), .. } if schema.trim_start().starts_with('{') => {
                Some(Grammar::JsonSchema(schema.clone()))
            }
            Self { schema: Some(path), .. } => Some(Grammar::JsonSchema(read_text(path.as_ref())?)),
            Self { json_object: true, .. } => Some(Grammar::JsonObject),
            Self { regex: Some(regex), .. } => Some(Grammar::Regex(regex.clone())),
            Self { grammar: Some(path), .. } => Some(Grammar::Lark(read_text(path)?)),
            _ => None,
        })
    }
}

/// Who decides which guesses are kept.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Acceptance (all but coupled make the text depend on the drafts)")]
pub struct AcceptanceOptions {
    /// coupled: the text of plain decoding. rejection: another text of the same distribution. top_k or top_k:K: guesses among the
    /// K likeliest tokens pass. typical or typical:EPSILON,DELTA: guesses that are likely enough pass. The last two change the
    /// distribution, and say how far. All but coupled need a --draft by name and a --draft-width
    #[arg(long, value_name = "ACCEPTOR", default_value_t = AcceptorKind::Coupled)]
    pub acceptor: AcceptorKind,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_may_be_given_as_it_is() {
        let options = |schema: &str| StructureOptions { schema: Some(schema.into()), ..StructureOptions::default() };
        let inline = options(" {\"type\": \"null\"}").chosen().unwrap();
        assert_eq!(inline, Some(Grammar::JsonSchema(" {\"type\": \"null\"}".into())));
        assert!(matches!(options("there/is/no/such.json").chosen(), Err(CliError::File { .. })));
        assert_eq!(StructureOptions::default().chosen().unwrap(), None);
    }
}
