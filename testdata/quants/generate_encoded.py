"""Writes values and the blocks that the gguf package quantises them to.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0 numpy==2.4.6 && venv/bin/python generate_encoded.py

`encoded.f32.bin` holds rows of 256 values, little-endian; `encoded.<type>.bin` their blocks, for every type that the
converter writes and the package quantises (it has no Q6_K quantiser). The same versions give the same bytes.
"""

from pathlib import Path

import numpy as np
from gguf.constants import GGMLQuantizationType as Type
from gguf.quants import quantize

HERE = Path(__file__).parent
rng = np.random.default_rng(5)
rows = [
    rng.standard_normal(256) * 0.02,
    rng.standard_normal(256),
    rng.laplace(size=256) * 100,
    np.zeros(256),
    # Signed zeros, and values of every magnitude down to the subnormal.
    np.where(np.arange(256) % 2 == 0, -0.0, 0.0),
    np.ldexp(rng.standard_normal(256), rng.integers(-140, 10, 256)),
    # Ties of Q8_0: with a largest value of 127 the scale is 1.
    np.concatenate([[127.0 if i == 0 else (i % 251 - 125) + 0.5 for i in range(32)] for _ in range(8)]),
    np.concatenate([[-127.0 if i == 0 else np.nextafter(np.float32(i + 0.5), np.float32(0)) for i in range(32)] for _ in range(8)]),
    # Blocks of one value among zeros, of either sign.
    np.where(np.arange(256) % 32 == 7, np.where(np.arange(256) % 64 < 32, 3.25, -1e-3), 0.0),
    # Scales that are subnormal in f16, or round to zero there.
    rng.standard_normal(256) * 1e-5,
    rng.standard_normal(256) * 1e-8,
    # The largest values of each type, and ties of F16 and BF16.
    np.where(np.arange(256) % 2 == 0, 65504.0, -65519.0),
    1.0 + (2 * np.arange(256) + 1) * 2.0**-12,
    1.0 + (2 * np.arange(256) + 1) * 2.0**-9,
]
values = np.stack(rows).astype("<f4")
(HERE / "encoded.f32.bin").write_bytes(values.tobytes())
for kind in (Type.F16, Type.BF16, Type.Q8_0):
    with np.errstate(over="ignore"):
        (HERE / f"encoded.{kind.name}.bin").write_bytes(quantize(values, kind).tobytes())
