"""Writes blocks of every quantised type that is read, and the values that the gguf package says they have.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0 numpy==2.4.6 && venv/bin/python generate.py

Per type, `<type>.blocks.bin` holds whole blocks and `<type>.f32.bin` their values, little-endian; `index.json` says how
many, and what the first so many are. The same versions give the same bytes.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

HERE = Path(__file__).parent

# Where a block has its f16 numbers.
HALVES = {
    Type.Q4_0: [0],
    Type.Q5_0: [0],
    Type.Q8_0: [0],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
    Type.TQ2_0: [64],
}

# Zeros, the least and greatest subnormal and normal numbers, one, a third; NaN and infinity last.
EXTREME = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x7BFF, 0xFBFF, 0x3C00, 0xBC00, 0x3555]
SPECIAL = [0x7C00, 0xFC00, 0x7E00, 0xFE01]


def random_blocks(rng, kind, count):
    """Random bits, with scales that are finite and of any size."""
    blocks = rng.integers(0, 256, (count, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    for at in HALVES[kind]:
        scales = rng.integers(0, 0x7C00, count, dtype=np.uint16) | (rng.integers(0, 2, count, dtype=np.uint16) << 15)
        blocks[:, at : at + 2] = scales.astype("<u2").view(np.uint8).reshape(count, 2)
    return blocks


def with_scales(rng, kind, scales):
    blocks = random_blocks(rng, kind, len(scales))
    for turn, at in enumerate(HALVES[kind]):
        # The second number of a block meets another one of the list than the first.
        rolled = np.roll(np.array(scales, dtype="<u2"), 5 * turn)
        blocks[:, at : at + 2] = rolled.view(np.uint8).reshape(len(scales), 2)
    return blocks


def half(values):
    return values.astype("<f2").reshape(-1, 1).view(np.uint8)


def affine_k(rows, bits):
    """Q4_K or Q5_K blocks: a plain quantiser, written from the layout."""
    n = rows.shape[0]
    subs = rows.reshape(n, 8, 32)
    low = np.minimum(subs.min(axis=2), 0)
    scale, minimum = (subs.max(axis=2) - low) / (2**bits - 1), -low
    d, dmin = scale.max(axis=1) / 63, minimum.max(axis=1) / 63
    sc = np.round(scale / d[:, None]).astype(np.uint8)
    mn = np.round(minimum / dmin[:, None]).astype(np.uint8)
    step = (d[:, None] * sc)[:, :, None]
    offset = (dmin[:, None] * mn)[:, :, None]
    q = np.clip(np.round((subs + offset) / np.where(step == 0, 1, step)), 0, 2**bits - 1).astype(np.uint8)
    packed = np.concatenate(
        [
            sc[:, :4] | ((sc[:, 4:] >> 4) << 6),
            mn[:, :4] | ((mn[:, 4:] >> 4) << 6),
            (sc[:, 4:] & 15) | ((mn[:, 4:] & 15) << 4),
        ],
        axis=1,
    )
    nibbles = ((q[:, 0::2] & 15) | ((q[:, 1::2] & 15) << 4)).reshape(n, 128)
    parts = [half(d), half(dmin), packed, nibbles]
    if bits == 5:
        fifth = np.zeros((n, 32), dtype=np.uint8)
        for sub in range(8):
            fifth |= (q[:, sub] >> 4) << sub
        parts.insert(3, fifth)
    return np.concatenate(parts, axis=1)


def q6_k(rows):
    n = rows.shape[0]
    subs = rows.reshape(n, 16, 16)
    scale = np.abs(subs).max(axis=2) / 31
    d = scale.max(axis=1) / 127
    sc = np.round(scale / d[:, None]).astype(np.int8)
    step = (d[:, None] * sc)[:, :, None]
    q = (np.clip(np.round(subs / np.where(step == 0, 1, step)), -32, 31) + 32).astype(np.uint8).reshape(n, 2, 4, 32)
    nibbles = (q[:, :, :2] & 15) | ((q[:, :, 2:] & 15) << 4)
    upper = sum((q[:, :, run] >> 4) << (2 * run) for run in range(4)).astype(np.uint8)
    return np.concatenate([nibbles.reshape(n, 128), upper.reshape(n, 64), sc.view(np.uint8), half(d)], axis=1)


def of_weights(rng, kind, count):
    """Quantised weights as models have them: near normal, some rows large, some values outliers."""
    length = GGML_QUANT_SIZES[kind][0]
    weights = (rng.standard_normal((count, length)) * 0.02).astype(np.float32)
    weights *= np.exp(rng.standard_normal((count, 1))).astype(np.float32)
    weights[rng.random(weights.shape) < 0.005] *= 20
    tolerance = {Type.Q4_0: 0.2, Type.Q5_0: 0.1, Type.Q8_0: 0.01, Type.Q4_K: 0.2, Type.Q5_K: 0.1, Type.Q6_K: 0.1}
    if kind == Type.TQ2_0:
        weights = np.sign(weights) * (np.abs(weights) > 0.01) * np.float32(0.0625)
        tolerance[kind] = 0.0
    if kind == Type.Q6_K:
        blocks = q6_k(weights)
    elif kind in (Type.Q4_K, Type.Q5_K):
        blocks = affine_k(weights, {Type.Q4_K: 4, Type.Q5_K: 5}[kind])
    else:
        blocks = quantize(weights, kind)
    # The layout is understood: what was packed comes back.
    error = np.abs(dequantize(blocks, kind).reshape(weights.shape) - weights)
    assert (error <= tolerance[kind] * np.abs(weights).max(axis=1, keepdims=True)).all(), kind.name
    return blocks


def main():
    index = {}
    for kind in HALVES:
        rng = np.random.default_rng(kind.value)
        length, size = GGML_QUANT_SIZES[kind]
        some = 16 if length == 256 else 48
        parts = {
            "random": random_blocks(rng, kind, some),
            "extreme": with_scales(rng, kind, EXTREME),
            "weights": of_weights(rng, kind, some // 2),
            # NaN has many forms: of these blocks only that a value is NaN, not which, is to be equal.
            "special": with_scales(rng, kind, SPECIAL),
        }
        blocks = np.concatenate(list(parts.values()))
        with np.errstate(all="ignore"):
            values = dequantize(blocks, kind).astype("<f4")
        assert np.isfinite(values[: -len(SPECIAL)]).all()
        (HERE / f"{kind.name}.blocks.bin").write_bytes(blocks.tobytes())
        (HERE / f"{kind.name}.f32.bin").write_bytes(values.tobytes())
        index[kind.name] = {
            "id": kind.value,
            "block_values": length,
            "block_bytes": size,
            "blocks": {name: len(part) for name, part in parts.items()},
            "sha256_blocks": hashlib.sha256(blocks.tobytes()).hexdigest(),
            "sha256_f32": hashlib.sha256(values.tobytes()).hexdigest(),
        }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in index.items())
    (HERE / "index.json").write_text("{\n" + lines + "\n}\n")


main()
