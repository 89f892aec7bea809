//! `benches`: forwards of GGUF models in tokens a second, as a table.

use std::process::ExitCode;

fn main() -> ExitCode {
    benches::cli::run(std::env::args_os())
}
