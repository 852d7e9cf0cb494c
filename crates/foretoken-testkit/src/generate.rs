//! Runs requests to their end on the toy target, and keeps everything that came out.

use foretoken_decode::budget::{CostModel, CostTable};
use foretoken_decode::drafters::Drafter;
use foretoken_decode::sampler::TokenLogprobs;
use foretoken_decode::{Decoder, DecoderOptions, FinishReason, Request, RequestId, RequestStats, TokenId};

use crate::toy::{ToyModel, ToyTarget};
use crate::toy_cache::ToyCache;
use crate::toy_text::ToyText;

/// How the requests are run; none of it may show in a text.
pub struct Setup {
    /// Tokens per page.
    pub page_size: usize,
    /// Pages in all.
    pub n_pages: usize,
    /// Sizes of the loop.
    pub options: DecoderOptions,
    /// What passes cost, for the budget.
    pub cost: CostTable,
    /// In the order of their sources.
    pub drafters: Vec<Box<dyn Drafter<ToyTarget>>>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            page_size: 16,
            n_pages: 4096,
            options: DecoderOptions::default(),
            cost: CostTable::linear(1.0, 0.05),
            drafters: Vec::new(),
        }
    }
}

/// One request's output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The tokens.
    pub tokens: Vec<TokenId>,
    /// The text.
    pub text: String,
    /// One per token when asked for.
    pub logprobs: Vec<TokenLogprobs>,
    /// Why it ended, as `Debug` shows it.
    pub finish: String,
    /// Counts at the end.
    pub stats: RequestStats,
}

impl Output {
    /// What has to be the same whatever is drafted.
    pub fn visible(&self) -> (&[TokenId], &str, &[TokenLogprobs], &str) {
        (&self.tokens, &self.text, &self.logprobs, &self.finish)
    }
}

/// A decoder over the toy target.
pub type ToyDecoder = Decoder<ToyTarget, ToyText, ()>;

impl Setup {
    /// The decoder that this describes.
    pub fn decoder(self, model: &ToyModel) -> ToyDecoder {
        let cache = ToyCache::new(self.page_size, self.n_pages, 7);
        let target = ToyTarget::new(model.clone());
        let decoder = Decoder::new(target, cache, ToyText, (), CostModel::fixed(self.cost)).with_options(self.options);
        self.drafters.into_iter().fold(decoder, Decoder::with_drafter)
    }
}

/// Runs all requests together on a decoder of their own until each has ended, in the order given.
pub fn generate(model: &ToyModel, setup: Setup, requests: Vec<Request>) -> Vec<Output> {
    let max_rows = setup.options.max_rows;
    let mut decoder = setup.decoder(model);
    let outputs = answer(&mut decoder, requests);
    assert!(decoder.target().most_rows <= max_rows, "a pass has more rows than allowed");
    outputs
}

/// Runs all requests together on an idle decoder until each has ended, in the order given.
pub fn answer(decoder: &mut ToyDecoder, requests: Vec<Request>) -> Vec<Output> {
    let prompts: Vec<Vec<TokenId>> = requests.iter().map(|request| request.prompt.clone()).collect();
    let ids: Vec<RequestId> =
        requests.into_iter().map(|request| decoder.admit(request).expect("a valid request")).collect();
    let mut outputs = vec![Output::default(); ids.len()];
    let index = |id: RequestId| ids.iter().position(|&other| other == id).expect("an admitted request");
    let mut running = true;
    while running {
        running = decoder
            .step(&mut |event| {
                let output = &mut outputs[index(event.request)];
                assert!(output.finish.is_empty(), "nothing comes after the last event");
                output.tokens.extend_from_slice(event.tokens);
                output.text.push_str(event.text);
                output.logprobs.extend_from_slice(event.logprobs);
                output.stats = event.stats.clone();
                output.finish = event.finish.map(|finish: &FinishReason| format!("{finish:?}")).unwrap_or_default();
            })
            .expect("the loop keeps the target's rules");
    }
    assert!(decoder.is_idle());
    decoder.forget_kept();
    assert_eq!(decoder.cache().pages_in_use(), 0, "every page is given back");
    for (output, prompt) in outputs.iter().zip(&prompts) {
        check_counts(output, prompt.len());
    }
    outputs
}

/// The arithmetic that counters keep.
fn check_counts(output: &Output, prompt_len: usize) {
    let stats = &output.stats;
    assert!(!output.finish.is_empty(), "every request ends");
    assert_eq!(stats.prompt_tokens, prompt_len);
    assert_eq!(stats.output_tokens, output.tokens.len(), "{stats:?}");
    assert_eq!(stats.output_tokens, stats.passes + stats.accepted, "{stats:?}");
    assert!(stats.accepted <= stats.drafted, "{stats:?}");
    assert_eq!(stats.by_depth.iter().map(|d| d.accepted).sum::<usize>(), stats.accepted, "{stats:?}");
}
