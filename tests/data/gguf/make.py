"""Writes types.gguf, two rows of random blocks of every type that is read, and what the gguf package makes of them.

usage: make.py   (needs gguf and safetensors from PyPI)"""
from pathlib import Path

import gguf
import numpy
from gguf.quants import dequantize
from safetensors.numpy import save_file

FOLDER = Path(__file__).parent
# Where a block has float16 numbers, which random bytes would make infinite.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "NVFP4": [],
          "TQ1_0": [52], "TQ2_0": [64]}
COLUMNS, ROWS = 256, 2


def blocks(random, name, kind):
    values, size = gguf.GGML_QUANT_SIZES[kind]
    out = random.integers(0, 256, (ROWS * COLUMNS // values, size), dtype=numpy.uint8)
    for at in HALVES[name]:
        out[:, at:at + 2] = random.normal(0, 0.02, (len(out), 1)).astype(numpy.float16).view(numpy.uint8)
    if name == "MXFP4":
        out[:, 0] = random.integers(0, 140, len(out))  # subnormal scales too
    if name == "NVFP4":
        out[:, :4] &= 0x7F  # scales have no sign
    return out.reshape(ROWS, -1)


def main():
    random = numpy.random.default_rng(8)
    writer = gguf.GGUFWriter(FOLDER / "types.gguf", "types")
    expected = {}
    for name in HALVES:
        kind = gguf.GGMLQuantizationType[name]
        data = blocks(random, name, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
        expected[name] = dequantize(data, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected, FOLDER / "types.expected.safetensors")


if __name__ == "__main__":
    main()
