//! Any bytes as a JSON-RPC message: no panic, no limit broken, no disagreement with serde_json.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portcullis::jsonrpc::fuzz_parse(data));
