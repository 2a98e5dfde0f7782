#!/usr/bin/env python3
"""Opens what `halfbyte quantize` wrote with transformers (+ compressed-tensors) on the CPU, in float32.

    transformers_check.py HALFBYTE ORIGINAL       exit status 0: agrees, 1: does not, 77: transformers is not installed

For each case below: every dequantised weight in transformers equals the one that docs/format.md defines, every other tensor
equals the stored one, and 24 greedy tokens of 5 prompts equal halfbyte's own.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TQDM_DISABLE", "1")
try:
    import compressed_tensors  # noqa: F401  transformers imports it only when it meets such a checkpoint
    import numpy
    import safetensors
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

CASES = {
    "sym_int4 g64": [],
    "sym_int4 g32, absmax": ["--group-size", "32", "--search", "absmax"],
    "sym_int4 per channel": ["--group-size", "channel"],
    "sym_int8 g64": ["--scheme", "sym_int8"],
    "mixed 4 and 8 bit": ["--scheme-for", "*down_proj*=sym_int8", "--scheme-for", "*layers.0.*=sym_int8"],
    "mixed, some kept": ["--scheme-for", "*down_proj*=sym_int8", "--keep", "model.layers.1", "--keep", "*layers.2.self_attn.q_proj*"],
}
PROMPTS = [[1, 300, 400], [1], [1, 5, 6, 7, 8, 9, 10, 11], [1, 1000, 20, 700], [1, 611, 87, 432, 909, 15]]
NEW_TOKENS = 24


def halfbyte(program, *words):
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=True).stdout


def dequantize(packed, scale, shape):
    """Unsigned codes, lowest bits first in 32-bit words, less half their range, times their group's scale, in float32."""
    out_features, in_features = shape
    words = packed.numpy().view(numpy.uint32)
    bits = 32 * words.shape[1] // in_features
    shifts = numpy.arange(0, 32, bits, dtype=numpy.uint32)
    codes = (words[:, :, None] >> shifts) & numpy.uint32(2**bits - 1)
    codes = codes.reshape(out_features, -1)[:, :in_features].astype(numpy.int32) - 2 ** (bits - 1)
    scales = numpy.repeat(scale.float().numpy(), in_features // scale.shape[1], axis=1)
    return torch.from_numpy(codes.astype(numpy.float32) * scales)


def expected_weights(folder):
    """{name: float32 tensor} of a checkpoint, from its bytes and docs/format.md alone."""
    stored = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        stored.update(safetensors.torch.load_file(file))
    weights = {}
    for name, tensor in stored.items():
        base, _, part = name.rpartition("_")
        if part == "packed":
            weights[base] = dequantize(tensor, stored[base + "_scale"], stored[base + "_shape"].tolist())
        elif not (part in ("scale", "shape") and base + "_packed" in stored):
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


def differences(program, folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompts = [[token % model.config.vocab_size for token in prompt] for prompt in PROMPTS]
    with torch.inference_mode():
        theirs = [greedy(model, prompt) for prompt in prompts]  # the first forward decompresses the weights
    state = model.state_dict()
    for name, weight in expected_weights(folder).items():
        if name not in state:
            yield f"{name} is not in transformers' model"
        elif not torch.equal(state[name], weight):
            yield f"{name} differs by up to {(state[name] - weight).abs().max().item():.3g}"
    words = ["--dtype", "float32", "--temperature", "0", "--max-gen-len", NEW_TOKENS, "--ignore-eos", "--json"]
    for prompt in prompts:
        words += ["--prompt-tokens", ",".join(map(str, prompt))]
    ours = [generation["tokens"] for generation in json.loads(halfbyte(program, "generate", folder, *words))["generations"]]
    for prompt, their_tokens, our_tokens in zip(prompts, theirs, ours, strict=True):
        if their_tokens != our_tokens:
            yield f"prompt {prompt}: transformers {their_tokens}, halfbyte {our_tokens}"


def main():
    program, original = sys.argv[1:]
    failed = False
    for name, options in CASES.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = os.path.join(scratch, "checkpoint")
            halfbyte(program, "quantize", original, folder, "-q", *options)
            found = list(differences(program, folder))
        print(f"{name}: {'agrees' if not found else 'DIFFERS'}")
        for line in found:
            print(f"  {line}")
        failed = failed or bool(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
