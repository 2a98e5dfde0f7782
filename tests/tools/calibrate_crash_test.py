"""A calibrated conversion that is killed, and what it left damaged: --resume finishes it to the same bytes, and believes nothing that is not whole."""
import concurrent.futures
import os
import shutil
import signal
import subprocess
import unittest

from command_line import LONGEST, MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest
from held_out import HELDOUT

PRELOAD = os.environ["HALFBYTE_CRASH_AT_LIBRARY"]
MOMENTS = 8  # at which it is killed
PARTS_TOKENS = 1024 + 64


def convert(destination, *words, text=HELDOUT, tokens=512, **environment):
    words = ["quantize", TINY_LLAMA, destination, "--calibrate", text, "--calibration-tokens", tokens, "--calibration-ctx", 64,
             "--threads", 1, *words]
    environment = {**os.environ, "LD_PRELOAD": PRELOAD, **{name: str(value) for name, value in environment.items()}}
    return subprocess.run([PROGRAM, *map(str, words)], env=environment, capture_output=True, encoding="utf-8", check=False, timeout=LONGEST)


def convert_parts(destination, *environments):
    """Two parts at the same time: what became of each. Of the text one has 1024 tokens, a whole batch, the other what is left."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        runs = [pool.submit(convert, destination, "--part", f"{part + 1}/2", tokens=PARTS_TOKENS, **more) for part, more in enumerate(environments)]
        return [run.result() for run in runs]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class CalibrateCrash(CommandLineTest):
    def setUp(self):
        super().setUp()
        log = self.scratch / "calls"
        self.done(convert(self.scratch / "wanted", HALFBYTE_CRASH_COUNT=log))
        self.wanted = contents(self.scratch / "wanted")
        self.calls = len(log.read_text(encoding="ascii").split())

    def done(self, result):
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result

    def killed(self, name, number):
        """What a run that is killed at its call of that number leaves."""
        destination = self.scratch / name / "result"
        destination.parent.mkdir()
        result = convert(destination, HALFBYTE_CRASH_AT=number, HALFBYTE_CRASH_WHEN=("before", "after", "torn")[number % 3])
        self.assertEqual(result.returncode, -signal.SIGKILL, result.stderr)
        return destination

    def resumes(self, destination):
        result = self.done(convert(destination, "--resume"))
        self.assertEqual(contents(destination), self.wanted)
        self.assertEqual(os.listdir(destination.parent), ["result"])
        return result

    def half_done(self, name):
        """Killed when about half of its layers were calibrated, none of its tensors written."""
        low, high = 1, self.calls
        while True:
            number = (low + high) // 2
            destination = self.killed(f"{name}{number}", number)
            work = destination.with_name("result.partial")
            journal = (work / "journal").read_text(encoding="utf-8").splitlines() if (work / "journal").exists() else []
            layers = sum('"layer"' in line for line in journal)
            if 2 <= layers and not any('"tensor"' in line for line in journal):
                return destination, work
            low, high = (number, high) if layers < 2 else (low, number)

    def test_killed_at_many_moments(self):
        step = max(1, self.calls // MOMENTS)
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            left = pool.map(lambda number: self.killed(f"at{number}", number), range(1 + step // 2, self.calls, step))
            for result in pool.map(self.resumes, left):
                self.assertNotIn("rror", result.stdout.replace("relative error", ""))

    def test_a_part_that_is_killed_at_many_moments(self):
        self.done(convert(self.scratch / "alone", tokens=PARTS_TOKENS))
        wanted = contents(self.scratch / "alone")
        logs = [self.scratch / f"calls of part {part + 1}" for part in range(2)]
        for result in convert_parts(self.scratch / "parts", *({"HALFBYTE_CRASH_COUNT": log} for log in logs)):
            self.done(result)
        self.assertEqual(contents(self.scratch / "parts"), wanted)
        calls = [len(log.read_text(encoding="ascii").split()) for log in logs]
        for moment in range(6):
            killed, other = moment % 2, 1 - moment % 2
            number = calls[killed] * (2 * moment + 1) // 14
            destination = self.scratch / f"part{moment}" / "result"
            destination.parent.mkdir()
            environments = [{"HALFBYTE_RANKS_TIMEOUT": 5}] * 2
            environments[killed] = {"HALFBYTE_CRASH_AT": number, "HALFBYTE_CRASH_WHEN": ("before", "after", "torn")[moment % 3]}
            results = convert_parts(destination, *environments)
            self.assertEqual(results[killed].returncode, -signal.SIGKILL, results[killed].stderr)
            if results[other].returncode != 0:  # it was done with what they do together
                self.assertEqual((results[other].returncode, results[other].stderr.count("\n")), (1, 1), results[other].stderr)
                # The last before the other one had seen it.
                self.assertRegex(results[other].stderr, f"part {killed + 1} of 2 (ended before it was done|did not come within 5 s|gave no sign for 5 s)")
            for result in convert_parts(destination, {}, {}):
                self.done(result)
            self.assertEqual(contents(destination), wanted)
            self.assertEqual(os.listdir(destination.parent), ["result"])

    def test_what_was_damaged_is_made_again(self):
        left, work = self.half_done("whole")
        for name in ("calibration/codes-0", "journal", "calibration/states-*", "calibration/quantized-*"):
            copy = self.scratch / name.replace("*", "all")
            shutil.copytree(left.parent, copy)
            paths = list((copy / work.name).glob(name))
            self.assertTrue(paths, name)
            for torn in paths:
                data = bytearray(torn.read_bytes())
                data[len(data) * 2 // 3] ^= 1
                torn.write_bytes(data)
            self.resumes(copy / "result")
        for kind in ("states", "quantized"):
            for path in work.glob(f"calibration/{kind}-*"):
                path.unlink()
        self.resumes(left)

    def test_nobody_forgets_it_and_nothing_else_takes_it_up(self):
        left, work = self.half_done("kept")
        result = convert(left)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"result\.partial: [0-9]+ calibrated layers of this conversion, .*; --resume goes on, --restart deletes")
        other = self.scratch / "other.txt"
        other.write_bytes(HELDOUT.read_bytes() + b"and another line\n")
        for words in ({"text": other}, {"words": ("--method", "search")}):
            result = convert(left, "--resume", *words.get("words", ()), text=words.get("text", HELDOUT))
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("is the beginning of another conversion (conversion: calibration: ", result.stderr)
        self.assertTrue((work / "calibration/codes-0").exists())
        self.resumes(left)


if __name__ == "__main__":
    unittest.main()
