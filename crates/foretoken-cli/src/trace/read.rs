//! Reads a trace file back. What is wrong with one is said with its line.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use foretoken_decode::{PassTrace, TokenId};
use serde::de::{DeserializeOwned, IgnoredAny};

use super::format::{Header, PassLine, VERSION};
use crate::error::CliError;
use crate::output;

/// A line of more bytes was not written by us.
const MAX_LINE: u64 = 64 << 20;

/// A trace.
#[derive(Debug)]
pub struct Trace {
    /// The first line.
    pub header: Header,
    /// The others.
    pub passes: Vec<PassTrace>,
    /// The bytes of every token that occurs.
    pub texts: HashMap<TokenId, Vec<u8>>,
}

/// Reads a trace file. A pass that the program that wrote it did not get to the end of is left out, and said.
pub fn read(path: &Path) -> Result<Trace, CliError> {
    let failed = |error| CliError::File { action: "read", path: path.into(), error };
    let bad = |number: usize, found: String| CliError::BadFile {
        path: path.into(),
        found: format!("line {number}: {found}"),
        wanted: "`foretoken generate --trace FILE` writes traces: a header line, then a line for every pass".into(),
    };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let mut trace: Option<Trace> = None;
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if (&mut file).take(MAX_LINE + 1).read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        if line.len() as u64 > MAX_LINE {
            return Err(bad(number, format!("more than {} MB", MAX_LINE >> 20)));
        }
        let whole = line.strip_suffix(b"\n");
        match (&mut trace, whole.unwrap_or(&line)) {
            (None, line) => trace = Some(begin(line).map_err(|found| bad(number, found))?),
            (Some(_), line) if whole.is_none() && breaks_off(line) => {
                output::note(format_args!("line {number} breaks off: whoever wrote the trace was stopped there"));
            }
            (Some(trace), line) => trace.push(line).map_err(|found| bad(number, found))?,
        }
    }
    trace.ok_or_else(|| bad(1, "the file is empty".into()))
}

fn begin(line: &[u8]) -> Result<Trace, String> {
    let header: Header = parse(line).map_err(|error| format!("not the header of a trace: {error}"))?;
    if header.foretoken_trace != VERSION {
        return Err(format!("the format has version {}, and this program reads {VERSION}", header.foretoken_trace));
    }
    if header.drafters.len() > usize::from(u8::MAX) {
        return Err(format!("{} drafters, and there can be 255", header.drafters.len()));
    }
    header.cost_table.validate()?;
    Ok(Trace { header, passes: Vec::new(), texts: HashMap::new() })
}

impl Trace {
    fn push(&mut self, line: &[u8]) -> Result<(), String> {
        let Self { header, passes, texts } = self;
        let pass: PassLine = parse(line)?;
        passes.push(pass.into_pass(header.drafters.len(), |token, text| {
            texts.insert(token, text);
        })?);
        Ok(())
    }
}

fn breaks_off(line: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(line).is_err_and(|error| error.is_eof())
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    // The line within the line is always 1.
    serde_json::from_slice(line).map_err(|error| error.to_string().replace(" at line 1 column", ", at column"))
}

#[cfg(test)]
pub mod tests {
    use std::fs;
    use std::time::Duration;

    use foretoken_decode::budget::{CostTable, PassShape};
    use foretoken_decode::{Drafting, GuessTrace, SequenceTrace};

    use super::*;
    use crate::machine::Machine;

    fn header() -> Header {
        Header {
            foretoken_trace: VERSION,
            model: "toy".into(),
            draft: "auto".into(),
            draft_width: None,
            drafters: vec!["suffix".into(), "recycle".into()],
            settings: serde_json::json!({"temperature": 0.0}),
            vocab_size: 256,
            cost_table: CostTable::linear(0.02, 0.001),
            machine: Machine {
                cpu: "a CPU".into(),
                isa: "scalar".into(),
                threads: 1,
                version: "0.0.0".into(),
                commit: None,
            },
        }
    }

    /// Passes over the bytes of a text. Each drafted pass is (accepted guesses, then what was drawn), with a second
    /// guess beside the first that nobody draws, and a third drafted and not run.
    pub fn trace() -> Trace {
        let text = "the cat sat on the mat; the cat sat on the hat";
        let bytes = text.as_bytes();
        let mut passes = Vec::new();
        let mut at = 0;
        for step in [1, 1, 2, 3, 1, 4, 2, 2, 5, 1, 3, 4, 4, 1, 3, 4, 3, 2] {
            let tokens: Vec<TokenId> = bytes[at..at + step].iter().map(|&byte| byte.into()).collect();
            let mut proposed = Vec::new();
            for (depth, &token) in tokens.iter().enumerate() {
                let run = depth + 1 < step;
                let source = if depth < 2 { 1 } else { 2 };
                let parent = depth.checked_sub(1);
                proposed.push(GuessTrace { token, parent, source, p: 0.75 - 0.125 * depth as f32, run });
            }
            if step > 1 {
                proposed.push(GuessTrace { token: 0, parent: None, source: 2, p: 0.25, run: true });
            }
            let drafted = proposed.iter().filter(|guess| guess.run).count();
            let rows = 1 + drafted;
            passes.push(PassTrace {
                shape: PassShape { rows, logits_rows: rows, context: rows * (10 + at) },
                drafted,
                accepted: step - 1,
                draft: Duration::from_micros(50),
                draft_by: [30, 10].map(|us| Drafting { time: Duration::from_micros(us), ..Drafting::default() }).into(),
                verify: Duration::from_micros(20_000 + 1_000 * rows as u64),
                rest: Duration::from_micros(200),
                predicted: Duration::from_micros(21_000 + 900 * rows as u64),
                why: (step == 5).then(|| "five rows are expected to pay".into()),
                sequences: vec![SequenceTrace {
                    request: 0,
                    start: 10 + at,
                    given: 1,
                    proposed,
                    forbidden: usize::from(step == 4),
                    tokens,
                }],
            });
            at += step;
        }
        assert_eq!(at, bytes.len());
        let texts = (0..=255u8).map(|byte| (byte.into(), vec![byte])).collect();
        Trace { header: header(), passes, texts }
    }

    fn lines(trace: &Trace) -> Vec<String> {
        let passes = trace.passes.iter().map(|pass| PassLine::of(pass, |token| &trace.texts[&token]));
        let passes = passes.map(|line| serde_json::to_string(&line).unwrap());
        std::iter::once(serde_json::to_string(&trace.header).unwrap()).chain(passes).collect()
    }

    fn read_text(text: &str) -> Result<Trace, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.jsonl");
        fs::write(&path, text).unwrap();
        read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read() {
        let written = trace();
        let read = read_text(&lines(&written).join("\n")).unwrap();
        assert_eq!(read.passes, written.passes);
        assert_eq!(read.header.drafters, written.header.drafters);
        assert_eq!(read.texts[&u32::from(b't')], b"t");
        // A byte that is no character of its own survives.
        assert_eq!(serde_json::to_string(&lines(&written)[4]).unwrap().matches("text").count(), 8);
    }

    #[test]
    fn what_was_stopped_is_read_up_to_there() {
        let written = trace();
        let text = lines(&written).join("\n") + "\n";
        for cut in [1, 2, 30] {
            let read = read_text(&text[..text.len() - cut]).unwrap();
            let whole = written.passes.len() - usize::from(cut > 1);
            assert_eq!(read.passes, written.passes[..whole], "without the last {cut} bytes");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let good = lines(&trace());
        let refused = |text: String, words: &[&str]| {
            let said = read_text(&text).unwrap_err();
            words.iter().for_each(|word| assert!(said.contains(word), "{word:?} is missing in: {said}"));
        };
        refused(String::new(), &["line 1", "empty"]);
        refused("{\"a\": 1}".into(), &["line 1", "not the header", "foretoken_trace"]);
        refused(good[0].replace("\"foretoken_trace\":1", "\"foretoken_trace\":9"), &["line 1", "version 9"]);
        let with = |line: &str| format!("{}\n{}\n{line}\n", good[0], good[1]);
        refused(with(&good[4][..good[4].len() / 2]), &["line 3", "EOF"]);
        refused(with("[]"), &["line 3", "PassLine"]);
        refused(with(""), &["line 3"]);
        refused(with(&good[4].replace("\"verify_ms\":", "\"verify_ms\":-")), &["line 3", "verify_ms is -"]);
        refused(with(&good[4].replace("\"verify_ms\":", "\"verify_ms\":1e300,\"x\":")), &["line 3", "verify_ms"]);
        refused(with(&good[4].replace("\"by\":2", "\"by\":7")), &["line 3", "drafter 7", "names 2"]);
        refused(with(&good[4].replace("\"parent\":0", "\"parent\":5")), &["line 3", "does not come before"]);
        refused(with(&good[4].replace("\"p\":0.75", "\"p\":7.5")), &["line 3", "between 0 and 1"]);
        refused(
            with(&good[4].replace("\"tokens\":[{\"id\":", "\"tokens\":[{\"id\":9")),
            &["line 3", "none of the guesses"],
        );
        refused(with(&"[".repeat(10_000)), &["line 3"]);
    }
}
