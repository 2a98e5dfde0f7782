"""Absurd values in config.json, drawn at random, before every verb that reads a model: each answers in one line, soon, without much memory.

HALFBYTE_CONFIGS sets how many (8), HALFBYTE_SEED which (1). tools/compat/thorough.py asks for 500.
"""
import collections
import concurrent.futures
import json
import os
import random
import resource
import shutil
import subprocess
import tempfile
import unittest

from command_line import MODEL_PROGRAM, PROGRAM, CommandLineTest, write_tiny_model

CONFIGS = int(os.environ.get("HALFBYTE_CONFIGS", "8"))
SEED = int(os.environ.get("HALFBYTE_SEED", "1"))
MOST_BYTES = 1_000_000_000
MOST_SECONDS = 5  # of one processor: others may use the machine
LONGEST_LINE = 2000
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}  # else the processor's seconds are those of threads that wait

VALUES = [-1, 0, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**32 + 1, 2**53, 2**63 - 1, 2**63, 2**64, -2**63, 10**9, 10**12, 0.5, -0.0, 1e-320,
          1e300, -1e300, 10**400, None, True, False, "", "0", "-1", "x" * 100_000, "\u202e\u009b\x1b[2J", "../../etc/passwd", [], {}, [0],
          [-1, 10**12], [[[]]], [None] * 1000, {"a": {"b": {}}}, {"factor": -1}, {"factor": 0, "rope_type": "llama3"},
          {"rope_type": "yarn", "factor": 1e300}, {"rope_type": "x" * 100_000}, {"quant_method": "gptq", "bits": 10**12},
          {"quant_method": "bitsandbytes"}, {"quant_method": "\x1b[2J"}, "llama", "mixtral", "gemma2", "chatglm", "float8"]
FURTHER_KEYS = ["rope_scaling", "sliding_window", "layer_types", "num_local_experts", "num_experts_per_tok", "quantization_config", "partial_rotary_factor",
                "attention_dropout", "logits_soft_cap", "final_logit_softcapping", "query_pre_attn_scalar", "max_window_layers", "decoder_sparse_step",
                "text_config", "auto_map", "multi_query_group_num", "kv_channels", "num_layers", "ffn_hidden_size", "seq_length", "rope_ratio"]

CORE_VERBS = [["inspect", "MODEL"], ["inspect", "MODEL", "--policy", "half"], ["verify", "MODEL"], ["quantize", "MODEL", "NEW"],
              ["quantize", "MODEL", "NEW", "--dry-run"], ["dequantize", "MODEL", "NEW"], ["diff", "MODEL", "SOUND"],
              ["export", "MODEL", "NEW", "--to", "gguf"], ["export", "MODEL", "NEW", "--to", "compressed-tensors", "--requantize"],
              ["tokenize", "MODEL", "--text", "once"]]
MODEL_VERBS = [["generate", "MODEL", "--prompt", "once", "--max-gen-len", "2"], ["perplexity", "MODEL", "--text", "TEXT", "--ctx", "32"],
               ["bench", "MODEL", "--prompt-tokens", "4", "--gen-tokens", "2", "--runs", "1"], ["chat", "MODEL"]]



class AbsurdConfigs(CommandLineTest):
    def setUp(self):
        super().setUp()
        write_tiny_model(self.scratch / "sound")
        self.succeeds("quantize", self.scratch / "sound", self.scratch / "int4", "-q")
        (self.scratch / "text").write_text("Once upon a time. " * 20, encoding="utf-8")
        self.verbs = CORE_VERBS + (MODEL_VERBS if MODEL_PROGRAM.exists() else [])

    def drawn(self, number):
        """An original or quantised model with one to three absurd values, and what they are."""
        numbers = random.Random(f"{SEED} {number}")
        folder = self.scratch / f"model{number}"
        shutil.copytree(self.scratch / numbers.choice(["sound", "int4"]), folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        changes = {key: numbers.choice(VALUES) for key in numbers.sample([*config, *FURTHER_KEYS], numbers.choice([1, 1, 2, 3]))}
        config |= changes
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return folder, ", ".join(f"{key} = {json.dumps(value)[:60]}" for key, value in changes.items())

    def problem_of(self, words):
        """What is wrong with how `halfbyte WORDS` ended, or None; and its exit status."""
        with tempfile.TemporaryFile() as said, subprocess.Popen([PROGRAM, *map(str, words), "-q"], stdin=subprocess.DEVNULL,
                                                               stdout=subprocess.DEVNULL, stderr=said, env=ENVIRONMENT) as process:
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (4 * MOST_SECONDS, 4 * MOST_SECONDS))
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = status = os.waitstatus_to_exitcode(status)
            said.seek(0)
            lines = said.read().decode("utf-8", errors="replace").splitlines()
        seconds = usage.ru_utime + usage.ru_stime
        if status not in (0, 1, 2, 3, 4):
            return f"exit status {status}: {lines[:3]}", status
        if len(lines) != (status != 0) or any(not line.startswith("halfbyte: ") or not line.isprintable() for line in lines):
            return f"{len(lines)} lines: {lines[:3]}", status
        if any(len(line) > LONGEST_LINE or "internal error" in line for line in lines):
            return f"a poor line: {lines[0][:300]}", status
        if usage.ru_maxrss * 1024 > MOST_BYTES or seconds > MOST_SECONDS:
            return f"{usage.ru_maxrss / 1024:.0f} MiB, {seconds:.1f} s", status
        return None, status

    def try_all(self, number):
        folder, what = self.drawn(number)
        names = {"MODEL": folder, "NEW": self.scratch / f"new{number}", "SOUND": self.scratch / "sound", "TEXT": self.scratch / "text"}
        out = []
        verbs = CORE_VERBS + self.verbs[len(CORE_VERBS) + number % 4:][:1]  # of those that run the model, one in turn
        for verb in verbs:
            problem, status = self.problem_of([names.get(word, word) for word in verb])
            out.append((f"{number}: {' '.join(verb)}, {what}: {problem}" if problem else None, status))
            for made in (names["NEW"], self.scratch / f"new{number}.partial"):
                shutil.rmtree(made, ignore_errors=True) if made.is_dir() else made.unlink(missing_ok=True)
        shutil.rmtree(folder)
        return out

    def test_every_verb(self):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            ends = []
            for some in pool.map(self.try_all, range(CONFIGS)):
                ends += some
                for problem, _ in some:
                    if problem:
                        print(f"  {problem}", flush=True)
        problems = [problem for problem, _ in ends if problem]
        counts = collections.Counter(status for _, status in ends)
        print(f"{CONFIGS} configurations, {len(ends)} runs: exit status "
              f"{', '.join(f'{status}: {count}' for status, count in sorted(counts.items()))}; {len(problems)} wrong", flush=True)
        self.assertEqual(problems, [])


if __name__ == "__main__":
    unittest.main()
