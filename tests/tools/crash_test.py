"""Kills `halfbyte quantize` at every single call that changes a file, and wants --resume to finish each to the same bytes."""
import collections
import concurrent.futures
import os
import shutil
import signal
import subprocess
import unittest

from command_line import LONGEST, PROGRAM, TINY_LLAMA, CommandLineTest

PRELOAD = os.environ["HALFBYTE_CRASH_AT_LIBRARY"]
OPTIONS = ["--shard-size", "700kB"]  # three data files and an index
NESTED = ["--scheme", "nf4", "--nested-scales"]  # a result that a journal's line describes with one number more
LAST_PART = ["--part", "2/2"]  # after the first, so that it completes the result
DATA_CALLS = {"write", "pwrite", "pwrite64"}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def convert(destination, *words, crash_at=0, when="after", count_file=None, threads=1):
    environment = {**os.environ, "LD_PRELOAD": PRELOAD}
    if crash_at:
        environment |= {"HALFBYTE_CRASH_AT": str(crash_at), "HALFBYTE_CRASH_WHEN": when}
    if count_file:
        environment["HALFBYTE_CRASH_COUNT"] = str(count_file)
    words = ["quantize", TINY_LLAMA, destination, *OPTIONS, "--threads", str(threads), *words]
    return subprocess.run([PROGRAM, *map(str, words)], env=environment, capture_output=True, encoding="utf-8", check=False, timeout=LONGEST)


class Crash(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.source = contents(TINY_LLAMA)
        other = ["quantize", TINY_LLAMA, self.scratch / "other", "--scheme", "sym_int8", "-q"]
        subprocess.run([PROGRAM, *map(str, other)], check=True, capture_output=True, timeout=LONGEST)
        self.other = contents(self.scratch / "other")

    def calls(self, words):
        """The names of the calls of one undisturbed run."""
        self.prepare(self.scratch / "counted" / "result", words)
        log = self.scratch / "calls"
        log.unlink(missing_ok=True)
        self.assertEqual(convert(self.scratch / "counted" / "result", *words, count_file=log).returncode, 0)
        shutil.rmtree(self.scratch / "counted")
        return log.read_text(encoding="ascii").split()

    def prepare(self, destination, words):
        destination.parent.mkdir()
        if "--overwrite" in words:
            shutil.copytree(self.scratch / "other", destination)
        if words == LAST_PART:
            self.assertEqual(convert(destination, "--part", "1/2").returncode, 0)

    def crash_and_resume(self, number, when, words):
        """Returns what happened, for the counts. One folder a case."""
        folder = self.scratch / f"{when}{number}"
        destination = folder / "result"
        self.prepare(destination, words)
        again = words if words == LAST_PART else [*words, "--resume"]
        threads = 1 + number % 2
        killed = convert(destination, *words, crash_at=number, when=when, threads=threads)
        self.assertEqual(killed.returncode, -signal.SIGKILL, killed.stderr)
        shown = contents(destination) if destination.exists() else None
        allowed = [self.wanted, self.other if "--overwrite" in words else None]
        self.assertTrue(shown in allowed, "what stands under the final name is whole at every moment")
        if number % 5 == 0:  # and some of them are killed again while they resume
            convert(destination, *again, crash_at=max(1, number // 2), when=when, threads=threads)
        resumed = convert(destination, *again, threads=3 - threads)
        self.assertEqual((resumed.returncode, resumed.stderr), (0, ""))
        self.assertEqual(contents(destination), self.wanted)
        self.assertEqual(os.listdir(folder), ["result"])
        shutil.rmtree(folder)
        if "complete already" in resumed.stdout:
            return "complete already"
        return "started afresh" if "; 0 B were done before" in resumed.stdout else "went on"

    def sweep(self, words, ends_wanted=("complete already", "started afresh", "went on"), step=1):
        self.assertEqual(convert(self.scratch / "wanted", *(words if words != LAST_PART else [])).returncode, 0)
        self.wanted = contents(self.scratch / "wanted")
        names = self.calls(words)
        self.assertGreater(len(names), 100)
        cases = [(number, when) for number, name in enumerate(names, 1) for when in ("before", "after", "torn")
                 if when != "torn" or name in DATA_CALLS][::step]
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            ends = collections.Counter(pool.map(lambda case: self.crash_and_resume(*case, words), cases))
        self.assertEqual(contents(TINY_LLAMA), self.source)
        counts = ", ".join(f"{count} {name}" for name, count in sorted(collections.Counter(names).items()))
        print(f"{' '.join(words) or 'new directory'}: {len(names)} calls ({counts}); killed {len(cases)} times, each finished "
              f"to the same bytes ({', '.join(f'{count} {end}' for end, count in sorted(ends.items()))})", flush=True)
        self.assertEqual(set(ends), set(ends_wanted))

    def test_every_call(self):
        self.sweep([])

    def test_some_calls_with_nested_scales(self):
        self.sweep(NESTED, step=10)

    def test_every_call_of_a_replacement(self):
        self.sweep(["--overwrite"])

    def test_some_calls_of_the_last_part(self):
        self.sweep(LAST_PART, ("complete already", "went on"), step=4)


if __name__ == "__main__":
    unittest.main()
