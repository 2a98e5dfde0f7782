#!/usr/bin/env python3
"""The same weights quantised by bitsandbytes and by halfbyte, compared by KL divergence from the original in float32.

    bitsandbytes_accuracy.py HALFBYTE MODEL TEXT      exit status 0: halfbyte is not worse anywhere, 1: it is, 77: not installed

bitsandbytes's quantised weights are dequantised into a plain float32 checkpoint, which halfbyte then runs like any other.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import packages

try:
    import bitsandbytes.functional
    import safetensors.torch
    import torch
except ImportError as error:
    packages.skip(error)

GROUP_SIZE = 64
CASES = [("nf4", False), ("nf4", True), ("fp4", False), ("fp4", True)]


def halfbyte(program, *words):
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=True).stdout


def kl(program, folder, model, text):
    words = ["--text", text, "--ctx", 256, "--chunks", 64, "--dtype", "float32", "--against", model, "--json"]
    return json.loads(halfbyte(program, "perplexity", folder, *words))["kl_mean"]


def quantized_names(folder):
    manifest = json.loads(pathlib.Path(folder, "halfbyte.json").read_text())
    return [name for name, record in manifest["tensors"].items() if record["stored"] in ("nf4", "fp4")]


def round_trip(weight, scheme, is_nested):
    codes, state = bitsandbytes.functional.quantize_4bit(
        weight.contiguous(), blocksize=GROUP_SIZE, quant_type=scheme, compress_statistics=is_nested
    )
    state.dtype = torch.float32
    return bitsandbytes.functional.dequantize_4bit(codes, state)


def write_theirs(model, folder, names, scheme, is_nested):
    os.makedirs(folder)
    for file in pathlib.Path(model).iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, folder)
    for file in pathlib.Path(model).glob("*.safetensors"):
        tensors = safetensors.torch.load_file(file)
        for name in names:
            if name in tensors:
                tensors[name] = round_trip(tensors[name], scheme, is_nested)
        safetensors.torch.save_file(tensors, os.path.join(folder, file.name), metadata={"format": "pt"})


def main():
    program, model, text = sys.argv[1:]
    is_worse = False
    print(f"KL divergence from the original, float32, groups of {GROUP_SIZE}")
    for scheme, is_nested in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            ours, theirs = os.path.join(scratch, "ours"), os.path.join(scratch, "theirs")
            options = ["--nested-scales"] if is_nested else []
            halfbyte(program, "quantize", model, ours, "-q", "--scheme", scheme, "--group-size", GROUP_SIZE, *options)
            write_theirs(model, theirs, quantized_names(ours), scheme, is_nested)
            pair = kl(program, ours, model, text), kl(program, theirs, model, text)
        print(f"{scheme}{', nested scales' if is_nested else ''}: halfbyte {pair[0]:.6f}, bitsandbytes {pair[1]:.6f}, ratio {pair[0] / pair[1]:.3f}")
        is_worse = is_worse or pair[0] > pair[1]
    return 1 if is_worse else 0


if __name__ == "__main__":
    sys.exit(main())
