//! Texts under a grammar: every token is allowed, drafts change nothing, and the end comes where the grammar ends.

use foretoken_decode::acceptors::AcceptorKind;
use foretoken_decode::budget::{CostModel, CostTable};
use foretoken_decode::constraint::{Constraint, TokenMask};
use foretoken_decode::drafters::{Drafter, Grammar, PromptLookup, Recycle, Suffix};
use foretoken_decode::sampler::SamplerSettings;
use foretoken_decode::{Decoder, DecoderOptions, DraftPolicy, Request, RequestError, TokenId};
use foretoken_testkit::adversaries::{Drawer, Nonsense, RandomTrees};
use foretoken_testkit::{
    Output, Rng, SamplingDrafter, Script, Setup, ToyCache, ToyModel, ToyTarget, ToyText, generate,
};

type Drafters = Vec<Box<dyn Drafter<ToyTarget>>>;

fn drafters(model: &ToyModel, seed: u64) -> Vec<Drafters> {
    let drawer = |wrong, siblings| Drawer { model: model.clone(), wrong, siblings, depth: 5, rng: Rng::new(seed) };
    vec![
        vec![Box::new(Grammar)],
        vec![Box::new(PromptLookup::default())],
        vec![Box::new(Suffix::default()), Box::new(Grammar)],
        vec![Box::new(Recycle::default())],
        vec![Box::new(RandomTrees(Rng::new(seed)))],
        vec![Box::new(Nonsense(Rng::new(seed)))],
        vec![Box::new(drawer(0.0, 1))],
        vec![Box::new(drawer(0.3, 3)), Box::new(Grammar), Box::new(RandomTrees(Rng::new(seed)))],
        vec![Box::new(SamplingDrafter { model: model.clone(), depth: 3, siblings: 1 })],
    ]
}

fn request(rng: &mut Rng, model: &ToyModel) -> Request {
    let mut request = Request::new(rng.tokens(1 + *rng.clone().pick(&[0, 1, 20]), model.vocab_size));
    request.sampler = SamplerSettings {
        temperature: *rng.pick(&[0.0, 0.5, 1.0, 2.0]),
        top_k: *rng.pick(&[0, 0, 3]),
        top_p: *rng.pick(&[1.0, 0.8]),
        presence_penalty: *rng.pick(&[0.0, 0.0, 1.5]),
        seed: rng.next_u64(),
        ..SamplerSettings::default()
    };
    request.max_tokens = Some(1 + rng.below(50));
    request.end_tokens = [3, rng.below(model.vocab_size) as TokenId].into();
    if rng.chance(0.8) {
        let fails_at = rng.chance(0.05).then(|| rng.below(30));
        let mut script = Script::new(rng.next_u64(), model.vocab_size);
        script.fails_at = fails_at;
        request.constraint = Some(Box::new(script));
    }
    if rng.chance(0.2) {
        request.stop = vec!["ab".into(), "é".into()];
    }
    if rng.chance(0.3) {
        request.logprobs = Some(rng.below(4));
    }
    if rng.chance(0.2) {
        request.min_tokens = rng.below(request.max_tokens.unwrap());
    }
    request
}

/// Fails when a token was not allowed.
fn check(output: &Output, request: &Request) {
    let Some(mut constraint) = request.constraint.clone() else { return };
    for (index, &token) in output.tokens.iter().enumerate() {
        let mut mask = TokenMask::none(12);
        constraint.mask(&mut mask).expect("it was drawn from");
        if request.end_tokens.contains(&token) {
            assert!(constraint.may_end(), "the text ended where it may not");
            request.end_tokens.iter().for_each(|&token| mask.forbid(token));
            assert!(index >= request.min_tokens || mask.is_empty(), "too early, and there was more to say");
            assert_eq!(index + 1, output.tokens.len());
            return;
        }
        assert!(mask.allows(token), "a forbidden token: {token}");
        constraint.advance(token);
    }
}

#[test]
fn drafts_change_nothing_and_forbidden_tokens_never_come() {
    let (mut accepted, mut ended, mut failed) = (0, 0, 0);
    for case in 0..2500 {
        let mut rng = Rng::new(case);
        let model = ToyModel { scale: *rng.pick(&[0.0, 3.0, 8.0]), seed: case, ..ToyModel::default() };
        let mut requests: Vec<Request> = (0..1 + rng.below(3)).map(|_| request(&mut rng, &model)).collect();
        let plain = |request: &Request| generate(&model, Setup::default(), vec![request.clone()]).remove(0);
        let expected: Vec<Output> = requests.iter().map(plain).collect();
        for request in &mut requests {
            request.draft = *rng.pick(&[DraftPolicy::Budget, DraftPolicy::Width(1 + case as usize % 12)]);
        }
        let mut all = drafters(&model, case);
        let which = rng.below(all.len());
        let page_size = *rng.pick(&[2, 16]);
        let setup = Setup {
            page_size,
            n_pages: if rng.chance(0.3) { 100usize.div_ceil(page_size) } else { 4096 },
            options: DecoderOptions {
                max_rows: *rng.pick(&[2, 7, 512]),
                max_draft: 1 + rng.below(16),
                ..DecoderOptions::default()
            },
            drafters: all.swap_remove(which),
            ..Setup::default()
        };
        for ((actual, expected), request) in
            generate(&model, setup, requests.clone()).iter().zip(&expected).zip(&requests)
        {
            assert_eq!(actual.visible(), expected.visible(), "case {case}, drafters {which}");
            check(actual, request);
            accepted += actual.stats.accepted;
            ended += usize::from(actual.finish.starts_with("EndToken"));
            failed += usize::from(actual.finish.contains("told to fail"));
        }
    }
    assert!(accepted > 3000 && ended > 1000 && failed > 30, "{accepted} {ended} {failed}");
}

/// Takes exactly these tokens.
#[derive(Clone, Debug)]
struct Exactly(Vec<TokenId>, usize);

impl Constraint for Exactly {
    fn mask(&mut self, mask: &mut TokenMask) -> Result<(), String> {
        self.0.get(self.1).into_iter().for_each(|&token| mask.allow(token));
        Ok(())
    }

    fn allows(&mut self, token: TokenId) -> bool {
        self.0.get(self.1) == Some(&token)
    }

    fn advance(&mut self, _token: TokenId) {
        self.1 += 1;
    }

    fn rollback(&mut self, n: usize) {
        self.1 -= n;
    }

    fn may_end(&mut self) -> bool {
        self.1 == self.0.len()
    }

    fn forced(&mut self, tokens: &mut Vec<TokenId>) {
        tokens.extend(&self.0[self.1..]);
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

#[test]
fn forced_tokens_come_many_a_pass_and_the_end_is_the_grammars() {
    let model = ToyModel::default();
    let tokens: Vec<TokenId> = (0..12).map(|i| [5, 1, 7, 0][i % 4]).collect();
    for (width, passes) in [(1, 7), (3, 4), (12, 1), (40, 1)] {
        let mut request = Request::new(vec![1, 2]);
        request.sampler = SamplerSettings { seed: 3, ..SamplerSettings::default() };
        request.constraint = Some(Box::new(Exactly(tokens.clone(), 0)));
        request.end_tokens = [4, 9].into();
        // There is nothing but the end after them, however many tokens were asked for.
        request.min_tokens = 40;
        request.draft = DraftPolicy::Width(width);
        let setup = Setup { drafters: vec![Box::new(Grammar)], ..Setup::default() };
        let output = generate(&model, setup, vec![request.clone()]).remove(0);
        assert_eq!(output.tokens[..12], tokens);
        assert!(request.end_tokens.contains(&output.tokens[12]) && output.tokens.len() == 13);
        assert!(output.finish.starts_with("EndToken"));
        assert_eq!(output.stats.passes, passes, "width {width}");
        assert_eq!(output.stats.drafted, output.stats.accepted);
    }
}

#[test]
fn what_others_guess_is_completed() {
    let model = ToyModel::default();
    let drawer = || Box::new(Drawer { model: model.clone(), wrong: 0.0, siblings: 1, depth: 1, rng: Rng::new(1) });
    let passes = |drafters: &dyn Fn() -> Drafters| -> (usize, usize) {
        let run = |seed| {
            let mut request = Request::new(vec![1, 2]);
            request.sampler = SamplerSettings { seed, ..SamplerSettings::default() };
            request.constraint = Some(Box::new(Script::new(seed, model.vocab_size)));
            request.end_tokens = [3].into();
            request.max_tokens = Some(40);
            request.draft = DraftPolicy::Width(8);
            generate(&model, Setup { drafters: drafters(), ..Setup::default() }, vec![request]).remove(0).stats
        };
        (0..100).map(run).fold((0, 0), |sum, stats| (sum.0 + stats.passes, sum.1 + stats.output_tokens))
    };
    let (alone, tokens) = passes(&|| vec![drawer()]);
    let (completed, same) = passes(&|| vec![drawer(), Box::new(Grammar)]);
    let (before, _) = passes(&|| vec![Box::new(Grammar), drawer()]);
    assert_eq!(tokens, same);
    assert!(
        completed * 20 < before * 19 && before * 10 < alone * 9,
        "{completed} {before} {alone} passes for {tokens} tokens"
    );
}

#[test]
fn forbidden_guesses_are_not_run() {
    let model = ToyModel { scale: 0.0, ..ToyModel::default() };
    let mut decoder = Decoder::new(
        ToyTarget::new(model),
        ToyCache::new(16, 100, 1),
        ToyText,
        (),
        CostModel::fixed(CostTable::linear(1.0, 0.0)),
    )
    .with_drafter(Box::new(RandomTrees(Rng::new(1))));
    let mut request = Request::new(vec![1]);
    request.constraint = Some(Box::new(Exactly(vec![2; 200], 0)));
    request.end_tokens = [3].into();
    request.draft = DraftPolicy::Width(16);
    decoder.admit(request).expect("a valid request");
    let (mut tokens, mut drafted, mut accepted) = (0, 0, 0);
    while decoder
        .step(&mut |event| {
            tokens += event.tokens.len();
            (drafted, accepted) = (event.stats.drafted, event.stats.accepted);
        })
        .expect("a sound target")
    {}
    let stats = decoder.drafter_stats().next().expect("one drafter");
    assert!(stats.forbidden > 300, "{stats:?}");
    assert!(accepted > 10, "a twelfth of the guesses is right");
    assert_eq!((tokens, drafted), (201, accepted), "what was run was allowed, and so the only choice");
}

#[test]
fn every_acceptor_keeps_to_the_grammar() {
    let model = ToyModel::default();
    let mut n_tokens = 0;
    for (seed, acceptor) in (0..200).flat_map(|seed| AcceptorKind::ALL.map(|acceptor| (seed, acceptor))) {
        let mut request = request(&mut Rng::new(seed), &model);
        let script = Script::new(seed, model.vocab_size);
        request.constraint = Some(Box::new(script));
        request.acceptor = acceptor;
        request.draft = DraftPolicy::Width(6);
        request.drafters = vec!["sampling".into(), "grammar".into()];
        let other = ToyModel { seed: 77, ..model.clone() };
        let drafters: Drafters =
            vec![Box::new(SamplingDrafter { model: other, depth: 4, siblings: 2 }), Box::new(Grammar)];
        let output = generate(&model, Setup { drafters, ..Setup::default() }, vec![request.clone()]).remove(0);
        check(&output, &request);
        n_tokens += output.tokens.len();
    }
    assert!(n_tokens > 2000, "{n_tokens}");
}

#[test]
fn a_grammar_needs_an_end() {
    let mut request = Request::new(vec![1]);
    request.constraint = Some(Box::new(Script::new(1, 12)));
    assert_eq!(request.validate(12, 100), Err(RequestError::ConstraintWithoutEnd));
    request.end_tokens = [3].into();
    assert_eq!(request.validate(12, 100), Ok(()));
    request.ignore_eos = true;
    assert_eq!(request.validate(12, 100), Err(RequestError::ConstraintWithoutEnd));
}
