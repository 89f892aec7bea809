//! The command line: what can be asked for, and which exit code answers.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use bitnet_embed::config::Pooling;

use crate::dummy::{self, DummyArch, DummyOptions};
use crate::report::{Report, TerminalProgress, one_line};
use crate::{ConvertError, ConvertOptions, Outtype, convert};

const AFTER_HELP: &str = "\
Examples:
  converter bitnet-0.6b --outtype i2_s             bitnet-0.6b/bitnet-0.6b-i2_s.gguf
  converter . --outtype f16 --outfile model.gguf
  converter dummy --arch qwen3-0.6b --outtype i2_s --outfile dummy.gguf

`converter DIR` is short for `converter convert DIR`. The path of the file written goes to standard output, everything
else to standard error. An existing file is replaced only once the new one is complete.

Exit codes:
  0  the file was written
  2  the command line is wrong
  3  the checkpoint is refused: damaged, incomplete, or at odds with its own config.json
  4  the model is of a kind that is not supported
  5  the output could not be written";

#[derive(Parser)]
#[command(
    name = "converter",
    version,
    about = "Turns a BitNet embedding checkpoint (safetensors) into a GGUF file",
    after_help = AFTER_HELP,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    convert: Option<ConvertArgs>,
}

#[derive(Subcommand)]
enum Command {
    /// Convert a checkpoint (the default)
    Convert(ConvertArgs),
    /// Write a model of full size with random weights, to try and measure things without a download
    Dummy(DummyArgs),
}

#[derive(Args)]
struct ConvertArgs {
    /// Folder of a Hugging Face checkpoint: config.json, tokenizer.json and *.safetensors
    dir: PathBuf,
    /// Type of the weights in the file
    #[arg(long, value_enum)]
    outtype: OuttypeArg,
    /// The file to write [default: DIR/<name of DIR>-<type>.gguf]
    #[arg(long, value_name = "FILE")]
    outfile: Option<PathBuf>,
    /// How token vectors become one vector; needed only where the checkpoint has no modules.json
    #[arg(long, value_enum)]
    pooling: Option<PoolingArg>,
    /// Write i2_s even if projections have no input norms, that is, if the model was not trained as a BitNet
    #[arg(long)]
    force: bool,
}

#[derive(Args)]
struct DummyArgs {
    /// Which model to imitate; the sizes below replace its own
    #[arg(long, value_enum)]
    arch: ArchArg,
    /// Type of the weights in the file
    #[arg(long, value_enum)]
    outtype: OuttypeArg,
    /// The file to write [default: dummy-<arch>-<type>.gguf]
    #[arg(long, value_name = "FILE")]
    outfile: Option<PathBuf>,
    /// Give every projection its input norm, as BitNet models have it (i2_s always has them)
    #[arg(long)]
    bitnet: bool,
    /// Seed of the weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rows of the token table
    #[arg(long, visible_alias = "vocab", value_name = "N")]
    vocab_size: Option<usize>,
    /// Width of the residual stream
    #[arg(long, value_name = "N")]
    hidden_size: Option<usize>,
    /// Number of layers
    #[arg(long, value_name = "N")]
    layers: Option<usize>,
    /// Number of attention heads
    #[arg(long, value_name = "N")]
    heads: Option<usize>,
    /// Number of key and value heads
    #[arg(long, value_name = "N")]
    kv_heads: Option<usize>,
    /// Width of a head
    #[arg(long, value_name = "N")]
    head_dim: Option<usize>,
    /// Width of the feed-forward layer
    #[arg(long, value_name = "N")]
    ffn: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum OuttypeArg {
    /// Everything as 32-bit floats
    #[value(name = "f32")]
    F32,
    /// Everything as half precision
    #[value(name = "f16")]
    F16,
    /// Projections as ternary weights of 2 bits, the rest as half precision
    #[value(name = "i2_s")]
    I2S,
}

impl From<OuttypeArg> for Outtype {
    fn from(arg: OuttypeArg) -> Self {
        match arg {
            OuttypeArg::F32 => Self::F32,
            OuttypeArg::F16 => Self::F16,
            OuttypeArg::I2S => Self::I2S,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum PoolingArg {
    /// The last token's vector
    Last,
    /// The mean of all tokens' vectors
    Mean,
    /// The first token's vector
    Cls,
}

impl From<PoolingArg> for Pooling {
    fn from(arg: PoolingArg) -> Self {
        match arg {
            PoolingArg::Last => Self::Last,
            PoolingArg::Mean => Self::Mean,
            PoolingArg::Cls => Self::Cls,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum ArchArg {
    /// 28 layers of width 1024, 151936 tokens
    #[value(name = "qwen3-0.6b")]
    Qwen3,
    /// 18 layers of width 640, 262144 tokens
    #[value(name = "gemma3-270m")]
    Gemma3,
    /// Qwen3 of any size; small unless told otherwise
    Custom,
}

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
    let result = match (cli.command, cli.convert) {
        (Some(Command::Dummy(args)), _) => run_dummy(args),
        (Some(Command::Convert(args)), _) | (None, Some(args)) => run_convert(args),
        // clap reports a missing DIR before this; an empty command line shows what there is.
        (None, None) => {
            let _ = <Cli as clap::CommandFactory>::command().print_help();
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(report) => {
            say(&mut io::stderr(), &report.to_string());
            say(&mut io::stdout(), &report.outfile.display().to_string());
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&mut io::stderr(), &format!("error: {}", one_line(&error.to_string())));
            ExitCode::from(error.exit_code())
        }
    }
}

/// Prints lines; whoever closed the stream does not want them, and the exit code says the rest.
fn say(stream: &mut dyn Write, lines: &str) {
    let _ = writeln!(stream, "{lines}");
}

fn run_convert(args: ConvertArgs) -> Result<Report, ConvertError> {
    let options = ConvertOptions {
        dir: args.dir,
        outtype: args.outtype.into(),
        outfile: args.outfile,
        pooling: args.pooling.map(Pooling::from),
        force: args.force,
    };
    convert(&options, &mut TerminalProgress::default())
}

fn run_dummy(args: DummyArgs) -> Result<Report, ConvertError> {
    let arch = match args.arch {
        ArchArg::Qwen3 => DummyArch::Qwen3,
        ArchArg::Gemma3 => DummyArch::Gemma3,
        ArchArg::Custom => DummyArch::Custom,
    };
    let mut options = DummyOptions::new(arch, args.outtype.into());
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
