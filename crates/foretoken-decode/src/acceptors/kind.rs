//! Which acceptor a request asks for, as flags and reports write it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Acceptor, Coupled, Rejection, TopK, Typical};

/// An acceptor and its parameters. All but `coupled` make the text depend on the drafts, so they are never a default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AcceptorKind {
    /// The text of plain decoding.
    #[default]
    Coupled,
    /// The distribution of plain decoding, another text.
    Rejection,
    /// Another distribution: guesses among the target's likeliest tokens pass.
    TopK {
        /// How many of the likeliest. 1 is greedy decoding.
        k: usize,
    },
    /// Another distribution: guesses that the target finds likely enough pass.
    Typical {
        /// The probability above which every guess passes. 0 is greedy decoding.
        epsilon: f32,
        /// What the probability is measured by where the target is unsure. 0 is greedy decoding.
        delta: f32,
    },
}

impl AcceptorKind {
    /// Each acceptor, and its parameters' defaults: Medusa's for `typical` (Cai et al. 2024), 3 for `top_k`.
    pub const ALL: [Self; 4] =
        [Self::Coupled, Self::Rejection, Self::TopK { k: 3 }, Self::Typical { epsilon: 0.09, delta: 0.3 }];

    /// The name alone.
    pub fn name(self) -> &'static str {
        match self {
            Self::Coupled => "coupled",
            Self::Rejection => "rejection",
            Self::TopK { .. } => "top_k",
            Self::Typical { .. } => "typical",
        }
    }

    /// Whether the text is the same whatever is drafted.
    pub fn reproducible(self) -> bool {
        self == Self::Coupled
    }

    /// Whether the text is drawn from the target's distribution.
    pub fn keeps_distribution(self) -> bool {
        matches!(self, Self::Coupled | Self::Rejection)
    }

    /// Checks the parameters: what is wrong, in words.
    pub fn validate(self) -> Result<(), String> {
        let within = |name, value: f32| match (0.0..=1.0).contains(&value) {
            true => Ok(()),
            false => Err(format!("{name} of the acceptor typical is {value}, and must be between 0 and 1")),
        };
        match self {
            Self::TopK { k: 0 } => Err("k of the acceptor top_k is 0, and must be at least 1".into()),
            Self::Typical { epsilon, delta } => within("epsilon", epsilon).and(within("delta", delta)),
            _ => Ok(()),
        }
    }

    pub(crate) fn make(self) -> Box<dyn Acceptor> {
        match self {
            Self::Coupled => Box::new(Coupled),
            Self::Rejection => Box::new(Rejection),
            Self::TopK { k } => Box::new(TopK { k }),
            Self::Typical { epsilon, delta } => Box::new(Typical { epsilon, delta }),
        }
    }
}

/// `coupled`, `rejection`, `top_k:3`, `typical:0.09,0.3`.
impl fmt::Display for AcceptorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Coupled | Self::Rejection => Ok(()),
            Self::TopK { k } => write!(f, ":{k}"),
            Self::Typical { epsilon, delta } => write!(f, ":{epsilon},{delta}"),
        }
    }
}

/// Reads what `Display` writes; parameters may be left away.
impl FromStr for AcceptorKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown =
            || format!("{text:?} is no acceptor: there are coupled, rejection, top_k[:K] and typical[:EPSILON,DELTA]");
        let (name, parameters) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let default = Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(unknown)?;
        let kind = match (default, parameters) {
            (default, None) => default,
            (Self::TopK { .. }, Some(k)) => Self::TopK { k: k.parse().map_err(|_| unknown())? },
            (Self::Typical { .. }, Some(both)) => {
                let (epsilon, delta) = both.split_once(',').ok_or_else(unknown)?;
                let number = |text: &str| text.trim().parse().map_err(|_| unknown());
                Self::Typical { epsilon: number(epsilon)?, delta: number(delta)? }
            }
            _ => return Err(unknown()),
        };
        kind.validate().map(|()| kind)
    }
}

impl TryFrom<String> for AcceptorKind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<AcceptorKind> for String {
    fn from(kind: AcceptorKind) -> Self {
        kind.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for kind in AcceptorKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(kind.reproducible(), kind.make().reproducible());
            assert_eq!(kind.name(), kind.make().name());
        }
        assert_eq!("top_k:1".parse(), Ok(AcceptorKind::TopK { k: 1 }));
        assert_eq!("typical:0,0.5".parse(), Ok(AcceptorKind::Typical { epsilon: 0.0, delta: 0.5 }));
        for wrong in ["", "topk", "coupled:1", "top_k:0", "top_k:x", "typical:1", "typical:0.1,2", "typical:NaN,1"] {
            assert!(wrong.parse::<AcceptorKind>().is_err(), "{wrong}");
        }
    }
}
