//! What completions and chats have in common: sampling, ends, drafting, limits.

use std::time::Duration;

use foretoken_decode::sampler::SamplerSettings;
use foretoken_engine::{AcceptorKind, Method, Request, TokenId, draw_seed};
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::fields::{Field, Fields, Kind, field, wrong_kind};

/// The fields that [`Settings::read`] reads.
pub const FIELDS: &[Field] = &[
    field("model", Kind::Text, "The model's id, as /v1/models lists it; may be left out"),
    field("temperature", Kind::Number(0.0, 100.0), "0 takes the likeliest token; 0 to 100, by default 1"),
    field(
        "top_p",
        Kind::Number(0.0, 1.0),
        "Draw among the likeliest tokens whose probabilities reach this sum; by default 1",
    ),
    field(
        "top_k",
        Kind::Whole(0, u32::MAX as u64),
        "Draw among this many of the likeliest tokens; 0, the default, is all",
    ),
    field(
        "min_p",
        Kind::Number(0.0, 1.0),
        "Draw among tokens at least this fraction as likely as the likeliest; by default 0",
    ),
    field("presence_penalty", Kind::Number(-100.0, 100.0), "Subtracted once from the logit of a token in the answer"),
    field(
        "frequency_penalty",
        Kind::Number(-100.0, 100.0),
        "Subtracted from a token's logit for each time it is in the answer",
    ),
    field("repetition_penalty", Kind::Above(0.0, 100.0), "Makes tokens of prompt and answer less likely when above 1"),
    field("logit_bias", Kind::Any(BIAS), "Added to the logits of tokens, by id: -100 to 100"),
    field(
        "seed",
        Kind::Whole(0, u64::MAX),
        "The same seed gives the same text. Drawn anew when left out, and told in the answer",
    ),
    field("n", Kind::Whole(1, MAX_CHOICES as u64), "Number of answers"),
    field("stop", Kind::Any(STOP), "A string, or a list of up to 16, that ends the text and is not part of it"),
    field("min_tokens", Kind::Whole(0, u64::MAX), "The text does not end before this many tokens"),
    field("ignore_eos", Kind::Flag, "Go on after the model's own end of text"),
    field("timeout", Kind::Above(0.0, f64::MAX), "Seconds after which the answer ends with what there is"),
    field(
        "priority",
        Kind::Any(PRIORITY),
        "A whole number from -100 to 100; higher goes first when there is not room for all",
    ),
    field("stream", Kind::Flag, "Send the answer as it is written, as server-sent events"),
    field("stream_options", Kind::Fields(STREAM_OPTIONS), "include_usage: send the usage at the end"),
    field("draft", Kind::Text, "Who guesses ahead: auto, none, or drafters joined by +. Never changes the text"),
    field(
        "draft_width",
        Kind::Whole(1, MAX_WIDTH as u64),
        "Check this many guesses every pass, whether or not they pay",
    ),
    field(
        "acceptor",
        Kind::Text,
        "Who decides which guesses are kept. All but coupled make the text depend on the drafts",
    ),
    field("trace", Kind::Flag, "Tell who guessed each token, and every pass's guesses"),
    field("user", Kind::Text, "Has no effect"),
    field("metadata", Kind::Object, "Has no effect"),
    field("store", Kind::Any(ONLY_FALSE), "Only false: nothing is stored"),
    field("service_tier", Kind::Word(&["auto", "default"]), "Only auto and default"),
    field("safety_identifier", Kind::Text, "Has no effect"),
    field("prompt_cache_key", Kind::Text, "Has no effect: prompts are cached by their tokens, for each API key apart"),
];

/// Schemas of fields that are more than a type.
const BIAS: &str = r#"{"type": ["object", "null"], "maxProperties": 1024, "propertyNames": {"pattern": "^[0-9]+$"},
    "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}}"#;
const STOP: &str = r#"{"anyOf": [{"type": "null"}, {"type": "string", "minLength": 1, "maxLength": 256},
    {"type": "array", "maxItems": 16, "items": {"type": "string", "minLength": 1, "maxLength": 256}}]}"#;
const PRIORITY: &str = r#"{"type": ["integer", "null"], "minimum": -100, "maximum": 100}"#;
const ONLY_FALSE: &str = r#"{"enum": [false, null]}"#;

const STREAM_OPTIONS: &[Field] = &[
    field("include_usage", Kind::Flag, "Send the usage at the end"),
    field("include_obfuscation", Kind::Any(ONLY_FALSE), "Only false"),
];

/// Most answers to one request.
pub const MAX_CHOICES: usize = 32;
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;
const MAX_BIASED: usize = 1024;
const MAX_WIDTH: usize = 32;

/// Settings that every choice of a request shares.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How tokens are drawn.
    pub sampler: SamplerSettings,
    /// Given or drawn.
    pub seed: u64,
    /// Number of answers.
    pub n: usize,
    /// Strings that end a text.
    pub stop: Vec<String>,
    /// The text does not end before.
    pub min_tokens: usize,
    /// Go on after the end of text.
    pub ignore_eos: bool,
    /// Goes first when higher.
    pub priority: i32,
    /// When to end with what there is.
    pub timeout: Option<Duration>,
    /// Send as it comes.
    pub stream: bool,
    /// Send the usage at the end of a stream.
    pub include_usage: bool,
    /// Who drafts.
    pub draft: Method,
    /// How much.
    pub draft_width: Option<usize>,
    /// Who accepts.
    pub acceptor: AcceptorKind,
    /// Tell who guessed what.
    pub trace: bool,
}

impl Settings {
    /// Reads them, and checks the model's name.
    pub fn read(fields: &mut Fields, app: &App) -> Result<Self, ApiError> {
        if let Some(model) = fields.text("model")? {
            app.check_model(&model)?;
        }
        let draft: Option<Method> = parsed(fields, "draft")?;
        let draft_width = fields.size("draft_width", 1, MAX_WIDTH)?;
        harmless(fields)?;
        let stream = fields.flag("stream")?;
        let include_usage = stream_options(fields, stream)?;
        Ok(Self {
            sampler: sampler(fields)?,
            seed: fields.whole("seed")?.unwrap_or_else(draw_seed),
            n: fields.size("n", 1, MAX_CHOICES)?.unwrap_or(1),
            stop: stops(fields)?,
            min_tokens: fields.size("min_tokens", 0, usize::MAX)?.unwrap_or(0),
            ignore_eos: fields.flag("ignore_eos")?,
            priority: priority(fields)?,
            timeout: timeout(fields)?,
            stream,
            include_usage,
            // A method comes with its own width.
            draft_width: draft_width.or(if draft.is_none() { app.draft_width } else { None }),
            draft: draft.unwrap_or_else(|| app.draft.clone()),
            acceptor: parsed(fields, "acceptor")?.unwrap_or(AcceptorKind::Coupled),
            trace: fields.flag("trace")?,
        })
    }

    /// What the engine is asked for as choice `choice` of a prompt.
    pub fn request(&self, prompt: Vec<TokenId>, choice: usize, scope: u64) -> Request {
        let mut request = Request {
            sampler: SamplerSettings { choice: choice as u32, ..self.sampler.clone() },
            seed: Some(self.seed),
            min_tokens: self.min_tokens,
            ignore_eos: self.ignore_eos,
            stop: self.stop.clone(),
            acceptor: self.acceptor,
            scope,
            priority: self.priority,
            deadline: self.timeout,
            reuse: true,
            ..Request::new(prompt)
        };
        self.draft.apply(self.draft_width, &mut request);
        request
    }
}

fn harmless(fields: &mut Fields) -> Result<(), ApiError> {
    fields.text("user")?;
    fields.free_object("metadata")?;
    fields.text("safety_identifier")?;
    fields.text("prompt_cache_key")?;
    fields.only("store", &[json!(false)], "nothing is stored here")?;
    fields.only("service_tier", &[json!("auto"), json!("default")], "there is one tier")
}

fn stream_options(fields: &mut Fields, stream: bool) -> Result<bool, ApiError> {
    let Some(mut options) = fields.object("stream_options", STREAM_OPTIONS)? else { return Ok(false) };
    if !stream {
        return Err(fields.wrong("stream_options", "needs stream to be true"));
    }
    options.only("include_obfuscation", &[json!(false)], "what is sent is not padded")?;
    options.flag("include_usage")
}

fn sampler(fields: &mut Fields) -> Result<SamplerSettings, ApiError> {
    let base = SamplerSettings::default();
    Ok(SamplerSettings {
        temperature: fields.number("temperature")?.unwrap_or(base.temperature),
        top_k: fields.size("top_k", 0, u32::MAX as usize)?.unwrap_or(base.top_k),
        top_p: fields.number("top_p")?.unwrap_or(base.top_p),
        min_p: fields.number("min_p")?.unwrap_or(base.min_p),
        repetition_penalty: fields.number("repetition_penalty")?.unwrap_or(base.repetition_penalty),
        presence_penalty: fields.number("presence_penalty")?.unwrap_or(base.presence_penalty),
        frequency_penalty: fields.number("frequency_penalty")?.unwrap_or(base.frequency_penalty),
        logit_bias: logit_bias(fields)?,
        ..base
    })
}

fn logit_bias(fields: &mut Fields) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let Some(map) = fields.free_object("logit_bias")? else { return Ok(Vec::new()) };
    if map.len() > MAX_BIASED {
        let why = format!("names {} tokens, and at most {MAX_BIASED} are accepted", map.len());
        return Err(fields.wrong("logit_bias", why));
    }
    let mut bias = Vec::with_capacity(map.len());
    for (id, value) in &map {
        let path = format!("logit_bias.{id:.20}");
        let Ok(token) = id.parse() else {
            return Err(fields.wrong("logit_bias", format!("has the name {id:.20}, and names are token ids")));
        };
        let value = value.as_f64().ok_or_else(|| wrong_kind(&path, value, "a number"))?;
        if !(-100.0..=100.0).contains(&value) {
            return Err(fields.wrong("logit_bias", format!("of {id:.20} is {value}, and must be between -100 and 100")));
        }
        bias.push((token, value as f32));
    }
    Ok(bias)
}

fn stops(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let list = match fields.any("stop") {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(one) => vec![one],
    };
    if list.len() > MAX_STOPS {
        return Err(fields.wrong("stop", format!("has {} strings, and at most {MAX_STOPS} are accepted", list.len())));
    }
    let text = |value: Value| match value {
        Value::String(text) if (1..=MAX_STOP_BYTES).contains(&text.len()) => Ok(text),
        Value::String(text) => {
            let n = text.len();
            Err(fields.wrong("stop", format!("has a string of {n} bytes, and 1 to {MAX_STOP_BYTES} are accepted")))
        }
        other => Err(wrong_kind("stop", &other, "a string or a list of strings")),
    };
    list.into_iter().map(text).collect()
}

fn priority(fields: &mut Fields) -> Result<i32, ApiError> {
    let Some(value) = fields.any("priority") else { return Ok(0) };
    let number = value.as_i64().ok_or_else(|| wrong_kind("priority", &value, "a whole number from -100 to 100"))?;
    match i32::try_from(number).ok().filter(|number| (-100..=100).contains(number)) {
        Some(number) => Ok(number),
        None => Err(fields.wrong("priority", format!("is {number}, and must be between -100 and 100"))),
    }
}

fn timeout(fields: &mut Fields) -> Result<Option<Duration>, ApiError> {
    let Some(seconds) = fields.number("timeout")? else { return Ok(None) };
    match Duration::try_from_secs_f32(seconds) {
        Ok(timeout) if !timeout.is_zero() => Ok(Some(timeout)),
        _ => Err(fields.wrong("timeout", format!("is {seconds}, and must be a number of seconds above 0"))),
    }
}

fn parsed<V: std::str::FromStr<Err = String>>(fields: &mut Fields, name: &str) -> Result<Option<V>, ApiError> {
    let Some(text) = fields.text(name)? else { return Ok(None) };
    text.parse().map(Some).map_err(|why: String| fields.wrong(name, format!("cannot be used: {why}")))
}
