//! The subcommands of `foretoken-train`.

pub mod baseline;
pub mod bench;
pub mod evaluate;
pub mod export;
pub mod import;
pub mod memory;
pub mod prepare;
pub mod prompts;
pub mod train;
