//! What a request asks of the sampler, checked before the first token.

use crate::TokenId;
use serde::{Deserialize, Serialize};

/// Sampling settings of one request. The defaults change nothing: temperature 1, no filter, no penalty.
///
/// Order of work: logit bias and penalties on the logits, then temperature, then top-k, top-p and min-p, each on what
/// the one before it left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplerSettings {
    /// 0 takes the likeliest token; otherwise logits are divided by it. 0..=100.
    pub temperature: f32,
    /// Keeps exactly this many of the likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the likeliest tokens up to and including the one whose cumulative probability reaches this. 0..=1; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this fraction as likely as the likeliest. 0..=1; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in prompt or output (Keskar et al. 2019). >0..=100; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of every token in the output. -100..=100; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a token for each time it is in the output. -100..=100; 0 is off.
    pub frequency_penalty: f32,
    /// The penalties look at this many of the latest tokens; `None` looks at all.
    pub penalty_window: Option<usize>,
    /// Added to the logits of these tokens: finite, or negative infinity for a ban.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Seed of the noise. The same seed and settings give the same text.
    pub seed: u64,
    /// Tells several answers to one request apart: each has its own noise.
    pub choice: u32,
}

impl Default for SamplerSettings {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: None,
            logit_bias: Vec::new(),
            seed: 0,
            choice: 0,
        }
    }
}

/// A setting outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// A number outside its range.
    #[error("{name} is {value}, and must be {range}")]
    OutOfRange {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: f32,
        /// What is allowed, in words.
        range: &'static str,
    },
    /// A biased token outside the vocabulary.
    #[error("logit_bias names token {token}, and the vocabulary has {vocab_size}")]
    UnknownToken {
        /// The id.
        token: TokenId,
        /// The vocabulary's size.
        vocab_size: usize,
    },
    /// A bias that is no number or positive infinity.
    #[error("logit_bias of token {token} is {value}, and must be finite or negative infinity")]
    Bias {
        /// The id.
        token: TokenId,
        /// Its bias.
        value: f32,
    },
}

impl SamplerSettings {
    /// Greedy decoding.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Checks every value against its range.
    pub fn validate(&self, vocab_size: usize) -> Result<(), SettingsError> {
        let check = |name, value: f32, ok: bool, range| match ok {
            true => Ok(()),
            false => Err(SettingsError::OutOfRange { name, value, range }),
        };
        let within = |value: f32, low: f32, high: f32| (low..=high).contains(&value);
        check("temperature", self.temperature, within(self.temperature, 0.0, 100.0), "between 0 and 100")?;
        check("top_p", self.top_p, within(self.top_p, 0.0, 1.0), "between 0 and 1")?;
        check("min_p", self.min_p, within(self.min_p, 0.0, 1.0), "between 0 and 1")?;
        let repetition = self.repetition_penalty;
        let range = "above 0 and at most 100";
        check("repetition_penalty", repetition, repetition > 0.0 && repetition <= 100.0, range)?;
        for (name, value) in
            [("presence_penalty", self.presence_penalty), ("frequency_penalty", self.frequency_penalty)]
        {
            check(name, value, within(value, -100.0, 100.0), "between -100 and 100")?;
        }
        for &(token, value) in &self.logit_bias {
            if token as usize >= vocab_size {
                return Err(SettingsError::UnknownToken { token, vocab_size });
            }
            if value.is_nan() || value == f32::INFINITY {
                return Err(SettingsError::Bias { token, value });
            }
        }
        Ok(())
    }

    /// Whether any penalty is on, so that a row depends on the text before it.
    pub(crate) fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_value_and_the_range() {
        let message = |settings: SamplerSettings| settings.validate(10).unwrap_err().to_string();
        let base = SamplerSettings::default;
        assert_eq!(base().validate(10), Ok(()));
        assert_eq!(
            message(SamplerSettings { temperature: -1.0, ..base() }),
            "temperature is -1, and must be between 0 and 100"
        );
        assert_eq!(message(SamplerSettings { top_p: 1.5, ..base() }), "top_p is 1.5, and must be between 0 and 1");
        assert_eq!(message(SamplerSettings { min_p: f32::NAN, ..base() }), "min_p is NaN, and must be between 0 and 1");
        assert_eq!(
            message(SamplerSettings { repetition_penalty: 0.0, ..base() }),
            "repetition_penalty is 0, and must be above 0 and at most 100"
        );
        assert_eq!(
            message(SamplerSettings { frequency_penalty: f32::INFINITY, ..base() }),
            "frequency_penalty is inf, and must be between -100 and 100"
        );
        assert_eq!(
            message(SamplerSettings { logit_bias: vec![(10, 1.0)], ..base() }),
            "logit_bias names token 10, and the vocabulary has 10"
        );
        assert_eq!(
            message(SamplerSettings { logit_bias: vec![(3, f32::INFINITY)], ..base() }),
            "logit_bias of token 3 is inf, and must be finite or negative infinity"
        );
        assert_eq!(SamplerSettings { logit_bias: vec![(3, f32::NEG_INFINITY)], ..base() }.validate(10), Ok(()));
    }
}
