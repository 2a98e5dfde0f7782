"""Kills `generate` at every call that changes a file while it replaces its prompt cache, and lets those calls fail: the cache is the
old one or the new one, and the next run needs no help."""
import concurrent.futures
import errno
import os
import shutil
import subprocess
import unittest

from command_line import LONGEST, MODEL_PROGRAM, CommandLineTest, write_tiny_model

PRELOAD = os.environ["HALFBYTE_CRASH_AT_LIBRARY"]
OLD, NEW = "1,300,301,302", "1,300,301,303,304"
FAILING = {"fallocate": "ENOSPC", "pwrite": "ENOSPC", "fsync": "EIO", "syscall(renameat2)": "EIO", "renameat2": "EIO", "mkdir": "EACCES"}


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class PromptCacheCrash(CommandLineTest):
    def setUp(self):
        super().setUp()
        write_tiny_model(self.scratch / "model")
        self.old, self.new = (self.made(f"{name}.cache", prompt) for name, prompt in (("old", OLD), ("new", NEW)))

    def generate(self, cache, prompt, **variables):
        environment = {**os.environ, **({"LD_PRELOAD": PRELOAD} | variables if variables else {})}
        words = ["generate", self.scratch / "model", "--prompt-tokens", prompt, "--max-gen-len", 2, "--prompt-cache", cache, "-q", "--threads", 1]
        return subprocess.run([MODEL_PROGRAM, *map(str, words)], env=environment, capture_output=True, encoding="utf-8", check=False, timeout=LONGEST)

    def made(self, name, prompt):
        done = self.generate(self.scratch / name, prompt)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return (self.scratch / name).read_bytes()

    def folder(self, name):
        (self.scratch / name).mkdir()
        (self.scratch / name / "cache").write_bytes(self.old)
        return self.scratch / name

    def logged(self, variable):
        log = self.scratch / "log"
        log.unlink(missing_ok=True)
        cache = self.folder("logged") / "cache"
        self.assertEqual(self.generate(cache, NEW, **{variable: str(log)}).returncode, 0)
        self.assertEqual(cache.read_bytes(), self.new)
        shutil.rmtree(cache.parent)
        return log.read_text(encoding="utf-8").strip("\n").split("\n")

    def kill(self, number, when):
        folder = self.folder(f"{when}{number}")
        killed = self.generate(folder / "cache", NEW, HALFBYTE_CRASH_AT=str(number), HALFBYTE_CRASH_WHEN=when)
        bytes_then = (folder / "cache").read_bytes()
        self.assertIn(bytes_then, (self.old, self.new), (when, number))
        done = self.generate(folder / "cache", NEW)
        self.assertEqual((done.returncode, done.stderr), (0, ""), (when, number))
        self.assertEqual((folder / "cache").read_bytes(), self.new, (when, number))
        return killed.returncode, bytes_then == self.new

    def test_killed_at_any_call_it_leaves_the_old_file_or_the_new_one(self):
        calls = self.logged("HALFBYTE_CRASH_COUNT")
        cases = [(number, when) for number, name in enumerate(calls, 1) for when in ("before", "torn" if "write" in name else "after")]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            ends = list(pool.map(lambda case: self.kill(*case), cases))
        self.assertEqual({status for status, _ in ends}, {-9})
        self.assertEqual({is_new for _, is_new in ends}, {False, True})
        self.assertGreater(len(calls), 8)

    def test_a_call_that_fails_leaves_the_old_file_and_nothing_else(self):
        calls = [line.split("\t") for line in self.logged("HALFBYTE_FAULT_COUNT")]
        tried = set()
        for number, (name, *paths) in enumerate(calls, 1):
            if name in FAILING and name not in tried and any(".partial" in path for path in paths):
                tried.add(name)
                folder = self.folder(f"{name}{number}")
                failed = self.generate(folder / "cache", NEW, HALFBYTE_FAULT_AT=str(number), HALFBYTE_FAULT=str(getattr(errno, FAILING[name])))
                self.assertEqual((failed.returncode, failed.stderr.count("\n")), (4 if FAILING[name] == "ENOSPC" else 1, 1), (name, failed.stderr))
                self.assertEqual({path.name: path.read_bytes() for path in folder.iterdir()}, {"cache": self.old}, name)
        self.assertGreaterEqual(len(tried), 4, calls)


if __name__ == "__main__":
    unittest.main()
