//! The `converter` program; everything it does is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    converter::cli::run(std::env::args_os())
}
