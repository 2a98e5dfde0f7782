#!/usr/bin/env python3
"""A device beside the CPU: the same checkpoints, as they are and packed, loaded on both.

    device_check.py HALFBYTE DATA [--device cuda] [--only NAME]... [--jobs N]     77: the device is not there

DATA is tests/data: tiny-llama, heldout.txt and families/. Of each model, in float32 and under amp:bfloat16, as it is and in each scheme of SCHEMES:
the mean loss of two drawn prompts of different lengths within BOUNDS of the CPU's, and in float32 the same greedy tokens after both of them in one batch.
Of each also the losses of a few steps of training: adapters beside its packed weights, and all of its weights. Of tiny-llama also: every other scheme, keys and values in 8 bits, perplexity (within BOUNDS, and 8-bit keys and values within 1 %) and evaluate on
heldout.txt, and what bench measures there.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from packages import skip

BOUNDS = {"float32": 1e-4, "amp:bfloat16": 1e-2}  # relative; on an H200: 2e-7, 6e-3
TRAINED_BOUNDS = {"float32": 1e-4, "amp:bfloat16": 5e-2}  # the same of steps of training: a CPU may multiply in float32 what a GPU rounds to bfloat16
SCHEMES = ("sym_int4", "nf4")
OTHER_SCHEMES = ("asym_int4", "fp4", "fp4_e2m1", "affine_int4", "iq4_nl", "hb4", "hb4_fine", "sym_int8")
PROMPTS, NEW_TOKENS, VOCABULARY = (48, 19), 24, 320
STEPS = 3  # of training
THREADS = 4  # of a process: several checks run at a time


class Check:
    def __init__(self, words, scratch):
        self.words, self.scratch = words, pathlib.Path(scratch)
        drawn = random.Random(0)
        self.prompts = [[drawn.randrange(3, VOCABULARY) for _ in range(length)] for length in PROMPTS]
        self.texts = self.scratch / "texts.jsonl"
        self.texts.write_text("".join(json.dumps(prompt) + "\n" for prompt in self.prompts), encoding="utf-8")

    def halfbyte(self, *words):
        done = subprocess.run([self.words.halfbyte, *map(str, words), "--json", "-q"], capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def forms(self, source, schemes):
        """The model as it is, and packed."""
        yield "original", source
        for scheme in schemes:
            out = self.scratch / f"{source.name}-{scheme}"
            size = [] if scheme == "hb4_fine" else ["--group-size", 32]
            self.halfbyte("quantize", source, out, "--scheme", scheme, *size, "--halfbyte-only")
            yield scheme, out

    def generated(self, model, device, dtype, *more):
        """Of each prompt its mean loss, in nats, and the tokens that follow it."""
        prompts = [word for prompt in self.prompts for word in ("--prompt-tokens", ",".join(map(str, prompt)))]
        found = self.halfbyte("generate", model, *prompts, "--max-gen-len", NEW_TOKENS, "--temperature", 0, "--ignore-eos", "--echo", "--logprobs",
                              "--compute", "float", "--dtype", dtype, "--device", device, "--threads", THREADS, *more)
        for one, prompt in zip(found["generations"], self.prompts, strict=True):
            read = one["logprobs"][1 : len(prompt)]
            yield -sum(read) / len(read), one["tokens"][len(prompt) :]

    def beside_cpu(self, what, model, dtype, *more):
        """The larger of two relative differences of the loss."""
        ours, theirs = (list(self.generated(model, device, dtype, *more)) for device in (self.words.device, "cpu"))
        worst = max(near(what, a[0], b[0], BOUNDS[dtype]) for a, b in zip(ours, theirs, strict=True))
        if dtype == "float32":
            assert [one[1] for one in ours] == [one[1] for one in theirs], f"{what}: other greedy tokens"
        return worst

    def trained(self, model, device, dtype, *more):
        """The losses of steps that learn the prompts."""
        out = self.scratch / f"{pathlib.Path(model).name}-{device}-{dtype.replace(':', '-')}-{more[0]}"
        return self.halfbyte("finetune", model, out, "--method", *more, "--jsonl", self.texts, "--steps", STEPS, "--batch", 2, "--ctx", 64, "--lr", "1e-3", "--save-every", 0,
                             "--dtype", dtype, "--device", device, "--threads", THREADS, "--overwrite")["losses"]

    def trains(self, source, packed):
        """The largest relative differences of a step's loss."""
        worst = dict.fromkeys(TRAINED_BOUNDS, 0.0)
        for method, model in (("lora", packed), ("full", source)):
            for dtype, bound in TRAINED_BOUNDS.items():
                ours, theirs = (self.trained(model, device, dtype, method) for device in (self.words.device, "cpu"))
                assert len(ours) == STEPS, (source.name, method, ours)
                worst[dtype] = max([worst[dtype], *(near(f"{source.name}, {method}, {dtype}, step {i + 1}", *both, bound) for i, both in enumerate(zip(ours, theirs, strict=True)))])
        return worst

    def check_model(self, source, schemes=SCHEMES):
        worst, forms = dict.fromkeys(BOUNDS, 0.0), list(self.forms(source, schemes))
        for name, model in forms:
            for dtype in BOUNDS:
                worst[dtype] = max(worst[dtype], self.beside_cpu(f"{source.name}, {name}, {dtype}", model, dtype))
        said = ", ".join(f"{dtype} within {value:.1e}" for dtype, value in worst.items())
        trained = ", ".join(f"{dtype} within {value:.1e}" for dtype, value in self.trains(source, forms[1][1]).items())
        return f"{source.name}: {len(forms)} forms, loss in {said}; {NEW_TOKENS} greedy tokens equal; {STEPS} steps' losses in {trained}"


def near(what, found, wanted, bound):
    off = abs(found / wanted - 1)
    assert off <= bound, f"{what}: {found:.6f}, the CPU's {wanted:.6f}: {off:.1e} away"
    return off


def check_schemes(check):
    return check.check_model(pathlib.Path(check.words.data) / "tiny-llama", SCHEMES + OTHER_SCHEMES)


def check_texts(check):
    """Of tiny-llama, whole windows of text: perplexity and evaluate, and 8-bit keys and values."""
    data, device = pathlib.Path(check.words.data), check.words.device
    packed, words = check.scratch / "texts", ["--text", data / "heldout.txt", "--ctx", 256, "--compute", "float", "--threads", THREADS]
    check.halfbyte("quantize", data / "tiny-llama", packed, "--embedding", "sym_int8", "--head", "sym_int8", "--halfbyte-only")
    both = lambda *words: [check.halfbyte(*words, "--device", one) for one in (device, "cpu")]
    said = []
    for dtype, bound in BOUNDS.items():
        ours, theirs = (one["perplexity"] for one in both("perplexity", packed, *words, "--dtype", dtype))
        said.append(f"{dtype} {ours:.4f} ({near('perplexity, ' + dtype, ours, theirs, bound):.1e} away)")
    ours, theirs = (one["perplexity"] for one in both("perplexity", packed, *words, "--kv", "int8"))
    said.append(f"8-bit keys and values {ours:.4f} ({near('--kv int8', ours, theirs, 0.01):.1e} away)")
    ours, theirs = (one["kl_mean"] for one in both("perplexity", packed, *words, "--dtype", "float32", "--against", data / "tiny-llama"))
    assert abs(ours / theirs - 1) <= 1e-3, ("KL divergence", ours, theirs)
    check.beside_cpu("8-bit embedding and head", packed, "float32")
    check.beside_cpu("8-bit keys and values", packed, "amp:bfloat16", "--kv", "int8")
    return f"texts: tiny-llama in sym_int4, embedding and head in sym_int8: perplexity {', '.join(said)}; KL divergence {ours:.5f}, the CPU's {theirs:.5f}"


def check_evaluate(check):
    data = pathlib.Path(check.words.data)
    words = ["evaluate", check.scratch / "evaluated", "--against", data / "tiny-llama", "--text", data / "heldout.txt", "--threads", THREADS, "--device"]
    check.halfbyte("quantize", data / "tiny-llama", words[1])
    ours, theirs = (check.halfbyte(*words, device)["kl_mean"] for device in (check.words.device, "cpu"))
    ours, theirs = (one["value"] if isinstance(one, dict) else one for one in (ours, theirs))
    assert abs(ours / theirs - 1) <= 1e-3, ("evaluate", ours, theirs)
    return f"evaluate: tiny-llama in sym_int4 has a KL divergence of {ours:.5f}, on the CPU {theirs:.5f}"


def check_features(check):
    """Of tiny-llama in float32: adapters, guessed tokens, and prompts that are kept."""
    data, packed, adapter = pathlib.Path(check.words.data), check.scratch / "features", check.scratch / "adapter"
    check.halfbyte("quantize", data / "tiny-llama", packed)
    check.halfbyte("finetune", packed, adapter, "--text", data / "heldout.txt", "--steps", 4, "--ctx", 64, "--lr", "1e-2", "--save-every", 0, "--device", check.words.device)
    worst = check.beside_cpu("an adapter", packed, "float32", "--adapter", adapter)
    same = ["generate", packed, "--prompt", "the man and the man and the man", "--max-gen-len", 48, "--temperature", 0, "--ignore-eos", "--dtype", "float32", "--compute", "float"]
    one = lambda *words: check.halfbyte(*same, *words)["generations"][0]
    wanted, on_device = one(), ["--device", check.words.device]
    guessed = one(*on_device, "--speculate", "lookup")
    kept = [one(*on_device, "--prompt-cache", check.scratch / "prompt.cache") for _ in range(2)]
    assert all(found["tokens"] == wanted["tokens"] for found in (guessed, *kept)), "other tokens where they are guessed, or the prompt is kept"
    assert guessed["right_guesses"] > 0 and kept[1]["cached_tokens"] > 0, (guessed["right_guesses"], kept[1]["cached_tokens"])
    return f"features: an adapter's loss within {worst:.1e}; the same tokens with {guessed['right_guesses']} guessed, and with {kept[1]['cached_tokens']} of a kept prompt"


def check_bench(check):
    found = check.halfbyte("bench", pathlib.Path(check.words.data) / "tiny-llama", "--device", check.words.device, "--runs", 3)
    return f"bench: tiny-llama on {found['device']}: " + ", ".join(f"{key} {value:.0f}" for key, value in found.items() if key.endswith("tokens_per_s"))


def checks_of(check):
    """By name. The whole table of schemes stands for tiny-llama."""
    out = {"tiny-llama": lambda: check_schemes(check), "texts": lambda: check_texts(check), "evaluate": lambda: check_evaluate(check), "features": lambda: check_features(check), "bench": lambda: check_bench(check)}
    for source in sorted((pathlib.Path(check.words.data) / "families").iterdir()):
        out[source.name] = lambda source=source: check.check_model(source)
    return out


def skip_unless_there(check):
    kind = check.words.device.split(":")[0]
    found = next(one for one in check.halfbyte("doctor")["torch"]["devices"] if one["name"].lower() == kind)
    if not found["works"]:
        skip(f"{check.words.device}: {found['reason']}")
    print(f"{check.words.device}: {found['reason']}", flush=True)


def attempt(check):
    try:
        print(check(), flush=True)
    except Exception as error:  # of one check; the others say more
        print(f"failed: {error or repr(error)}", flush=True)
        return False
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("halfbyte")
    parser.add_argument("data")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", action="append")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 3))
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(words.jobs) as pool:
        check = Check(words, scratch)
        skip_unless_there(check)
        checks = checks_of(check)
        done = list(pool.map(attempt, (checks[name] for name in words.only or checks)))
    print(f"{sum(done)} of {len(done)} checks passed")
    sys.exit(not all(done))


if __name__ == "__main__":
    main()
