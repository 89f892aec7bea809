"""Writes a file with every metadata type and several tensor types, by the gguf package.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0 numpy==2.4.6 && venv/bin/python generate.py
"""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quantize

writer = GGUFWriter(Path(__file__).parent / "every_type.gguf", "test")
writer.add_custom_alignment(128)
writer.add_uint8("u8", 255)
writer.add_int8("i8", -3)
writer.add_uint16("u16", 65535)
writer.add_int16("i16", -4)
writer.add_uint32("u32", 2**32 - 1)
writer.add_int32("i32", -5)
writer.add_float32("f32", 1.5)
writer.add_uint64("u64", 2**60)
writer.add_int64("i64", -(2**60))
writer.add_float64("f64", 0.1)
writer.add_bool("bool", True)
writer.add_string("str", "h\u00e9\n")
writer.add_array("i32s", [1, 2, 3])
writer.add_array("f32s", [1.5, 2.5])
writer.add_array("strs", ["a", "", "\u00e9"])
writer.add_array("bools", [True, False])
writer.add_array("u8s", b"abc")
writer.add_array("nested", [[1, 2], [3]])
values = np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32)
for name in ("Q8_0", "Q4_0", "Q5_0", "TQ2_0"):
    kind = GGMLQuantizationType[name]
    writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
writer.add_tensor("vector", np.arange(5, dtype=np.float32))
writer.add_tensor("four", np.ones((2, 3, 1, 5), dtype=np.float16))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
