//! libFuzzer's entry to the `chat` target.
#![no_main]

mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::chat(bytes));
