#!/usr/bin/env python3
"""What `halfbyte evaluate` measures, against the same computed by transformers and PyTorch in float32.

    evaluate_check.py HALFBYTE MODEL TEXT [WINDOWS]      exit status 0: the same, 1: not, 77: not installed

The model is quantised here; its quantised weights are compared as `halfbyte dequantize --dtype float32` writes them. The
text is split by sentencepiece itself. Perplexities agree to 1e-5 of themselves, divergences to 1 %, shares to .1 points.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import packages

try:
    import sentencepiece
    import torch
    import transformers
except ImportError as error:
    packages.skip(error)

CONTEXT = 256
CASES = [("sym_int4", 64), ("sym_int4", 32), ("nf4", 64), ("sym_int8", 64)]


def halfbyte(program, *words):
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=True).stdout


def windows_of(model, text, most):
    splitter = sentencepiece.SentencePieceProcessor(model_file=str(pathlib.Path(model, "tokenizer.model")))
    ids = splitter.encode(text)
    step = CONTEXT - 1
    count = min(most, len(ids) // step)
    return torch.tensor([[splitter.bos_id(), *ids[i * step:(i + 1) * step]] for i in range(count)])


@torch.no_grad()
def log_probabilities(folder, windows):
    """Of the second half of each window, in float64 from float32 logits."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    for window in windows:
        logits = model(window.unsqueeze(0)).logits[0, CONTEXT // 2 - 1:-1]
        assert logits.dtype == torch.float32
        yield logits.double().log_softmax(-1)


def measured_here(original, quantized, windows):
    likelihoods, divergences, firsts, fives = [[], []], [], [], []
    for window, theirs, ours in zip(windows, log_probabilities(original, windows), log_probabilities(quantized, windows)):
        targets = window[CONTEXT // 2:].unsqueeze(1)
        for model, values in enumerate((ours, theirs)):
            likelihoods[model].append(values.gather(1, targets).flatten())
        divergences.append((theirs.exp() * (theirs - ours)).sum(-1))
        top = [values.topk(5, -1).indices for values in (ours, theirs)]
        firsts.append(top[0][:, 0] == top[1][:, 0])
        fives.append((top[0].unsqueeze(2) == top[1].unsqueeze(1)).sum((1, 2)) / 5)
    kl = torch.cat(divergences).sort().values
    return {
        "perplexity": torch.cat(likelihoods[0]).mean().neg().exp().item(),
        "original_perplexity": torch.cat(likelihoods[1]).mean().neg().exp().item(),
        "kl_mean": kl.mean().item(),
        "kl_median": kl[len(kl) // 2].item(),
        "kl_p99": kl[int(len(kl) * 0.99)].item(),
        "kl_p999": kl[int(len(kl) * 0.999)].item(),
        "kl_largest": kl[-1].item(),
        "top1_agreement": torch.cat(firsts).double().mean().item(),
        "top5_agreement": torch.cat(fives).double().mean().item(),
    }


def is_near(key, ours, theirs):
    if "perplexity" in key:
        return abs(ours / theirs - 1) < 1e-5
    return abs(ours - theirs) < 1e-3 if "agreement" in key else abs(ours / theirs - 1) < 0.01 or abs(ours - theirs) < 1e-6


def main(program, model, text, most=24):
    failures = 0
    windows = windows_of(model, pathlib.Path(text).read_text(encoding="utf-8"), int(most))
    with tempfile.TemporaryDirectory() as scratch:
        for scheme, group_size in CASES:
            packed, plain = pathlib.Path(scratch, f"{scheme}{group_size}"), pathlib.Path(scratch, f"{scheme}{group_size}-plain")
            words = ["--scheme", scheme, "--group-size", group_size, "--keep", "lm_head", "--keep", "model.embed_tokens", "-q"]
            halfbyte(program, "quantize", model, packed, *words)
            halfbyte(program, "dequantize", packed, plain, "--dtype", "float32", "-q")
            begin = time.monotonic()
            printed = halfbyte(program, "evaluate", packed, "--against", model, "--text", text, "--windows", len(windows), "--json", "-q")
            seconds = time.monotonic() - begin
            for key, theirs in measured_here(model, plain, windows).items():
                found = json.loads(printed)[key]
                ours = found["value"] if isinstance(found, dict) else found
                is_good = is_near(key, ours, theirs)
                failures += not is_good
                print(f"{scheme} g{group_size} {key}: halfbyte {ours:.7g}, transformers {theirs:.7g}{'' if is_good else '   DIFFERENT'}")
            print(f"{scheme} g{group_size}: {seconds:.1f} s for {len(windows)} windows")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
