//! What a model wrote and should not have: texts that come round again and again, from which it learns to stop.
//!
//! A small model that always takes the likeliest token soon runs in circles: having written a line twice, it finds a third time
//! likeliest of all, and no text that people wrote shows it how wrong that is. So it reads texts of its own, and where one repeats
//! what it holds twice already, words are not to begin as they do: that adds `-ln(1 - p)` for their beginnings. (Welleck et al.,
//! "Neural text generation with unlikelihood training", arXiv 1908.04319, section 5.2.) What it should have written instead can be
//! given, too: real text to go on with where its own came round once too often (Ross et al., "A reduction of imitation learning and
//! structured prediction to no-regret online learning", arXiv 1011.0686). That is learnt like any text, and so are the prompts;
//! nothing else of what it wrote is. A text of its own that went well can be given as `then` too: heads learn to foresee what
//! their own model will say.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{END_OF_TEXT, Vocabulary};
use crate::TrainError;
use crate::batch::Lesson;
use crate::rng::Rng;

/// Texts of the model's own among those to train on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepeatsConfig {
    /// JSON lines with a `prompt`, the `text` that the model wrote after it, and perhaps what is to come `then`.
    pub texts: PathBuf,
    /// The share of windows that hold such texts, 0 to 1.
    pub share: f64,
    /// What a token to avoid weighs, where one to predict weighs 1.
    #[serde(default = "default_weight")]
    pub weight: f32,
}

fn default_weight() -> f32 {
    1.0
}

impl RepeatsConfig {
    /// Checks the settings.
    pub fn check(&self) -> Result<(), TrainError> {
        if !(0.0..=1.0).contains(&self.share) {
            return Err(TrainError::setting("repeats.share", self.share, "a share of the windows, 0 to 1"));
        }
        match self.weight >= 0.0 && self.weight.is_finite() {
            true => Ok(()),
            false => Err(TrainError::setting("repeats.weight", self.weight, "at least 0")),
        }
    }
}

/// Tokens that stood there twice already when one more repeats them.
const SPAN: usize = 16;
/// So many are no circle when they are all one: indentation.
const LONGEST_RUN: usize = 40;

/// A line of the file.
#[derive(Deserialize)]
struct Line {
    prompt: String,
    text: String,
    then: Option<String>,
}

/// Texts of the model's own.
#[derive(Clone, Debug)]
pub struct Repeats {
    share: f64,
    weight: f32,
    seed: u64,
    texts: Vec<Written>,
}

/// A text with its prompt.
#[derive(Clone, Debug, PartialEq)]
struct Written {
    tokens: Vec<u32>,
    lessons: Vec<Lesson>,
}

/// A window of texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeated {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// For each of them, whether a text begins there.
    pub begins: Vec<bool>,
    /// What heads learn of each of them.
    pub lessons: Vec<Lesson>,
}

impl Repeats {
    /// Reads the texts of which some come round. The seed decides which windows hold which.
    /// The model has tokens below `n_tokens`.
    pub fn read(
        config: &RepeatsConfig,
        vocabulary: &Vocabulary,
        n_tokens: usize,
        seed: u64,
    ) -> Result<Self, TrainError> {
        let path = &config.texts;
        let file = std::fs::read_to_string(path).map_err(TrainError::io("read", path))?;
        let mut texts = Vec::new();
        for (i, line) in file.lines().enumerate() {
            let wrong = |error: serde_json::Error| TrainError::file(path, format!("line {}: {error}", i + 1));
            let line: Line = serde_json::from_str(line).map_err(wrong)?;
            let Some(written) = Written::new(vocabulary, &line)? else { continue };
            if let Some(token) = written.tokens.iter().find(|token| **token as usize >= n_tokens) {
                let message = format!("line {}: a token {token}, and the model has {n_tokens}", i + 1);
                return Err(TrainError::file(path, message));
            }
            texts.push(written);
        }
        if texts.is_empty() {
            return Err(TrainError::file(
                path,
                "no text that repeats itself or has another `then`: nothing is to be learnt from it",
            ));
        }
        Ok(Self { share: config.share, weight: config.weight, seed, texts })
    }

    /// What a token to avoid weighs.
    pub fn weight(&self) -> f32 {
        self.weight
    }

    /// The `index`-th window of a run, of `n` tokens, if it is one of those with such texts.
    pub fn window(&self, index: u64, n: usize) -> Option<Repeated> {
        let mut rng = Rng::new(self.seed, &format!("repeats {index}"));
        if rng.uniform() >= self.share {
            return None;
        }
        let mut window = Repeated { tokens: Vec::new(), begins: Vec::new(), lessons: Vec::new() };
        while window.tokens.len() < n {
            let text = &self.texts[rng.below(self.texts.len())];
            window.begins.push(true);
            window.begins.resize(window.tokens.len() + text.tokens.len(), false);
            window.tokens.extend(&text.tokens);
            window.lessons.extend(&text.lessons);
        }
        window.tokens.truncate(n);
        window.begins.truncate(n);
        window.lessons.truncate(n);
        Some(window)
    }
}

impl Written {
    /// `None` when nothing in it comes round and nothing is to come then.
    fn new(vocabulary: &Vocabulary, Line { prompt, text, then }: &Line) -> Result<Option<Self>, TrainError> {
        let encode = |text: &str| Ok::<_, TrainError>(vocabulary.encode(text)?.into_iter().map(u32::from));
        let mut tokens: Vec<u32> = encode(prompt)?.collect();
        let mut lessons = vec![Lesson::Follow; tokens.len()];
        tokens.extend(encode(text)?);
        let edges: Vec<_> = tokens.iter().map(|token| edges(&vocabulary.decode(&[*token]))).collect();
        let (mut seen, mut run) = (HashMap::<&[u32], u32>::new(), 0);
        for i in lessons.len()..tokens.len() {
            run = if i > 0 && tokens[i] == tokens[i - 1] { run + 1 } else { 0 };
            let times = (i + 1).checked_sub(SPAN).map_or(0, |from| {
                let times = seen.entry(&tokens[from..=i]).or_default();
                *times += 1;
                *times
            });
            let goes_on = i > 0 && edges[i].0 && edges[i - 1].1;
            let begins_word = edges[i].1 && !goes_on;
            let avoided = times > 2 && if run < SPAN { begins_word } else { run >= LONGEST_RUN };
            lessons.push(if avoided { Lesson::Avoid } else { Lesson::Skip });
        }
        if let Some(then) = then {
            tokens.extend(encode(then)?);
        }
        let repeats = lessons.contains(&Lesson::Avoid);
        lessons.resize(tokens.len(), Lesson::Follow);
        tokens.push(u32::from(END_OF_TEXT));
        lessons.push(Lesson::Skip);
        Ok((repeats || then.is_some()).then_some(Self { tokens, lessons }))
    }
}

/// Whether a token's bytes begin, and end, within a word.
fn edges(bytes: &[u8]) -> (bool, bool) {
    let in_word = |byte: &u8| byte.is_ascii_alphanumeric() || !byte.is_ascii();
    (bytes.first().is_some_and(in_word), bytes.last().is_some_and(in_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(prompt: &str, text: &str, then: Option<&str>) -> Line {
        Line { prompt: prompt.to_owned(), text: text.to_owned(), then: then.map(str::to_owned) }
    }

    fn lessons_of(line: &Line) -> Option<String> {
        let written = Written::new(&Vocabulary::bytes(), line).unwrap()?;
        let signs = written.lessons.iter().map(|lesson| match lesson {
            Lesson::Follow => '+',
            Lesson::Skip => '.',
            Lesson::Avoid => 'x',
        });
        let signs: String = signs.collect();
        let parts = [&line.prompt, &line.text, line.then.as_deref().unwrap_or_default()];
        assert_eq!(signs.len(), parts.map(str::len).iter().sum::<usize>() + 1);
        Some(signs)
    }

    fn lessons(prompt: &str, text: &str) -> Option<String> {
        lessons_of(&line(prompt, text, None))
    }

    #[test]
    fn what_is_to_come_then_is_learnt() {
        assert_eq!(lessons_of(&line("f:\n", "a = b\n", Some("c\n"))).unwrap(), "+++......++.");
        let text = "  one two\n".repeat(6);
        let found = lessons_of(&line("f:\n", &text, Some("c\n"))).unwrap();
        assert!(found.ends_with("++.") && found.contains('x'));
    }

    #[test]
    fn words_are_not_to_begin_as_they_do_from_the_third_time_on() {
        let line = "    return value\n";
        assert_eq!(lessons(line, &line.repeat(2)), None);
        // The span that comes for the third time is whole at the third line's end; from there on, words are avoided.
        let found = lessons("def f(x):\n", &line.repeat(4)).unwrap();
        let (plain, avoiding) = (".".repeat(line.len()), "....x......x.....");
        assert_eq!(found, "+".repeat(10) + &plain.repeat(3) + avoiding + ".");
        // Words joined by underscores are words.
        let found = lessons("", &"set_".repeat(10)).unwrap();
        assert_eq!(&found[24..32], "x...x...");
        assert!(!found[..24].contains('x'));
    }

    #[test]
    fn tokens_of_several_bytes_begin_words_where_their_text_does() {
        let found = [" return", "return", "_set", "(", "\n"].map(|text| edges(text.as_bytes()));
        assert_eq!(found, [(false, true), (true, true), (false, true), (false, false), (false, false)]);
        let folder = crate::scratch::Scratch::new();
        let words = "the cat sat on the mat and the dog ate the cat that sat there ".repeat(40);
        let vocabulary = Vocabulary::train([words.as_str()].into_iter(), 280, folder.path()).unwrap();
        let written =
            Written::new(&vocabulary, &line("so ", &" the cat sat".repeat(20), None)).unwrap().expect("a circle");
        let avoided = written.lessons.iter().filter(|lesson| **lesson == Lesson::Avoid).count();
        assert!(avoided > 9, "{avoided} of {}", written.lessons.len());
    }

    #[test]
    fn indentation_comes_round_for_good_reasons() {
        assert_eq!(lessons("f(\n", &(" ".repeat(36) + "a)\n")), None);
        let found = lessons("f(\n", &" ".repeat(80)).unwrap();
        assert_eq!(found.find('x'), Some(3 + LONGEST_RUN));
    }

    #[test]
    fn windows_hold_whole_texts_one_after_another() {
        let folder = crate::scratch::Scratch::new();
        let texts = folder.path().join("own.jsonl");
        let line = |text: &str| serde_json::json!({"prompt": "p\n", "text": text}).to_string() + "\n";
        let config = |share| RepeatsConfig { texts: texts.clone(), share, weight: 1.0 };
        let read = |share| Repeats::read(&config(share), &Vocabulary::bytes(), 256, 1);
        std::fs::write(&texts, line("nothing comes round")).unwrap();
        assert!(read(1.0).unwrap_err().to_string().contains("no text that repeats itself"));
        std::fs::write(&texts, line("nothing") + &line(&"a b c d e f\n".repeat(9)) + "{").unwrap();
        assert!(read(1.0).unwrap_err().to_string().contains("line 3"));
        std::fs::write(&texts, line(&"a b c d e f\n".repeat(9))).unwrap();
        let small = Repeats::read(&config(1.0), &Vocabulary::bytes(), 100, 1).unwrap_err().to_string();
        assert!(small.contains("line 1: a token 112"), "{small}");
        std::fs::write(&texts, line("nothing") + &line(&"a b c d e f\n".repeat(9))).unwrap();
        let repeats = read(0.25).unwrap();
        let windows: Vec<_> = (0..400).filter_map(|index| repeats.window(index, 300)).collect();
        assert!((60..140).contains(&windows.len()), "{}", windows.len());
        assert!(windows.iter().all(|window| window.begins.iter().filter(|begins| **begins).count() == 3));
        assert_eq!([&windows[0].tokens[..2], &windows[0].tokens[111..113]], [[112, 10]; 2]);
        assert_eq!((0..9).filter_map(|index| read(0.0).unwrap().window(index, 300)).count(), 0);
        let wrong = [(1.5, 1.0), (f64::NAN, 1.0), (0.5, -1.0), (0.5, f32::INFINITY)];
        assert!(wrong.into_iter().all(|(share, weight)| RepeatsConfig { weight, ..config(share) }.check().is_err()));
    }
}
