//! No drafter can change the text. A new drafter joins by one line in `drafters`.

use foretoken_decode::budget::{CostModel, CostTable};
use foretoken_decode::drafters::{Drafter, NoDraft, PromptLookup};
use foretoken_decode::sampler::SamplerSettings;
use foretoken_decode::{Decoder, DraftPolicy, Request, TokenId};
use foretoken_testkit::{Rng, ToyCache, ToyModel, ToyTarget};

fn drafters() -> Vec<(&'static str, Box<dyn Drafter<ToyTarget>>)> {
    vec![("none", Box::new(NoDraft)), ("prompt_lookup", Box::new(PromptLookup::default()))]
}

fn run(model: &ToyModel, drafter: Option<Box<dyn Drafter<ToyTarget>>>, request: Request) -> (Vec<TokenId>, usize) {
    let cost = CostModel::fixed(CostTable::linear(1.0, 0.01));
    let target = ToyTarget::new(model.clone());
    let mut decoder = Decoder::new(target, ToyCache::new(4, 4096, 3), (), (), cost);
    if let Some(drafter) = drafter {
        decoder = decoder.with_drafter(drafter);
    }
    decoder.admit(request).unwrap();
    let mut tokens = Vec::new();
    let mut passes = 0;
    while decoder
        .step(&mut |event| {
            tokens.extend_from_slice(event.tokens);
            passes = event.stats.passes;
        })
        .unwrap()
    {}
    (tokens, passes)
}

#[test]
fn smoke() {
    let mut rng = Rng::new(5);
    for (case, temperature) in [0.0, 0.3, 1.0].into_iter().cycle().take(60).enumerate() {
        let model = ToyModel { seed: case as u64, ..ToyModel::default() };
        let mut request = Request::new(rng.tokens(10, 12));
        request.max_tokens = Some(100);
        request.draft = DraftPolicy::Width(1 + case % 8);
        request.sampler = SamplerSettings { temperature, seed: 3, ..SamplerSettings::default() };
        let (expected, plain) = run(&model, None, request.clone());
        assert_eq!(expected.len(), 100);
        for (name, drafter) in drafters() {
            let (actual, passes) = run(&model, Some(drafter), request.clone());
            assert_eq!(actual, expected, "{name}");
            if case < 3 {
                println!("{name} T={temperature}: {passes} passes of {plain}");
            }
        }
    }
}
