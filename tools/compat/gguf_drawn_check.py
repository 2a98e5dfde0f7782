#!/usr/bin/env python3
"""Random models of every family, exported to GGUF and run by llama.cpp: log-probabilities beside those of transformers.

    gguf_drawn_check.py HALFBYTE [VARIANTS [SEED [FAMILY...]]]   exit status 0: agrees, 1: does not, 77: llama-cpp-python, torch or transformers is not installed

The models are families_check.py's. Each is exported as float32, or refused with a line that says what llama.cpp would compute otherwise; what is
refused is counted by its reason. llama.cpp runs each in a process of its own, for some sizes end it.
"""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import packages
from families_check import FAMILIES, drawn, own_errors

try:
    import torch
    from gguf_models_check import LlamaCpp, quiet
except ImportError as error:
    packages.skip(error)

# Of log-probabilities. Where GELU comes from llama.cpp's table, a rounding decides between neighbours in float16: there the reference with that table
# is itself so far from what it is in float64, and four times that passes.
BOUND = 1e-3
# What llama.cpp has no other of; drawn otherwise nearly all would be refused.
SETTLED = {
    "DeepseekV2": {"rms_norm_eps": 1e-6, "attention_bias": False},
    "DeepseekV3": {"rms_norm_eps": 1e-6, "attention_bias": False},
    "GptOss": {"swiglu_alpha": 1.702, "swiglu_limit": 7.0, "tie_word_embeddings": False},
    "Llama4": {"attention_chunk_size": 8192, "attn_scale": 0.1, "floor_scale": 8192, "attn_temperature_tuning": True, "use_qk_norm": True,
               "no_rope_layers": None, "no_rope_layer_interval": 4, "attention_bias": False},
    "Lfm2": {"conv_bias": False},
    # Windows that it knows nothing of, which export says in a note.
    "Mistral": {"sliding_window": None}, "Mixtral": {"sliding_window": None}, "Ministral3": {"sliding_window": None}, "Phi3": {"sliding_window": None},
    "Qwen2": {"use_sliding_window": False}, "Qwen3": {"use_sliding_window": False},
}
DELTA = {"Qwen3Next", "Qwen3_5", "Qwen3_5Moe"}  # keys and values are of one size, and there are no biases nor other epsilons


def settled(family):
    def draw(choose):
        name, words = family(choose)
        words |= SETTLED.get(name, {})
        if name in ("Gemma2", "Gemma3"):
            words["query_pre_attn_scalar"] = words["head_dim"]
        if name in DELTA:
            words |= {"rms_norm_eps": 1e-6, "linear_value_head_dim": words["linear_key_head_dim"], "attention_bias": False}
        scaling = words.get("rope_parameters") or {}
        for key in ("beta_fast", "beta_slow", "truncate"):
            scaling.pop(key, None)
        if name == "Phi3" and scaling.get("rope_type") == "longrope":  # it chooses factors by the context's size, not by how much of it is used
            scaling["original_max_position_embeddings"] = words["original_max_position_embeddings"] = 24
        if name.startswith("Deepseek") and scaling.get("rope_type") == "yarn":
            scaling |= {"mscale": 0.7, "mscale_all_dim": 0.7}
        return name, words
    draw.__name__ = family.__name__
    return draw


class TabledGelu(torch.nn.Module):
    """GELU as llama.cpp has it on the CPU: of float16 numbers, in float16."""

    def forward(self, x):
        inner = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
        return torch.where(x <= -10, torch.zeros_like(x), torch.where(x >= 10, x, inner))


def use_tables(model):
    """Whether it has any."""
    found = [module for module in model.modules() if "gelu" in type(getattr(module, "act_fn", None)).__name__.lower()]
    for module in found:
        module.act_fn = TabledGelu()
    return bool(found)


def run_llama(path, ids):
    """In a child: log-probabilities of the ids, to its standard output."""
    quiet()
    logits = torch.tensor(LlamaCpp(path).logits(ids))
    json.dump(logits.log_softmax(-1).tolist(), sys.stdout)


def check(program, model, folder, prompt):
    """(what is refused, what is wrong, how far log-probabilities are from each other, how far they may be)"""
    has_tables = use_tables(model.model)
    with torch.no_grad():
        wanted = torch.log_softmax(model.logits(torch.tensor(prompt)).float(), -1)
    gguf = folder.parent / "m.gguf"
    done = subprocess.run([program, "export", folder, gguf, "--to", "gguf", "--type", "F32", "-q"], text=True, capture_output=True, check=False)
    if done.returncode:
        return done.stderr.strip(), "", 0.0, BOUND
    child = subprocess.run([sys.executable, "-B", __file__, "--run", gguf, json.dumps(prompt)], text=True, capture_output=True, check=False)
    if child.returncode:
        last = [line for line in child.stderr.splitlines() if "GGML_ASSERT" in line or "does not load" in line or "Error" in line]
        return "", "llama.cpp ends: " + (last[-1] if last else f"status {child.returncode}"), 0.0, BOUND
    found = torch.tensor(json.loads(child.stdout))
    distance = float((found - wanted).abs().max())
    return "", "", distance, max(BOUND, 4 * float(own_errors(model, prompt, wanted).max())) if has_tables and distance > BOUND else BOUND


def main():
    if sys.argv[1] == "--run":
        return run_llama(pathlib.Path(sys.argv[2]), json.loads(sys.argv[3]))
    program, variants, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4, int(sys.argv[3]) if len(sys.argv) > 3 else 1
    torch.set_num_threads(1)
    bad, reasons = 0, collections.Counter()
    for family in FAMILIES:
        name = family.__name__
        if name == "chatglm" or (sys.argv[4:] and name not in sys.argv[4:]):  # which transformers has not
            continue
        refused, largest = 0, 0.0
        for number in range(variants):
            with tempfile.TemporaryDirectory() as scratch:
                model, words, folder, prompt, *_ = drawn(settled(family), seed, number, pathlib.Path(scratch))
                reason, wrong, distance, bound = check(program, model, folder, prompt)
            refused += bool(reason)
            reasons[f"{name}: {re.sub(r'^halfbyte: |, which llama.*', '', reason)}"] += bool(reason)
            largest = max(largest, distance)
            if wrong or not distance <= bound:
                bad += 1
                print(f"  {name} {seed} {number}: {wrong or f'difference {distance:.2g}'}\n    {words}")
        print(f"{name:14} {variants} variants, {refused} refused, log-probabilities within {largest:.2g}", flush=True)
    for reason, count in sorted(reasons.items()):
        if count:
            print(f"  refused {count}: {reason}")
    print("all agree" if bad == 0 else f"{bad} do not agree")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
