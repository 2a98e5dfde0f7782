"""Processes that load one checkpoint share its pages, as /proc/PID/smaps counts them."""
import os
import pathlib
import re
import signal
import subprocess
import unittest

from command_line import MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest


def mapped(process, folder):
    """Kilobytes by name ("Rss", "Pss", "Private_Dirty" ...) over all mappings of the data files in `folder`."""
    found, is_ours = {}, False
    for line in pathlib.Path(f"/proc/{process.pid}/smaps").read_text(encoding="utf-8").splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_ours = str(folder) in line and line.endswith(".safetensors")
        elif is_ours and line.endswith(" kB"):
            name, size = line.split()[:2]
            found[name.rstrip(":")] = found.get(name.rstrip(":"), 0) + int(size)
    return found


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
@unittest.skipUnless(os.path.exists("/proc/self/smaps"), "this system does not say which pages are shared")
class SharedPages(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.checkpoint = self.scratch / "quantized"
        self.succeeds("quantize", TINY_LLAMA, self.checkpoint, "--scheme-for", "lm_head=sym_int8", "-q")

    def generating(self):
        """A process that is stopped between its first token and its last; None where it was faster than we are."""
        process = subprocess.Popen([PROGRAM, "generate", self.checkpoint, "--prompt", "Once", "--max-gen-len", "250", "--ignore-eos", "--threads", "1"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        process.stdout.read(1)
        process.send_signal(signal.SIGSTOP)
        return process if os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1]) else None

    def two(self):
        found = []
        for _ in range(50):
            process = self.generating()
            found += [process] if process else []
            if len(found) == 2:
                return found
        raise AssertionError("no process could be stopped while it generated")

    def test_the_weights_are_in_memory_once(self):
        first, second = (mapped(process, self.checkpoint) for process in self.two())
        stored = sum(path.stat().st_size for path in self.checkpoint.glob("*.safetensors")) // 1024
        for pages in (first, second):
            self.assertEqual((pages["Private_Dirty"], pages["Swap"]), (0, 0), pages)  # nothing was written to, so nothing copied
            self.assertGreater(pages["Rss"], stored // 2)
            # Each of the two is billed for half of every page that both have.
            self.assertLessEqual(pages["Pss"], pages["Rss"] * 0.55, pages)
            self.assertGreaterEqual(pages["Shared_Clean"], pages["Rss"] * 0.9, pages)


if __name__ == "__main__":
    unittest.main()
