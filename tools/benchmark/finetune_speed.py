#!/usr/bin/env python3
"""Tokens a second and peak memory of training LoRA, in turn: halfbyte finetune, and peft beside bitsandbytes nf4.

    finetune_speed.py HALFBYTE ORIGINAL QUANTISED --text FILE [--rounds 3] [--threads 2] [--ctx 512] [--batch 1] [--rank 8] [--steps 3] [--recompute] [--avx2]

Run by a Python that has transformers, peft, accelerate and bitsandbytes. ORIGINAL is what bitsandbytes quantises, QUANTISED what halfbyte made of it. --recompute: both run
layers a second time for their gradients (gradient checkpointing). --avx2: both as on a CPU that has no more. Each run is a process of its own, its first step is not counted,
and figures are medians. The step is also held against inference's prefill of the same tokens (halfbyte bench --compute float).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

AVX2 = {"HALFBYTE_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def measure_peer(words):
    import resource
    import time

    import torch

    torch.set_num_threads(words.threads)
    import transformers
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    if "ATEN_CPU_CAPABILITY" in os.environ:
        import bitsandbytes  # noqa: F401

        for module in [one for name, one in sys.modules.items() if name.startswith("bitsandbytes") and hasattr(one, "has_avx512bf16")]:
            module.has_avx512bf16 = lambda: False
    config = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    model = AutoModelForCausalLM.from_pretrained(words.original, dtype=torch.bfloat16, quantization_config=config)
    if words.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=words.rank, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.train()
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=2e-4)
    generator = torch.Generator().manual_seed(0)
    seconds = []
    for _ in range(words.steps + 1):
        ids = torch.randint(100, 20000, (words.batch, words.ctx + 1), generator=generator)
        began = time.perf_counter()
        optimizer.zero_grad()
        model(input_ids=ids[:, :-1], labels=ids[:, :-1]).loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    report(words, statistics.median(seconds[1:]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def report(words, seconds, peak_kb):
    print(json.dumps({"tokens_per_s": words.batch * words.ctx / seconds, "step_s": seconds, "peak_mb": peak_kb / 1000}))


def own(words, environment):
    with tempfile.TemporaryDirectory() as scratch:
        log = pathlib.Path(scratch) / "log"
        command = [words.halfbyte, "finetune", words.quantised, pathlib.Path(scratch) / "adapter", "--text", words.text, "--steps", words.steps + 1, "--batch", words.batch,
                   "--ctx", words.ctx + 1, "--rank", words.rank, "--threads", words.threads, "--log", log, "-q", "--json", *([] if words.recompute else ["--no-recompute"])]
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, env=environment) as process:
            output = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(output.decode())
        seconds = [json.loads(line)["seconds"] for line in log.read_text(encoding="utf-8").splitlines()]
    seconds = statistics.median(seconds[1:])
    return {"tokens_per_s": words.batch * words.ctx / seconds, "step_s": seconds, "peak_mb": usage.ru_maxrss / 1000}


def prefill(words, environment):
    command = [words.halfbyte, "bench", words.quantised, "--prompt-tokens", words.ctx, "--gen-tokens", 2, "--compute", "float", "--dtype", "amp:bfloat16", "--threads",
               words.threads, "--json", "-q"]
    found = json.loads(subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, env=environment).stdout)
    return {"tokens_per_s": found["prefill_tokens_per_s"]}


def peer(environment):
    done = subprocess.run([sys.executable, "-W", "ignore", *sys.argv, "--peer"], check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser()
    for name in ("halfbyte", "original", "quantised"):
        parser.add_argument(name)
    parser.add_argument("--text", required=True)
    for name, default in (("--rounds", 3), ("--threads", 2), ("--ctx", 512), ("--batch", 1), ("--rank", 8), ("--steps", 3)):
        parser.add_argument(name, type=int, default=default)
    for name in ("--recompute", "--avx2", "--peer"):
        parser.add_argument(name, action="store_true")
    words = parser.parse_args()
    if words.peer:
        measure_peer(words)
        return
    environment = os.environ | {"OMP_NUM_THREADS": str(words.threads)} | (AVX2 if words.avx2 else {})
    ways = {"halfbyte": lambda: own(words, environment), "peft": lambda: peer(environment), "prefill": lambda: prefill(words, environment)}
    found = {name: [] for name in ways}
    for _ in range(words.rounds):
        for name, way in ways.items():
            found[name].append(way())
            print(name, json.dumps({key: round(value, 1) for key, value in found[name][-1].items()}), flush=True)
    median = {name: {key: statistics.median(one[key] for one in runs) for key in runs[0]} for name, runs in found.items()}
    print(f"tokens/s {median['halfbyte']['tokens_per_s']:.1f} against {median['peft']['tokens_per_s']:.1f}: {median['halfbyte']['tokens_per_s'] / median['peft']['tokens_per_s']:.2f}")
    print(f"peak MB {median['halfbyte']['peak_mb']:.0f} against {median['peft']['peak_mb']:.0f}: {median['halfbyte']['peak_mb'] / median['peft']['peak_mb']:.2f}")
    print(f"a step takes {median['prefill']['tokens_per_s'] / median['halfbyte']['tokens_per_s']:.2f} of prefill's time")


if __name__ == "__main__":
    main()
