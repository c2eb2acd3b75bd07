//! The `portcullis` program: everything it does is in the library's `cli`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Inside a confinement this program is its first process, and nothing else.
    if let Some(code) = portcullis_sandbox::confine::inner(std::env::args_os()) {
        return code;
    }
    // What `portcullis verify` tries, there and here.
    if let Some(code) = portcullis_sandbox::probe::probe(std::env::args_os()) {
        return code;
    }
    portcullis::cli::main()
}
