//! libFuzzer's entry to the `tokenizer` target.
#![no_main]

mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::tokenizer(bytes));
