#!/usr/bin/env python3
"""Opens what `halfbyte quantize` wrote with transformers (+ compressed-tensors, bitsandbytes) on the CPU, in float32.

    transformers_check.py HALFBYTE ORIGINAL [FAMILIES]      exit status 0: agrees, 1: does not, 77: transformers is not installed

FAMILIES: a folder of checkpoints, of which the dense ones that transformers knows are converted to compressed-tensors too.
For each case below: every dequantised weight in transformers equals the one that docs/format.md defines, every other tensor
equals the stored one, and 24 greedy tokens of 5 prompts equal halfbyte's own. Weights with zero points are
compared as transformers rounds them when it dequantises: to the dtype of the scales.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import packages

try:
    import compressed_tensors  # noqa: F401  transformers imports it only when it meets such a checkpoint
    import numpy
    import safetensors
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    packages.skip(error)

CASES = {
    "sym_int4 g64": [],
    "sym_int4 g32, absmax": ["--group-size", "32", "--search", "absmax"],
    "sym_int4 per channel": ["--group-size", "channel"],
    "sym_int8 g64": ["--scheme", "sym_int8"],
    "asym_int4 g64": ["--scheme", "asym_int4"],
    "asym_int4 g32, absmax": ["--scheme", "asym_int4", "--group-size", "32", "--search", "absmax"],
    "asym_int4 per channel": ["--scheme", "asym_int4", "--group-size", "channel"],
    "asym_int4, some kept": ["--scheme", "asym_int4", "--keep", "model.layers.1", "--keep", "*layers.2.self_attn.q_proj*"],
    "nf4 g64": ["--scheme", "nf4"],
    "nf4 g32, absmax": ["--scheme", "nf4", "--group-size", "32", "--search", "absmax"],
    "nf4 g64, nested scales": ["--scheme", "nf4", "--nested-scales"],
    "fp4 g64": ["--scheme", "fp4"],
    "fp4 g128, nested scales": ["--scheme", "fp4", "--group-size", "128", "--nested-scales"],
    "nf4, some kept": ["--scheme", "nf4", "--keep", "model.layers.1", "--keep", "*layers.2.self_attn.q_proj*"],
    "nf4, some fp4": ["--scheme", "nf4", "--scheme-for", "*down_proj*=fp4"],
    "mixed 4 and 8 bit": ["--scheme-for", "*down_proj*=sym_int8", "--scheme-for", "*layers.0.*=sym_int8"],
    "mixed, some kept": ["--scheme-for", "*down_proj*=sym_int8", "--keep", "model.layers.1", "--keep", "*layers.2.self_attn.q_proj*"],
}
PROMPTS = [[1, 300, 400], [1], [1, 5, 6, 7, 8, 9, 10, 11], [1, 1000, 20, 700], [1, 611, 87, 432, 909, 15]]
NEW_TOKENS = 24


def halfbyte(program, *words):
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=True).stdout


def fields(words, bits):
    """Fields of so many bits, the lowest first. Shape: (..., n) -> (..., n * 32 / bits)."""
    shifts = numpy.arange(0, 32, bits, dtype=numpy.uint32)
    unsigned = words.numpy().view(numpy.uint32)
    return ((unsigned[..., None] >> shifts) & numpy.uint32(2**bits - 1)).reshape(*unsigned.shape[:-1], -1).astype(numpy.int32)


def pack_quantized(stored, base):
    """(code - zero point) times the group's scale, in float32; codes and zero points are stored plus half their range."""
    out_features, in_features = stored[base + "_shape"].tolist()
    packed, scale = stored[base + "_packed"], stored[base + "_scale"].float().numpy()
    bits = 32 * packed.shape[1] // in_features
    codes = fields(packed, bits)[:, :in_features] - 2 ** (bits - 1)
    if base + "_zero_point" in stored:
        by_group = fields(stored[base + "_zero_point"].T.contiguous(), bits)[:, :out_features].T - 2 ** (bits - 1)
        codes = codes - numpy.repeat(by_group, in_features // by_group.shape[1], axis=1)
    scales = numpy.repeat(scale, in_features // scale.shape[1], axis=1)
    return torch.from_numpy(codes.astype(numpy.float32) * scales)


def bitsandbytes_4bit(stored, name, state_name):
    """The code book's value times the group's scale, in float32. The first of two codes is in the upper half of a byte."""
    state = json.loads(bytes(stored[state_name].numpy()).decode())
    scales = stored[name + ".absmax"]
    if "nested_offset" in state:
        nested = stored[name + ".nested_absmax"].repeat_interleave(256)[: scales.numel()]
        scales = stored[name + ".nested_quant_map"][scales.int()] * nested + torch.tensor(state["nested_offset"])
    codes = stored[name].flatten()
    values = stored[name + ".quant_map"][torch.stack([codes >> 4, codes & 15], dim=1).flatten().int()]
    return (values.view(-1, state["blocksize"]) * scales[:, None]).view(state["shape"])


def expected_weights(folder):
    """{name: float32 tensor} of a checkpoint, from its bytes and docs/format.md alone."""
    stored = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        stored.update(safetensors.torch.load_file(file))
    weights = {}
    for name, tensor in stored.items():
        base, _, part = name.rpartition("_")
        owner, _, state = name.partition(".quant_state.")
        if part == "packed":
            weights[base] = pack_quantized(stored, base)
        elif state:
            weights[owner] = bitsandbytes_4bit(stored, owner, name)
        elif base + "_packed" not in stored and name.removesuffix("_zero_point") + "_packed" not in stored and name.partition(".weight.")[0] + ".weight.absmax" not in stored:
            if name + ".absmax" not in stored:
                weights[name] = tensor.float()
    return weights


def greedy(model, prompt):
    tokens, cache = list(prompt), None
    step = torch.tensor([prompt])
    for _ in range(NEW_TOKENS):
        result = model(input_ids=step, past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        tokens.append(int(result.logits[0, -1].argmax()))
        step = torch.tensor([tokens[-1:]])
    return tokens[len(prompt):]


def open_with_transformers(folder):
    """compressed-tensors with zero points has no forward of its own: it is dequantised at load, in the scales' dtype."""
    options = {}
    if has_zero_points(folder):
        options["quantization_config"] = transformers.CompressedTensorsConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()
    for name, module in list(model.named_modules()):
        if hasattr(getattr(module, "weight", None), "quant_state"):
            model.set_submodule(name, plain_linear(module))
    for parameter in model.parameters():  # transformers leaves norms and embeddings beside bitsandbytes in their dtype
        if parameter.is_floating_point():
            parameter.data = parameter.data.float()
    return model


def plain_linear(module):
    """A Linear with bitsandbytes's dequantised weight in float32: its own product rounds the activations to bfloat16."""
    import bitsandbytes.functional

    module.weight.quant_state.dtype = torch.float32
    weight = bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=module.bias is not None, dtype=torch.float32)
    linear.weight.data = weight
    if module.bias is not None:
        linear.bias.data = module.bias.data.float()
    return linear


def has_zero_points(folder):
    for file in pathlib.Path(folder).glob("*.safetensors"):
        with safetensors.safe_open(file, "pt") as opened:
            if any(name.endswith("_zero_point") for name in opened.keys()):
                return True
    return False


def token_differences(program, folder, model, prompts):
    with torch.inference_mode():
        theirs = [greedy(model, prompt) for prompt in prompts]
    words = ["--dtype", "float32", "--temperature", "0", "--max-gen-len", NEW_TOKENS, "--ignore-eos", "--json"]
    for prompt in prompts:
        words += ["--prompt-tokens", ",".join(map(str, prompt))]
    ours = [generation["tokens"] for generation in json.loads(halfbyte(program, "generate", folder, *words))["generations"]]
    for prompt, their_tokens, our_tokens in zip(prompts, theirs, ours, strict=True):
        if their_tokens != our_tokens:
            yield f"prompt {prompt}: transformers {their_tokens}, halfbyte {our_tokens}"


def original_dtype(folder):
    return getattr(torch, json.loads(pathlib.Path(folder, "config.json").read_text())["torch_dtype"])


def differences(program, folder):
    model = open_with_transformers(folder)
    prompts = [[token % model.config.vocab_size for token in prompt] for prompt in PROMPTS]
    if not has_zero_points(folder):
        yield from token_differences(program, folder, model, prompts)  # the first forward decompresses the weights
    found = model.state_dict()
    for name, weight in expected_weights(folder).items():
        if name not in found:
            yield f"{name} is not in transformers' model"
            continue
        if has_zero_points(folder):
            weight = weight.to(original_dtype(folder)).float()
        if not torch.equal(found[name], weight):
            yield f"{name} differs by up to {(found[name] - weight).abs().max().item():.3g}"


def dense_families(folder):
    for path in sorted(pathlib.Path(folder).iterdir()):
        config = json.loads((path / "config.json").read_text())
        has_experts = any("experts" in key and isinstance(value, int) and value > 1 for key, value in config.items())
        if not has_experts and config["model_type"] in transformers.CONFIG_MAPPING:
            yield path


def agrees(program, name, original, options):
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.join(scratch, "checkpoint")
        halfbyte(program, "quantize", original, folder, "-q", *options)
        found = list(differences(program, folder))
    print(f"{name}: {'agrees' if not found else 'DIFFERS'}")
    for line in found:
        print(f"  {line}")
    return not found


def main():
    program, original = sys.argv[1:3]
    results = [agrees(program, name, original, options) for name, options in CASES.items()]
    for path in dense_families(sys.argv[3]) if len(sys.argv) > 3 else []:
        results.append(agrees(program, path.name, path, ["--group-size", "32"]))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
