//! A draft model of another vocabulary: the two have only the text in common (compare Timor et al. 2025, arXiv 2502.05202).
//!
//! The draft model reads the text in its own tokens. Where its next token has the same bytes as one of the target's, it is
//! drawn with the target's own processors and noise over those that have; where the likeliest has not, that one is taken.
//! What was written is then encoded as the target would, from the anchor on.

mod retold;

use std::collections::HashMap;
use std::sync::Arc;

use foretoken_decode::TokenId;
use foretoken_decode::budget::DraftCost;
use foretoken_decode::drafters::{Companion, Draft, Drafter, Observation, Retired, WriterOptions};
use foretoken_decode::target::{SequenceId, Target};
use foretoken_decode::tree::{Source, TokenTree};
use foretoken_formats::tokenizer::{Special, TokenKind, Tokenizer};
use foretoken_kernels::{Isa, ops};
use foretoken_model::Model;

use retold::Retold;

/// A token without a like one in the other vocabulary.
const NONE: TokenId = TokenId::MAX;

/// Which tokens of two vocabularies have the same bytes.
pub struct SharedTokens {
    /// By the draft model's id: the target's.
    to_target: Vec<TokenId>,
    /// By the target's id: the draft model's.
    to_draft: Vec<TokenId>,
    count: usize,
}

impl SharedTokens {
    /// Compares two vocabularies; control tokens are no text.
    pub fn of(target: &Tokenizer, draft: &Tokenizer) -> Self {
        let normal = |of: &Tokenizer, id: TokenId| of.kind(id) == TokenKind::Normal && !of.token_bytes(id).is_empty();
        let ids = |of: &Tokenizer| 0..of.vocab_size() as TokenId;
        let by_bytes: HashMap<&[u8], TokenId> =
            ids(target).filter(|&id| normal(target, id)).map(|id| (target.token_bytes(id), id)).collect();
        let mut to_draft = vec![NONE; target.vocab_size()];
        let like = |id: TokenId| by_bytes.get(draft.token_bytes(id)).copied().filter(|_| normal(draft, id));
        let to_target: Vec<TokenId> = ids(draft).map(|id| like(id).unwrap_or(NONE)).collect();
        let mut count = 0;
        for (id, &token) in to_target.iter().enumerate().filter(|(_, token)| **token != NONE) {
            to_draft[token as usize] = id as TokenId;
            count += 1;
        }
        Self { to_target, to_draft, count }
    }

    /// The share of the draft model's tokens that the target has too.
    pub fn share(&self) -> f64 {
        self.count as f64 / self.to_target.len() as f64
    }
}

/// Drafts with a model of another vocabulary.
pub struct ByText {
    companion: Companion<Model>,
    target: Arc<Tokenizer>,
    draft: Arc<Tokenizer>,
    cost: DraftCost,
    options: WriterOptions,
    texts: HashMap<SequenceId, Retold>,
    teller: Teller,
}

impl ByText {
    /// A drafter for a model with the tokenizer `target`, by one with the tokenizer `draft`.
    pub fn new(
        companion: Companion<Model>,
        target: Arc<Tokenizer>,
        draft: Arc<Tokenizer>,
        shared: SharedTokens,
        cost: DraftCost,
    ) -> Self {
        let teller = Teller { shared, isa: Isa::best(), scores: Vec::new(), z: Vec::new(), tree: TokenTree::new(&[0]) };
        Self { companion, target, draft, cost, options: WriterOptions::default(), texts: HashMap::new(), teller }
    }

    /// Makes the companion follow a text; false when it cannot stand at its end.
    fn follow(&mut self, sequence: SequenceId, scope: u64, tokens: &[TokenId]) -> bool {
        let text = self.texts.entry(sequence).or_default();
        text.follow(tokens, &self.target, &self.draft);
        let told = text.tokens(&self.draft).filter(|told| !told.is_empty());
        told.is_some_and(|told| self.companion.set_text(sequence, scope, &told))
    }
}

/// What was written so far beyond one text.
struct Story {
    /// Which draft.
    draft: usize,
    text: Vec<u8>,
    /// Where each of the draft model's tokens ends in `text`, and its chance.
    ends: Vec<(usize, f32)>,
    /// Of the whole.
    p: f32,
    /// The draft model's token to go on from.
    last: TokenId,
}

impl<T: Target> Drafter<T> for ByText {
    fn name(&self) -> &'static str {
        "draft_model"
    }

    fn cost(&self) -> DraftCost {
        self.cost
    }

    fn lag(&self, sequence: SequenceId, n_tokens: usize) -> usize {
        let told = self.texts.get(&sequence).map_or(0, Retold::len);
        let behind = self.companion.text(sequence).map_or(0, |text| self.companion.lag(sequence, text.len()));
        n_tokens.saturating_sub(told) + behind
    }

    fn propose(&mut self, drafts: &mut [Draft<'_>], _target: &mut T, _cache: &mut T::Cache) {
        let mut stories = Vec::new();
        for (index, draft) in drafts.iter().enumerate() {
            let wanted = draft.limits.max_nodes.min(draft.limits.max_depth) > 0;
            if wanted && self.follow(draft.sequence, draft.scope, draft.tokens) {
                stories.push(Story { draft: index, text: Vec::new(), ends: Vec::new(), p: 1.0, last: NONE });
            }
        }
        let Self { companion, target, draft: vocabulary, options, teller, .. } = self;
        let mut going_on: Vec<usize> = (0..stories.len()).collect();
        for _ in 0..options.max_depth {
            let sequences: Vec<SequenceId> = going_on.iter().map(|&i| drafts[stories[i].draft].sequence).collect();
            let mut told = Vec::new();
            companion.run(&sequences, |i, logits| {
                let story = &mut stories[going_on[i]];
                if teller.tell_on(&mut drafts[story.draft], story, logits, target, vocabulary) {
                    told.push(going_on[i]);
                }
            });
            told.retain(|&i| {
                let Story { draft, ends, p, last, .. } = &stories[i];
                let draft = &drafts[*draft];
                *p >= options.min_path_p
                    && draft.limits.goes_on(ends.len(), *p)
                    && companion.append(draft.sequence, *last)
            });
            going_on = told;
        }
        for story in &stories {
            write_down(&mut drafts[story.draft], story, target);
        }
    }

    fn observe(&mut self, seen: &mut [Observation<'_>]) {
        for Observation { sequence, scope, tokens, .. } in seen {
            self.follow(*sequence, *scope, tokens);
        }
    }

    fn retired(&self) -> &[Retired] {
        self.companion.retired()
    }

    fn bytes(&self) -> usize {
        self.companion.bytes()
    }

    fn unlearn(&mut self) {
        self.companion.unlearn();
    }

    fn forget(&mut self, sequence: SequenceId) {
        self.texts.remove(&sequence);
        self.companion.forget(sequence);
    }
}

/// Turns the draft model's logits into text; its buffers.
struct Teller {
    shared: SharedTokens,
    isa: Isa,
    scores: Vec<f32>,
    z: Vec<f32>,
    tree: TokenTree,
}

impl Teller {
    /// Adds one of the draft model's tokens to a story; false when it ends here.
    fn tell_on(
        &mut self,
        draft: &mut Draft<'_>,
        story: &mut Story,
        logits: &[f32],
        target: &Tokenizer,
        vocabulary: &Tokenizer,
    ) -> bool {
        let Self { shared, isa, scores, z, tree } = self;
        let scanned = ops::scan(*isa, logits);
        if scanned.nan || !scanned.max.is_finite() {
            return false;
        }
        z.resize(logits.len(), 0.0);
        ops::scale_logits(*isa, logits, scanned.max, 1.0, z);
        let sum = ops::exp_sum(*isa, z);
        let p = |token: TokenId| (f64::from(ops::exp(z[token as usize])) / sum) as f32;

        let likeliest = scanned.argmax;
        let token = if shared.to_target[likeliest as usize] == NONE && p(likeliest) > 0.5 {
            likeliest
        } else {
            scores.clear();
            scores.resize(draft.limits.vocab_size, f32::NEG_INFINITY);
            for (&token, &logit) in shared.to_target.iter().zip(logits).filter(|(token, _)| **token != NONE) {
                scores[token as usize] = logit;
            }
            // Where the story stands in the target's tokens, as far as these are known.
            tree.reset(&[draft.tree.nodes()[draft.tree.anchor()].token]);
            let node =
                encode(target, &story.text).iter().fold(0, |node, &token| tree.push(node, token, Source(1), 1.0));
            let Ok(token) = draft.draw.draw(tree, node, scores) else { return false };
            shared.to_draft[token as usize]
        };
        if token == NONE || vocabulary.kind(token) != TokenKind::Normal {
            return false;
        }
        story.text.extend_from_slice(vocabulary.token_bytes(token));
        story.ends.push((story.text.len(), p(token)));
        story.p *= p(token);
        story.last = token;
        true
    }
}

/// Adds a story to the draft in the target's tokens, but for a last one that might have gone on.
fn write_down(draft: &mut Draft<'_>, story: &Story, target: &Tokenizer) {
    let tokens = encode(target, &story.text);
    let last_end = story.ends.iter().rev().nth(1).map_or(0, |&(end, _)| end);
    let mut node = draft.tree.anchor();
    let mut ends = story.ends.iter().peekable();
    let mut at = 0;
    for (index, &token) in tokens.iter().enumerate().take(draft.limits.max_depth.min(draft.limits.max_nodes)) {
        let start = at;
        at += target.token_bytes(token).len();
        // The draft model ended a token there too, and began one where it began.
        let is_whole = index + 1 < tokens.len() || (at == story.text.len() && start == last_end);
        if !is_whole {
            return;
        }
        let mut p = 1.0;
        while let Some((_, part)) = ends.next_if(|(end, _)| *end <= at) {
            p *= part;
        }
        node = draft.push(node, token, p);
    }
}

/// The tokens of a text, without a character that is not yet whole.
fn encode(tokenizer: &Tokenizer, text: &[u8]) -> Vec<TokenId> {
    let whole = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&text[..error.valid_up_to()]).expect("it is valid up to there"),
    };
    tokenizer.encode(whole, Special::AsText).unwrap_or_default()
}
