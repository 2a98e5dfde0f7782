"""Where accuracy.py works: the model, the texts, programs and packages, what runs and times a command, and the one evaluator."""
import hashlib
import json
import os
import pathlib
import subprocess
import time

from peers_setup import Absent, Scratch, made

PACKAGES = ["auto-round", "bitsandbytes", "transformers", "sentencepiece", "protobuf"]


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class Place:
    def __init__(self, options):
        self.program, self.model, self.text = (pathlib.Path(path).resolve() for path in (options.halfbyte, options.model, options.text))
        self.calibration = pathlib.Path(options.calibrate).resolve() if options.calibrate else None
        self.tokens, self.windows, self.threads = options.calibration_tokens, options.windows, options.threads
        self.iterations, self.ik_llama_cpp = options.autoround_iterations, options.ik_llama_cpp
        self.scratch = Scratch(options.scratch, self.program, options)
        name = hashlib.sha256(json.dumps(self.settings()).encode()).hexdigest()[:8]
        self.folder = self.scratch.folder / f"accuracy-{name}"
        self.folder.mkdir(exist_ok=True)

    def settings(self):
        """What figures depend on that stand in one table."""
        programs = [self.program, self.program.parent.parent / "libexec/halfbyte/halfbyte-model"]
        weights = {file.name: file.stat().st_size for file in sorted(self.model.glob("*.safetensors"))}
        return {"programs": [sha256(path) for path in programs if path.exists()], "threads": self.threads,
                "model": self.model.name, "weights": weights, "text": sha256(self.text), "windows": self.windows,
                "calibration": sha256(self.calibration) if self.calibration else None, "calibration_tokens": self.tokens,
                "autoround_iterations": self.iterations}

    def made(self, name, make):
        return made(self.folder / name, make)

    def step(self, *words):
        self.scratch.step(*words, cwd=self.folder)  # llama.cpp's programs leave logs where they run

    def python(self):
        return self.scratch.environment("accuracy-venv", *PACKAGES)

    def python_with(self, module):
        python = self.python()
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode:
            raise Absent(f"{python} has no {module}")
        return python

    def timed(self, *words):
        """Seconds by the clock and of processor time that a command takes; its output goes to the log."""
        start, before = time.perf_counter(), os.times()
        self.step(*words)
        after = os.times()
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        return {"seconds": time.perf_counter() - start, "processor_seconds": spent}

    def output(self, *words):
        done = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Absent(f"halfbyte {words[0]}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        return done.stdout

    def evaluate(self, checkpoint, windows=None):
        count = windows or self.windows
        # The original's probabilities are kept for the next checkpoint, which halves the time and changes the last of the digits printed at most.
        kept = self.folder / f"original-{count}.logits"
        words = ["--against", self.model, "--text", self.text, "--windows", count, "--logits", kept, "--threads", self.threads, "--json", "-q"]
        return json.loads(self.output("evaluate", checkpoint, *words))

    def sequences(self, length):
        """A file with the sequences that halfbyte calibrates on, as a JSON list of lists of token ids."""
        def write(path):
            words = ["tokenize", self.model, "--file", self.calibration, "--special-as-text"]
            text = self.output(*words, "--no-special").split()
            first = self.output(*words).split()
            before = first[:len(first) - len(text)]
            step = length - len(before)
            rows = [before + text[begin:begin + step] for begin in range(0, len(text) - step + 1, step)]
            path.write_text(json.dumps([[int(token) for token in row] for row in rows[:self.tokens // length]]), encoding="utf-8")
        return self.made("sequences.json", write)
