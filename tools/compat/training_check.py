#!/usr/bin/env python3
"""Training beside PyTorch's: halfbyte finetune against peft with bitsandbytes, and against a plain loop, from the same weights on the same batches.

    training_check.py HALFBYTE TINY_LLAMA TEXT [--only NAME]... [--steps N] [--rate R] [--control] [--config DIR] [--heldout FILE] [--scratch DIR]

adapters    LoRA of rank 8 beside nf4: 100 steps, losses within 1 % at every tenth; peft opens the adapter and gives the same logits
contract    300 steps from drawn weights: bfloat16 operands and float32 masters end within 1 % of float32; a model cast to bfloat16 falls behind
scratch     --config's shape (TINY_LLAMA's) from drawn weights, --steps steps (300) at --rate (1e-3): within 2 % of PyTorch's at every tenth.
            --control: PyTorch beside itself first, from the same weights with what bfloat16 would round of them added as noise: how far two such runs drift apart
merged      perplexity of base and adapter, of both merged into bfloat16, and of that packed again
rounded     divergence of TINY_LLAMA in sym_int4 g64 from itself, after 200 steps on its own samples with and without --fake-quantize

TEXT is plain; perplexities are of --heldout, or of TEXT. Run by a Python that has torch, transformers, peft, bitsandbytes, accelerate and safetensors.
"""
import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

from packages import skip

try:
    import torch
    import transformers
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM
except ImportError as error:
    skip(error)


class Check:
    def __init__(self, words, scratch):
        self.words, self.scratch = words, pathlib.Path(scratch)

    def halfbyte(self, *words):
        done = subprocess.run([self.words.halfbyte, *map(str, words), "--json", "-q"], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")
        return json.loads(done.stdout)

    def windows(self, tokenizer, context, count):
        """`count` windows of context + 1 ids as JSON lines, which both sides learn from."""
        ids = self.halfbyte("tokenize", tokenizer, "--file", self.words.text, "--no-special")["ids"]
        random.seed(0)
        starts = [random.randrange(len(ids) - context - 1) for _ in range(count)]
        out = [ids[at : at + context + 1] for at in starts]
        file = self.scratch / f"windows-{context}-{count}.jsonl"
        file.write_text("".join(json.dumps({"input_ids": one, "labels": one}) + "\n" for one in out), encoding="utf-8")
        return out, file

    def finetune(self, name, *words):
        """Its steps as --log has them."""
        log = self.scratch / f"{name}.log"
        self.halfbyte("finetune", *words, "--log", log, "--no-packing", "--overwrite")
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def torch_losses(model, windows, log, autocast=True, record=None):
    """The same steps by PyTorch: which sequences, at what rate, comes from halfbyte's log. record: a file that gets each loss."""
    parameters = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.0)
    model.train()
    losses = []
    for step in log:
        ids = torch.tensor([windows[i] for i in step["sequences"]])
        for group in optimizer.param_groups:
            group["lr"] = step["lr"]
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = model(input_ids=ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.item())
        if record:
            record.write(f"{losses[-1]}\n")
            record.flush()
    model.eval()
    return losses


def told(name, found, wanted, bound):
    """How far losses are apart: at every tenth step, which it gives, and means of ten steps, in which what single batches add is less."""
    off = [abs(found[i] - wanted[i]) / wanted[i] for i in range(9, len(found), 10)]
    means = [abs(sum(found[i - 9 : i + 1]) / sum(wanted[i - 9 : i + 1]) - 1) for i in range(9, len(found), 10)]
    beyond = sum(one > bound for one in off)
    print(f"{name}: loss {found[0]:.4f} -> {found[-1]:.4f}, PyTorch's {wanted[0]:.4f} -> {wanted[-1]:.4f}; at every tenth of {len(found)} steps within {100 * max(off):.3f} %"
          f" ({beyond} of {len(off)} beyond {100 * bound:g} %), means of ten steps within {100 * max(means):.3f} %", flush=True)
    return off


def compare(name, log, wanted, bound):
    off = told(name, [one["loss"] for one in log], wanted, bound)
    assert max(off) <= bound, (name, max(off))


def check_adapters(check):
    """Beside bitsandbytes' own codes, which halfbyte keeps."""
    words = check.words
    windows, file = check.windows(words.tiny, 128, 200)
    config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16, llm_int8_skip_modules=["lm_head"])
    model = AutoModelForCausalLM.from_pretrained(words.tiny, dtype=torch.bfloat16, quantization_config=config)
    theirs, packed, begin, out = (check.scratch / name for name in ("bitsandbytes", "nf4", "begin", "adapter"))
    model.save_pretrained(theirs)
    for name in ("tokenizer.model", "tokenizer_config.json"):
        shutil.copy(pathlib.Path(words.tiny) / name, theirs / name)
    check.halfbyte("quantize", theirs, packed, "--overwrite")
    torch.manual_seed(0)
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.save_pretrained(begin)
    log = check.finetune("adapters", packed, out, "--adapter", begin, "--jsonl", file, "--steps", 100, "--batch", 4, "--ctx", 129, "--lr", "1e-3", "--warmup", 5)
    compare("adapters", log, torch_losses(model, windows, log, autocast=False), 0.01)
    base, two = check.scratch / "base", check.scratch / "two.jsonl"
    check.halfbyte("dequantize", packed, base, "--overwrite")
    two.write_text("".join(json.dumps({"input_ids": one, "labels": one}) + "\n" for one in windows[:2]), encoding="utf-8")
    found = check.finetune("again", base, check.scratch / "again", "--adapter", out, "--jsonl", two, "--steps", 1, "--batch", 2, "--ctx", 129, "--dtype", "float32")[0]["loss"]
    ids = torch.tensor(windows[:2])
    with torch.no_grad():
        opened = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), out).eval()
        wanted = torch.nn.functional.cross_entropy(opened(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten()).item()
    print(f"adapters: peft opens the result, whose loss there is within {abs(found - wanted) / wanted:.1e} of halfbyte's", flush=True)
    assert abs(found - wanted) < 1e-5 * wanted, (found, wanted)


def drawn(check, config, *words):
    """Weights that both sides begin with."""
    out = check.scratch / "drawn"
    check.halfbyte("synth", out, "--config", config, "--dtype", "float32", "--seed", 1, "--overwrite", *words)
    return out


def check_contract(check):
    begin = drawn(check, check.words.tiny)
    windows, file = check.windows(check.words.tiny, 128, 2400)
    same = ["--method", "full", "--jsonl", file, "--steps", 300, "--batch", 8, "--ctx", 129, "--lr", "1e-3", "--warmup", 20]
    logs = {dtype: check.finetune(f"contract-{dtype}", begin, check.scratch / "contract", *same, "--dtype", dtype) for dtype in ("float32", "amp:bfloat16")}
    ends = {dtype: sum(one["loss"] for one in log[-10:]) / 10 for dtype, log in logs.items()}
    off = abs(ends["amp:bfloat16"] - ends["float32"]) / ends["float32"]
    worst = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(logs["amp:bfloat16"], logs["float32"], strict=True))
    print(f"contract: after 300 steps {ends['amp:bfloat16']:.4f} in bfloat16 and {ends['float32']:.4f} in float32, {100 * off:.3f} % (the worst step {100 * worst:.3f} %)", flush=True)
    assert off <= 0.01, off
    model = AutoModelForCausalLM.from_pretrained(begin, dtype=torch.bfloat16)
    cast = torch_losses(model, windows, logs["float32"], autocast=False)
    print(f"contract: cast to bfloat16, in PyTorch: {sum(cast[-10:]) / 10:.4f}")
    slow = [one | {"lr": 2e-5} for one in logs["float32"]]
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    torch_losses(model, windows, slow[-100:], autocast=False)
    still = sum((one == before[name]).sum().item() for name, one in model.named_parameters()) / sum(one.numel() for one in model.parameters())
    print(f"contract: 100 more steps at a rate of 2e-5 leave {100 * still:.1f} % of its weights as they were")
    assert sum(cast[-10:]) / 10 > 1.01 * ends["float32"] and still > 0.5


def check_scratch(check):
    begin = drawn(check, check.words.config)
    steps, batch = check.words.steps, 8
    positions = json.loads((pathlib.Path(check.words.config) / "config.json").read_text(encoding="utf-8"))["max_position_embeddings"]
    length = min(256, positions)
    windows, file = check.windows(check.words.config, length - 1, steps * batch)
    log = check.finetune("scratch", begin, check.scratch / "from-scratch", "--method", "full", "--jsonl", file, "--steps", steps, "--batch", batch, "--ctx", length,
                         "--lr", check.words.rate or "1e-3", "--warmup", max(1, steps // 20), "--weight-decay", 0, "--no-recompute")
    print(f"scratch: {len(log)} steps in {sum(one['seconds'] for one in log):.0f} s, {sum(one['tokens'] for one in log) / sum(one['seconds'] for one in log):.0f} tokens/s", flush=True)
    load = lambda: AutoModelForCausalLM.from_pretrained(begin, dtype=torch.float32)
    with open(check.scratch / "scratch-torch.log", "w", encoding="utf-8") as record:
        wanted = torch_losses(load(), windows, log, record=record)
    if check.words.control:
        noisy, generator = load(), torch.Generator().manual_seed(1)
        with torch.no_grad():
            for one in noisy.parameters():
                one.mul_(1 + 2**-9 * torch.randn(one.shape, generator=generator))
        told("scratch, PyTorch beside itself", torch_losses(noisy, windows, log), wanted, 0.02)
    compare("scratch", log, wanted, 0.02)


def check_merged(check):
    words = check.words
    _, file = check.windows(words.tiny, 128, 400)
    out = {}
    for scheme in ("sym_int4", "nf4"):
        packed, adapter = check.scratch / scheme, check.scratch / f"{scheme}-adapter"
        check.halfbyte("quantize", words.tiny, packed, "--scheme", scheme, "--overwrite")
        check.finetune("merged", packed, adapter, "--jsonl", file, "--steps", 100, "--batch", 4, "--ctx", 129, "--lr", "1e-3")
        check.halfbyte("merge", packed, adapter, check.scratch / "packed", "--overwrite")
        check.halfbyte("merge", packed, adapter, check.scratch / "plain", "--dequantize", "--overwrite")
        check.halfbyte("dequantize", packed, check.scratch / "base", "--overwrite")
        check.halfbyte("quantize", check.scratch / "plain", check.scratch / "plain4", "--scheme", scheme, "--overwrite")
        perplexity = lambda model, *more: check.halfbyte("perplexity", model, "--text", words.heldout or words.text, "--ctx", 256, "--dtype", "float32", *more)["perplexity"]
        out = {"base": perplexity(packed), "base + adapter": perplexity(packed, "--adapter", adapter), "merged into bfloat16": perplexity(check.scratch / "plain"),
               "merged and packed": perplexity(check.scratch / "packed"), "the plain one packed": perplexity(check.scratch / "plain4"), "original": perplexity(words.tiny)}
        print(f"merged, {scheme}: " + ", ".join(f"{key} {value:.4f}" for key, value in out.items()), flush=True)
        assert abs(out["merged into bfloat16"] / out["base + adapter"] - 1) < 1e-3, out
        assert abs(out["merged and packed"] / out["the plain one packed"] - 1) < 1e-4, out


def samples(check, count, length):
    """Texts of the original's own: what it learns from them, once it knows all there is to know, is to survive rounding."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(check.words.tiny, dtype=torch.float32).eval()
    out = []
    while len(out) < count:
        out += model.generate(torch.full((200, 1), 1), do_sample=True, top_k=0, temperature=1.0, max_new_tokens=length, min_new_tokens=length).tolist()
    file = check.scratch / "samples.jsonl"
    file.write_text("".join(json.dumps({"input_ids": one, "labels": one}) + "\n" for one in out[:count]), encoding="utf-8")
    return file


def check_rounded(check):
    """Divergence from the original on text that nobody learnt, after rounding to sym_int4 g64."""
    words = check.words
    file = samples(check, 1600, 128)
    same = ["--method", "full", "--jsonl", file, "--steps", 200, "--batch", 8, "--ctx", 129, "--lr", words.rate or "2e-5", "--warmup", 10]
    found = {}
    for name, more in {"untrained": None, "without": [], "with": ["--fake-quantize", "sym_int4", "--fake-group-size", 64]}.items():
        trained, packed = check.scratch / f"trained-{name}", check.scratch / f"rounded-{name}"
        if more is not None:
            check.finetune(name, words.tiny, trained, *same, *more)
        check.halfbyte("quantize", words.tiny if more is None else trained, packed, "--scheme", "sym_int4", "--group-size", 64, "--overwrite")
        found[name] = check.halfbyte("perplexity", packed, "--against", words.tiny, "--text", words.heldout or words.text, "--ctx", 256)
        print(f"rounded, {name}: KL {found[name]['kl_mean']:.5f}, perplexity {found[name]['perplexity']:.3f} of {found[name]['reference_perplexity']:.3f}", flush=True)
    assert found["with"]["kl_mean"] < min(found["without"]["kl_mean"], found["untrained"]["kl_mean"]), found


CHECKS = {"adapters": check_adapters, "contract": check_contract, "scratch": check_scratch, "merged": check_merged, "rounded": check_rounded}


def main():
    parser = argparse.ArgumentParser()
    for name in ("halfbyte", "tiny", "text"):
        parser.add_argument(name)
    parser.add_argument("--only", action="append", choices=list(CHECKS))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--config")
    parser.add_argument("--rate")
    parser.add_argument("--heldout")
    parser.add_argument("--control", action="store_true")
    parser.add_argument("--scratch")
    words = parser.parse_args()
    words.config = words.config or words.tiny
    with tempfile.TemporaryDirectory() as name:
        check = Check(words, words.scratch or name)
        check.scratch.mkdir(exist_ok=True)
        for one in words.only or CHECKS:
            CHECKS[one](check)


if __name__ == "__main__":
    main()
