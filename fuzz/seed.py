"""Writes the seed corpus: small whole files of every kind.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0 numpy==2.4.6 && venv/bin/python seed.py
"""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter, quantize

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
DATA = HERE.parent / "testdata"
rng = np.random.default_rng(1)


def vocabulary(writer, kind):
    if kind == "gpt2":
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        tokens = [chr(b) for b in printable] + [chr(0x100 + i) for i in range(256 - len(printable))]
        tokens += ["th", "the", "\u0120the", "<|endoftext|>"]
        types = [1] * (len(tokens) - 1) + [3]
        writer.add_token_merges(["t h", "th e", "\u0120 the"])
    else:
        tokens = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)]
        tokens += ["\u2581", "t", "h", "e", "th", "the", "\u2581the", "\u2581\u2581"]
        types = [3] * 4 + [6] * 256 + [1] * 7 + [4]
        writer.add_token_scores([0.0] * 260 + [0.0, 0.0, 0.0, 0.0, -0.0, -1.0, -2.0, -1000.0])
        writer.add_bos_token_id(2)
        writer.add_add_bos_token(True)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre("qwen2" if kind == "gpt2" else "default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_eos_token_id(len(tokens) - 1 if kind == "gpt2" else 1)
    writer.add_add_eos_token(True)
    return len(tokens)


def model(path, arch, kind, ternary):
    writer = GGUFWriter(path, arch)
    hidden, ffn, heads, kv_heads, head_dim = (32, 16, 2, 1, 8)
    vocab = vocabulary(writer, kind)
    for key, value in [("block_count", 1), ("context_length", 64), ("embedding_length", hidden), ("vocab_size", vocab),
                       ("feed_forward_length", ffn), ("attention.head_count", heads), ("attention.head_count_kv", kv_heads),
                       ("attention.key_length", head_dim), ("attention.value_length", head_dim), ("pooling_type", 3)]:
        writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-6)
    if arch == "gemma3":
        writer.add_uint32("gemma3.attention.sliding_window", 4)
        writer.add_array("gemma3.attention.sliding_window_pattern", [True])
    values = rng.standard_normal((vocab, hidden)).astype(np.float32)
    writer.add_tensor("token_embd.weight", quantize(values, GGMLQuantizationType.Q8_0), raw_dtype=GGMLQuantizationType.Q8_0)
    norms = {"attn_norm": hidden, "ffn_norm": hidden, "attn_q_norm": head_dim, "attn_k_norm": head_dim}
    if arch == "gemma3":
        norms |= {"post_attention_norm": hidden, "post_ffw_norm": hidden}
    shapes = {"attn_q": (16, 32), "attn_k": (8, 32), "attn_v": (8, 32), "attn_output": (32, 16),
              "ffn_gate": (16, 32), "ffn_up": (16, 32), "ffn_down": (32, 16)}
    for name, size in norms.items():
        writer.add_tensor(f"blk.0.{name}.weight", np.ones(size, dtype=np.float16))
    for name, (rows, cols) in shapes.items():
        if ternary:
            writer.add_tensor(f"blk.0.{name}_norm_in.weight", np.ones(cols, dtype=np.float32))
            codes = rng.integers(0, 81, rows * cols // 4)
            codes = (codes % 3) | (codes // 3 % 3) << 2 | (codes // 9 % 3) << 4 | (codes // 27) << 6
            data = np.concatenate([codes.astype(np.uint8), np.frombuffer(struct.pack("<f28x", 0.5), np.uint8)])
            # 36 is not gguf's: declared as bytes and renumbered below.
            writer.add_tensor(f"blk.0.{name}.weight", data, raw_shape=(rows, cols), raw_dtype=GGMLQuantizationType.I8)
        else:
            writer.add_tensor(f"blk.0.{name}.weight", rng.standard_normal((rows, cols)).astype(np.float16))
    writer.add_tensor("output_norm.weight", np.ones(hidden, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if ternary:
        raw = path.read_bytes()
        i8, i2_s = (struct.pack("<I", GGMLQuantizationType.I8), struct.pack("<I", 36))
        for rows, cols in shapes.values():
            raw = raw.replace(struct.pack("<IQQ", 2, cols, rows) + i8, struct.pack("<IQQ", 2, cols, rows) + i2_s)
        path.write_bytes(raw)


def mixed(path, ternary):
    """A model of one layer that has every other type of weight; rows of 256 values, as the widest blocks are."""
    rng = np.random.default_rng(2)
    writer = GGUFWriter(path, "gemma3")
    vocab = vocabulary(writer, "llama")
    hidden, ffn, head_dim = (256, 8, 8)
    for key, value in [("block_count", 1), ("context_length", 64), ("embedding_length", hidden), ("vocab_size", vocab),
                       ("feed_forward_length", ffn), ("attention.head_count", 1), ("attention.head_count_kv", 1),
                       ("attention.key_length", head_dim), ("attention.value_length", head_dim), ("pooling_type", 1)]:
        writer.add_uint32(f"gemma3.{key}", value)
    writer.add_float32("gemma3.attention.layer_norm_rms_epsilon", 1e-6)

    def tensor(name, rows, cols, kind):
        values = rng.standard_normal((rows, cols)).astype(np.float32)
        try:
            data = quantize(values, kind)
        except NotImplementedError:
            block, size = GGML_QUANT_SIZES[kind]
            # Any bytes are such a block; these have scales that are small numbers.
            data = rng.integers(0, 32, (rows, cols // block * size)).astype(np.uint8)
        writer.add_tensor(name, data, raw_dtype=kind)

    types = GGMLQuantizationType
    tensor("token_embd.weight", vocab, hidden, types.TQ2_0)
    for name in ["attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"]:
        writer.add_tensor(f"blk.0.{name}.weight", np.ones(hidden, dtype=np.float32))
    for name in ["attn_q_norm", "attn_k_norm"]:
        writer.add_tensor(f"blk.0.{name}.weight", np.ones(head_dim, dtype=np.float32))
    for name, rows, cols, kind, master in [
        ("attn_q", head_dim, hidden, types.Q4_K, types.TQ2_0), ("attn_k", head_dim, hidden, types.Q5_K, types.Q8_0),
        ("attn_v", head_dim, hidden, types.Q6_K, types.Q5_0), ("attn_output", hidden, head_dim, types.BF16, types.F16),
        ("ffn_gate", ffn, hidden, types.TQ2_0, types.F32), ("ffn_up", ffn, hidden, types.Q4_0, types.BF16),
        ("ffn_down", hidden, ffn, types.F32, types.F16),
    ]:
        if ternary:
            writer.add_tensor(f"blk.0.{name}_norm_in.weight", np.ones(cols, dtype=np.float16))
        tensor(f"blk.0.{name}.weight", rows, cols, master if ternary else kind)
    writer.add_tensor("output_norm.weight", np.ones(hidden, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


for folder in ("gguf", "tokenizer", "checkpoint", "model", "embed"):
    shutil.rmtree(CORPUS / folder, ignore_errors=True)
    (CORPUS / folder).mkdir(parents=True)
for arch, kind, ternary in [("qwen3", "gpt2", True), ("gemma3", "llama", True), ("qwen3", "gpt2", False)]:
    name = f"{arch}-{'ternary' if ternary else 'plain'}.gguf"
    model(CORPUS / "model" / name, arch, kind, ternary)
    shutil.copy(CORPUS / "model" / name, CORPUS / "gguf" / name)
    shutil.copy(CORPUS / "model" / name, CORPUS / "tokenizer" / name)
for ternary in (True, False):
    mixed(CORPUS / "embed" / f"mixed-{'ternary' if ternary else 'plain'}.gguf", ternary)
shutil.copy(DATA / "gguf-python" / "every_type.gguf", CORPUS / "gguf")
shutil.copy(DATA / "checkpoints/qwen3-sharded-f16-mean/tokenizer.json", CORPUS / "tokenizer/byte-level.json")
shutil.copy(DATA / "checkpoints/qwen3-sharded-f16-mean/model.safetensors.index.json", CORPUS / "checkpoint/index.json")
shutil.copy(DATA / "checkpoints/gemma3-std/config.json", CORPUS / "checkpoint/gemma.json")
shutil.copy(DATA / "checkpoints/qwen3-std/config.json", CORPUS / "checkpoint/qwen.json")

tensors = {
    "norm.weight": ("F32", [4], struct.pack("<4f", 1, 2, -3, 1e-9)),
    "layers.0.mlp.up_proj.weight": ("BF16", [4, 4], bytes(range(32))),
    "layers.0.mlp.down_proj.weight": ("F16", [4, 32], bytes(range(256))),
    "embed_tokens.weight": ("F16", [10, 4], bytes(80)),
    "x": ("I64", [1], bytes(8)),
}
header, data = {"__metadata__": {"format": "pt"}}, b""
for name, (dtype, shape, raw) in tensors.items():
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
header = json.dumps(header).encode()
(CORPUS / "checkpoint/small.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
