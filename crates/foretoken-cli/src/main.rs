//! The `foretoken` binary.
fn main() {}
