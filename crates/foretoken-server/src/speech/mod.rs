//! Tells apart what a model thinks, says and calls, while it writes. A tag may come in any number of pieces.

mod call;
mod json;

use std::sync::Arc;

pub use call::CallForm;
use call::{Calls, Looked, PYTHON};

const THINK: (&str, &str) = ("<think>", "</think>");

/// What is told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// How calls are written, when there is something to call.
    pub calls: Option<CallForm>,
    /// The functions that may be called.
    pub names: Arc<[String]>,
    /// `<think>` begins a thought.
    pub thinks: bool,
}

/// What an answer begins inside of, because the prompt ends there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Nothing.
    #[default]
    Content,
    /// A thought.
    Thought,
    /// A call.
    Call,
}

/// A part of what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Said to the reader.
    Content(String),
    /// Thought before.
    Thought(String),
    /// A call begins: the function's name.
    Call(String),
    /// More of the JSON of the arguments of the call that began last. What a model leaves unfinished is no JSON.
    Arguments(String),
}

#[derive(Clone, Debug)]
enum Inside {
    Content,
    Thought,
    Calls(Calls),
}

/// Reads a text piece by piece.
#[derive(Clone, Debug)]
pub struct Speech {
    form: Form,
    inside: Inside,
    /// Not told yet: perhaps the beginning of a tag or a call.
    held: String,
    /// Nothing but white space was said, thought or called since a tag: it is left out.
    fresh: bool,
    /// Nothing was said yet, so that what comes may be a call without a tag.
    silent: bool,
}

impl Speech {
    /// A reader at the beginning of an answer.
    pub fn new(form: Form, start: Start) -> Self {
        let inside = match (start, form.calls) {
            (Start::Thought, _) => Inside::Thought,
            (Start::Call, Some(calls)) => Inside::Calls(Calls::new(calls, String::new())),
            _ => Inside::Content,
        };
        Self { form, inside, held: String::new(), fresh: start == Start::Thought, silent: true }
    }

    /// Takes the next piece and tells what is certain.
    pub fn push(&mut self, piece: &str, parts: &mut Vec<Part>) {
        self.held.push_str(piece);
        while self.step(parts) {}
    }

    /// Tells what is left at the end. A call whose name is not certain is text.
    pub fn finish(&mut self, parts: &mut Vec<Part>) {
        if let Inside::Calls(calls) = &self.inside {
            let Some(opening) = calls.unclear() else { return };
            self.held.insert_str(0, opening);
            self.inside = Inside::Content;
        }
        let rest = std::mem::take(&mut self.held);
        self.tell(&rest, parts);
    }

    /// Tells what it can of what is held; true when there may be more to tell.
    fn step(&mut self, parts: &mut Vec<Part>) -> bool {
        match &mut self.inside {
            Inside::Calls(calls) => match calls.look(&mut self.held, &self.form.names, parts) {
                Looked::Unclear => false,
                Looked::Read => true,
                Looked::Over => {
                    self.inside = Inside::Content;
                    self.fresh = true;
                    true
                }
                Looked::NoCall(opening) => {
                    self.inside = Inside::Content;
                    self.silent = false;
                    self.tell(&opening, parts);
                    true
                }
            },
            Inside::Thought => self.think(parts),
            Inside::Content => self.speak(parts),
        }
    }

    fn think(&mut self, parts: &mut Vec<Part>) -> bool {
        match self.held.find(THINK.1) {
            Some(at) => {
                let thought: String = self.held.drain(..at + THINK.1.len()).collect();
                self.tell(thought[..at].trim_end(), parts);
                self.inside = Inside::Content;
                self.fresh = true;
                true
            }
            None => self.tell_all_but(trailing(&self.held, &[THINK.1]), parts),
        }
    }

    fn speak(&mut self, parts: &mut Vec<Part>) -> bool {
        if self.form.calls == Some(CallForm::Bare) && self.silent {
            let said = self.held.trim_start();
            if PYTHON.starts_with(said) && said != PYTHON {
                return false;
            }
            if said.starts_with('{') || said.starts_with(PYTHON) {
                self.inside = Inside::Calls(Calls::new(CallForm::Bare, String::new()));
                return true;
            }
        }
        let opening = self.form.calls.and_then(CallForm::opening);
        let tags: Vec<&str> = self.form.thinks.then_some(THINK.0).into_iter().chain(opening).collect();
        let found = tags.iter().filter_map(|tag| Some((self.held.find(tag)?, *tag))).min();
        let Some((at, tag)) = found else {
            return self.tell_all_but(trailing(&self.held, &tags), parts);
        };
        let said = self.held[..at].trim_end().len();
        let before: String = self.held.drain(..said).collect();
        self.tell(&before, parts);
        let opening: String = self.held.drain(..at - said + tag.len()).collect();
        match self.form.calls {
            Some(calls) if tag != THINK.0 => self.inside = Inside::Calls(Calls::new(calls, opening)),
            _ => {
                self.inside = Inside::Thought;
                self.fresh = true;
            }
        }
        true
    }

    fn tell_all_but(&mut self, n_bytes: usize, parts: &mut Vec<Part>) -> bool {
        let text: String = self.held.drain(..self.held.len() - n_bytes).collect();
        self.tell(&text, parts);
        false
    }

    fn tell(&mut self, text: &str, parts: &mut Vec<Part>) {
        let text = if self.fresh { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        self.fresh = false;
        match (&self.inside, parts.last_mut()) {
            (Inside::Thought, Some(Part::Thought(last))) => last.push_str(text),
            (Inside::Thought, _) => parts.push(Part::Thought(text.to_owned())),
            (_, Some(Part::Content(last))) => last.push_str(text),
            _ => parts.push(Part::Content(text.to_owned())),
        }
        self.silent &= matches!(self.inside, Inside::Thought);
    }
}

/// Bytes at the end of a text that may be the beginning of a tag, or white space that a tag would swallow.
fn trailing(text: &str, tags: &[&str]) -> usize {
    if tags.is_empty() {
        return 0;
    }
    let begins = |tag: &&str| (1..tag.len()).rev().find(|&n| text.ends_with(&tag[..n])).unwrap_or(0);
    let tag = tags.iter().map(begins).max().unwrap_or(0);
    let before = &text[..text.len() - tag];
    tag + before.len() - before.trim_end().len()
}

#[cfg(test)]
mod tests;
