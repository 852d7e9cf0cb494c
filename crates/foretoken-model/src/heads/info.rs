//! What a file's header says about its prediction heads.

use std::fmt;

use foretoken_formats::gguf::Gguf;

use crate::error::ModelError;

const KIND: &str = "foretoken.heads.kind";
const COUNT: &str = "foretoken.heads.count";
const RECURSIVE: &str = "foretoken.heads.recursive";
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
    /// A norm of `h_k = layer(W [norm(emb); norm(h_{k-1})])`, with keys and values of its own: it reads what the head before it
    /// made, and the token between (DeepSeek-AI 2024, arXiv 2412.19437).
    Sequential,
}

impl HeadKind {
    const ALL: [(&str, Self); 4] = [
        ("linear", Self::Linear),
        ("resblock", Self::ResBlock),
        ("transformer", Self::Transformer),
        ("sequential", Self::Sequential),
    ];
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
    /// Heads with weights of their own: all, or one that serves every depth.
    pub distinct: usize,
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
        let count = count as usize - 1;
        let recursive = kind == HeadKind::Sequential && metadata.get_bool_or(RECURSIVE, false)?;
        Ok((count > 0).then_some(Self { kind, count, distinct: if recursive { 1 } else { count } }))
    }

    /// Whether a tensor of this name belongs to the heads beside the first.
    pub fn owns(tensor: &str) -> bool {
        tensor.starts_with("head.")
    }

    /// Layers that keep K/V rows of their own, behind those of the model.
    pub fn kv_layers(&self) -> usize {
        match self.kind {
            HeadKind::Linear | HeadKind::ResBlock => 0,
            HeadKind::Transformer | HeadKind::Sequential => self.count,
        }
    }

    /// Values of the hidden state that are kept for each position of a model of this width.
    pub fn kept_state(&self, width: usize) -> usize {
        if self.kind == HeadKind::Sequential { width } else { 0 }
    }
}
