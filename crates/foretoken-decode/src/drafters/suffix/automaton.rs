//! A suffix automaton that grows token by token: every substring of its texts, what followed it, and how often.
//!
//! Blumer et al. 1985, in the on-line form for several texts. A state stands for substrings that end at the same places;
//! its link for their longest suffix that also ends elsewhere. At most two states and three edges a token.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::TokenId;
use crate::sampler::TokenHasher;

/// Index of a state; 0 is the empty string.
type StateId = u32;

const ROOT: StateId = 0;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct State {
    /// Length of its longest string.
    len: u32,
    link: StateId,
    /// Places where its strings end.
    count: u32,
    /// The token count of the automaton when it was last seen.
    latest: u32,
    first_edge: u32,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    token: TokenId,
    target: StateId,
    next: u32,
}

/// A suffix of a text, as far as an automaton knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::drafters) struct Match {
    state: StateId,
    /// Tokens that match.
    pub len: u32,
}

/// What followed a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::drafters) struct Continuation {
    /// The token.
    pub token: TokenId,
    /// How often it followed.
    pub count: u32,
    /// Larger when it followed more recently.
    pub latest: u32,
}

/// The automaton of some texts.
#[derive(Debug)]
pub(in crate::drafters) struct Automaton {
    states: Vec<State>,
    edges: Vec<Edge>,
    index: HashMap<u64, u32, BuildHasherDefault<TokenHasher>>,
    last: StateId,
    n_tokens: u32,
    /// Edges on their way to a state split off; empty between calls, so that its memory stays.
    copied: Vec<(TokenId, StateId)>,
}

impl State {
    const ROOT: Self = Self { len: 0, link: NONE, count: 0, latest: 0, first_edge: NONE };
}

impl Default for Automaton {
    fn default() -> Self {
        Self {
            states: vec![State::ROOT],
            edges: Vec::new(),
            index: HashMap::default(),
            last: ROOT,
            n_tokens: 0,
            copied: Vec::new(),
        }
    }
}

impl Automaton {
    /// Bytes of memory that it holds.
    pub fn bytes(&self) -> usize {
        let Self { states, edges, index, .. } = self;
        states.capacity() * size_of::<State>()
            + edges.capacity() * size_of::<Edge>()
            + index.capacity() * size_of::<(u64, u32)>()
    }

    /// Links followed to count a new occurrence. In text, suffixes that occurred before are few; in `a a a a` there is one
    /// for each length, and only the longest are counted exactly.
    const COUNTED: usize = 48;

    /// Tokens taken in.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens as usize
    }

    /// Forgets its texts and keeps its memory.
    pub fn clear(&mut self) {
        let Self { states, edges, index, last, n_tokens, copied } = self;
        states.clear();
        states.push(State::ROOT);
        edges.clear();
        index.clear();
        copied.clear();
        (*last, *n_tokens) = (ROOT, 0);
    }

    /// Begins a new text.
    pub fn separate(&mut self) {
        self.last = ROOT;
    }

    /// Appends a token to the text.
    pub fn push(&mut self, token: TokenId) {
        self.n_tokens += 1;
        self.last = match self.edge(self.last, token) {
            Some(edge) => self.split(self.last, edge),
            None => self.append(token),
        };
        let mut state = self.last;
        for _ in 0..Self::COUNTED {
            if state == ROOT {
                break;
            }
            let seen = &mut self.states[state as usize];
            (seen.count, seen.latest) = (seen.count + 1, self.n_tokens);
            state = seen.link;
        }
    }

    /// The longest suffix of the text, which is the only one, that occurred before.
    pub fn repeated(&self) -> Match {
        let link = self.states[self.last as usize].link;
        if link == NONE { Match::default() } else { Match { state: link, len: self.states[link as usize].len } }
    }

    /// The longest known suffix of a matched text one token further.
    pub fn advance(&self, matched: Match, token: TokenId) -> Match {
        let Match { mut state, mut len } = self.settle(matched);
        loop {
            if let Some(edge) = self.edge(state, token) {
                return self.settle(Match { state: self.edges[edge].target, len: len + 1 });
            }
            if state == ROOT {
                return Match::default();
            }
            state = self.states[state as usize].link;
            len = self.states[state as usize].len;
        }
    }

    /// The longest proper suffix of a match that something else followed too; the empty match at last.
    pub fn shorter(&self, matched: Match) -> Match {
        let state = self.states[self.settle(matched).state as usize].link;
        if state == NONE { Match::default() } else { Match { state, len: self.states[state as usize].len } }
    }

    /// What followed a match, newest kinds first, at most `most` of them.
    pub fn continuations(&self, matched: Match, most: usize) -> impl Iterator<Item = Continuation> + '_ {
        let state = &self.states[self.settle(matched).state as usize];
        let edges =
            std::iter::successors(self.edges.get(state.first_edge as usize), |edge| self.edges.get(edge.next as usize));
        edges.take(most).map(|edge| {
            let target = &self.states[edge.target as usize];
            Continuation { token: edge.token, count: target.count, latest: target.latest }
        })
    }

    /// A match whose state has been split since: the state that stands for it now. A match of another automaton may come
    /// out as anything that this one holds.
    fn settle(&self, mut matched: Match) -> Match {
        if matched.state as usize >= self.states.len() {
            return Match::default();
        }
        loop {
            let link = self.states[matched.state as usize].link;
            if link == NONE || matched.len > self.states[link as usize].len {
                return matched;
            }
            matched.state = link;
        }
    }

    fn edge(&self, state: StateId, token: TokenId) -> Option<usize> {
        self.index.get(&key(state, token)).map(|&edge| edge as usize)
    }

    fn add_edge(&mut self, state: StateId, token: TokenId, target: StateId) {
        let edge = self.edges.len() as u32;
        let first = std::mem::replace(&mut self.states[state as usize].first_edge, edge);
        self.edges.push(Edge { token, target, next: first });
        self.index.insert(key(state, token), edge);
    }

    /// The state of the text one token further, for a token that never followed it.
    fn append(&mut self, token: TokenId) -> StateId {
        let new = self.states.len() as StateId;
        let len = self.states[self.last as usize].len + 1;
        self.states.push(State { len, link: ROOT, count: 0, latest: 0, first_edge: NONE });
        let mut state = self.last;
        loop {
            if let Some(edge) = self.edge(state, token) {
                self.states[new as usize].link = self.split(state, edge);
                return new;
            }
            self.add_edge(state, token, new);
            state = self.states[state as usize].link;
            if state == NONE {
                return new;
            }
        }
    }

    /// The state of `state`'s longest string and the edge's token: the edge's target, or a part split off it when that
    /// stands for longer strings too.
    fn split(&mut self, mut state: StateId, edge: usize) -> StateId {
        let Edge { token, target, .. } = self.edges[edge];
        let len = self.states[state as usize].len + 1;
        let whole = self.states[target as usize];
        if whole.len == len {
            return target;
        }
        let part = self.states.len() as StateId;
        self.states.push(State { len, first_edge: NONE, ..whole });
        // Copied oldest first, so that the order stays.
        let mut copied = std::mem::take(&mut self.copied);
        let mut next = whole.first_edge;
        while let Some(edge) = self.edges.get(next as usize) {
            copied.push((edge.token, edge.target));
            next = edge.next;
        }
        copied.drain(..).rev().for_each(|(token, target)| self.add_edge(part, token, target));
        self.copied = copied;
        self.states[target as usize].link = part;
        while let Some(edge) = self.edge(state, token)
            && self.edges[edge].target == target
        {
            self.edges[edge].target = part;
            state = self.states[state as usize].link;
            if state == NONE {
                break;
            }
        }
        part
    }
}

fn key(state: StateId, token: TokenId) -> u64 {
    u64::from(state) << 32 | u64::from(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rng() -> impl FnMut(u32) -> u32 {
        let mut state = 3u64;
        move |n| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % n
        }
    }

    /// Continuations of `pattern` in `texts`, sorted by token.
    fn searched(texts: &[Vec<TokenId>], pattern: &[TokenId]) -> Vec<(TokenId, u32)> {
        let mut counts = std::collections::BTreeMap::new();
        for text in texts {
            for end in pattern.len()..text.len() {
                if text[..end].ends_with(pattern) {
                    *counts.entry(text[end]).or_insert(0) += 1;
                }
            }
        }
        counts.into_iter().collect()
    }

    #[track_caller]
    fn check_continuations(automaton: &Automaton, matched: Match, texts: &[Vec<TokenId>], text: &[TokenId]) {
        let pattern = &text[text.len() - matched.len as usize..];
        let mut found: Vec<_> = automaton.continuations(matched, usize::MAX).map(|c| (c.token, c.count)).collect();
        found.sort_unstable();
        assert_eq!(found, searched(texts, pattern), "after {pattern:?}");
    }

    /// Length of the longest suffix of `text` that occurs in `texts` at least `times` times.
    fn longest(texts: &[Vec<TokenId>], text: &[TokenId], times: usize) -> usize {
        let occurs =
            |suffix: &[TokenId]| texts.iter().flat_map(|t| t.windows(suffix.len())).filter(|w| *w == suffix).count();
        (1..=text.len()).take_while(|&n| occurs(&text[text.len() - n..]) >= times).last().unwrap_or(0)
    }

    #[test]
    fn it_knows_every_substring_and_how_often_each_token_followed() {
        let mut random = rng();
        for alphabet in [2, 3, 8] {
            let (mut automaton, mut texts) = (Automaton::default(), vec![Vec::new()]);
            for i in 0..300 {
                if i % 90 == 89 {
                    automaton.separate();
                    texts.push(Vec::new());
                }
                let token = random(alphabet);
                automaton.push(token);
                texts.last_mut().unwrap().push(token);
                let [text] = &texts[..] else { continue };
                let mut matched = automaton.repeated();
                assert_eq!(matched.len as usize, longest(&texts, text, 2));
                while matched.len > 0 {
                    check_continuations(&automaton, matched, &texts, text);
                    matched = automaton.shorter(matched);
                }
            }
            assert!(automaton.states.len() <= 2 * 300 && automaton.edges.len() <= 3 * 300);
            // Another text is followed along.
            let (mut matched, mut walked) = (Match::default(), Vec::new());
            for _ in 0..200 {
                let token = random(alphabet);
                walked.push(token);
                matched = automaton.advance(matched, token);
                assert_eq!(matched.len as usize, longest(&texts, &walked, 1));
                check_continuations(&automaton, matched, &texts, &walked);
            }
        }
    }

    #[test]
    fn a_match_outlives_the_growth_of_its_automaton() {
        let mut random = rng();
        let (mut automaton, mut texts) = (Automaton::default(), vec![Vec::new()]);
        let (mut matched, mut walked) = (Match::default(), Vec::new());
        for _ in 0..400 {
            let token = random(3);
            automaton.push(token);
            texts[0].push(token);
            check_continuations(&automaton, matched, &texts, &walked);
            let token = random(3);
            walked.push(token);
            matched = automaton.advance(matched, token);
        }
    }

    #[test]
    fn a_text_of_one_token_stays_cheap_and_known() {
        let mut automaton = Automaton::default();
        (0..20_000).for_each(|_| automaton.push(7));
        let matched = automaton.repeated();
        assert_eq!(matched.len, 19_999);
        assert_eq!(automaton.continuations(matched, 9).map(|c| c.token).collect::<Vec<_>>(), [7]);
        assert_eq!(automaton.advance(matched, 8), Match::default());
    }
}
