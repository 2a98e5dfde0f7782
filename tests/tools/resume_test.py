"""What --memory-limit, --shard-size and --resume do for a user: peak memory, two converters at once, Ctrl-C."""
import json
import os
import signal
import struct
import subprocess
import sys
import unittest

from command_line import LONGEST, PROGRAM, CommandLineTest, messages_of, run, wait_until

MB = 1_000_000
LIMIT = 32 * MB
# What ru_maxrss may exceed the limit by: pages of libraries that differ from one system to the next.
ALLOWANCE = 8 * MB

# Runs a program and prints its peak resident set, in bytes, on the last line.
MEASURE = """
import resource, subprocess, sys
result = subprocess.run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(result.returncode)
"""


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_large(path, shapes):
    """bfloat16 matrices of a repeated pattern, without holding one in memory."""
    header, at = {}, 0
    for name, (rows, columns) in shapes.items():
        header[name] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [at, at + rows * columns * 2]}
        at += rows * columns * 2
    text = json.dumps(header).encode()
    pattern = b"".join(struct.pack("<H", 0x3C00 + n * 7919 % 1021 + (n % 3 << 15 & 0x8000)) for n in range(65521))
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        while at > 0:
            at -= file.write(pattern[:at])


class Memory(CommandLineTest):
    def peak(self, *words):
        result = subprocess.run([sys.executable, "-c", MEASURE, PROGRAM, "quantize", *map(str, words), "-q"],
                                capture_output=True, encoding="utf-8", check=False, timeout=LONGEST)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return int(result.stdout.splitlines()[-1])

    def check(self, shape):
        source = self.scratch / "large.safetensors"
        write_large(source, {"a.weight": shape})
        self.peak(source, self.scratch / "roomy", "--memory-limit", "2GiB")
        peak = self.peak(source, self.scratch / "tight", "--memory-limit", f"{LIMIT // MB}MB", "--threads", "3")
        if "HALFBYTE_SANITIZER" not in os.environ:
            self.assertLess(peak, LIMIT + ALLOWANCE)
        self.assertEqual(contents(self.scratch / "tight"), contents(self.scratch / "roomy"))

    def test_rows_of_12_mb(self):
        self.check((2, 3_000_000))

    def test_rows_larger_than_the_limit(self):
        self.check((2, 24_000_000))

    def test_a_tensor_ten_times_the_limit(self):
        self.check((40_000, 4096))

    def test_too_little(self):
        source = self.scratch / "a.safetensors"
        write_large(source, {"a.weight": (4, 64)})
        result = self.fails(4, ["memory limit", "--memory-limit"], "quantize", source, self.scratch / "b", "--memory-limit", "1MB")
        enough = result.stderr.split("--memory-limit ")[-1].strip()
        self.assertEqual(run("quantize", source, self.scratch / "b", "--memory-limit", enough, "-q").returncode, 0)


class Together(CommandLineTest):
    """Two at one destination: one writes it, the other one says so in a line."""

    def setUp(self):
        super().setUp()
        self.source = self.scratch / "model.safetensors"
        write_large(self.source, {f"model.layers.{n}.mlp.up_proj.weight": (512, 1024) for n in range(8)})
        self.assertEqual(run("quantize", self.source, self.scratch / "wanted", "-q").returncode, 0)

    def start(self, destination, *words):
        return subprocess.Popen([PROGRAM, "quantize", str(self.source), str(destination), "-q", *words],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")

    def finish(self, processes, destination, may_both_win):
        ends = []
        for process in processes:
            messages = messages_of(process)
            ends.append((process.returncode, messages))
        winners = [messages for status, messages in ends if status == 0]
        self.assertGreaterEqual(len(winners), 1, ends)
        if not may_both_win:
            self.assertEqual(len(winners), 1, ends)
        for status, messages in ends:
            if status != 0:
                self.assertEqual((status, messages.count("\n")), (1, 1), ends)
                self.assertRegex(messages, "another process|exists already")
        self.assertEqual(contents(destination), contents(self.scratch / "wanted"))
        self.assertFalse(destination.with_name(destination.name + ".partial").exists())

    def test_started_together(self):
        for n in range(12):
            destination = self.scratch / f"together{n}"
            self.finish([self.start(destination), self.start(destination)], destination, may_both_win=False)

    def test_started_together_to_replace(self):
        destination = self.scratch / "replaced"
        self.assertEqual(run("quantize", self.source, destination, "--scheme", "sym_int8", "-q").returncode, 0)
        for _ in range(6):
            both = [self.start(destination, "--overwrite"), self.start(destination, "--overwrite")]
            self.finish(both, destination, may_both_win=True)

    def test_one_starts_while_the_other_commits(self):
        stages = ["x.partial", "x.partial/journal", "x.partial/checkpoint/model.safetensors", "x.partial/checkpoint/halfbyte.json", "x"]
        for n, stage in enumerate(stages * 4):
            folder = self.scratch / f"late{n}"
            folder.mkdir()
            first = self.start(folder / "x")
            wait_until((folder / stage).exists, first, between=lambda: None)  # yielding would miss the short stages
            self.finish([first, self.start(folder / "x")], folder / "x", may_both_win=False)

    def test_resuming_together(self):
        for n in range(8):
            destination = self.scratch / f"resumed{n}"
            first = self.start(destination)
            wait_until(destination.with_name(destination.name + ".partial").exists, first)
            first.kill()
            messages_of(first)
            both = [self.start(destination, "--resume"), self.start(destination, "--resume")]
            self.finish(both, destination, may_both_win=True)


class Interrupted(CommandLineTest):
    def interrupted(self, *words):
        """A run that is stopped after some tensors: its exit status and what it said."""
        with subprocess.Popen([PROGRAM, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
            journal = self.scratch / "result.partial" / "journal"
            wait_until(lambda: journal.exists() and journal.read_bytes().count(b"\n") > 4, process)
            process.send_signal(signal.SIGINT)
            messages = messages_of(process)
        return process.returncode, messages

    def test_forgetting_to_resume_destroys_nothing(self):
        source = self.scratch / "model.safetensors"
        write_large(source, {f"model.layers.{n}.mlp.up_proj.weight": (1024, 4096) for n in range(16)})
        words = ["quantize", str(source), str(self.scratch / "result"), "--threads", "1", "-q"]
        self.assertEqual(self.interrupted(*words, "--resume")[0], 130)
        before = contents(self.scratch / "result.partial" / "checkpoint")
        for _ in range(2):
            self.fails(1, ["result.partial: ", " of 16 tensors of this conversion", "--resume goes on, --restart deletes"], *words)
            self.assertEqual(contents(self.scratch / "result.partial" / "checkpoint"), before)
        self.fails(2, "--resume and --restart exclude each other", *words, "--resume", "--restart")
        done = json.loads(run(*words, "--resume", "--json").stdout)
        self.assertGreater(done["resumed_bytes"], 0)
        self.assertEqual(done["warnings"], [])

    def test_another_conversion_says_what_it_deletes_though_it_is_quiet(self):
        source = self.scratch / "model.safetensors"
        write_large(source, {f"model.layers.{n}.mlp.up_proj.weight": (1024, 4096) for n in range(16)})
        words = ["quantize", str(source), str(self.scratch / "result"), "--threads", "1", "-q"]
        self.assertEqual(self.interrupted(*words, "--resume")[0], 130)
        done = run(*words, "--group-size", "32", "--json")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (0, 1), done.stderr)
        for part in ["halfbyte: warning: ", "result.partial held the beginning of another conversion", "group_size is 64 there and 32 here"]:
            self.assertIn(part, done.stderr)
        self.assertEqual(len(json.loads(done.stdout)["warnings"]), 1)
        self.assertEqual(self.interrupted(*words[:2], str(self.scratch / "result"), "--overwrite", "--resume", "--threads", "1", "-q")[0], 130)
        done = run(*words, "--restart", "--overwrite")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_control_c_with_resume_keeps_what_is_done(self):
        source = self.scratch / "model.safetensors"
        write_large(source, {f"model.layers.{n}.mlp.up_proj.weight": (1024, 4096) for n in range(64)})
        self.assertEqual(run("quantize", source, self.scratch / "wanted", "-q").returncode, 0)
        words = ["quantize", str(source), str(self.scratch / "result"), "--resume", "--threads", "1", "-q"]
        status, messages = self.interrupted(*words)
        self.assertEqual((status, messages.count("\n")), (130, 1), messages)
        for part in ["result.partial is kept", "--resume goes on"]:
            self.assertIn(part, messages)
        done = json.loads(run(*words, "--json").stdout)
        self.assertGreater(done["resumed_bytes"], 0)
        self.assertEqual(contents(self.scratch / "result"), contents(self.scratch / "wanted"))
        again = run(*words)
        self.assertEqual((again.returncode, again.stderr), (0, ""))
        self.assertIn("complete already", again.stdout)


if __name__ == "__main__":
    unittest.main()
