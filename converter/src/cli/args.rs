//! The arguments and their help; nothing is done here.

use std::path::PathBuf;

use bitnet_embed::config::Pooling;
use burn_i2s::ggml::GgmlType;
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::help;
use super::numbers::{parse_cosine, parse_dimension, parse_seed, parse_size};
use crate::Outtype;
use crate::dummy::DummyArch;
use crate::edit::Setting;

#[derive(Parser)]
#[command(
    name = "converter",
    version,
    about = "Turns a BitNet embedding checkpoint (safetensors) into a GGUF file, and looks after such files",
    after_help = help::ALL,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) convert: Option<ConvertArgs>,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Convert a checkpoint, or a GGUF file to other types (the default)
    #[command(after_help = help::CONVERT)]
    Convert(ConvertArgs),
    /// Show what is in a GGUF file: metadata, tensors, tokenizer, and what a loader makes of it
    #[command(after_help = help::INSPECT)]
    Inspect(InspectArgs),
    /// Compare a GGUF file with the checkpoint it was made of: every tensor, key, token id and some vectors
    #[command(after_help = help::VERIFY)]
    Verify(VerifyArgs),
    /// Change the metadata of a GGUF file
    #[command(after_help = help::EDIT)]
    Edit(EditArgs),
    /// Write a model of full size with random weights, to try and measure things without a download
    #[command(after_help = help::DUMMY)]
    Dummy(DummyArgs),
}

#[derive(Args)]
pub(super) struct ConvertArgs {
    /// Folder of a Hugging Face checkpoint (config.json, tokenizer.json and *.safetensors), or a GGUF file.
    ///
    /// Of a GGUF file, projections and token table take the types asked for and norms keep theirs (but see --norm-type);
    /// pooling and tokenizer are those of the file, and so is the name without --name.
    #[arg(value_name = "DIR|FILE")]
    pub(super) dir: PathBuf,
    /// Type of the weights in the file
    #[arg(long, value_enum)]
    pub(super) outtype: OuttypeArg,
    /// Type of the token table, most of an i2_s file [default: f32 for f32, bf16 for bf16, else f16].
    ///
    /// q8_0 halves it at a loss of about 0.5 % of each row's values; q6_k takes 0.4 of it at about 1.6 % (rows of whole
    /// 256s only); bf16 keeps a bf16 checkpoint exactly and holds values beyond f16's 65504; f32 is exact and twice as
    /// large. f16 is the published layout.
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(super) embedding_type: Option<EmbeddingArg>,
    /// Type of the norms [default: f16 for f16 and i2_s, else f32; in FILE as they are, f32 for f32].
    ///
    /// f32 is exact and costs a few hundred kilobytes; f16 is the published layout, and rounding Gemma's 1 + w to it costs
    /// up to 4e-3 of cosine.
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(super) norm_type: Option<NormArg>,
    /// The file to write [default: DIR/<name of DIR>-<type>.gguf, <stem of FILE>-<type>.gguf]
    #[arg(long, value_name = "FILE")]
    pub(super) outfile: Option<PathBuf>,
    /// The name in the file, for people [default: name of DIR, that in FILE]
    #[arg(long)]
    pub(super) name: Option<String>,
    /// How token vectors become one vector, instead of what modules.json says; needed where there is none
    #[arg(long, value_enum)]
    pub(super) pooling: Option<PoolingArg>,
    /// Store the whole tokenizer.json as well: readers that know the key need no rebuilding; costs its size
    #[arg(long)]
    pub(super) embed_tokenizer: bool,
    /// Split the model into several files, each with at most this much tensor data: 500M, 2G.
    ///
    /// They are named FILE-00001-of-00003.gguf and so on; readers are given any of them. A tensor is never split. A set
    /// that is there already is not replaced, for that cannot be done in one step: remove it first.
    #[arg(long, value_name = "N(M|G)", value_parser = parse_size, allow_hyphen_values = true)]
    pub(super) split_max_size: Option<u64>,
    /// Keep a tensor in f32 whose values are too large for its type, instead of refusing the model
    #[arg(long)]
    pub(super) auto_widen: bool,
    /// Write i2_s even if projections have no input norms or lose too much: if the model was not trained as a BitNet
    #[arg(long)]
    pub(super) force: bool,
}

#[derive(Args)]
pub(super) struct InspectArgs {
    /// The GGUF file
    pub(super) file: PathBuf,
    /// Print JSON (ASCII only) instead of text
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
pub(super) struct VerifyArgs {
    /// The GGUF file
    pub(super) file: PathBuf,
    /// Folder of the checkpoint
    pub(super) dir: PathBuf,
    /// The pooling it was converted with, where that is not what modules.json says or there is none
    #[arg(long, value_enum)]
    pub(super) pooling: Option<PoolingArg>,
    /// Compute no vectors: faster, and needs no room for the model in f32 in the folder of temporary files
    #[arg(long)]
    pub(super) no_embeddings: bool,
    /// The least cosine accepted between the vectors of the file and of the checkpoint
    #[arg(long, value_name = "X", default_value_t = 0.97, conflicts_with = "no_embeddings", value_parser = parse_cosine, allow_hyphen_values = true)]
    pub(super) min_cosine: f32,
}

#[derive(Args)]
pub(super) struct EditArgs {
    /// The GGUF file
    pub(super) file: PathBuf,
    /// Set a key; the type may be left out for a key that the file has. May be repeated.
    #[arg(long, value_name = "KEY=[TYPE:]VALUE")]
    pub(super) set: Vec<Setting>,
    /// Delete a key. May be repeated.
    #[arg(long, value_name = "KEY")]
    pub(super) delete: Vec<String>,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub(super) outfile: PathBuf,
}

#[derive(Args)]
pub(super) struct DummyArgs {
    /// Which model to imitate; the sizes below replace its own
    #[arg(long, value_enum)]
    pub(super) arch: ArchArg,
    /// Type of the weights in the file
    #[arg(long, value_enum)]
    pub(super) outtype: OuttypeArg,
    /// The file to write [default: dummy-<arch>-<type>.gguf]
    #[arg(long, value_name = "FILE")]
    pub(super) outfile: Option<PathBuf>,
    /// Give every projection its input norm, as BitNet models have it (i2_s always has them)
    #[arg(long)]
    pub(super) bitnet: bool,
    /// Seed of the weights
    #[arg(long, default_value_t = 1, value_parser = parse_seed, allow_negative_numbers = true)]
    pub(super) seed: u64,
    /// Rows of the token table
    #[arg(long, visible_alias = "vocab", value_name = "N", value_parser = parse_dimension, allow_negative_numbers = true)]
    pub(super) vocab_size: Option<usize>,
    /// Width of the residual stream
    #[arg(long, value_name = "N", value_parser = parse_dimension, allow_negative_numbers = true)]
    pub(super) hidden_size: Option<usize>,
    /// Number of layers
    #[arg(long, value_name = "N", value_parser = parse_dimension, allow_negative_numbers = true)]
    pub(super) layers: Option<usize>,
    /// Number of attention heads
    #[arg(long, value_name = "N", value_parser = parse_dimension, allow_negative_numbers = true)]
    pub(super) heads: Option<usize>,
    /// Number of key and value heads
    #[arg(long, value_name = "N", value_parser = parse_dimension, allow_negative_numbers = true)]
    pub(super) kv_heads: Option<usize>,
    /// Width of a head
    #[arg(long, value_name = "N", value_parser = parse_dimension, allow_negative_numbers = true)]
    pub(super) head_dim: Option<usize>,
    /// Width of the feed-forward layer
    #[arg(long, value_name = "N", value_parser = parse_dimension, allow_negative_numbers = true)]
    pub(super) ffn: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum OuttypeArg {
    /// Everything as 32-bit floats
    #[value(name = "f32")]
    F32,
    /// Everything as half precision
    #[value(name = "f16")]
    F16,
    /// Projections and token table as bfloat16, norms as 32-bit floats
    #[value(name = "bf16")]
    BF16,
    /// Projections as ternary weights of 2 bits, the rest as half precision
    #[value(name = "i2_s")]
    I2S,
}

impl From<OuttypeArg> for Outtype {
    fn from(arg: OuttypeArg) -> Self {
        match arg {
            OuttypeArg::F32 => Self::F32,
            OuttypeArg::F16 => Self::F16,
            OuttypeArg::BF16 => Self::BF16,
            OuttypeArg::I2S => Self::I2S,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum EmbeddingArg {
    #[value(name = "f32")]
    F32,
    #[value(name = "f16")]
    F16,
    #[value(name = "bf16")]
    BF16,
    #[value(name = "q8_0")]
    Q8,
    #[value(name = "q6_k")]
    Q6,
}

impl From<EmbeddingArg> for GgmlType {
    fn from(arg: EmbeddingArg) -> Self {
        match arg {
            EmbeddingArg::F32 => Self::F32,
            EmbeddingArg::F16 => Self::F16,
            EmbeddingArg::BF16 => Self::BF16,
            EmbeddingArg::Q8 => Self::Q8_0,
            EmbeddingArg::Q6 => Self::Q6_K,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum NormArg {
    #[value(name = "f16")]
    F16,
    #[value(name = "f32")]
    F32,
}

impl From<NormArg> for GgmlType {
    fn from(arg: NormArg) -> Self {
        match arg {
            NormArg::F16 => Self::F16,
            NormArg::F32 => Self::F32,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum PoolingArg {
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
pub(super) enum ArchArg {
    /// 28 layers of width 1024, 151936 tokens
    #[value(name = "qwen3-0.6b")]
    Qwen3,
    /// 18 layers of width 640, 262144 tokens
    #[value(name = "gemma3-270m")]
    Gemma3,
    /// Qwen3 of any size; small unless told otherwise
    Custom,
}

impl From<ArchArg> for DummyArch {
    fn from(arg: ArchArg) -> Self {
        match arg {
            ArchArg::Qwen3 => Self::Qwen3,
            ArchArg::Gemma3 => Self::Gemma3,
            ArchArg::Custom => Self::Custom,
        }
    }
}
