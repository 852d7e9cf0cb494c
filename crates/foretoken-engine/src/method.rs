//! The name of a way to draft, as users write it: `none`, `auto`, or drafters joined by `+`.

use std::fmt;
use std::str::FromStr;

use foretoken_decode::{DraftPolicy, drafters};

use crate::drafters::WITH_A_MODEL;
use crate::request::Request;

/// Who drafts for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// Nobody: one token per pass.
    None,
    /// The drafters that may pay here, as far as they do.
    #[default]
    Auto,
    /// These drafters, their trees merged.
    Named(Vec<String>),
}

impl Method {
    /// Every name of a single drafter.
    pub fn names() -> impl Iterator<Item = &'static str> {
        drafters::NAMES.iter().chain(WITH_A_MODEL).copied()
    }

    /// Sets what `request` asks for. With a width, so many guesses are run every pass, whether or not they pay.
    pub fn apply(&self, width: Option<usize>, request: &mut Request) {
        request.draft = match (self, width) {
            (Self::None, _) => DraftPolicy::Off,
            (_, Some(width)) => DraftPolicy::Width(width),
            (_, None) => DraftPolicy::Budget,
        };
        request.drafters = match self {
            Self::Named(names) => names.clone(),
            Self::None | Self::Auto => Vec::new(),
        };
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Auto => f.write_str("auto"),
            Self::Named(names) => f.write_str(&names.join("+")),
        }
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => return Ok(Self::None),
            "auto" => return Ok(Self::Auto),
            _ => {}
        }
        let mut names: Vec<String> = Vec::new();
        for name in text.split('+') {
            if Self::names().all(|known| known != name) {
                let known = Self::names().collect::<Vec<_>>().join(", ");
                return Err(format!("{name:?} is not a method: there are auto, {known}; join drafters by +"));
            }
            if !names.iter().any(|other| other == name) {
                names.push(name.to_owned());
            }
        }
        Ok(Self::Named(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_read_and_written() {
        for text in ["none", "auto", "prompt_lookup"] {
            assert_eq!(text.parse::<Method>().unwrap().to_string(), text);
        }
        assert_eq!("prompt_lookup+prompt_lookup".parse::<Method>().unwrap().to_string(), "prompt_lookup");
        for text in ["", "magic", "prompt_lookup+", "auto+prompt_lookup"] {
            let error = text.parse::<Method>().unwrap_err();
            assert!(error.contains("prompt_lookup") && error.contains("auto"), "{error}");
        }
    }
}
