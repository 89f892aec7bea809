"""Loads GGUF files whole by the gguf package and says what it found, one JSON object a file and line.

    python load.py [--register-i2_s] FILE...

Per tensor: name, type, shape (slowest first), and the SHA-256 of its values as little-endian f32; of I2_S, which the
package does not know, the SHA-256 of the codes. Without --register-i2_s such a file is refused by the package.
"""

import hashlib
import json
import sys

import numpy as np
from gguf import constants, quants
from gguf.gguf_reader import GGUFReader

I2_S = 36


def register():
    kind = constants.GGMLQuantizationType
    member = int.__new__(kind, I2_S)
    member._name_, member._value_ = "I2_S", I2_S
    kind._value2member_map_[I2_S] = member
    kind._member_map_["I2_S"] = member
    # 128 weights in 32 bytes; the scale behind them is not part of a block.
    constants.GGML_QUANT_SIZES[member] = (128, 32)


def main(paths):
    for path in paths:
        reader = GGUFReader(path)
        tensors = []
        for tensor in reader.tensors:
            if tensor.tensor_type == I2_S:
                data = tensor.data.tobytes()
            else:
                data = quants.dequantize(tensor.data, tensor.tensor_type).astype("<f4").tobytes()
            shape = [int(dim) for dim in reversed(tensor.shape)]
            tensors.append([tensor.name, tensor.tensor_type.name, shape, hashlib.sha256(data).hexdigest()])
        keys = {}
        for name, field in reader.fields.items():
            if not name.startswith("GGUF."):
                value = field.contents()
                keys[name] = len(value) if isinstance(value, list) else value
        print(json.dumps({"keys": keys, "tensors": tensors}))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments and arguments[0] == "--register-i2_s":
        register()
        arguments = arguments[1:]
    main(arguments)
