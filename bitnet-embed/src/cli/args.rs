//! The arguments and their help; nothing is computed here.

use bitnet_embed::config::Overrides;
use burn_i2s::isa::Isa;
use burn_i2s::pooling::Pooling;
use clap::{Arg, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// The environment variable that stands for `--isa`.
const ISA_VARIABLE: &str = "BITNET_ISA";

/// Text embeddings from 1.58-bit BitNet models on ordinary CPUs.
#[derive(Debug, Parser)]
#[command(
    name = "bitnet-embed",
    version,
    after_help = "Exit codes: 0 done, 2 wrong usage, 3 an input was refused, 4 the model is of a kind this program does \
                  not compute, 5 the result could not be written."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print one vector a text.
    Embed(EmbedArguments),
    /// Print a text's token ids, special tokens included.
    Tokenize(TokenizeArguments),
    /// Describe a GGUF file, model or not, and check all of it.
    Info(InfoArguments),
}

/// What every command that opens a model takes.
#[derive(Args, Debug)]
pub(crate) struct ModelArguments {
    /// GGUF file of a BitNet embedding model (or a plain Qwen3 or Gemma 3 one). Without it: a tiny demo model.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,
    /// Use this tokenizer.json rather than the file's own tokenizer.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Replace a metadata key of the file, such as `gemma3.attention.sliding_window=int:512`. Types: int, float, bool,
    /// str. May be repeated, for other keys.
    #[arg(long, value_name = "KEY=TYPE:VALUE")]
    pub(crate) override_kv: Vec<String>,
}

impl ModelArguments {
    pub(crate) fn overrides(&self) -> Result<Overrides, super::CliError> {
        let mut overrides = Overrides::default();
        for text in &self.override_kv {
            overrides.parse_push(text).map_err(|error| super::CliError::Usage(error.to_string()))?;
        }
        Ok(overrides)
    }
}

#[derive(Args, Debug)]
pub(crate) struct EmbedArguments {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// A text. May be repeated; a line break inside it does not split it. These texts come before those of a file.
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Vec<String>,
    /// A file with one text a line; `-` is standard input. A byte order mark at its start is no part of the text.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Threads; as many as this process may use by default.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), allow_negative_numbers = true)]
    pub(crate) threads: Option<u16>,
    /// How a text's token states become one vector; what the file says by default.
    #[arg(long, value_enum)]
    pub(crate) pooling: Option<PoolingArgument>,
    /// -1: as computed, 0: largest magnitude 32760 (int16), 1: sum of magnitudes 1, 2: unit length, above: p-norm 1.
    #[arg(long, value_name = "N", default_value_t = 2, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-1..))]
    pub(crate) embd_normalize: i32,
    /// Without it: a readable listing. array: [[..],..], json: OpenAI style, json+: with cosine similarities,
    /// raw: values with spaces between, a line a text, printed as they are computed.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    pub(crate) embd_output_format: OutputFormat,
    /// Cut longer texts to this many tokens, special tokens included and kept; the model's context by default.
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    /// Compute with integer products (i2_s; BitNet files alone) or f32 products (f16). Both give the same vectors for a
    /// BitNet file; by default the faster one that the file allows.
    #[arg(long, value_enum)]
    pub(crate) backend: Option<BackendArgument>,
    /// Read the file into memory instead of mapping it: needed where others may truncate or overwrite it meanwhile.
    #[arg(long)]
    pub(crate) no_mmap: bool,
    /// Use at most this instruction-set level; see `info`. Every level gives the same vectors.
    #[arg(long, value_name = "LEVEL", env = ISA_VARIABLE, value_parser = parse_isa)]
    pub(crate) isa: Option<Isa>,
    /// Accepted for llama.cpp's sake; there is nothing to offload.
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) n_gpu_layers: Option<i64>,
}

#[derive(Args, Debug)]
pub(crate) struct TokenizeArguments {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// The text.
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: String,
    /// Print a JSON array rather than one id a line with its piece.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct InfoArguments {
    /// The GGUF file.
    pub(crate) file: PathBuf,
    /// Show this instruction-set level as the one in use.
    #[arg(long, value_name = "LEVEL", env = ISA_VARIABLE, value_parser = parse_isa)]
    pub(crate) isa: Option<Isa>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PoolingArgument {
    Mean,
    Cls,
    Last,
}

impl From<PoolingArgument> for Pooling {
    fn from(argument: PoolingArgument) -> Self {
        match argument {
            PoolingArgument::Mean => Self::Mean,
            PoolingArgument::Cls => Self::Cls,
            PoolingArgument::Last => Self::Last,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    #[value(name = "text", alias = "")]
    Text,
    Array,
    Json,
    #[value(name = "json+")]
    JsonPlus,
    Raw,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum BackendArgument {
    #[value(name = "i2_s", alias = "i2s")]
    I2s,
    F16,
}

fn parse_isa(name: &str) -> Result<Isa, String> {
    Isa::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Isa::available().iter().map(|isa| isa.name()).collect();
        format!("this CPU has the levels {}", known.join(", "))
    })
}

/// The program's options. A `BITNET_ISA` that is set to nothing is as good as not set.
pub(crate) fn command() -> clap::Command {
    let command = Arguments::command();
    if std::env::var_os(ISA_VARIABLE).is_some_and(|level| level.is_empty()) {
        let unset = |arg: Arg| if arg.get_id() == "isa" { arg.env(None) } else { arg };
        return command.mut_subcommands(|command| command.mut_args(unset));
    }
    command
}

/// llama.cpp spells some options with several letters after one dash; clap wants two dashes.
pub(crate) fn long_spellings(arguments: impl IntoIterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    arguments.into_iter().map(|argument| if argument == "-ngl" { "--n-gpu-layers".into() } else { argument })
}
