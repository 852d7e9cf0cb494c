//! Bounds repetitions in regular expressions: many of them make many states, and counted ones inside each other multiply.
//! A mask would keep the engine's thread busy with what `llguidance` counts only afterwards.

/// Repetitions in all expressions of a request: time grows with their square and more.
const MOST: usize = 1000;
/// Times that a letter may come for the counted repetitions around it, such as 6 in `(a{2}b){3}`.
const MOST_TIMES: u64 = 10_000;

/// What was counted of several texts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repeats {
    n: usize,
    times: u64,
}

impl Repeats {
    /// Counts those of a regular expression.
    pub fn regex(&mut self, regex: &str) {
        self.n += count(regex);
        self.times = self.times.max(times(regex));
    }

    /// Counts those of a Lark grammar, whose expressions stand between slashes.
    pub fn lark(&mut self, grammar: &str) {
        self.n += count(grammar);
        for line in grammar.lines() {
            // What stands between two expressions is no harm.
            line.split('/').for_each(|part| self.times = self.times.max(times(part)));
        }
    }

    /// Refuses too many, with the reason.
    pub fn judge(self) -> Result<(), String> {
        match self {
            Self { n, .. } if n > MOST => Err(format!("it has {n} repetitions, and at most {MOST} are accepted")),
            Self { times, .. } if times > MOST_TIMES => Err(format!(
                "its counted repetitions are inside each other {times} times, and at most {MOST_TIMES} are accepted"
            )),
            _ => Ok(()),
        }
    }
}

/// Signs of repetitions, from above.
fn count(text: &str) -> usize {
    text.bytes().filter(|byte| matches!(byte, b'*' | b'+' | b'?' | b'{' | b'~')).count()
}

/// Times that a letter may come. What is no regular expression gives any number.
fn times(regex: &str) -> u64 {
    // For each open group, the most times of a letter in it.
    let mut open = vec![1_u64];
    let mut last = 1;
    let mut chars = regex.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                // The braces of `\p{L}` are no count.
                if let Some('p' | 'P' | 'x' | 'u' | 'U') = chars.next()
                    && chars.as_str().starts_with('{')
                {
                    chars.find(|c| *c == '}');
                }
                last = 1;
            }
            '[' => {
                skip_class(&mut chars);
                last = 1;
            }
            '(' => open.push(1),
            ')' if open.len() > 1 => last = open.pop().unwrap_or(1),
            '{' => {
                let (count, rest) = chars.as_str().split_once('}').unwrap_or(("", chars.as_str()));
                let most = count.split(',').filter_map(|n| n.trim().parse::<u64>().ok()).max();
                if let Some(most) = most {
                    last = last.saturating_mul(most.max(1));
                    chars = rest.chars();
                }
            }
            '*' | '+' | '?' => {}
            _ => last = 1,
        }
        if let Some(most) = open.last_mut() {
            *most = last.max(*most);
        }
    }
    open.into_iter().max().unwrap_or(1)
}

/// Reads to the end of a class of letters.
fn skip_class(chars: &mut std::str::Chars<'_>) {
    let mut is_first = true;
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '^' if is_first => continue,
            ']' if !is_first => return,
            _ => {}
        }
        is_first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_inside_each_other_multiply() {
        for (regex, expected) in [
            ("abc", 1),
            ("a{3}", 3),
            ("a{3}b{4}", 4),
            ("(a{3}b){4}", 12),
            ("(?:a{2,3}|(b{5}c)?){4,}", 20),
            ("((a{100}){100}){100}", 1_000_000),
            ("(((a{3})))*x{2}", 3),
            (r"\p{L}{7}\{9}[{99}](\x{41}{2}){3}", 7),
            ("[]{5}x]{2}([^]a]{4}){2}", 8),
            ("a{", 1),
            ("a{x}{3}", 3),
            (")))a{2}", 2),
            ("(((a{2}", 2),
        ] {
            assert_eq!(times(regex), expected, "{regex}");
        }
    }

    #[test]
    fn too_many_are_refused() {
        let judge = |regexes: &[&str]| {
            let mut repeats = Repeats::default();
            regexes.iter().for_each(|regex| repeats.regex(regex));
            repeats.judge()
        };
        assert_eq!(judge(&[r"[0-9]{4}-[0-9]{2}( [a-z]{1,40}){30}", "a*b+c?"]), Ok(()));
        assert!(judge(&[&"a*".repeat(600), &"b?".repeat(600)]).is_err_and(|why| why.contains("1200 repetitions")));
        assert!(judge(&["((a{100}){100}){2}"]).is_err_and(|why| why.contains("20000 times")));
        let mut grammar = Repeats::default();
        grammar.lark("start: A b{2}\nA: /(((x{100}){100}){100})/ \"/\"");
        assert!(grammar.judge().is_err());
    }
}
