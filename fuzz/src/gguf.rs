//! libFuzzer's entry to the `gguf` target.
#![no_main]

mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::gguf(bytes));
