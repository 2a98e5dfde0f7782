#!/usr/bin/env python3
"""Values of random checkpoints in other tools' 4-bit layouts, as halfbyte reads them and as the tool or numpy does.

    low_bit_check.py HALFBYTE [ROUNDS]      exit status 0: the same, 1: not, 77: torch or a package is not installed

bitsandbytes and compressed-tensors write their own (and bitsandbytes dequantises it); MXFP4, ModelOpt's NVFP4 and HQQ are
written and read by numpy here, from their specifications. Everything is compared bit for bit, in float32, and what
bitsandbytes dequantises also in the dtype that it rounds to. HQQ's own package is used where it can be imported.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import packages

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # bitsandbytes would compile what runs a few times here
try:
    import numpy
    import torch
    import safetensors.torch
    import bitsandbytes.functional as bitsandbytes
    from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
    from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
except ImportError as error:
    packages.skip(error)

E2M1 = numpy.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], numpy.float32)
DTYPES = [torch.bfloat16, torch.float16, torch.float32]


class Case:
    """Tensors of a checkpoint, its configuration, and what halfbyte should find: name -> float32 tensor."""

    def __init__(self, name, config, files=None):
        self.name, self.config, self.files = name, config, files or {}
        self.tensors, self.wanted, self.rounded = {}, {}, {}


def weight(random, shape, dtype):
    return torch.from_numpy(random.normal(0, 0.05, shape).astype(numpy.float32)).to(dtype)


def bitsandbytes_values(codes, scales, book, block, shape):
    packed, count = codes.view(torch.uint8).numpy().reshape(-1), int(numpy.prod(shape))
    levels = book.numpy()[numpy.stack([packed >> 4, packed & 15], -1).reshape(-1)[:count]]
    return torch.from_numpy((levels * numpy.repeat(scales.numpy(), block)[:count]).reshape(shape))


def bitsandbytes_case(random):
    out = Case("bitsandbytes", {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}})
    for i in range(24):
        # Whole rows, blocks across rows, a shorter block at the end, rows that are no whole words.
        shape = [(64, 256), (6, 4096), (48, 192), (33, 72), (10, 172), (7, 50), (4, 24, 96), (1, 30)][i % 8]
        dtype, storage = DTYPES[random.integers(3)], [torch.uint8, torch.uint8, torch.bfloat16, torch.float16, torch.float32][random.integers(5)]
        bytes_each = torch.empty(0, dtype=storage).element_size()
        if numpy.prod(shape) % (2 * bytes_each):
            storage = torch.uint8
        block, kind = [32, 64, 128, 256, 512, 1024, 2048, 4096][random.integers(8)], ["nf4", "fp4"][random.integers(2)]
        is_nested = bool(random.integers(2))
        codes, state = bitsandbytes.quantize_4bit(weight(random, shape, dtype), blocksize=block, compress_statistics=is_nested, quant_type=kind, quant_storage=storage)
        name = f"layers.{i}.weight"
        out.tensors[name] = codes
        for key, value in state.as_dict(packed=True).items():
            out.tensors[f"{name}.{key}"] = value
        scales = state.absmax
        if is_nested:
            scales = bitsandbytes.dequantize_blockwise(state.absmax, state.state2) + state.offset
        out.wanted[name] = bitsandbytes_values(codes, scales, state.code, block, shape).to(dtype).float()  # as bitsandbytes rounds
        if shape[-1] % block == 0:  # 0.50's kernel for AVX-512 gives other values where a block crosses rows
            out.rounded[name] = bitsandbytes.dequantize_4bit(codes, state)
    return out


def pairs(codes):
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(numpy.uint8)


def mxfp4_case(random, suffixes, config):
    out = Case("MXFP4 " + suffixes[0], config)
    for i, shape in enumerate([(2, 8, 64), (3, 6, 96), (1, 64, 32), (24, 64)]):
        codes = random.integers(0, 16, shape, dtype=numpy.uint8)
        exponents = random.integers(0, 251, (*shape[:-1], shape[-1] // 32), dtype=numpy.uint8)
        name = f"model.layers.{i}.mlp.experts.gate_up_proj"
        out.tensors[name + suffixes[0]] = torch.from_numpy(pairs(codes).reshape(*exponents.shape, 16))
        out.tensors[name + suffixes[1]] = torch.from_numpy(exponents)
        scales = numpy.ldexp(numpy.float32(1), exponents.astype(numpy.int32) - 127).astype(numpy.float32)
        out.wanted[name] = torch.from_numpy(E2M1[codes] * numpy.repeat(scales, 32, -1))
    return out


def nvfp4_scales(random, shape):
    scales = torch.from_numpy(random.uniform(0.001, 448, shape).astype(numpy.float32)).to(torch.float8_e4m3fn)
    return scales, scales.float().numpy()


def modelopt_case(random, is_in_config):
    algorithm = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}
    config = {"quantization_config": {"quant_method": "modelopt", **algorithm}} if is_in_config else {}
    out = Case("ModelOpt", config, {} if is_in_config else {"hf_quant_config.json": {"producer": {"name": "modelopt"}, "quantization": algorithm}})
    for i, shape in enumerate([(8, 16), (33, 48), (4, 160), (2, 6, 64)]):
        codes = random.integers(0, 16, shape, dtype=numpy.uint8)
        stored, scales = nvfp4_scales(random, (*shape[:-1], shape[-1] // 16))
        factor = numpy.float32(random.uniform(1e-5, 1e-2))
        name = f"layers.{i}"
        out.tensors[name + ".weight"] = torch.from_numpy(pairs(codes))
        out.tensors[name + ".weight_scale"] = stored
        out.tensors[name + ".weight_scale_2"] = torch.tensor(factor)
        out.tensors[name + ".input_scale"] = torch.tensor(0.5)
        out.tensors[name + ".k_scale"] = torch.tensor(0.5)
        out.wanted[name + ".weight"] = torch.from_numpy(E2M1[codes] * numpy.repeat(scales * factor, 16, -1))
    return out


def compressed_case(random, is_mx):
    form = "mxfp4-pack-quantized" if is_mx else "nvfp4-pack-quantized"
    group = 32 if is_mx else 16
    arguments = QuantizationArgs(num_bits=4, type="float", symmetric=True, strategy="group" if is_mx else "tensor_group", group_size=group,
                                 scale_dtype=torch.uint8 if is_mx else torch.float8_e4m3fn)
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    out = Case(form, {"quantization_config": {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
                                              "config_groups": {"group_0": json.loads(scheme.model_dump_json())}, "ignore": ["lm_head"]}})
    compressor = MXFP4PackedCompressor if is_mx else NVFP4PackedCompressor
    for i, shape in enumerate([(8, 64), (33, 96), (4, 160)]):
        values = weight(random, shape, torch.bfloat16)
        largest = values.float().reshape(shape[0], -1, group).abs().amax(-1)
        state = {"weight": values}
        if is_mx:
            state["weight_scale"] = torch.exp2(torch.floor(torch.log2(largest)) - 2)
        else:
            state["weight_global_scale"] = torch.tensor([448 * 6 / float(values.abs().max())])
            state["weight_scale"] = (largest / 6 * state["weight_global_scale"]).to(torch.float8_e4m3fn).float()
        state = compressor.compress(state, scheme)
        name = f"layers.{i}.weight"
        out.tensors |= {f"layers.{i}.{key}": value.contiguous() for key, value in state.items() if value is not None}
        if not is_mx:
            out.tensors[f"layers.{i}.input_global_scale"] = torch.tensor([3.0])
        out.rounded[name] = compressor.decompress(dict(state), scheme)["weight"].to(torch.bfloat16)
        packed = state["weight_packed"].numpy()
        codes = numpy.stack([packed & 15, packed >> 4], -1).reshape(shape)
        if is_mx:
            scales = numpy.ldexp(numpy.float32(1), state["weight_scale"].numpy().astype(numpy.int32) - 127).astype(numpy.float32)
        else:
            scales = state["weight_scale"].float().numpy() / state["weight_global_scale"].numpy()
        out.wanted[name] = torch.from_numpy(E2M1[codes] * numpy.repeat(scales, group, -1))
    return out


HQQ_FIELDS = {8: (1, numpy.uint8, "8bit_u8"), 4: (2, numpy.uint8, "4bit_u8"), 3: (10, numpy.int32, "3bit_32"), 2: (4, numpy.uint8, "2bit_u8"),
              1: (8, numpy.uint8, "1bit_u8")}


def hqq_codes(codes, bits):
    fields, word, _ = HQQ_FIELDS[bits]
    rows = -(-len(codes) // fields)
    padded = numpy.zeros((rows * fields, codes.shape[1]), word)
    padded[:len(codes)] = codes
    out = numpy.zeros((rows, codes.shape[1]), word)
    for field in range(fields):
        out |= padded[field * rows:(field + 1) * rows] << ((fields - 1 - field) * bits)
    return out


def hqq_case(random):
    out = Case("HQQ", {"quantization_config": {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4}}, "skip_modules": ["lm_head"]}})
    for i, (bits, axis, group, shape) in enumerate((bits, axis, group, shape) for bits in HQQ_FIELDS for axis in (0, 1)
                                                    for group, shape in ((64, (32, 128)), (32, (48, 96)), (16, (8, 80)))):
        groups = shape[0] * shape[1] // group
        matrix = (group, groups) if axis == 0 else (groups, group)
        dtype = DTYPES[random.integers(3)]
        codes = random.integers(0, 2 ** bits, matrix, dtype=numpy.uint8)
        scale = weight(random, (1, groups) if axis == 0 else (groups, 1), dtype)
        zero = (weight(random, scale.shape, torch.float32) * 100).to(dtype)
        packed = torch.from_numpy(hqq_codes(codes, bits))
        parts = {"W_q": packed, "scale": scale, "zero": zero, "nbits": torch.tensor(bits, dtype=torch.int32), "group_size": torch.tensor(group, dtype=torch.int32),
                 "shape": torch.tensor(shape), "axis": torch.tensor(axis, dtype=torch.int32), "packing": text(HQQ_FIELDS[bits][2]),
                 "unpack_view_dtype": text("torch.int32" if bits == 3 else "torch.uint8"), "view_as_float": torch.tensor(0, dtype=torch.uint8),
                 "quant_scale": torch.tensor(0, dtype=torch.uint8), "quant_zero": torch.tensor(0, dtype=torch.uint8), "compute_dtype": text(str(dtype)),
                 "offload_meta": torch.tensor(0, dtype=torch.uint8), "encoded_state_dict": torch.tensor(1, dtype=torch.uint8),
                 "stores_quant_config": torch.tensor(1, dtype=torch.uint8), "channel_wise": torch.tensor(1, dtype=torch.uint8),
                 "optimize": torch.tensor(1, dtype=torch.uint8), "round_zero": torch.tensor(0, dtype=torch.uint8)}
        out.tensors |= {f"layers.{i}.{key}": value for key, value in parts.items()}
        out.wanted[f"layers.{i}.weight"] = ((torch.from_numpy(codes).float() - zero.float()) * scale.float()).reshape(shape)
    return out


def text(value):
    return torch.tensor(list(value.encode()), dtype=torch.uint8)


def hqq_package_case(random):
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
    out = Case("HQQ's own", {})
    for i, (bits, axis) in enumerate((bits, axis) for bits in (8, 4, 3, 2, 1) for axis in (0, 1)):
        linear = torch.nn.Linear(192, 64, bias=i % 2 == 0)
        layer = HQQLinear(linear, BaseQuantizeConfig(nbits=bits, group_size=64, axis=axis), compute_dtype=torch.float32, device="cpu")
        out.tensors |= {f"layers.{i}.{key}": value.contiguous() for key, value in layer.state_dict().items() if value is not None}
        out.wanted[f"layers.{i}.weight"] = layer.dequantize().float()
    return out


def cases(random):
    yield bitsandbytes_case(random)
    yield mxfp4_case(random, ("_blocks", "_scales"), {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}})
    yield mxfp4_case(random, (".blocks", ".scales"), {})
    yield modelopt_case(random, True)
    yield modelopt_case(random, False)
    yield compressed_case(random, False)
    yield compressed_case(random, True)
    yield hqq_case(random)
    try:
        yield hqq_package_case(random)
    except ImportError:
        pass


def write(case, folder):
    folder.mkdir()
    tensors = {**case.tensors, "norm.weight": torch.ones(5)}
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    for name, content in {"config.json": {"model_type": "foo", **case.config}, **case.files}.items():
        (folder / name).write_text(json.dumps(content))


def dequantized(program, source, *options):
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([program, "dequantize", source, pathlib.Path(scratch) / "out", "-q", *options], stdout=subprocess.DEVNULL, check=True)
        config = json.loads((pathlib.Path(scratch) / "out/config.json").read_text())
        assert "quantization_config" not in config and not (pathlib.Path(scratch) / "out/hf_quant_config.json").exists()
        return safetensors.torch.load_file(pathlib.Path(scratch) / "out/model.safetensors")


def same(found, wanted):
    if found is None or found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    return torch.equal(found.view(torch.int32 if found.element_size() == 4 else torch.int16),
                       wanted.contiguous().view(torch.int32 if wanted.element_size() == 4 else torch.int16))


def differing(program, case, folder):
    write(case, folder)
    found = dequantized(program, folder, "--dtype", "float32")
    out = [name for name, wanted in case.wanted.items() if not same(found.get(name), wanted)]
    out += [name for name in found if name not in case.wanted and name != "norm.weight" and not name.endswith(".bias")]
    for name, wanted in case.rounded.items():
        if not same(found[name].to(wanted.dtype), wanted):
            out.append(name + " in " + str(wanted.dtype))
    # The same again from halfbyte's own copy, of what has a scheme, in the dtypes on record.
    if case.wanted and not case.name.startswith("HQQ"):
        subprocess.run([program, "quantize", folder, folder.parent / "own", "-q"], stdout=subprocess.DEVNULL, check=True)
        found, again = dequantized(program, folder), dequantized(program, folder.parent / "own")
        out += [name + " repacked" for name in found if not same(again.get(name), found[name])]
    return out


def main():
    program, rounds = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    count = 0
    for seed in range(rounds):
        for case in cases(numpy.random.default_rng(seed)):
            with tempfile.TemporaryDirectory() as scratch:
                names = differing(program, case, pathlib.Path(scratch) / "source")
            count += len(case.wanted)
            if names:
                print(f"seed {seed}, {case.name}: {', '.join(names)} differ")
                return 1
    print(f"{rounds} rounds, {count} tensors: the same bits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
