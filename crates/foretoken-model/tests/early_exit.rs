//! The first layers alone: what they say, and that they leave no trace.

mod common;

use common::{Setup, feed, fixtures, load};
use foretoken_decode::TokenId;
use foretoken_decode::target::{Cache, EarlyExit, Pass, SequenceId, Want, Work};
use foretoken_decode::tree::TokenTree;
use foretoken_model::{Model, PagedCache};

const TEXT: [TokenId; 20] = [5, 9, 2, 7, 7, 1, 3, 8, 4, 6, 11, 12, 2, 9, 5, 1, 1, 14, 3, 10];

/// The logits after `guesses`, one pass a guess, by the first layers; the sequence is as it was afterwards.
fn draft(
    model: &mut Model,
    cache: &mut PagedCache,
    n_layers: usize,
    sequence: SequenceId,
    guesses: &[TokenId],
) -> Vec<f32> {
    let start = cache.committed(sequence);
    let mut logits = Vec::new();
    for &guess in guesses {
        let tree = TokenTree::new(&[guess]);
        let work = [Work { sequence, tree: &tree, wants: &[Want::Logits] }];
        logits = model.verify_first(n_layers, cache, &work).expect("there is room").logits(0, 0).to_vec();
        cache.commit(sequence, &[0]);
    }
    cache.truncate(sequence, start);
    logits
}

#[test]
fn all_layers_are_the_model_and_fewer_leave_no_trace() {
    let mut model = load(&fixtures().join("tiny/llama.gguf"), Setup::default());
    let mut cache = model.cache(256).expect("it is small");
    let (plain, drafted) = (cache.open(), cache.open());
    let expected = feed(&mut model, &mut cache, plain, &TEXT);
    let mut differ = 0;
    for (at, &token) in TEXT.iter().enumerate() {
        let rest = &TEXT[at..];
        // A draft that will come true, and one that will not.
        let shallow = draft(&mut model, &mut cache, 1, drafted, rest);
        draft(&mut model, &mut cache, 1, drafted, &[3; 18]);
        let whole = draft(&mut model, &mut cache, 2, drafted, rest);
        assert_eq!(whole, expected[TEXT.len() - 1]);
        differ += usize::from(shallow != whole);
        assert_eq!(feed(&mut model, &mut cache, drafted, &[token])[0], expected[at]);
    }
    assert_eq!(differ, TEXT.len(), "one layer of two says something else");
}
