"""Writes blocks.gguf: random blocks of every quantised type with the values that the `gguf` package (0.19.0) reads.

For each type there is a tensor of its name and one named NAME.values, in float32.
"""

import pathlib

import gguf
import numpy

TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
         "NVFP4"]
# Offsets of float16 numbers in a block; random bits would also make infinities.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
          "NVFP4": []}
ROWS, COLUMNS = 3, 512
rng = numpy.random.default_rng(20261123)
writer = gguf.GGUFWriter(pathlib.Path(__file__).with_name("blocks.gguf"), "blocks")
for name in TYPES:
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ROWS * COLUMNS // elements, size), dtype=numpy.uint8)
    for at in HALVES[name]:
        halves = (rng.standard_normal((len(blocks), 1)) / 16).astype(numpy.float16)
        blocks[:, at:at + 2] = halves.view(numpy.uint8)
    if name == "MXFP4":  # exponents near those of weights, and both ends of the range
        blocks[:, 0] = rng.integers(110, 130, len(blocks))
        blocks[:4, 0] = [0, 1, 2, 252]
    blocks = blocks.reshape(ROWS, -1)
    writer.add_tensor(name, blocks, raw_dtype=kind)
    writer.add_tensor(f"{name}.values", gguf.quants.dequantize(blocks, kind).astype(numpy.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
