//! What chat templates call beyond Jinja itself, as Hugging Face's transformers defines it.

use std::borrow::Cow;
use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

pub(super) fn add(environment: &mut Environment<'_>) {
    environment.add_function("raise_exception", raise_exception);
    environment.add_filter("tojson", tojson);
}

/// Turns `{% generation %}` blocks, with which transformers marks an assistant's words for training, into plain ones.
pub(super) fn without_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let tag = regex::Regex::new(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})").expect("the pattern is a constant");
    tag.replace_all(source, |found: &regex::Captures<'_>| {
        let plain = if found.get(2).is_some() { "endif" } else { "if true" };
        format!("{}{plain}{}", &found[1], &found[3])
    })
}

/// A template's own refusal, kept apart from failures by its type.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Refusal(message)))
}

/// What the template said to [`raise_exception`], if that is how it ended.
pub(super) fn refusal(error: &Error) -> Option<String> {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(Refusal(message)) = error.downcast_ref() {
            return Some(message.clone());
        }
        cause = error.source();
    }
    None
}

/// Python's `json.dumps(value, ensure_ascii=False)` with its `indent`, `separators`, `sort_keys` and `ensure_ascii`.
fn tojson(state: &State<'_, '_>, value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let default_item = if indent.is_some() { "," } else { ", " };
    let (item, key) = match separators.as_deref() {
        None => (default_item, ": "),
        Some([item, key]) => (item.as_str(), key.as_str()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators are two strings")),
    };
    let mut json = Json { state, out: String::new(), indent, item, key, ascii, sort_keys, charged: 0 };
    json.value(&value, 0)?;
    Ok(Value::from(json.out))
}

struct Json<'a, 's> {
    state: &'a State<'s, 's>,
    out: String,
    indent: Option<usize>,
    item: &'a str,
    key: &'a str,
    ascii: bool,
    sort_keys: bool,
    /// Bytes of output paid for with fuel.
    charged: usize,
}

impl Json<'_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > 64 {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: nested more than 64 deep"));
        }
        self.charge()?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&value.to_string()),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.map(|item| (None, item)).collect();
                self.container('[', ']', items, depth)?;
            }
            ValueKind::Map => {
                let mut items = Vec::new();
                for key in value.try_iter()? {
                    items.push((Some(key.to_string()), value.get_item(&key)?));
                }
                if self.sort_keys {
                    items.sort_by(|a, b| a.0.cmp(&b.0));
                }
                self.container('{', '}', items, depth)?;
            }
            kind => {
                return Err(Error::new(ErrorKind::BadSerialization, format!("tojson: {kind} is not JSON")));
            }
        }
        Ok(())
    }

    fn container(
        &mut self,
        open: char,
        close: char,
        items: Vec<(Option<String>, Value)>,
        depth: usize,
    ) -> Result<(), Error> {
        self.out.push(open);
        let empty = items.is_empty();
        for (index, (key, value)) in items.into_iter().enumerate() {
            if index > 0 {
                self.out.push_str(self.item);
            }
            self.line(depth + 1);
            if let Some(key) = key {
                self.string(&key);
                self.out.push_str(self.key);
            }
            self.value(&value, depth + 1)?;
        }
        if !empty {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', (indent * depth).min(4096)));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && !(' '..='~').contains(&c)) => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        write!(self.out, "\\u{unit:04x}").expect("a String takes every write");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    /// Pays for the output so far, so that nothing large is built on an empty tank.
    fn charge(&mut self) -> Result<(), Error> {
        let new = self.out.len() - self.charged;
        self.charged = self.out.len();
        self.state.consume_fuel(1 + new as u64 / 64)
    }
}

/// `strftime_now(format)` at a given time, in seconds since 1970-01-01; fails when there is no time.
pub(super) fn strftime_now(now: Option<i64>) -> impl Fn(String) -> Result<String, Error> + Send + Sync + 'static {
    move |format| match now {
        Some(now) => strftime(now, &format),
        None => Err(Error::new(ErrorKind::InvalidOperation, "strftime_now: no date was given")),
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

fn strftime(now: i64, format: &str) -> Result<String, Error> {
    let (days, seconds) = (now.div_euclid(86_400), now.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let month_name = MONTHS[month as usize - 1];
    let day_name = DAYS[days.rem_euclid(7) as usize];
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut code = chars.next();
        let padded = code != Some('-');
        if !padded {
            code = chars.next();
        }
        let number = |value: i64| if padded { format!("{value:02}") } else { value.to_string() };
        let part = match code {
            Some('Y') => year.to_string(),
            Some('y') => number(year.rem_euclid(100)),
            Some('m') => number(month),
            Some('d') => number(day),
            Some('B') => month_name.to_owned(),
            Some('b') => month_name[..3].to_owned(),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name[..3].to_owned(),
            Some('H') => number(hour),
            Some('I') => number((hour + 11) % 12 + 1),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('M') => number(minute),
            Some('S') => number(second),
            Some('%') => "%".to_owned(),
            other => {
                let code = other.map_or(String::new(), String::from);
                let known = "known are Y y m d B b A a H I p M S";
                return Err(Error::new(ErrorKind::InvalidOperation, format!("strftime_now: %{code}; {known}")));
            }
        };
        out.push_str(&part);
    }
    Ok(out)
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar (Howard Hinnant, "chrono-compatible
/// low-level date algorithms": years start in March, so that the leap day is the last).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days.clamp(-100_000_000, 100_000_000) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}
