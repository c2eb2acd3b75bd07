//! Any bytes as an event stream, in any pieces: no panic, no limit broken, and the pieces do not matter.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| portcullis::mcp::sse::fuzz_frames(data));
