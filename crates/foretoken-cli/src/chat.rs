//! `foretoken chat`: a conversation. What was read and written stays cached between turns.

use std::io::{self, BufRead, IsTerminal, Read};
use std::process::ExitCode;

use foretoken_engine::{Engine, ModelFile, Request};
use foretoken_formats::chat::Message;
use foretoken_formats::printable;
use foretoken_formats::tokenizer::Special;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::answer::{Shown, stream};
use crate::error::CliError;
use crate::options::{AnswerOptions, count};
use crate::output;
use crate::prompt::{MAX_STDIN, utf8};
use crate::report;

/// Talk with a model
///
/// Needs a model with a chat template. After each answer a line says how fast it was. Ctrl-C stops an answer; at the
/// prompt it ends the conversation. Lines may also come from a pipe, one message a line.
#[derive(clap::Args, Debug)]
#[command(after_long_help = COMMANDS, args_override_self = true)]
pub struct Args {
    /// A system message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,

    /// Most tokens of an answer; 0 writes until the answer ends or the context is full
    #[arg(short = 'n', long, value_name = "TOKENS", default_value_t = 0, value_parser = count)]
    max_tokens: usize,

    /// Colour the text by who guessed each token, and say how many each gave
    #[arg(long)]
    show: bool,

    #[command(flatten)]
    options: AnswerOptions,
}

const COMMANDS: &str = "\
In the conversation:
  /reset         forget everything said
  /system TEXT   set the system message, and forget everything said
  /help          these commands
  /quit          end; so do Ctrl-D and Ctrl-C
  //TEXT         say /TEXT";

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, CliError> {
    let mut input = Input::open();
    let AnswerOptions { model, draft, .. } = &args.options;
    let file = model.open()?;
    if file.chat_template().is_none() {
        return Err(CliError::NoChatTemplate { model: printable(&file.name()) });
    }
    // Wrong options are told now, not after the first message: one token stands in for it.
    model.check(&file, &args.request(&file, vec![0])?)?;
    let engine = model.load(file, draft, None)?;
    let mut conversation = Conversation { args, engine, system: args.system.clone(), said: Vec::new() };
    if input.is_terminal() {
        output::note(format_args!("{} is ready. /help lists commands.", printable(&conversation.engine.file().name())));
    }
    loop {
        let line = match input.read_line() {
            Ok(Some(line)) => line,
            Ok(None) => break,
            // The next line may be better.
            Err(error @ CliError::NotUtf8 { .. }) => {
                output::note(format_args!("{:?}", miette::Report::new(error)));
                continue;
            }
            Err(error) => return Err(error),
        };
        let line = line.trim();
        match line.split_once(char::is_whitespace).unwrap_or((line, "")) {
            ("", _) => {}
            _ if line.starts_with("//") => conversation.say(&line[1..])?,
            ("/quit" | "/exit", _) => break,
            ("/help", _) => output::note(COMMANDS),
            ("/reset", _) => conversation.reset(),
            ("/system", text) => {
                conversation.system = Some(text.trim().to_owned()).filter(|text| !text.is_empty());
                conversation.reset();
            }
            (command, _) if command.starts_with('/') => {
                output::note(format_args!("there is no command {command}; /help lists them"))
            }
            _ => conversation.say(line)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn request(&self, file: &ModelFile, prompt: Vec<u32>) -> Result<Request, CliError> {
        Ok(Request { reuse: true, ..self.options.request(file, prompt, self.max_tokens)? })
    }
}

struct Conversation<'a> {
    args: &'a Args,
    engine: Engine,
    system: Option<String>,
    said: Vec<Message>,
}

impl Conversation<'_> {
    fn reset(&mut self) {
        self.said.clear();
        output::note("(a new conversation)");
    }

    fn say(&mut self, line: &str) -> Result<(), CliError> {
        self.said.push(Message::new("user", line));
        match self.answer() {
            Ok(text) => self.said.push(Message::new("assistant", &text)),
            // What was wrong with one message does not end the conversation.
            Err(error @ (CliError::Request { .. } | CliError::Format(_))) => {
                self.said.pop();
                output::note(format_args!("{:?}", miette::Report::new(error)));
                output::note("(the message was not sent; /reset makes room)");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<String, CliError> {
        let system = self.system.iter().map(|text| Message::new("system", text));
        let messages: Vec<Message> = system.chain(self.said.iter().cloned()).collect();
        let prompt = self.engine.file().encode_chat(&messages, Special::AsText)?;
        let shown = Shown { sources: self.args.show, ..Shown::default() };
        let request = self.args.request(self.engine.file(), prompt)?;
        let outcome = stream(&mut self.engine, request, shown)?;
        output::text("\n")?;
        let (cached, prompt) = (outcome.cached_tokens, outcome.prompt_tokens);
        output::note(format_args!("({}; {cached} of {prompt} prompt tokens were cached)", report::short(&outcome)));
        if let Err(error) = report::check(&outcome) {
            output::note(format_args!("{:?}", miette::Report::new(error)));
        }
        Ok(outcome.text)
    }
}

/// Lines from a terminal, with editing and history, or from a pipe.
enum Input {
    Terminal(Box<DefaultEditor>),
    Pipe,
}

impl Input {
    fn open() -> Self {
        match DefaultEditor::new() {
            Ok(editor) if io::stdin().is_terminal() => Self::Terminal(Box::new(editor)),
            _ => Self::Pipe,
        }
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// The next line; `None` at the end, and after Ctrl-C at the prompt.
    fn read_line(&mut self) -> Result<Option<String>, CliError> {
        match self {
            Self::Pipe => {
                let mut line = Vec::new();
                let mut input = io::stdin().lock().take(MAX_STDIN);
                let read = input.read_until(b'\n', &mut line).map_err(CliError::Stdin)?;
                if read == 0 { Ok(None) } else { utf8(line, "this line").map(Some) }
            }
            Self::Terminal(editor) => match editor.readline("> ") {
                Ok(line) => {
                    // A history that cannot be kept is no reason to end.
                    let _ = editor.add_history_entry(&line);
                    Ok(Some(line))
                }
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
                Err(error) => Err(CliError::Stdin(io::Error::other(error))),
            },
        }
    }
}
