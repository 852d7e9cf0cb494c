//! Project tasks: `cargo xtask check` is what CI runs.
fn main() {}
