#!/usr/bin/env python3
"""Random checkpoints of GPTQ, AWQ, AutoRound and compressed-tensors, packed here from codes, as halfbyte reads them: bit for bit.

    gptq_check.py HALFBYTE [SCRATCH]      exit status 0: the same, 1: not, 77: numpy or safetensors is not installed

Every kind in many shapes, group sizes and dtypes of scales is dequantised, and quantised (which must keep the numbers), and compared
with (code - zero point) * scale in float32. Where compressed_tensors and torch are installed, its own packing writes its kind.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import packages

try:
    import numpy
    import safetensors.numpy
except ImportError as error:
    packages.skip(error)
try:
    import torch
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
except ImportError:
    torch = None

# (out, in): multiples of nothing in particular too.
SHAPES = [(8, 32), (24, 64), (64, 256), (96, 384), (128, 1024), (1000, 128), (8, 4096)]
ODD_SHAPES = [(3, 32), (13, 64), (100, 256), (57, 1024), (1, 128)]
GROUPS = (16, 32, 64, 128, -1)


def fields(values, bits, axis):
    """Unsigned integers packed along an axis, the first one lowest, as words of 32 bits; the last word is filled up with zeros."""
    per_word = 32 // bits
    values = numpy.moveaxis(values.astype(numpy.uint64), axis, -1)
    padding = -values.shape[-1] % per_word
    values = numpy.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, padding)])
    words = values.reshape(*values.shape[:-1], -1, per_word) << numpy.arange(0, 32, bits, dtype=numpy.uint64)
    return numpy.ascontiguousarray(numpy.moveaxis(words.sum(-1), -1, axis)).astype(numpy.uint32).view(numpy.int32)


class Weight:
    """Random codes of one linear, and what they stand for."""

    def __init__(self, random, shape, bits, group, symmetric, scale_dtype=numpy.float16, order=None):
        self.out, self.inputs = shape
        self.bits, self.symmetric = bits, symmetric
        self.group = self.inputs if group == -1 or group > self.inputs else group
        groups = -(-self.inputs // self.group)
        top = 1 << bits
        self.codes = random.integers(0, top, shape)
        self.zeros = numpy.full((self.out, groups), top // 2) if symmetric else random.integers(0, top, (self.out, groups))
        self.scales = random.normal(0, 10.0 ** random.integers(-5, 1), (self.out, groups)).astype(scale_dtype)
        self.g_idx = numpy.arange(self.inputs) // self.group
        if order == "shuffled":
            random.shuffle(self.g_idx)

    def values(self):
        codes = self.codes - self.zeros[:, self.g_idx]
        return codes.astype(numpy.float32) * self.scales.astype(numpy.float32)[:, self.g_idx]


def gptq(weight, version):
    words = fields(weight.zeros.T, weight.bits, 1)
    if version == 1:  # one subtraction from the word
        words = (words.view(numpy.uint32) - numpy.uint32(0xFFFFFFFF // ((1 << weight.bits) - 1))).view(numpy.int32)
    return {"qweight": fields(weight.codes.T, weight.bits, 0), "qzeros": words, "scales": numpy.ascontiguousarray(weight.scales.T),
            "g_idx": weight.g_idx.astype(numpy.int32)}


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def awq(weight):
    def pack(values):
        rows, columns = values.shape
        return fields(values.reshape(rows, columns // 8, 8)[:, :, AWQ_ORDER].reshape(rows, columns), 4, 1)
    return {"qweight": pack(weight.codes.T), "qzeros": pack(weight.zeros.T), "scales": numpy.ascontiguousarray(weight.scales.T)}


def compressed(weight, has_order):
    middle = 1 << (weight.bits - 1)

    def pack(values, axis):
        if torch is None:
            return fields(values, weight.bits, axis)
        return pack_to_int32(torch.from_numpy(values - middle).to(torch.int8), weight.bits, packed_dim=axis).numpy()
    out = {"weight_packed": pack(weight.codes, 1), "weight_scale": weight.scales, "weight_shape": numpy.array([weight.out, weight.inputs])}
    if not weight.symmetric:
        out["weight_zero_point"] = pack(weight.zeros, 0)
    if has_order:
        out["weight_g_idx"] = weight.g_idx.astype(numpy.int32)
    return out


class Checkpoint:
    def __init__(self, config, modules, side_file=None):
        self.config, self.modules, self.side_file = config, modules, side_file  # modules: name -> (weight, tensors)
        # A scheme holds all of them: they stay packed.
        self.is_kept = all(weight.bits == 4 or weight.symmetric for weight, _ in modules.values())

    def write(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        config = {"model_type": "none", "architectures": ["Nothing"]}
        (folder / (self.side_file or "no")).write_text(json.dumps(self.config))
        if not self.side_file:
            (folder / "no").unlink()
            config["quantization_config"] = self.config
        (folder / "config.json").write_text(json.dumps(config))
        tensors = {f"{name}.{part}": data for name, (_, parts) in self.modules.items() for part, data in parts.items()}
        tensors["a.norm.weight"] = numpy.ones(4, numpy.float16)
        names = sorted(tensors)
        files = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
        for file, part in files.items():  # the parts of a linear are in two files
            safetensors.numpy.save_file({name: tensors[name] for name in part}, folder / file)
        index = {"metadata": {}, "weight_map": {name: file for file, part in files.items() for name in part}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def gptq_checkpoints(random):
    for version in (1, 2):
        for symmetric in (True, False):
            for bits in (4, 8):
                for group in GROUPS:
                    for order in (None, "shuffled"):
                        if order and group == -1:
                            continue
                        modules = {}
                        for shape in SHAPES + ODD_SHAPES:
                            weight = Weight(random, shape, bits, group, symmetric, order=order,
                                            scale_dtype=random.choice([numpy.float16, numpy.float32]))
                            modules[f"m{len(modules)}.proj"] = (weight, gptq(weight, version))
                        config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": order is not None,
                                  "checkpoint_format": "gptq" if version == 1 else "gptq_v2"}
                        yield f"GPTQ v{version} {bits} bits, group {group}, sym {symmetric}, {order}", Checkpoint(
                            config, modules, "quantize_config.json" if group == 32 else None)


def awq_checkpoints(random):
    for group in GROUPS:
        for symmetric in (True, False):
            modules = {}
            for shape in SHAPES:
                weight = Weight(random, shape, 4, group, symmetric)
                modules[f"m{len(modules)}.proj"] = (weight, awq(weight))
            config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": not symmetric, "version": "gemm"}
            yield f"AWQ group {group}, sym {symmetric}", Checkpoint(config, modules)
    modules = {"m.proj": (weight := Weight(random, (64, 256), 4, 64, False), awq(weight))}
    yield "AWQ, AutoAWQ's own file", Checkpoint({"w_bit": 4, "q_group_size": 64, "zero_point": True, "version": "GEMM"}, modules,
                                                "quant_config.json")


def auto_round_checkpoints(random):
    packings = {"auto_round:auto_gptq": lambda w: gptq(w, 1), "auto_round": lambda w: gptq(w, 2), "auto_round:gptqmodel": lambda w: gptq(w, 2),
                "auto_round:auto_awq": awq}
    for packing, pack in packings.items():
        for symmetric in (True, False):
            modules, extra = {}, {}
            for index, shape in enumerate(SHAPES):
                bits = 8 if index == 2 and symmetric and "awq" not in packing else 4
                group = (32, 64, 16)[index % 3]
                weight = Weight(random, shape, bits, group, symmetric)
                modules[f"m{index}.proj"] = (weight, pack(weight))
                if (bits, group) != (4, 32):
                    extra[f"m{index}.proj"] = {"bits": bits, "group_size": group, "sym": symmetric}
            extra["a.head"] = {"bits": 16}
            config = {"quant_method": "auto-round", "packing_format": packing, "bits": 4, "group_size": 32, "sym": symmetric,
                      "data_type": "int", "extra_config": extra}
            yield f"AutoRound {packing}, sym {symmetric}", Checkpoint(config, modules)


def compressed_checkpoints(random):
    for bits in (4, 8):
        for symmetric in (True, False):
            for group in GROUPS:
                for order in (None, "shuffled"):
                    if order and group == -1:
                        continue
                    modules = {}
                    for shape in SHAPES + ODD_SHAPES + [(5, 96), (16, 80)]:
                        if shape[1] % (group if group > 0 else 1):
                            continue
                        weight = Weight(random, shape, bits, group, symmetric, order=order)
                        modules[f"m{len(modules)}.proj"] = (weight, compressed(weight, order is not None))
                    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "channel" if group == -1 else "group",
                               "group_size": None if group == -1 else group, "dynamic": False, "actorder": "group" if order else None}
                    config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
                              "ignore": ["lm_head", "re:.*norm.*"],
                              "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}
                    yield f"compressed-tensors {bits} bits, group {group}, sym {symmetric}, {order}", Checkpoint(config, modules)


def run(program, *words):
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True)


def differences(folder, checkpoint):
    found = {}
    for file in folder.glob("*.safetensors"):
        found.update(safetensors.numpy.load_file(file))
    for name, (weight, _) in checkpoint.modules.items():
        value, wanted = found.get(f"{name}.weight"), weight.values()
        if value is None or value.shape != wanted.shape or not numpy.array_equal(value.view(numpy.uint32), wanted.view(numpy.uint32)):
            yield f"{name} {weight.codes.shape}"


def problems_of(program, folder, checkpoint):
    checkpoint.write(folder / "m")
    words = ("--dtype", "float32", "--overwrite", "-q")
    result = run(program, "dequantize", folder / "m", folder / "plain", *words)
    if result.returncode != 0:
        return [result.stderr.strip()]
    problems = list(differences(folder / "plain", checkpoint))
    if "quant" in (folder / "plain" / "config.json").read_text() or list((folder / "plain").glob("quant*")):
        problems.append("the result still says that it is quantised")
    if not checkpoint.is_kept:
        return problems
    result = run(program, "quantize", folder / "m", folder / "kept", "--overwrite", "-q")
    if result.returncode == 0:
        result = run(program, "dequantize", folder / "kept", folder / "again", *words)
        if result.returncode == 0:
            return problems + [f"quantize: {problem}" for problem in differences(folder / "again", checkpoint)]
    return problems + [result.stderr.strip()]


def main():
    program, problems = pathlib.Path(sys.argv[1]).resolve(), 0
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as scratch:
        random = numpy.random.default_rng(1)
        for make in (gptq_checkpoints, awq_checkpoints, auto_round_checkpoints, compressed_checkpoints):
            for name, checkpoint in make(random):
                found = problems_of(program, pathlib.Path(scratch), checkpoint)
                problems += len(found)
                print(f"{name}: {'the same bits' if not found else '; '.join(found[:3])}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
