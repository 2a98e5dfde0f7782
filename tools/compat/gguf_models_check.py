#!/usr/bin/env python3
"""Families exported to GGUF, run by llama.cpp: logits and greedy tokens beside those of transformers.

    gguf_models_check.py HALFBYTE FAMILIES [NAME]...   exit status 0: the same, 1: not, 77: llama-cpp-python, torch or transformers is not installed

FAMILIES has a folder for each (tests/data/families). Weights are exported as float32, so that what is left is the order of sums.
"""
import ctypes
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import packages

try:
    import numpy
    import torch
    import transformers
    from llama_cpp import llama_cpp
    from safetensors.torch import load_file
except ImportError as error:
    packages.skip(error)

BOUND = 2e-4  # of the largest logit
# llama.cpp rounds YaRN's range to whole pairs, which gpt-oss's config.json says not to do; the variants where it does are within BOUND.
OWN_BOUNDS = {"gpt-oss": 5e-3}
PERPLEXITY = 5e-3  # of what a model makes of the fixture's tokens, by how much it may differ
TOKENS = 40
F32, NO_FLASH_ATTENTION = 0, 0
CONTEXT, GREEDY_PROMPT = 128, 8
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LINEAR = {"rope_type": "linear", "factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
          "rope_theta": 10000.0}

# Of a family, what config.json says otherwise than the fixture's.
VARIANTS = [
    ("exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 4}),
    ("exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 4, "rope_parameters": LLAMA3}),
    ("seed-oss", {"rope_parameters": YARN}),
    ("olmo2", {"rope_parameters": LINEAR}),
    ("olmo2", {"rope_parameters": {**YARN, "attention_factor": 1.4}}),
    ("olmo3", {"rope_parameters": {"full_attention": {**YARN, "rope_theta": 500000.0}, "sliding_attention": {"rope_theta": 500000.0}}}),
    ("olmo3", {"layer_types": ["full_attention", "sliding_attention"] * 2}),
    ("gemma3", {"rope_parameters": {"full_attention": LINEAR}, "final_logit_softcapping": 20.0}),
    ("gemma3", {"layer_types": ["sliding_attention", "full_attention"] * 3}),
    ("granite", {"rope_parameters": LLAMA3, "attention_multiplier": 0.3}),
    ("cohere2", {"logit_scale": 0.5, "layer_types": ["full_attention", "sliding_attention"] * 2}),
    ("hunyuan-dense", {"rope_parameters": {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0, "rope_theta": 10000.0}}),
    ("glm4-moe", {"routed_scaling_factor": 2.5, "norm_topk_prob": False}),
    ("glm4-moe", {"n_group": 4, "topk_group": 2}),
    ("llama4", {"attention_chunk_size": 8192}),
    ("llama4", {"attention_chunk_size": 8192, "rope_parameters": LLAMA3, "no_rope_layer_interval": 4}),
    ("granitemoe", {"rope_parameters": LLAMA3, "attention_multiplier": 0.3}),
    ("gpt-oss", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    ("lfm2", {"norm_eps": 1e-4}),
    ("deepseek-v2-lite", {"rope_parameters": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707, "rope_theta": 10000.0}, "routed_scaling_factor": 2.0}),
    ("deepseek-v3", {"rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "rope_theta": 10000.0}, "norm_topk_prob": False}),
    ("qwen3-next", {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default", "partial_rotary_factor": 0.5}}),
    ("qwen3.5", {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default", "partial_rotary_factor": 0.5}}),
    ("gpt-oss", {"rope_parameters": {"truncate": True}}),
    ("gpt-oss", {"rope_parameters": {"truncate": True}, "sliding_window": 5, "layer_types": ["full_attention", "sliding_attention"]}),
    ("gemma4", {"sliding_window": 5, "final_logit_softcapping": 30.0}),
    ("ministral3", {"rope_parameters": {"original_max_position_embeddings": 16, "factor": 8.0}}),
    ("ministral3", {"rope_parameters": {"beta_fast": 4.0, "mscale_all_dim": 0.0, "mscale": 0.0, "original_max_position_embeddings": 16}}),
]
REFUSED = {"phimoe": "LayerNorm", "exaone4": "64 layers", "llama4": "8192"}  # as the fixtures are
OTHERWISE = {"mistral-sw"}  # llama.cpp's llama knows no window
CUSTOM_CODE = {"chatglm2"}  # transformers itself has no such model; the fixture has its logits


ERROR, said = 4, []  # what llama.cpp says is wrong


def hear(level, text, data):
    if level == ERROR:
        said.append(text.decode(errors="replace").strip())


logger = llama_cpp.llama_log_callback(hear)  # which must live as long as it is called


def quiet():
    llama_cpp.llama_log_set(logger, ctypes.c_void_p(0))


class LlamaCpp:
    def __init__(self, path):
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load it: {' '.join(said[-2:])}")
        self.words = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def context(self):
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = CONTEXT, CONTEXT, CONTEXT
        parameters.n_threads = parameters.n_threads_batch = 1  # these are small
        parameters.type_k = parameters.type_v = F32
        parameters.flash_attn_type = NO_FLASH_ATTENTION
        return llama_cpp.llama_init_from_model(self.model, parameters)

    def read(self, context, ids, begin):
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = int(token), begin + i, 1, 0, True
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError("llama.cpp does not decode")
        out = numpy.ctypeslib.as_array(ctypes.cast(llama_cpp.llama_get_logits(context), ctypes.POINTER(ctypes.c_float)), (len(ids), self.words)).copy()
        llama_cpp.llama_batch_free(batch)
        return out

    def logits(self, ids):
        context = self.context()
        out = self.read(context, ids, 0)
        llama_cpp.llama_free(context)
        return out

    def greedy(self, ids, count):
        context, out, begin = self.context(), [], 0
        while len(out) < count:
            out.append(int(self.read(context, ids, begin)[-1].argmax()))
            begin, ids = begin + len(ids), out[-1:]
        llama_cpp.llama_free(context)
        return out


def changed(folder, scratch, change):
    out = scratch / "model"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, out)
    config = json.loads((out / "config.json").read_text())
    for key, value in change.items():
        if isinstance(value, dict):
            value = {part: {**config[key].get(part, {}), **each} if isinstance(each, dict) else each for part, each in {**config[key], **value}.items()}
        config[key] = value
    (out / "config.json").write_text(json.dumps(config))
    return out


def of_transformers(folder, ids):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = torch.stack([model(row[None]).logits[0] for row in ids])
        tokens = model.generate(ids[:1, :GREEDY_PROMPT], max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0)
    return logits.numpy(), tokens[0, GREEDY_PROMPT:].tolist()


def perplexity(logits, ids):
    losses = torch.nn.functional.cross_entropy(torch.tensor(logits[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    return float(losses.exp())


def check(program, folder, scratch, has_reference, bound):
    """What differs; nothing: the same."""
    done = subprocess.run([program, "export", folder, scratch / "m.gguf", "--to", "gguf", "--type", "F32", "--overwrite", "-q"], text=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        return done.stderr.strip()
    stored = load_file(folder / "reference.safetensors")
    ids = stored["input_ids"].long()
    wanted, tokens = (stored["logits"].float().numpy(), None) if has_reference else of_transformers(folder, ids)
    model = LlamaCpp(scratch / "m.gguf")
    found = numpy.stack([model.logits(row) for row in ids.tolist()])
    distance = float(abs(found - wanted).max() / abs(wanted).max())
    print(f"    {distance:.1e}", end="")
    if distance > bound:
        return f"logits differ by {distance:.1e}"
    share = perplexity(found, ids) / perplexity(wanted, ids) - 1
    print(f" {100 * share:+.4f} %", end="")
    if abs(share) > PERPLEXITY:
        return f"perplexity differs by {100 * share:.2f} %"
    if tokens and model.greedy(ids[0, :GREEDY_PROMPT].tolist(), TOKENS) != tokens:
        return f"other greedy tokens than {tokens}"
    return ""


def main():
    program, families, names = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), set(sys.argv[3:])
    quiet()
    torch.set_num_threads(1)
    bad = 0
    cases = [(folder.name, {}) for folder in sorted(families.iterdir())] + VARIANTS
    with tempfile.TemporaryDirectory() as scratch:
        for name, change in cases:
            if (names and name not in names) or name in OTHERWISE:
                continue
            folder = changed(families / name, pathlib.Path(scratch), change)
            try:
                problem = check(program, folder, pathlib.Path(scratch), name in CUSTOM_CODE and not change,
                                BOUND if change else OWN_BOUNDS.get(name, BOUND))
            except RuntimeError as error:
                problem = str(error)
            refused = REFUSED.get(name, "") if not change else ""
            is_right = bool(refused) and refused in problem if problem else not refused
            bad += not is_right
            print(f"  {name} {json.dumps(change) if change else ''}: {problem or 'the same'}" + ("" if is_right else "  <- not so"), flush=True)
    print(f"{len(cases)} models, {bad} not as they should be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
