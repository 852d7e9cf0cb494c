//! One request on its way through the loop.

use std::cell::RefCell;

use crate::TokenId;
use crate::acceptors::{Acceptor, Rows, Verdict, Walk};
use crate::budget::{Promises, SequenceAcceptance, SharedAcceptance, Trust, source_of};
use crate::drafters::{Draft, Limits, Observation};
use crate::generation::{Detokenize, Generation};
use crate::hits::Hits;
use crate::request::{DraftPolicy, FinishReason, Request};
use crate::sampler::{Draw, Sample, Sampler, Scratch};
use crate::target::{Pass, SequenceId, Want, Work};
use crate::trace::{GuessTrace, RequestStats, SequenceTrace};
use crate::tree::{NodeId, Source, TokenTree};

/// Names a request of a decoder; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Everything about one request. The work to do is `tokens` not yet cached.
pub(crate) struct Sequence {
    pub id: RequestId,
    pub sequence: SequenceId,
    /// Prompt and output, all of it decided.
    pub tokens: Vec<TokenId>,
    pub policy: DraftPolicy,
    pub scope: u64,
    /// `[drafter]`: whether it is asked.
    pub asks: Vec<bool>,
    pub reuse: bool,
    pub priority: i32,
    /// Not let in yet, or sent back, until there is room.
    pub waiting: bool,
    pub generation: Generation,
    pub sampler: Sampler,
    pub acceptor: Box<dyn Acceptor>,
    pub acceptance: SequenceAcceptance,
    /// `[drafter]`: how often its guesses would have been worth their time, had it caught up with the text.
    pub paid: Vec<Hits>,
    /// What guesses that take no time promised, and what came of it.
    pub promises: Promises,
    pub stats: RequestStats,
    pub finish: Option<FinishReason>,

    /// Its place in this pass.
    pub place: Option<usize>,
    /// What each drafter proposed in this pass, below the anchor alone.
    pub drafts: Vec<TokenTree>,
    /// What drafters sampled in this pass, when the acceptor judges samples.
    pub samples: Vec<Sample>,
    /// Their union.
    pub proposal: TokenTree,
    /// Guesses that the request's constraint forbids, cut from this pass's drafts.
    pub forbidden: usize,
    /// Where the guesses of `proposal` are in `tree`; `None` for those not run.
    pub placed: Vec<Option<NodeId>>,
    /// Tokens before this pass's first row.
    pub start: usize,
    /// The rows of this pass.
    pub tree: TokenTree,
    pub wants: Vec<Want>,
    pub verdict: Verdict,
    /// Who guessed each of the verdict's tokens; the last of a pass is nobody's guess.
    pub sources: Vec<Source>,
}

impl Sequence {
    /// About the last twenty passes tell how often a drafter pays; that it does is believed like four of them.
    pub const KEEP_PAID: f32 = 0.95;
    const BELIEVED_PAID: f32 = 4.0;

    pub fn new(id: RequestId, sequence: SequenceId, request: Request, context_size: usize, asks: Vec<bool>) -> Self {
        let min_position = request.prompt.len() + request.min_tokens;
        let generation = Generation::new(&request, context_size);
        let sampler = Sampler::new(request.sampler, &request.prompt)
            .with_constraint(request.constraint, request.end_tokens.clone())
            .ban_until(request.end_tokens, min_position)
            .with_logprobs(request.logprobs);
        let anchor = &request.prompt[request.prompt.len() - 1..];
        Self {
            id,
            sequence,
            policy: request.draft,
            scope: request.scope,
            reuse: request.reuse,
            priority: request.priority,
            waiting: true,
            generation,
            sampler,
            acceptor: request.acceptor.make(),
            acceptance: SequenceAcceptance::default(),
            paid: vec![Hits::believed(1.0, Self::BELIEVED_PAID); asks.len()],
            promises: Promises::default(),
            stats: RequestStats { prompt_tokens: request.prompt.len(), ..RequestStats::default() },
            finish: None,
            place: None,
            drafts: vec![TokenTree::new(anchor); asks.len()],
            asks,
            samples: Vec::new(),
            proposal: TokenTree::new(anchor),
            forbidden: 0,
            placed: Vec::new(),
            start: 0,
            tree: TokenTree::new(anchor),
            wants: Vec::new(),
            verdict: Verdict::default(),
            sources: Vec::new(),
            tokens: request.prompt,
        }
    }

    /// Sets this pass's rows to the tokens from `cached` on, at most `max_rows` of them, and no guesses.
    pub fn plan(&mut self, place: usize, cached: usize, max_rows: usize) {
        self.place = Some(place);
        self.forbidden = 0;
        let end = self.tokens.len().min(cached + max_rows);
        self.start = cached;
        self.tree.reset(&self.tokens[cached..end]);
        self.placed.clear();
        self.samples.clear();
        let anchor = &self.tokens[self.tokens.len() - 1..];
        self.proposal.reset(anchor);
        self.drafts.iter_mut().for_each(|tree| tree.reset(anchor));
        self.promises.clear();
        self.wants.clear();
        self.wants.resize(end - cached, Want::Nothing);
        if end == self.tokens.len() {
            self.wants[end - cached - 1] = Want::Logits;
        }
    }

    /// Stays out of this pass.
    pub fn sit_out(&mut self) {
        self.place = None;
        self.wants.clear();
    }

    /// Whether this pass decides tokens; otherwise it only runs a part of the prompt.
    pub fn decides(&self) -> bool {
        self.wants.get(self.tree.anchor()) == Some(&Want::Logits)
    }

    pub fn limits(&self, max_nodes: usize, vocab_size: usize) -> Limits {
        let max_nodes = match self.policy {
            DraftPolicy::Width(width) => max_nodes.min(width),
            DraftPolicy::Off | DraftPolicy::Budget => max_nodes,
        };
        let max_depth = self.generation.left() - 1;
        Limits { max_nodes, max_depth, vocab_size, min_path_p: [0.0; Limits::DEPTHS] }
    }

    /// A draft for drafter `index` to fill.
    pub fn draft<'a>(
        &'a mut self,
        index: usize,
        limits: Limits,
        shared: &'a SharedAcceptance,
        scratch: &'a RefCell<Scratch>,
    ) -> Draft<'a> {
        Draft {
            sequence: self.sequence,
            scope: self.scope,
            tokens: &self.tokens,
            tree: &mut self.drafts[index],
            proposed: &self.proposal,
            source: source_of(index),
            limits,
            draw: Draw::new(&mut self.sampler, scratch, &self.tokens, self.tokens.len() - 1),
            trust: Trust::new(&self.acceptance, shared),
            samples: self.acceptor.takes_samples().then_some(&mut self.samples),
        }
    }

    /// Takes out of drafter `index`'s draft what the constraint forbids and what hangs below it; says how many guesses.
    pub fn cut_forbidden(&mut self, index: usize) -> usize {
        if !self.sampler.is_constrained() {
            return 0;
        }
        let Self { drafts, sampler, .. } = self;
        drafts[index].retain_guesses(|path, token| {
            path.iter().for_each(|&token| sampler.push(token));
            let permitted = sampler.permits(token);
            path.iter().for_each(|_| sampler.pop());
            permitted
        })
    }

    /// Adds guess `node` of the proposal, whose parent has been added, to this pass's rows.
    pub fn run_guess(&mut self, node: NodeId) {
        if self.placed.len() != self.proposal.len() {
            self.placed.clear();
            self.placed.resize(self.proposal.len(), None);
            self.placed[0] = Some(self.tree.anchor());
        }
        let guess = self.proposal.nodes()[node];
        let parent = self.placed[guess.parent].expect("parents are chosen before children");
        self.placed[node] = Some(self.tree.push(parent, guess.token, guess.source, guess.p));
        self.wants.push(Want::Logits);
    }

    /// Runs no guesses after all.
    pub fn drop_guesses(&mut self) {
        self.tree.keep_given();
        self.wants.truncate(self.tree.given());
        self.placed.clear();
    }
}

/// What happens to a sequence in a pass, in this order.
impl Sequence {
    /// Its rows.
    pub fn work(&self) -> Work<'_> {
        Work { sequence: self.sequence, tree: &self.tree, wants: &self.wants }
    }

    /// Draws what the rows decide.
    pub fn decide(&mut self, rows: Rows<'_>, scratch: &mut Scratch) {
        self.verdict.reset(&self.tree);
        if self.decides() {
            let Self { acceptor, tree, samples, sampler, verdict, .. } = self;
            acceptor.decide(Walk { tree, rows, samples, sampler, scratch, verdict });
        }
    }

    /// Cuts the verdict where the text ends.
    pub fn trim(&mut self, detokenize: &impl Detokenize) {
        let drawn = self.verdict.tokens.len();
        self.finish = self.generation.trim(&mut self.verdict, &self.tree, detokenize);
        (self.verdict.tokens.len()..drawn).for_each(|_| self.sampler.pop());
    }

    /// Takes the verdict's tokens, counts them and scores the drafters.
    pub fn advance(&mut self, shared: &mut SharedAcceptance) {
        let tokens = &self.verdict.tokens;
        self.tokens.extend_from_slice(tokens);
        let guesses = self.verdict.path.iter().skip(self.tree.given()).map(|&node| self.tree.nodes()[node].source);
        self.sources.clear();
        self.sources.extend(guesses.take(tokens.len().saturating_sub(1)));
        self.sources.resize(tokens.len(), Source::GIVEN);
        match tokens.len() {
            0 => self.stats.prompt_passes += usize::from(self.finish.is_none()),
            n => self.stats.count(&self.tree, n),
        }
        self.verdict.judgements.iter().for_each(|&judgement| self.stats.judge(judgement));
        self.promises.check(&self.proposal, tokens);
        if !tokens.is_empty() && self.policy != DraftPolicy::Off {
            for (index, tree) in self.drafts.iter().enumerate().filter(|(index, _)| self.asks[*index]) {
                self.acceptance.score(source_of(index), tree, tokens, shared);
            }
        }
    }

    /// What drafters see of it.
    pub fn observation<'a>(&'a mut self, pass: &'a dyn Pass, scratch: &'a RefCell<Scratch>) -> Option<Observation<'a>> {
        let rows = Rows::new(pass, self.place?);
        let Self { sequence, scope, tokens, start, tree, verdict, sampler, .. } = self;
        let draw = Draw::new(sampler, scratch, tokens, *start);
        Some(Observation { sequence: *sequence, scope: *scope, tokens, start: *start, tree, rows, verdict, draw })
    }

    /// Its part in a trace.
    pub fn trace(&self) -> SequenceTrace {
        let guesses = self.proposal.nodes().iter().enumerate().skip(1);
        let proposed = guesses.map(|(node, guess)| GuessTrace {
            token: guess.token,
            parent: guess.parent.checked_sub(1),
            source: guess.source.0,
            p: guess.p,
            run: self.placed.get(node).is_some_and(Option::is_some),
        });
        SequenceTrace {
            request: self.id.0,
            start: self.start,
            given: self.tree.given(),
            proposed: proposed.collect(),
            forbidden: self.forbidden,
            tokens: self.verdict.tokens.clone(),
        }
    }
}
