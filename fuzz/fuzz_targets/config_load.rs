//! Any text as `gateway.yaml`: no panic, and whatever is wrong can be printed.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portcullis::config::fuzz_load(data));
