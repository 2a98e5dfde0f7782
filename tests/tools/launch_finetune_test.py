"""`halfbyte launch -- finetune`: ranks that divide what a step learns, and what they go on from."""
import fcntl
import json
import os
import signal
import subprocess
import unittest

from command_line import MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest, messages_of
from launch_test import children, is_there

STEPS = 80  # of which a pipe of 4096 bytes, and who reads from it once, have room for the lines of some 55


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Finetune(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.model = self.scratch / "tiny4"
        self.succeeds("quantize", TINY_LLAMA, self.model, "--scheme", "sym_int4", "-q")

    def words(self, out, *more, steps=4):
        text = ["--text", TINY_LLAMA.parent / "heldout.txt", "--ctx", 32, "--batch", 3, "--rank", 2, "--lr", 0.01, "--dtype", "float32"]
        return ["finetune", self.model, self.scratch / out, *text, "--steps", steps, "--threads", 1, "-q", *more]

    def contents(self, out):
        return {path.name: path.read_bytes() for path in (self.scratch / out).iterdir()}

    def started(self, *words):
        process = subprocess.Popen([PROGRAM, "launch", "--", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_same_losses_as_one_process(self):
        log, evaluated = self.scratch / "log", ["--eval", TINY_LLAMA.parent / "heldout.txt", "--json"]
        alone = json.loads(self.succeeds(*self.words("alone", *evaluated)))
        for ranks in (2, 4):
            together = json.loads(self.succeeds("launch", "-n", ranks, "--", *self.words(f"together{ranks}", *evaluated, "--log", log, "--report", self.scratch / f"report{ranks}")))
            for found, wanted in zip(together["losses"], alone["losses"], strict=True):
                self.assertAlmostEqual(found, wanted, delta=1e-5 * wanted)
            self.assertAlmostEqual(together["evaluations"][0]["loss"], alone["evaluations"][0]["loss"], delta=1e-4)
            self.assertEqual([json.loads(line)["loss"] for line in log.read_text(encoding="utf-8").splitlines()], together["losses"])
            self.assertEqual(sorted(self.contents(f"together{ranks}")), sorted(self.contents("alone")))
            log.unlink()
        self.succeeds("generate", self.model, "--adapter", self.scratch / "together2", "--prompt", "Once", "--max-gen-len", 2, "-q")

    def stopped_in_a_step(self, *more, end):
        """`end`(launcher, its ranks), while most steps' lines have no room in the log that is not read on."""
        log = self.scratch / "log"
        os.mkfifo(log)
        process = self.started(*self.words("out", "--log", log, *more, steps=STEPS))
        with log.open(encoding="utf-8") as lines:
            fcntl.fcntl(lines, fcntl.F_SETPIPE_SZ, 4096)
            for _ in range(4):
                next(lines)
            ranks = children(process)
            end(process, ranks)
            lines.read()
        messages = messages_of(process)
        for rank in ranks:
            self.assertFalse(is_there(rank), messages)
        log.unlink()
        self.assertFalse((self.scratch / "out").exists())
        return process.returncode, messages

    def check_resumes(self, least):
        self.succeeds("launch", "--", *self.words("wanted", steps=STEPS))
        self.fails(2, "another number of ranks (2, now 1)", *self.words("out", "--resume", steps=STEPS))
        done = json.loads(self.succeeds("launch", "--", *self.words("out", "--resume", "--json", steps=STEPS)))
        self.assertGreaterEqual(done["resumed_steps"], least)
        self.assertEqual(self.contents("out"), self.contents("wanted"))
        self.assertFalse((self.scratch / "out.partial").exists())

    def test_a_rank_that_is_killed_ends_all_and_they_go_on_from_what_was_saved(self):
        for killed, said in ((1, "halfbyte: rank 1 was ended by signal 9\n"), (0, "halfbyte: rank 0 was ended by signal 9\n")):
            status, messages = self.stopped_in_a_step("--save-every", 2, "--overwrite", "--restart", end=lambda _, ranks, killed=killed: os.kill(ranks[killed], signal.SIGKILL))
            self.assertEqual((status, messages), (137, said))
        self.check_resumes(2)

    def test_a_signal_saves_the_steps_that_were_done(self):
        # One rank's, the launcher's, and what ends whole groups of processes, in both orders.
        for end in (lambda _, ranks: os.kill(ranks[1], signal.SIGTERM), lambda process, _: process.send_signal(signal.SIGTERM),
                    lambda process, ranks: [os.kill(one, signal.SIGTERM) for one in (process.pid, *ranks)],
                    lambda process, ranks: [os.kill(one, signal.SIGTERM) for one in (*ranks, process.pid)]):
            status, messages = self.stopped_in_a_step("--save-every", 0, "--overwrite", "--restart", end=end)
            self.assertEqual(status, 130, messages)
            self.assertRegex(messages, r"^halfbyte: stopped; after step \d+; the same command with --resume goes on\n$")
        self.check_resumes(4)

    def test_ctrl_c_of_a_terminal_reaches_each_rank_by_itself(self):
        status, messages = self.stopped_in_a_step("--save-every", 0, end=lambda process, ranks: [os.kill(one, signal.SIGINT) for one in (*ranks, process.pid)])
        self.assertEqual(status, 130, messages)
        self.check_resumes(4)

    def test_what_is_refused_is_one_line(self):
        (self.scratch / "there").mkdir()
        for status, said, *words in ((2, "--parallel says how ranks divide a model", "launch", "--parallel", "tensor=2", "--", *self.words("out")),
                                     (1, "there is no such file", "launch", "--", "finetune", self.scratch / "nowhere", self.scratch / "out", "--text", TINY_LLAMA.parent / "heldout.txt"),
                                     (1, "exists already", "launch", "--", *self.words("there"))):
            self.fails(status, said, *words)


if __name__ == "__main__":
    unittest.main()
