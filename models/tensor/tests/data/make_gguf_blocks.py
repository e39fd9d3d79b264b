"""Makes gguf_blocks.gguf and src/file/gguf/grids.bin with the `gguf` package (0.19).

    python3 -m venv v && v/bin/pip install gguf==0.19.0 && v/bin/python make_gguf_blocks.py

The file holds one random block of every block format, and beside it, as NAME.f32,
what the package's own dequantize makes of it. Q8_K, which the package leaves out,
is in as its definition says: f32 scale times int8.
"""
import pathlib

import gguf
import numpy as np
from gguf import quants

here = pathlib.Path(__file__).parent
kinds = gguf.GGMLQuantizationType
# Format and where its f16 scales are; the rest of a block may be any bytes.
formats = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "Q8_K": [],
    "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": [],
    "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}
random = np.random.default_rng(24)
writer = gguf.GGUFWriter(here / "gguf_blocks.gguf", "none")
writer.add_array("tokenizer.ggml.tokens", ["a", "bc", "ß"])
writer.add_array("tokenizer.ggml.scores", [0.5, -1.25, 3.0])
for name, scales in formats.items():
    kind = getattr(kinds, name)
    values, size = gguf.GGML_QUANT_SIZES[kind]
    block = random.integers(0, 256, size, dtype=np.uint8)
    for at in scales:
        block[at:at + 2] = np.frombuffer(np.float16(random.normal() / 64).tobytes(), np.uint8)
    if name == "Q8_K":
        scale = np.float32(random.normal() / 64)
        block[:4] = np.frombuffer(scale.tobytes(), np.uint8)
        plain = scale * block[4:260].view(np.int8).astype(np.float32)
    else:
        if name == "IQ1_M":  # The top nibble of the last word is the f16's sign and exponent.
            block[55] = block[55] & 15 | 0x20
        if name == "MXFP4":
            block[0] = 120
        plain = quants.dequantize(block.reshape(1, -1), kind).reshape(-1)
    assert plain.size == values and np.isfinite(plain).all(), name
    writer.add_tensor(name, block.reshape(1, -1), raw_dtype=kind)
    writer.add_tensor(name + ".f32", plain.astype(np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

packed = b""
for name in ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_S", "IQ3_XXS", "IQ3_S"]:
    table = getattr(quants, name)
    table.init_grid()
    levels = np.searchsorted(np.array(table.grid_map, np.float32), table.grid.reshape(-1)).astype(np.uint8)
    bits = 2 if len(table.grid_map) < 4 else 4
    per_byte = 8 // bits
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    packed += (levels.reshape(-1, per_byte) << shifts).sum(axis=1).astype(np.uint8).tobytes()
(here / "../../src/file/gguf/grids.bin").write_bytes(packed)
