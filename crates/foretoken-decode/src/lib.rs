//! Token trees, the coupled sampler, drafters, the budget and the decode loop.
//!
//! Pure: no tensors, files, threads, tokenizer or clock. Generic over [`target::Target`], [`Detokenize`] and [`Clock`].
//! Start at [`Decoder`].

pub mod acceptors;
pub mod budget;
mod clock;
pub mod constraint;
mod decoder;
pub mod drafters;
mod generation;
mod hits;
mod replay;
mod request;
pub mod sampler;
mod sequence;
mod stop;
pub mod target;
mod trace;
pub mod tree;

pub use clock::Clock;
pub use decoder::{Decoder, DecoderOptions, DrafterStats, Event, Load};
pub use generation::Detokenize;
pub use replay::Replay;
pub use request::{DraftPolicy, FinishReason, Request, RequestError};
pub use sequence::RequestId;
pub use stop::StopMatcher;
pub use trace::{Change, DepthCount, Drafting, Fate, GuessTrace, PassTrace, Recorder, RequestStats, SequenceTrace};

/// A token's id in the target's vocabulary.
pub type TokenId = u32;

/// Length of the common beginning.
fn common(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
