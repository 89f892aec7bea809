//! The command line: what can be asked for, and which exit code answers.

mod args;
mod help;
mod numbers;
mod threads;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use args::{Cli, Command, ConvertArgs, DummyArgs, EditArgs, InspectArgs, VerifyArgs};
use bitnet_embed::config::Pooling;
use bitnet_embed::gguf::{GgufFile, MappedFile};
use clap::Parser;

use crate::dummy::{self, DummyOptions};
use crate::edit::{EditOptions, edit};
use crate::inspect::Inspection;
use crate::loader::load;
use crate::report::{Report, TerminalProgress, one_line};
use crate::verify::{VerifyOptions, verify};
use crate::{ConvertError, ConvertOptions, EXIT_DIFFERS, EXIT_REFUSED, convert, interrupt, recode};

/// Runs the program with these arguments, the program's name first, and returns its exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to be said where even standard error is closed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    interrupt::listen();
    let result = threads::start().and_then(|()| match (cli.command, cli.convert) {
        (Some(Command::Convert(args)), _) | (None, Some(args)) => run_convert(args).and_then(written),
        (Some(Command::Dummy(args)), _) => run_dummy(args).and_then(written),
        (Some(Command::Edit(args)), _) => run_edit(args).and_then(written),
        (Some(Command::Inspect(args)), _) => run_inspect(&args),
        (Some(Command::Verify(args)), _) => run_verify(args),
        // clap reports a missing DIR before this; an empty command line shows what there is.
        (None, None) => {
            let _ = <Cli as clap::CommandFactory>::command().print_help();
            Ok(ExitCode::from(2))
        }
    });
    result.unwrap_or_else(|error| {
        say(&mut io::stderr(), &format!("error: {}", one_line(&error.to_string())));
        ExitCode::from(error.exit_code())
    })
}

/// Tells the user; whoever closed the stream does not want to know, and the exit code says the rest.
fn say(stream: &mut dyn Write, lines: &str) {
    let _ = writeln!(stream, "{lines}");
}

/// Prints the result of a command, called `what` if that fails.
fn print(lines: &str, what: impl FnOnce() -> String) -> Result<(), ConvertError> {
    let mut stdout = io::stdout();
    let printed = writeln!(stdout, "{lines}").and_then(|()| stdout.flush());
    printed.map_err(|source| ConvertError::Print { what: what(), source })
}

/// As [`print`], for what is read by people: a pager that was closed has shown enough.
fn show(lines: &str, what: &str) -> Result<(), ConvertError> {
    match print(lines, || what.to_owned()) {
        Err(ConvertError::Print { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn written(report: Report) -> Result<ExitCode, ConvertError> {
    say(&mut io::stderr(), &report.to_string());
    let path = report.outfile.display().to_string();
    // A script that reads the path must not take silence for success.
    print(&path, || format!("{path} is written, but its path"))?;
    Ok(ExitCode::SUCCESS)
}

fn run_convert(args: ConvertArgs) -> Result<Report, ConvertError> {
    let mut options = ConvertOptions::new(args.dir, args.outtype.into());
    options.embedding_type = args.embedding_type.map(Into::into);
    options.norm_type = args.norm_type.map(Into::into);
    options.outfile = args.outfile;
    options.name = args.name;
    options.pooling = args.pooling.map(Pooling::from);
    options.embed_tokenizer = args.embed_tokenizer;
    options.split_max_size = args.split_max_size;
    options.auto_widen = args.auto_widen;
    options.force = args.force;
    let mut progress = TerminalProgress::default();
    if !options.dir.is_file() {
        return convert(&options, &mut progress);
    }
    for (given, flag) in [
        (options.pooling.is_some(), "pooling"),
        (options.embed_tokenizer, "embed-tokenizer"),
        (options.split_max_size.is_some(), "split-max-size"),
    ] {
        if given {
            return Err(ConvertError::OnlyOfCheckpoint { flag });
        }
    }
    recode(&options, &mut progress)
}

fn run_dummy(args: DummyArgs) -> Result<Report, ConvertError> {
    let mut options = DummyOptions::new(args.arch.into(), args.outtype.into());
    options.outfile = args.outfile;
    options.bitnet |= args.bitnet;
    options.seed = args.seed;
    let shape = &mut options.shape;
    for (value, slot) in [
        (args.vocab_size, &mut shape.vocab_size),
        (args.hidden_size, &mut shape.hidden_size),
        (args.layers, &mut shape.num_layers),
        (args.heads, &mut shape.num_heads),
        (args.kv_heads, &mut shape.num_kv_heads),
        (args.head_dim, &mut shape.head_dim),
        (args.ffn, &mut shape.intermediate_size),
    ] {
        *slot = value.unwrap_or(*slot);
    }
    dummy::write(&options, &mut TerminalProgress::default())
}

fn run_edit(args: EditArgs) -> Result<Report, ConvertError> {
    let options = EditOptions { file: args.file, set: args.set, delete: args.delete, outfile: args.outfile };
    edit(&options, &mut TerminalProgress::default())
}

fn run_inspect(args: &InspectArgs) -> Result<ExitCode, ConvertError> {
    let file = GgufFile::<MappedFile>::open(&args.file).map_err(ConvertError::Input)?;
    let inspection = Inspection::of(&file, load(&args.file));
    let text = if args.json { inspection.to_json() } else { inspection.to_string() };
    show(text.trim_end(), "the description")?;
    Ok(ExitCode::SUCCESS)
}

fn run_verify(args: VerifyArgs) -> Result<ExitCode, ConvertError> {
    let options = VerifyOptions {
        file: args.file,
        dir: args.dir,
        pooling: args.pooling.map(Pooling::from),
        min_cosine: (!args.no_embeddings).then_some(args.min_cosine),
    };
    let report = verify(&options, &mut TerminalProgress::default())?;
    show(&report.to_string(), "the comparison")?;
    Ok(match (report.differences.is_empty(), &report.no_vectors) {
        (false, _) => ExitCode::from(EXIT_DIFFERS),
        (true, Some(_)) => ExitCode::from(EXIT_REFUSED),
        (true, None) => ExitCode::SUCCESS,
    })
}
