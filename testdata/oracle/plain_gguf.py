"""Compares bitnet-embed with a float64 forward of the same GGUF file, for Qwen3 and Gemma 3 files that are not BitNet.

Tensors are read and dequantised by the `gguf` package alone, and the forward below shares nothing with the program, so
an agreement covers the reader, every quantised type in the file, the metadata and the arithmetic.

    python plain_gguf.py PROGRAM FILE.gguf [--limit 1e-5]

PROGRAM is the built bitnet-embed. It gives the token ids (`tokenize --json`), so the tokenizer is not judged here. The
vectors compared are the last token's state after the final norm, not scaled to unit length. Exits with 1 if any
1 - cosine is above the limit. Needs numpy and gguf.
"""

import argparse
import json
import subprocess
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

TEXTS = [
    "The cat sat on the mat.",
    "a",
    "fn main() { println!(\"{}\", 1 + 1); }",
    "Die Katze sitzt auf der Matte, und über ihr hängt ein Bild. 猫がマットの上に座った。 Кошка сидит на коврике.",
    # Longer than a window of 512 tokens.
    " ".join(f"The square of {n} is {n * n}." for n in range(70)),
]


class Model:
    """What a file's metadata and tensors say, read literally."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        if any(name.endswith("_norm_in.weight") for name in self.tensors):
            sys.exit("this is a BitNet file; its activations are rounded and agree with float64 only up to flips")

        def value(key, default=None):
            field = reader.get_field(key)
            return default if field is None else field.contents()

        self.gemma = value("general.architecture") == "gemma3"
        arch = value("general.architecture")
        key = lambda name, default=None: value(f"{arch}.{name}", default)
        self.hidden = key("embedding_length")
        self.layers = key("block_count")
        self.heads = key("attention.head_count")
        self.kv_heads = key("attention.head_count_kv")
        self.head_dim = key("attention.key_length")
        self.eps = float(np.float32(key("attention.layer_norm_rms_epsilon")))
        self.scale = key("attention.scale", self.head_dim**-0.5)
        self.window = key("attention.sliding_window")
        self.base = key("rope.freq_base", 10000.0)
        self.local_base = key("rope.freq_base_swa", 10000.0)
        pattern = key("attention.sliding_window_pattern", 6)
        if not isinstance(pattern, list):
            pattern = [(layer + 1) % pattern != 0 for layer in range(self.layers)]
        self.slides = [self.window is not None and slides for slides in pattern]

    def rows(self, name, ids=slice(None)):
        tensor = self.tensors[f"{name}.weight"]
        return dequantize(np.asarray(tensor.data)[ids], tensor.tensor_type).astype(np.float64)

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.rows(name)

    def rope(self, x, base):
        half = x.shape[-1] // 2
        angle = np.arange(len(x))[:, None, None] * base ** (-np.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)

    def attention(self, x, layer):
        block, count = f"blk.{layer}", len(x)
        base = self.local_base if self.slides[layer] else self.base
        q = (x @ self.rows(f"{block}.attn_q").T).reshape(count, self.heads, self.head_dim)
        k = (x @ self.rows(f"{block}.attn_k").T).reshape(count, self.kv_heads, self.head_dim)
        v = (x @ self.rows(f"{block}.attn_v").T).reshape(count, self.kv_heads, self.head_dim)
        q = self.rope(self.norm(q, f"{block}.attn_q_norm"), base)
        k = self.rope(self.norm(k, f"{block}.attn_k_norm"), base)
        back = np.arange(count)[:, None] - np.arange(count)
        seen = (back >= 0) & (back < (self.window if self.slides[layer] else count))
        out = np.empty_like(q)
        for head in range(self.heads):
            group = head // (self.heads // self.kv_heads)
            scores = np.where(seen, q[:, head] @ k[:, group].T * self.scale, -np.inf)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = scores / scores.sum(-1, keepdims=True) @ v[:, group]
        return out.reshape(count, -1) @ self.rows(f"{block}.attn_output").T

    def activation(self, x):
        if self.gemma:
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        return x / (1 + np.exp(-x))

    def last_state(self, ids):
        post = self.norm if self.gemma else lambda x, name: x
        h = self.rows("token_embd", np.asarray(ids)) * (self.hidden**0.5 if self.gemma else 1)
        for layer in range(self.layers):
            block = f"blk.{layer}"
            out = self.attention(self.norm(h, f"{block}.attn_norm"), layer)
            h = h + post(out, f"{block}.post_attention_norm")
            x = self.norm(h, f"{block}.ffn_norm")
            x = self.activation(x @ self.rows(f"{block}.ffn_gate").T) * (x @ self.rows(f"{block}.ffn_up").T)
            h = h + post(x @ self.rows(f"{block}.ffn_down").T, f"{block}.post_ffw_norm")
        return self.norm(h[-1], "output_norm")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("file")
    parser.add_argument("--limit", type=float, default=1e-5)
    arguments = parser.parse_args()

    def run(command, *options):
        call = [arguments.program, command, "-m", arguments.file, *options]
        return json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)

    model, worst = Model(arguments.file), 0.0
    for text in TEXTS:
        ids = run("tokenize", "-p", text, "--json")
        options = ["--pooling", "last", "--embd-normalize", "-1", "--embd-output-format", "array"]
        found = np.array(run("embed", "-p", text, *options)[0])
        expected = model.last_state(ids)
        distance = 1 - found @ expected / (np.linalg.norm(found) * np.linalg.norm(expected))
        length = np.linalg.norm(found) / np.linalg.norm(expected) - 1
        print(f"{len(ids):5} tokens  1-cos {distance:8.1e}  length {length:+8.1e}  {text[:40]!r}")
        worst = max(worst, distance)
    print(f"worst 1-cos {worst:.1e}, limit {arguments.limit:.1e}")
    # Not `>`: a NaN fails too.
    return 0 if worst <= arguments.limit else 1


if __name__ == "__main__":
    sys.exit(main())
