#!/usr/bin/env python3
"""Values of random blocks of every GGUF type, as halfbyte reads them and as the gguf package does: bit for bit.

    gguf_check.py HALFBYTE [ROUNDS]      exit status 0: the same, 1: not, 77: gguf or safetensors is not installed
"""
import pathlib
import subprocess
import sys
import tempfile

import packages

try:
    import gguf
    import numpy
    import safetensors.numpy
    from gguf.quants import dequantize
except ImportError as error:
    packages.skip(error)

# Where a block has float16 numbers, which random bytes would make infinite.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "NVFP4": [],
          "TQ1_0": [52], "TQ2_0": [64]}
COLUMNS, ROWS = 1024, 64


def blocks(random, name):
    values, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    out = random.integers(0, 256, (ROWS * COLUMNS // values, size), dtype=numpy.uint8)
    for at in HALVES[name]:
        scales = random.normal(0, 10.0 ** random.integers(-6, 3), (len(out), 1))  # subnormal ones too
        out[:, at:at + 2] = scales.astype(numpy.float16).view(numpy.uint8)
    if name == "MXFP4":
        out[:, 0] = random.integers(0, 250, len(out))
    if name == "NVFP4":
        out[:, :4] &= 0x7F  # scales have no sign
    return out.reshape(ROWS, -1)


def write(path, tensors):
    writer = gguf.GGUFWriter(path, "types")
    for name, data in tensors.items():
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def differing(program, folder, seed):
    random = numpy.random.default_rng(seed)
    tensors = {name: blocks(random, name) for name in HALVES}
    write(folder / "types.gguf", tensors)
    subprocess.run([program, "dequantize", folder / "types.gguf", folder / "out", "--dtype", "float32", "--overwrite", "-q"], stdout=subprocess.DEVNULL,
                   check=True)
    found = safetensors.numpy.load_file(folder / "out" / "model.safetensors")
    return [name for name, data in tensors.items()
            if not numpy.array_equal(dequantize(data, gguf.GGMLQuantizationType[name]).view(numpy.uint32),
                                     found[name].view(numpy.uint32))]


def main():
    program, rounds = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 8
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(rounds):
            names = differing(program, pathlib.Path(scratch), seed)
            if names:
                print(f"seed {seed}: {', '.join(names)} differ")
                return 1
    print(f"{rounds} rounds of {len(HALVES)} types: the same bits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
