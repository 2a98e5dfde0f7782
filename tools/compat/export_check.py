#!/usr/bin/env python3
"""Opens what `halfbyte export` wrote with transformers on the CPU, and exports it again.

    export_check.py HALFBYTE MODEL SCRATCH       exit status 0: agrees, 1: does not, 77: transformers is not installed

For each case below: MODEL is quantised and exported; every dequantised weight in transformers (compressed-tensors, bitsandbytes,
GPTQModel with optimum where they are installed) equals what `halfbyte dequantize` writes of the quantised checkpoint; those of GPTQ
and AWQ also equal what this script reads from their bytes. What was exported is imported and exported again, which gives the same files.
"""
import filecmp
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys

import transformers_check as check  # sets the environment; ends with status 77 where transformers is not installed

numpy, torch, transformers, safetensors = check.numpy, check.torch, check.transformers, check.safetensors

CASES = {
    "compressed-tensors, sym_int4": ("compressed-tensors", []),
    "compressed-tensors, sym_int4 with a packed head": ("compressed-tensors", ["--scheme-for", "lm_head=sym_int8"]),
    "compressed-tensors, asym_int4 g32": ("compressed-tensors", ["--scheme", "asym_int4", "--group-size", "32"]),
    "compressed-tensors, sym_int8": ("compressed-tensors", ["--scheme", "sym_int8"]),
    "compressed-tensors, mixed, some kept": ("compressed-tensors", ["--scheme-for", "*down_proj*=sym_int8", "--keep", "model.layers.1"]),
    "bitsandbytes, nf4": ("bitsandbytes", ["--scheme", "nf4"]),
    "bitsandbytes, nf4 with a packed head": ("bitsandbytes", ["--scheme", "nf4", "--scheme-for", "lm_head=nf4"]),
    "bitsandbytes, nf4 nested": ("bitsandbytes", ["--scheme", "nf4", "--nested-scales"]),
    "bitsandbytes, fp4 g32, some nf4": ("bitsandbytes", ["--scheme", "fp4", "--group-size", "32", "--scheme-for", "*down_proj*=nf4"]),
    "gptq, sym_int4": ("gptq", []),
    "gptq, sym_int4 g16, some kept": ("gptq", ["--group-size", "16", "--keep", "model.layers.1", "--keep", "*layers.2.self_attn.q_proj*"]),
    "gptq, sym_int4 per channel": ("gptq", ["--group-size", "channel"]),
    "gptq, asym_int4": ("gptq", ["--scheme", "asym_int4"]),
    "gptq, asym_int4 g32, absmax": ("gptq", ["--scheme", "asym_int4", "--group-size", "32", "--search", "absmax"]),
    "gptq, sym_int8": ("gptq", ["--scheme", "sym_int8"]),
    "gptq, sym and asym": ("gptq", ["--scheme-for", "*down_proj*=asym_int4"]),
    "gptq, nf4 requantised": ("gptq", ["--scheme", "nf4"]),
    "awq, sym_int4": ("awq", []),
    "awq, asym_int4 g32": ("awq", ["--scheme", "asym_int4", "--group-size", "32"]),
    "awq, asym_int4, some kept": ("awq", ["--scheme", "asym_int4", "--keep", "model.layers.1"]),
}
REQUANTIZED = {"gptq, nf4 requantised"}
HAS_GPTQMODEL = all(importlib.util.find_spec(name) for name in ("gptqmodel", "optimum"))


def read_weights(folder):
    out = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        out.update(safetensors.torch.load_file(file))
    return out


def fields(words, bits):
    """Fields of 32-bit words, the lowest first. Shape: (..., n) -> (..., n * 32 / bits)."""
    return check.fields(words.contiguous(), bits)


def gptq_weight(stored, module, config):
    """Shape: (out, in), float32. Codes go down the rows, zero points along them, less one in version 1."""
    bits = config["bits"]
    codes = fields(stored[module + ".qweight"].T, bits).T  # (in, out)
    zeros = fields(stored[module + ".qzeros"], bits)  # (groups, out)
    zeros = zeros + (1 if config["checkpoint_format"] == "gptq" else 0)
    groups = stored[module + ".g_idx"].numpy()
    scales = stored[module + ".scales"].float().numpy()
    return torch.from_numpy(((codes - zeros[groups]).astype(numpy.float32) * scales[groups]).T.copy())


def awq_weight(stored, module, config):
    """Shape: (out, in), float32. Eight outputs in a word in the order 0 2 4 6 1 3 5 7."""
    place = numpy.argsort([0, 2, 4, 6, 1, 3, 5, 7])
    in_order = lambda name: (lambda f: f.reshape(f.shape[0], -1, 8)[:, :, place].reshape(f.shape))(fields(stored[module + name], 4))
    codes, zeros = in_order(".qweight"), in_order(".qzeros")
    times = codes.shape[0] // zeros.shape[0]
    scales = stored[module + ".scales"].float().numpy()
    return torch.from_numpy(((codes - numpy.repeat(zeros, times, 0)).astype(numpy.float32) * numpy.repeat(scales, times, 0)).T.copy())


def weights_from_bytes(folder):
    config = json.loads(pathlib.Path(folder, "config.json").read_text())["quantization_config"]
    read = gptq_weight if config["quant_method"] == "gptq" else awq_weight
    stored = read_weights(folder)
    modules = [name.removesuffix(".qweight") for name in stored if name.endswith(".qweight")]
    return {module + ".weight": read(stored, module, config) for module in modules}


def weights_in_gptqmodel(folder):
    """Weights of packed modules as their own product has them: of the unit vectors, in float16. They must be packed, and no others."""
    config = json.loads(pathlib.Path(folder, "config.json").read_text())["quantization_config"]
    if config["quant_method"] == "gptq":
        options = transformers.GPTQConfig(bits=config["bits"], backend="torch")
    else:
        options = transformers.AwqConfig(bits=4, backend="torch_awq")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float16, device_map="cpu", quantization_config=options).eval()
    out = {name: tensor.float() for name, tensor in model.state_dict().items() if name.endswith(".weight")}
    for name, module in model.named_modules():
        if hasattr(module, "qweight"):
            with torch.inference_mode():
                out[name + ".weight"] = module(torch.eye(module.in_features, dtype=torch.float16)).T.float()
    return out


def weights_in_transformers(folder):
    model = check.open_with_transformers(folder)
    if not check.has_zero_points(folder):
        with torch.inference_mode():
            model(input_ids=torch.tensor([[1, 2, 3]]))  # the first forward decompresses the weights
    return {name: tensor for name, tensor in model.state_dict().items() if name.endswith(".weight")}


def compare(who, found, wanted, rounded_to):
    for name, weight in wanted.items():
        if not name.endswith(".weight"):
            continue
        weight = weight.float().to(rounded_to).float()
        if name not in found:
            yield f"{who}: there is no {name}"
        elif not torch.equal(found[name].to(rounded_to).float(), weight):
            yield f"{who}: {name} differs by up to {(found[name].float() - weight).abs().max().item():.3g}"


def differences(program, source, exported, scratch, is_foreign_too):
    check.halfbyte(program, "dequantize", source, scratch / "plain", "--dtype", "float32", "-q")
    wanted = read_weights(scratch / "plain")
    is_transposed = (exported / "config.json").read_text().find('"quant_method": "gptq"') > 0 or (exported / "config.json").read_text().find('"quant_method": "awq"') > 0
    if is_transposed:
        from_bytes = weights_from_bytes(exported)
        yield from compare("bytes", from_bytes, {name: wanted[name] for name in from_bytes}, torch.float32)
        if is_foreign_too and HAS_GPTQMODEL:
            yield from compare("transformers with GPTQModel", weights_in_gptqmodel(exported), wanted, torch.float16)
    else:
        dtype = check.original_dtype(exported) if check.has_zero_points(exported) else torch.float32
        yield from compare("transformers", weights_in_transformers(exported), wanted, dtype)


def not_fixed(program, target, exported, scratch):
    check.halfbyte(program, "quantize", exported, scratch / "imported", "-q")
    for name, source in (("imported and exported", scratch / "imported"), ("exported", exported)):
        again = scratch / name.replace(" ", "-")
        check.halfbyte(program, "export", source, again, "--to", target, "-q")
        names = sorted({entry.name for folder in (exported, again) for entry in folder.iterdir()})
        _, different, missing = filecmp.cmpfiles(exported, again, names, shallow=False)
        if different or missing:
            yield f"{name} again: other files: {', '.join(different + missing)}"


def main():
    program, original, scratch = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    if not HAS_GPTQMODEL:
        print("gptqmodel and optimum are not installed: GPTQ and AWQ are compared with what this script reads from their bytes alone")
    failed = False
    for name, (target, options) in CASES.items():
        folder = scratch / "export-check"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        check.halfbyte(program, "quantize", original, folder / "q", "-q", *options)
        words = ["--requantize"] if name in REQUANTIZED else []
        check.halfbyte(program, "export", folder / "q", folder / "e", "--to", target, "-q", *words)
        # What was quantised again is compared with itself as halfbyte reads it.
        source = folder / "e" if name in REQUANTIZED else folder / "q"
        has_packed_head = '"lm_head": true' in (folder / "e/config.json").read_text()
        found = list(differences(program, source, folder / "e", folder, not has_packed_head))
        found += not_fixed(program, target, folder / "e", folder)
        print(f"{name}: {'agrees' if not found else 'DIFFERS'}", flush=True)
        for line in found:
            print(f"  {line}")
        failed = failed or bool(found)
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
