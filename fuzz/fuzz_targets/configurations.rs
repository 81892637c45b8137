//! The target `configurations` for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| watchet_fuzz::run("configurations", input));
