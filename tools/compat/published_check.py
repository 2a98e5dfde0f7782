#!/usr/bin/env python3
"""Models in the forms in which they are published, beside transformers: gpt-oss with its experts in MXFP4, and models that see.

    published_check.py HALFBYTE FAMILIES      exit status 0: agrees, 1: does not, 77: transformers is not installed

FAMILIES: a folder with gpt-oss. Weights are random, models small. In float32: every log-probability of a prompt agrees within 1e-4, and 12 greedy
tokens are equal. gpt-oss: also after `quantize --keep-packed`, which keeps its experts' codes, and `dequantize` writes what transformers
reads. Models that see: the text part is quantised, and every other tensor comes back as it was.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import packages

try:
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    packages.skip(error)

VOCABULARY, PROMPT, NEW_TOKENS = 320, 30, 12
BOUND = 1e-4
STACKS = ("experts.gate_up_proj", "experts.down_proj")
TEXT = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "initializer_range": 0.15}
SIGHT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
# class -> what the text part and the tower have beyond those, and the whole
SEEING = {
    "Gemma3": ({"sliding_window": 8}, SIGHT, {"mm_tokens_per_image": 4, "image_token_index": 300}),
    "Qwen3_5": ({"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16},
                {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64},
                {"image_token_id": 300, "video_token_id": 301, "vision_start_token_id": 302, "vision_end_token_id": 303}),
    "Mistral3": ({"model_type": "mistral", "sliding_window": None}, SIGHT | {"model_type": "pixtral", "head_dim": 16}, {"image_token_index": 300}),
    "Llama4": ({"intermediate_size_mlp": 96, "num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 16},
               SIGHT | {"vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32, "pixel_shuffle_ratio": 0.5},
               {"image_token_index": 300, "boi_token_index": 301, "eoi_token_index": 302}),
}


def halfbyte(program, *words):
    out = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    if out.returncode != 0:
        raise RuntimeError(out.stderr.strip())
    return out.stdout


def prompt_tokens():
    return [1] + [(37 * i) % 290 + 3 for i in range(PROMPT - 1)]


def difference(program, folder, model):
    """(the largest of log-probabilities, whether greedy tokens are equal)"""
    prompt = prompt_tokens()
    ids = torch.tensor([prompt])
    words = {"token_type_ids": torch.zeros_like(ids)} if "Gemma3For" in type(model).__name__ else {}
    with torch.no_grad():
        wanted = torch.log_softmax(model(input_ids=ids, **words).logits[0].float(), -1)
        greedy = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False,
                                eos_token_id=None, pad_token_id=0)[0].tolist()
    out = json.loads(halfbyte(program, "generate", folder, "--prompt-tokens", ",".join(map(str, prompt)), "--dtype", "float32", "--temperature", "0",
                              "--ignore-eos", "--max-gen-len", NEW_TOKENS, "--echo", "--logprobs", "--json"))
    found = out["generations"][0] if isinstance(out, dict) else out[0]
    scores = wanted[torch.arange(PROMPT - 1), torch.tensor(prompt[1:])]
    return float((torch.tensor(found["logprobs"][1:PROMPT]) - scores).abs().max()), found["tokens"] == greedy


def tensors_of(folder):
    out = {}
    for file in sorted(pathlib.Path(folder).glob("model*.safetensors")):
        out.update(safetensors.torch.load_file(file))
    return out


def write_mxfp4(source, folder):
    """The model with random codes instead of its experts, as OpenAI publishes them."""
    folder.mkdir()
    tensors = {}
    for name, tensor in tensors_of(source).items():
        if not name.endswith(STACKS):
            tensors[name] = tensor
            continue
        experts, inputs, outputs = tensor.shape
        tensors[name + "_blocks"] = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
        tensors[name + "_scales"] = torch.randint(119, 124, (experts, outputs, inputs // 32), dtype=torch.uint8)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))


def opened(folder, dtype=torch.bfloat16, **words):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager", **words).float().eval()


def check_mxfp4(program, families, scratch):
    packed, mixed, back = (scratch / name for name in ("packed", "mixed", "back"))
    write_mxfp4(families / "gpt-oss", packed)
    model = opened(packed, quantization_config=transformers.Mxfp4Config(dequantize=True))
    yield "gpt-oss in MXFP4", *difference(program, packed, model)
    halfbyte(program, "dequantize", packed, back, "-q", "--assume-original", "bfloat16")
    written = opened(back)
    same = all(torch.equal(tensor, written.state_dict()[name]) for name, tensor in model.state_dict().items())
    yield "... dequantised, and read by transformers", 0.0 if same else float("inf"), same
    halfbyte(program, "quantize", packed, mixed, "-q", "--scheme", "sym_int8", "--keep-packed", "--halfbyte-only")
    codes, before = tensors_of(mixed), tensors_of(packed)
    kept = all(torch.equal(codes[name.removesuffix("_blocks") + "_packed"].view(torch.uint8).flatten(), tensor.flatten())
               for name, tensor in before.items() if name.endswith("_blocks"))
    halfbyte(program, "dequantize", mixed, scratch / "again", "-q", "--dtype", "float32")
    found, same = difference(program, mixed, opened(scratch / "again", torch.float32))
    yield "... its rest in 8 bits, codes kept", found, same and kept


def check_seeing(program, name, scratch):
    text, sight, whole = SEEING[name]
    config = getattr(transformers, name + "Config")(text_config=TEXT | text, vision_config=sight, **whole)
    config._attn_implementation = "eager"
    torch.manual_seed(3)
    model = getattr(transformers, name + "ForConditionalGeneration")(config).float().eval()
    source, packed, back = scratch / "whole", scratch / "packed", scratch / "back"
    model.save_pretrained(source)
    yield name, *difference(program, source, model)
    halfbyte(program, "quantize", source, packed, "-q", "--scheme", "sym_int8", "--group-size", "16", "--halfbyte-only")
    halfbyte(program, "dequantize", packed, back, "-q")
    before, after = tensors_of(source), tensors_of(back)
    beside = [each for each in before if not any(part in each for part in ("language_model", "lm_head"))]
    same = bool(beside) and set(before) == set(after) and all(torch.equal(before[each], after[each]) for each in beside)
    yield f"... {len(beside)} tensors beside its text came back", 0.0 if same else float("inf"), same


def main():
    program, families = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    checks = [lambda scratch: check_mxfp4(program, families, scratch)]
    checks += [lambda scratch, name=name: check_seeing(program, name, scratch) for name in SEEING]
    bad = 0
    for check in checks:
        with tempfile.TemporaryDirectory() as scratch:
            for name, found, same in check(pathlib.Path(scratch)):
                bad += not (found <= BOUND and same)
                print(f"{name}: log-probabilities within {found:.2g}, {'equal' if same else 'NOT EQUAL'}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
