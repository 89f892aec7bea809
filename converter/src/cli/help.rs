//! What stands below the options of each command's help. A test runs the examples.

pub(super) const ALL: &str = "\
Examples, which need nothing but the program:
  converter dummy --arch custom --outtype f16 --bitnet --outfile small-f16.gguf
  converter inspect small-f16.gguf
  converter convert small-f16.gguf --outtype i2_s --outfile small.gguf
  converter edit small.gguf --set general.name=mine --set general.license=str:mit -o mine.gguf

Examples with a checkpoint in the folder bitnet-0.6b:
  converter bitnet-0.6b --outtype i2_s
  converter verify bitnet-0.6b/bitnet-0.6b-i2_s.gguf bitnet-0.6b

`converter DIR` is short for `converter convert DIR`; each command has a --help of its own. The path of the file written
goes to standard output, everything else about it to standard error. An existing file is replaced only once the new one is
complete; until then the data are in `.<name>.partial` beside it, which a killed run leaves behind and the next run for the
same path takes over. A symbolic link is followed; folders, devices and pipes are refused.

Exit codes:
  0  the file was written; inspect: described; verify: file and checkpoint agree
  1  verify: they differ
  2  the command line is wrong, or edit cannot make the change
  3  the input is refused: damaged, incomplete, or at odds with its own config.json
  4  the model is of a kind that is not supported
  5  the output could not be written";

pub(super) const CONVERT: &str = "\
Examples, with a checkpoint in the folder bitnet-0.6b:
  converter convert bitnet-0.6b --outtype i2_s     writes bitnet-0.6b/bitnet-0.6b-i2_s.gguf
  converter convert bitnet-0.6b --outtype i2_s --embedding-type q8_0 --norm-type f32 --outfile q8_0.gguf
  converter convert bitnet-0.6b --outtype f32 --split-max-size 500M --outfile parts.gguf
  converter convert bitnet-0.6b --outtype f16 --outfile model-f16.gguf
  converter convert model-f16.gguf --outtype i2_s  writes model-f16-i2_s.gguf

Exit codes:
  0  the file was written; a note says so if bitnet-embed would refuse it as it is (one in several files is not tried)
  2  the command line is wrong
  3  the input is refused: damaged, incomplete, or at odds with its own config.json
  4  the model is of a kind that is not supported
  5  the output could not be written";

pub(super) const INSPECT: &str = "\
Examples:
  converter dummy --arch custom --outtype i2_s --outfile small.gguf
  converter inspect small.gguf
  converter inspect small.gguf --json

The model is loaded as bitnet-embed loads it and let go of again. The reason why it would be refused stands under \"what a
loader makes of it\", in the JSON under loader.refused, which is null for a file that can be loaded. Dense weights and the
token table are not looked at, as they are not when a model is loaded; `converter verify` looks at all of a file.

Exit codes:
  0  the file was described, whether or not it can be loaded
  2  the command line is wrong
  3  it is no GGUF file, or a damaged one
  5  the description could not be printed";

pub(super) const VERIFY: &str = "\
Example, with a checkpoint in the folder bitnet-0.6b:
  converter convert bitnet-0.6b --outtype i2_s --outfile model.gguf
  converter verify model.gguf bitnet-0.6b
  converter verify model.gguf bitnet-0.6b --no-embeddings

Tensors, keys and ids must be equal exactly, in the types that the file has; what the types cost shows in the vectors, which
are compared with those of the checkpoint in f32. Each difference is one line on standard output.

Exit codes:
  0  file and checkpoint agree
  1  they differ
  2  the command line is wrong
  3  the file is no GGUF file, or the checkpoint is refused; if only bitnet-embed refuses it, converted to f32, all but the
     vectors is compared and the last line says why (with --no-embeddings the code is 0)
  4  the checkpoint is of a kind that is not supported
  5  there is no room for temporary files, or the comparison could not be printed";

pub(super) const EDIT: &str = "\
Examples:
  converter dummy --arch custom --outtype i2_s --outfile small.gguf
  converter edit small.gguf --set general.name=mine -o mine.gguf
  converter edit small.gguf --set general.license=str:mit --set qwen3.pooling_type=u32:1 -o mine.gguf
  converter edit mine.gguf --delete general.license -o again.gguf

TYPE is one of u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, bool, str. Tensors are copied byte for byte, of whatever
type they are. Arrays are deleted or kept, not set. FILE itself is not changed.

Exit codes:
  0  the file was written; a note says so if bitnet-embed would refuse it as it is
  2  the command line is wrong, or the change cannot be made
  3  FILE is no GGUF file, or a damaged one
  5  the output could not be written";

pub(super) const DUMMY: &str = "\
Examples:
  converter dummy --arch qwen3-0.6b --outtype i2_s
  converter dummy --arch custom --outtype f16 --layers 4 --hidden-size 256 --outfile small.gguf

The same arguments give the same file on every machine.

Exit codes:
  0  the file was written
  2  the command line is wrong, or the sizes make no model
  5  the output could not be written";
