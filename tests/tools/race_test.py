"""Two `halfbyte export --to gguf` at one name: one wins, the other says who holds it; a kill at any moment leaves no wrong file."""
import os
import signal
import subprocess
import unittest

from command_line import PROGRAM, TINY_LLAMA, CommandLineTest

PRELOAD = os.environ["HALFBYTE_CRASH_AT_LIBRARY"]
DATA_CALLS = {"write", "pwrite", "pwrite64"}
STEP = 23  # of the calls that write data, which are all alike, one in so many is tried


def export(destination, kind, *words, crash_at=0, when="stop", count_file=None):
    """A started export of tiny-llama on one thread, so that its calls have the same numbers every time."""
    environment = {**os.environ, "LD_PRELOAD": PRELOAD, "OMP_NUM_THREADS": "1"}
    if crash_at:
        environment |= {"HALFBYTE_CRASH_AT": str(crash_at), "HALFBYTE_CRASH_WHEN": when}
    if count_file:
        environment["HALFBYTE_CRASH_COUNT"] = str(count_file)
    words = ["export", TINY_LLAMA, destination, "--to", "gguf", "--type", kind, "-q", *words]
    return subprocess.Popen([PROGRAM, *map(str, words)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")


def end(process):
    """Its exit status and what it said."""
    _, said = process.communicate(timeout=60)
    return process.returncode, said


class Race(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.wanted = {}
        for kind in ("F16", "Q8_0"):
            self.assertEqual(end(export(self.scratch / kind, kind))[0], 0)
            self.wanted[kind] = (self.scratch / kind).read_bytes()
        log = self.scratch / "calls"
        self.assertEqual(end(export(self.scratch / "counted", "F16", count_file=log))[0], 0)
        self.calls = log.read_text(encoding="ascii").split()
        self.moments = [number for number, name in enumerate(self.calls, 1)
                        if name not in DATA_CALLS or number % STEP == 0]
        self.folder = self.scratch / "folder"
        self.folder.mkdir()
        self.result = self.folder / "m.gguf"

    def stopped(self, number, *words):
        """An export that has stopped before its call of that number."""
        process = export(self.result, "F16", *words, crash_at=number)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status), f"{number}: {status}")
        return process

    def check_result(self, kind):
        self.assertEqual(self.result.read_bytes(), self.wanted[kind])
        self.assertEqual(os.listdir(self.folder), [self.result.name])

    def check_is_whole_or_absent(self):
        if self.result.exists():
            self.assertIn(self.result.read_bytes(), self.wanted.values())

    def check_refusal(self, said, holder):
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertIn(str(self.result), said)
        is_held = f"another process (pid {holder}) is writing here" in said
        self.assertTrue(is_held or "exists already" in said or "writing here just now" in said, said)

    def test_one_wins_wherever_the_first_one_is(self):
        ends = {"first": 0, "second": 0}
        for number in self.moments:
            first = self.stopped(number)
            second = export(self.result, "Q8_0")
            second_status, second_said = end(second)
            self.check_is_whole_or_absent()
            first.send_signal(signal.SIGCONT)
            first_status, first_said = end(first)
            self.assertEqual(sorted((first_status, second_status)), [0, 1], (number, first_said, second_said))
            winner = "first" if first_status == 0 else "second"
            ends[winner] += 1
            self.check_refusal(second_said if winner == "first" else first_said, first.pid)
            self.check_result("F16" if winner == "first" else "Q8_0")
            self.result.unlink()
        print(f"stopped at {len(self.moments)} of {len(self.calls)} calls: {ends}", flush=True)
        self.assertTrue(all(ends.values()), ends)

    def test_with_overwrite_the_second_waits_for_nobody_and_destroys_nothing(self):
        for number in self.moments[::3]:
            self.result.write_bytes(b"old")
            first = self.stopped(number, "--overwrite")
            second_status, said = end(export(self.result, "Q8_0", "--overwrite"))
            first.send_signal(signal.SIGCONT)
            first_status, first_said = end(first)
            if second_status == 1:
                self.check_refusal(said, first.pid)
                self.assertEqual(first_status, 0, first_said)
            self.check_result("F16" if first_status == 0 else "Q8_0")

    def test_a_kill_at_any_call_leaves_no_wrong_file(self):
        for number in self.moments:
            for when in ("before", "after"):
                killed = export(self.result, "F16", crash_at=number, when=when)
                self.assertEqual(end(killed)[0], -signal.SIGKILL)
                self.check_is_whole_or_absent()
                self.assertEqual(end(export(self.result, "Q8_0", "--overwrite")), (0, ""), (number, when))
                self.check_result("Q8_0")
                self.result.unlink()

    def test_the_second_is_killed_while_the_first_works(self):
        first = self.stopped(len(self.calls) // 2)
        for number in self.moments[:6]:
            status, _ = end(export(self.result, "Q8_0", crash_at=number, when="before"))
            self.assertIn(status, (1, -signal.SIGKILL))
        first.send_signal(signal.SIGCONT)
        self.assertEqual(end(first), (0, ""))
        self.check_result("F16")

    def test_somebody_elses_partial_is_refused(self):
        theirs = self.folder / "m.gguf.partial"
        for make in (lambda: theirs.write_bytes(b"mine"), lambda: (theirs.mkdir(), (theirs / "notes.txt").write_bytes(b"mine"))):
            make()
            for words in ((), ("--overwrite",)):
                self.fails(1, ["m.gguf.partial", "in the way", "another name"],
                           "export", TINY_LLAMA, self.result, "--to", "gguf", *words)
            held = theirs if theirs.is_file() else theirs / "notes.txt"
            self.assertEqual(held.read_bytes(), b"mine")
            self.assertEqual(os.listdir(self.folder), [theirs.name])
            held.unlink()


if __name__ == "__main__":
    unittest.main()
