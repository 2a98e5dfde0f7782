"""`halfbyte launch`: one command by several processes, and what becomes of them when one fails."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import unittest

from command_line import LONGEST, MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest, messages_of, run, wait_until

GENERATE = ["generate", "-q", TINY_LLAMA, "--prompt", "Once upon a time", "--max-gen-len", 24, "--temperature", 0, "--dtype", "float32"]


def children(process):
    """Ranks that have become the command, in their order."""
    try:
        all_of_them = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        return [int(one) for one in all_of_them if b"launch" not in pathlib.Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_there(process):
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # one that nobody has asked about yet


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Launch(CommandLineTest):
    def test_same_text_as_one_process(self):
        alone = json.loads(self.succeeds(*GENERATE, "--json"))
        for ranks in (2, 4):
            together = json.loads(self.succeeds("launch", "-n", ranks, "--", *GENERATE, "--json"))
            self.assertEqual(together["generations"], alone["generations"])

    def test_perplexity(self):
        text = self.scratch / "text"
        text.write_text("Once upon a time there was a model that many computers ran together. " * 40, encoding="utf-8")
        words = ["perplexity", TINY_LLAMA, "--text", text, "--ctx", 128, "--dtype", "float32", "--json"]
        alone, together = json.loads(self.succeeds(*words)), json.loads(self.succeeds("launch", "--", *words))
        self.assertAlmostEqual(together["perplexity"], alone["perplexity"], delta=1e-4 * alone["perplexity"])

    def test_threads_are_divided(self):
        environment = {**os.environ, "OMP_NUM_THREADS": "4"}
        words = [PROGRAM, "launch", "-n", "2", "--", "bench", str(TINY_LLAMA), "--prompt-tokens", "8", "--gen-tokens", "2", "--json"]
        done = subprocess.run(words, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=LONGEST)
        self.assertEqual(json.loads(done.stdout)["threads"], 2, done.stderr)

    def test_policies_are_refused(self):
        text = self.scratch / "text"
        text.write_text("Once upon a time. " * 40, encoding="utf-8")
        self.assertIn("--policies is not for ranks", self.fails(2, "--", "perplexity", TINY_LLAMA, "--text", text, "--policies", "float32"))

    def test_parts_by_a_launchers_variables(self):
        self.succeeds("quantize", TINY_LLAMA, self.scratch / "wanted", "-q")
        words = [PROGRAM, "quantize", str(TINY_LLAMA), str(self.scratch / "result"), "-q"]
        runs = [subprocess.Popen(words, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3"}) for rank in range(3)]
        self.assertEqual([run.wait(LONGEST) for run in runs], [0, 0, 0])
        names = sorted(os.listdir(self.scratch / "wanted"))
        self.assertEqual(sorted(os.listdir(self.scratch)), ["result", "wanted"])
        self.assertEqual(sorted(os.listdir(self.scratch / "result")), names)
        for name in names:
            self.assertEqual((self.scratch / "result" / name).read_bytes(), (self.scratch / "wanted" / name).read_bytes(), name)

    def fails(self, status, *words):
        result = run("launch", *words)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        return result.stderr

    def test_errors_are_one_line(self):
        self.assertIn("'chat' is not run by several processes", self.fails(2, "--", "chat", TINY_LLAMA))
        self.assertIn("'quantize' is not run by several processes", self.fails(2, "--", "quantize", TINY_LLAMA, self.scratch / "x"))
        self.assertIn("--ranks: '1' is not a whole number from 2", self.fails(2, "-n", 1, "--", "generate", TINY_LLAMA))
        self.assertIn("no common input", self.fails(2, "--", "generate", TINY_LLAMA, "--prompt", "-"))
        self.assertIn("there is no such file", self.fails(1, "--", "generate", self.scratch / "nowhere", "--prompt", "x"))
        self.assertIn("speculation is not for a model that several ranks run", self.fails(3, "--", *GENERATE, "--speculate", "lookup"))

    def start_with_one_stopped(self, *options):
        """Both wait for their prompt, and the second one will not come on."""
        os.mkfifo(self.scratch / "prompt")
        words = ["launch", *options, "--", "generate", TINY_LLAMA, "-q", "--prompt-file", self.scratch / "prompt"]
        process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        ranks = []
        while len(ranks) < 2:
            wait_until(lambda: len(children(process)) == 2, process)
            ranks = children(process)
            self.assertIsNone(process.poll())
        os.kill(ranks[1], signal.SIGSTOP)
        return process, ranks

    def ended(self, process, ranks):
        """Its exit status and messages; no rank is left."""
        messages = messages_of(process)
        for rank in ranks:
            self.assertFalse(is_there(rank), messages)
        return process.returncode, messages

    def test_a_rank_that_is_killed(self):
        process, ranks = self.start_with_one_stopped()
        os.kill(ranks[1], signal.SIGKILL)
        status, messages = self.ended(process, ranks)
        self.assertEqual((status, messages), (137, "halfbyte: rank 1 was ended by signal 9\n"))

    def test_a_rank_that_gives_no_sign(self):
        process, ranks = self.start_with_one_stopped("--timeout", 1)
        (self.scratch / "prompt").write_text("Once upon a time", encoding="utf-8")
        status, messages = self.ended(process, ranks)
        self.assertEqual(status, 1, messages)
        self.assertRegex(messages, r"rank 1 of 2 .*has not (joined|come on) for 1 s\n$")

    def test_a_launcher_that_is_killed_takes_its_ranks_with_it(self):
        process, ranks = self.start_with_one_stopped()
        process.kill()
        process.wait(LONGEST)
        with subprocess.Popen(["sleep", str(LONGEST)]) as limit:
            wait_until(lambda: not any(map(is_there, ranks)), limit)
            self.assertIsNone(limit.poll(), "a rank outlived the launcher")
            limit.kill()

    def test_a_signal_reaches_all(self):
        process, ranks = self.start_with_one_stopped()
        process.terminate()
        status, messages = self.ended(process, ranks)
        self.assertIn(status, (130, 137, 143), messages)  # 137: it could not end by itself

    @unittest.skipUnless(shutil.which("torchrun"), "torchrun is not installed")
    def test_torchrun_shares_a_conversion_out(self):
        self.succeeds("quantize", TINY_LLAMA, self.scratch / "wanted", "-q")
        command = ["torchrun", "--no-python", "--standalone", "--nproc-per-node", "2", PROGRAM, "quantize", str(TINY_LLAMA), str(self.scratch / "result"), "-q"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=LONGEST)
        self.assertEqual(done.returncode, 0, done.stderr)
        for path in (self.scratch / "wanted").iterdir():
            self.assertEqual((self.scratch / "result" / path.name).read_bytes(), path.read_bytes(), path.name)


if __name__ == "__main__":
    unittest.main()
