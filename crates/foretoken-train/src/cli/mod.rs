//! The subcommands of `foretoken-train`.

pub mod bench;
pub mod evaluate;
pub mod export;
pub mod prepare;
pub mod train;
