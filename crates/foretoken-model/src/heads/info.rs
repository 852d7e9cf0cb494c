//! What a file's header says about its prediction heads.

use std::fmt;

use foretoken_formats::gguf::Gguf;

use crate::error::ModelError;

const KIND: &str = "foretoken.heads.kind";
const COUNT: &str = "foretoken.heads.count";
/// Head 1 included.
const MOST_HEADS: u32 = 16;

/// How a head comes from the hidden state `y` behind the last norm, or from `x`, what goes into the last layer, to what its
/// unembedding multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// `W y`.
    Linear,
    /// `y + silu(W y + b)` (Cai et al. 2024, Medusa, arXiv 2401.10774).
    ResBlock,
    /// The last norm of a layer of `x`, with keys and values of its own (Gloeckle et al. 2024, arXiv 2404.19737).
    Transformer,
}

impl HeadKind {
    const ALL: [(&str, Self); 3] =
        [("linear", Self::Linear), ("resblock", Self::ResBlock), ("transformer", Self::Transformer)];
}

impl fmt::Display for HeadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// The prediction heads that a file says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadsInfo {
    /// Their kind.
    pub kind: HeadKind,
    /// How many, head 1 left out: that is the model itself.
    pub count: usize,
}

impl HeadsInfo {
    /// What the file's metadata says; `None` when it has no heads beside the first. An error names a kind that cannot be
    /// run, and a number that cannot be.
    pub fn of(gguf: &Gguf) -> Result<Option<Self>, ModelError> {
        let metadata = gguf.metadata();
        if !metadata.contains(KIND) {
            return Ok(None);
        }
        let bad = |key: &str, found: &dyn ToString, wanted: String| {
            Err(ModelError::Size { key: key.into(), found: found.to_string(), wanted })
        };
        let found = metadata.get_str(KIND)?;
        let Some(&(_, kind)) = HeadKind::ALL.iter().find(|(name, _)| *name == found) else {
            let known = HeadKind::ALL.map(|(name, _)| name).join(", ");
            return bad(KIND, &found, format!("heads of this kind are not run here; known are {known}"));
        };
        let count = metadata.get_u32(COUNT)?;
        if !(1..=MOST_HEADS).contains(&count) {
            return bad(COUNT, &count, format!("1 to {MOST_HEADS}, the model's own head included"));
        }
        Ok((count > 1).then_some(Self { kind, count: count as usize - 1 }))
    }

    /// Whether a tensor of this name belongs to the heads beside the first.
    pub fn owns(tensor: &str) -> bool {
        tensor.starts_with("head.")
    }

    /// Layers that keep K/V rows of their own, behind those of the model.
    pub fn kv_layers(&self) -> usize {
        if self.kind == HeadKind::Transformer { self.count } else { 0 }
    }
}
