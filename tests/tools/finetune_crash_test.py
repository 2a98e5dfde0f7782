"""Kills `halfbyte finetune` at calls that change files, and wants --resume to finish each to the same bytes."""
import collections
import json
import os
import shutil
import signal
import subprocess
import unittest

from command_line import LONGEST, MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest, write_tiny_model

PRELOAD = os.environ["HALFBYTE_CRASH_AT_LIBRARY"]
BOOK = TINY_LLAMA.parent / "heldout.txt"
STEPS = 6
OPTIONS = ["--text", BOOK, "--steps", STEPS, "--batch", 2, "--ctx", 16, "--save-every", 2, "--threads", 1, "--seed", 3, "--dropout", 0.1, "-q"]
MOMENTS = 10
DATA_CALLS = {"write", "pwrite", "pwrite64"}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Crash(CommandLineTest):
    def train(self, destination, *words, crash_at=0, when="after", count_file=None):
        environment = {**os.environ, "LD_PRELOAD": PRELOAD}
        if crash_at:
            environment |= {"HALFBYTE_CRASH_AT": str(crash_at), "HALFBYTE_CRASH_WHEN": when}
        if count_file:
            environment["HALFBYTE_CRASH_COUNT"] = str(count_file)
        words = ["finetune", self.model, destination, *OPTIONS, *self.words, *words]
        return subprocess.run([PROGRAM, *map(str, words)], env=environment, capture_output=True, encoding="utf-8", check=False, timeout=LONGEST)

    def crash_and_resume(self, number, when):
        """Returns how many steps were done before, for the counts."""
        folder = self.scratch / f"{when}{number}"
        folder.mkdir()
        killed = self.train(folder / "result", crash_at=number, when=when)
        self.assertEqual(killed.returncode, -signal.SIGKILL, killed.stderr)
        if (folder / "result").exists():  # what stands there is whole at every moment
            self.assertEqual(contents(folder / "result"), self.wanted)
        resumed = self.train(folder / "result", "--resume", "--overwrite", "--json")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        done = json.loads(resumed.stdout)
        self.assertEqual((done["steps"], len(done["losses"])), (STEPS, STEPS))
        self.assertEqual(contents(folder / "result"), self.wanted)
        self.assertEqual(os.listdir(folder), ["result"])
        shutil.rmtree(folder)
        return done["resumed_steps"]

    def sweep(self, *words):
        self.words = words
        self.assertEqual(self.train(self.scratch / "wanted").returncode, 0)
        self.wanted = contents(self.scratch / "wanted")
        log = self.scratch / "calls"
        self.assertEqual(self.train(self.scratch / "counted", count_file=log).returncode, 0)
        names = log.read_text(encoding="ascii").split()
        log.unlink()
        cases = [(number, when) for number, name in enumerate(names, 1) for when in ("before", "after", "torn") if when != "torn" or name in DATA_CALLS]
        self.assertGreater(len(cases), 5 * MOMENTS)
        ends = collections.Counter(self.crash_and_resume(*case) for case in cases[:: len(cases) // MOMENTS])
        print(f"{' '.join(map(str, words))}: {len(names)} calls, killed {sum(ends.values())} times; steps done before: {dict(ends)}", flush=True)
        self.assertGreater(len(ends), 2)

    def test_adapters(self):
        write_tiny_model(self.scratch / "tiny")
        self.model = self.scratch / "tiny4"
        self.succeeds("quantize", self.scratch / "tiny", self.model, "-q")
        self.sweep("--rank", 2)

    def test_all_weights(self):
        self.model = self.scratch / "tiny"
        write_tiny_model(self.model)
        self.sweep("--method", "full", "--masters", "bfloat16", "--optimizer", "adamw8bit")


if __name__ == "__main__":
    unittest.main()
