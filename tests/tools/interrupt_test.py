"""Ctrl-C while a model is loaded, reads a prompt, generates, or is measured: one line, status 130, and what was finished."""
import json
import os
import signal
import subprocess
import unittest

from command_line import MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest, copy_of_tiny_llama, messages_of, wait_until
from terminal import Terminal

BAR = r"prompt \[[#.]{30}\] +\d+% +[0-9.]+( [kM])? tok/s +[0-9:]+ left"
LONG = 30_000  # tokens, which take some seconds


def blocks_interrupts(process):
    """Whether it looks after Ctrl-C itself by now."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        blocked = next(line for line in file if line.startswith("SigBlk:"))
    return bool(int(blocked.split()[1], 16) & 1 << (signal.SIGINT - 1))


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Interrupts(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.roomy = copy_of_tiny_llama(self.scratch / "roomy")
        config = json.loads((self.roomy / "config.json").read_text())
        (self.roomy / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 2 * LONG}))

    def at_terminal(self, *words):
        terminal = Terminal(*words)
        self.addCleanup(terminal.kill)
        return terminal

    def started(self, *words):
        process = subprocess.Popen([PROGRAM, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_before_there_is_anything_to_finish_it_ends_at_once(self):
        process = self.started("generate", TINY_LLAMA, "--prompt", "-")  # which waits for its prompt
        wait_until(lambda: blocks_interrupts(process), process)
        process.send_signal(signal.SIGINT)
        self.assertEqual(messages_of(process), "halfbyte: stopped\n")
        self.assertEqual(process.returncode, 130)

    def test_a_prompt_shows_how_far_it_is_and_stops(self):
        prompt = ",".join(["300"] * LONG)
        terminal = self.at_terminal("generate", self.roomy, "--prompt-tokens", prompt, "--max-gen-len", 4)
        terminal.expect(BAR)
        terminal.send("\x03")
        terminal.expect(r"0 tokens\r\nhalfbyte: stopped\r\n")
        self.assertEqual(terminal.end(), 130)

    def test_decoding_stops_and_the_text_so_far_is_whole(self):
        process = self.started("generate", self.roomy, "--prompt", "The ship", "--ignore-eos", "--max-gen-len", LONG, "--json")
        wait_until(lambda: blocks_interrupts(process), process)
        process.send_signal(signal.SIGINT)  # while loading or later: both are ends
        out, messages = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, messages)
        self.assertTrue(messages.endswith("halfbyte: stopped\n"), messages)
        process = self.started("generate", self.roomy, "--prompt", "The ship", "--ignore-eos", "--max-gen-len", LONG)
        self.assertTrue(process.stdout.read(1))
        process.send_signal(signal.SIGINT)
        out, messages = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, messages)
        self.assertTrue(out.endswith("\n"))
        self.assertRegex(messages, r"^[0-9]+ tokens?, the first after .*\nhalfbyte: stopped\n$")

    def test_perplexity_keeps_the_windows_that_were_finished(self):
        text = self.scratch / "text"
        text.write_text("The ship was late, and it came to pass that nobody waited. " * 10_000)
        terminal = self.at_terminal("perplexity", self.roomy, "--text", text, "--ctx", 256)
        # One in a hundred is some windows.
        terminal.expect(r"perplexity \[[#.]{30}\] +[1-9]\d*% +[0-9.]+( [kM])? tok/s +[0-9:]+ left")
        terminal.send("\x03")
        found = terminal.expect(r"perplexity +[0-9.]+ over (\d+) tokens\r\n")
        self.assertEqual(int(found[1]) % 128, 0)
        terminal.expect("halfbyte: stopped; the result is of the windows finished\r\n")
        self.assertEqual(terminal.end(), 130)

    def test_a_table_of_policies_keeps_the_rows_that_were_finished(self):
        text = self.scratch / "text"
        text.write_text("The ship was late, and it came to pass that nobody waited. " * 300)
        process = self.started("perplexity", TINY_LLAMA, "--text", text, "--ctx", 64, "--policies", "float32,half,bfloat16,original", "--json", "-v")
        loads = 0
        while loads < 3:  # of the reference, of the first row, and of the second
            line = process.stderr.readline()
            self.assertTrue(line, "ended before it was stopped")
            loads += "device " in line
        process.send_signal(signal.SIGINT)
        out, messages = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, messages)
        self.assertTrue(messages.endswith("halfbyte: stopped\n"), messages)
        self.assertEqual([row["dtype"] for row in json.loads(out)["policies"]][:1], ["float32"])


if __name__ == "__main__":
    unittest.main()
