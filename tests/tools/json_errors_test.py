"""Under --json a failure is an object on stdout too, whatever failed and in every verb."""
import json
import os
import re
import signal
import struct
import subprocess
import unittest

from command_line import MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest, messages_of, run, wait_until

KEYS = ["code", "message", "exit_status", "options"]
NOWHERE = "no/such/model"
# A whole command for each verb, whose source is SRC.
COMMANDS = {
    "quantize": ["SRC", "result"],
    "inspect": ["SRC"],
    "verify": ["SRC"],
    "dequantize": ["SRC", "result"],
    "merge": ["SRC", "adapter", "result"],
    "diff": ["SRC", "SRC"],
    "export": ["SRC", "result", "--to", "gptq"],
    "generate": ["SRC", "--prompt", "a"],
    "chat": ["SRC"],
    "perplexity": ["SRC", "--text", __file__],
    "evaluate": ["SRC", "--text", __file__],
    "tokenize": ["SRC", "--text", "a"],
    "bench": ["SRC"],
    "serve": ["SRC", "--port", "0"],
    "finetune": ["SRC", "result", "--text", __file__],
}
OTHERS = {"doctor": [], "synth": ["result"]}
MODEL_VERBS = {"generate", "chat", "perplexity", "evaluate", "bench", "serve", "finetune"}


def words_of(verb, source):
    words = {**COMMANDS, **OTHERS}[verb]
    return [verb, *(source if word == "SRC" else word for word in words)]


class JsonErrors(CommandLineTest):
    def error_of(self, *words, **options):
        """The object of a command that fails, which says what the line on stderr says."""
        result = run(*words, "--json", cwd=self.scratch, stdin=subprocess.DEVNULL, **options)
        self.assertNotEqual(result.returncode, 0, words)
        self.assertEqual((result.stdout.count("\n"), result.stderr.count("\n")), (1, 1), f"{words}: {result.stdout}{result.stderr}")
        error = json.loads(result.stdout)["error"]
        self.assertEqual(list(error), KEYS, words)
        self.assertEqual(result.stderr, f"halfbyte: {error['message']}\n", words)
        self.assertEqual(error["exit_status"], result.returncode, words)
        return error

    def verbs(self):
        listed = re.findall(r"(?m)^  (\w+)  +\w", self.succeeds("--help"))
        self.assertLessEqual({*COMMANDS, *OTHERS}, set(listed))
        return [verb for verb in (*COMMANDS, *OTHERS) if MODEL_PROGRAM.exists() or verb not in MODEL_VERBS]

    def test_a_bad_source_in_every_verb(self):
        broken = self.scratch / "broken.safetensors"
        broken.write_bytes(struct.pack("<Q", 1 << 60) + b"x" * 64)
        for verb in self.verbs():
            if verb in COMMANDS:
                with self.subTest(verb):
                    error = self.error_of(*words_of(verb, NOWHERE))
                    self.assertEqual((error["code"], error["exit_status"]), ("not_found", 1))
                    self.assertIn(NOWHERE, error["message"])
                    if verb not in MODEL_VERBS:
                        self.assertIn(self.error_of(*words_of(verb, broken))["code"], ["corrupt", "unsupported", "not_found"])

    def test_a_bad_option_in_every_verb(self):
        for verb in self.verbs():
            with self.subTest(verb):
                words = words_of(verb, str(TINY_LLAMA))
                error = self.error_of(*words, "--frobnicate=1")
                self.assertEqual((error["code"], error["options"]), ("invalid_argument", ["--frobnicate"]))

    def test_a_bad_value_of_every_option_that_checks_its_value(self):
        for verb in set(self.verbs()) - MODEL_VERBS:
            help_text = self.succeeds(verb, "--help")
            for option in re.findall(r"(?m)^  (--(?:scheme|dtype|like|threads|to|seed|memory-limit))\b", help_text):
                with self.subTest(f"{verb} {option}"):
                    error = self.error_of(*words_of(verb, str(TINY_LLAMA)), option, "!")
                    self.assertEqual((error["code"], error["options"]), ("invalid_argument", [option]))

    def test_the_first_word(self):
        for words, option in [([], []), (["quantise"], []), (["--frobnicate"], ["--frobnicate"])]:
            error = self.error_of(*words)
            self.assertEqual((error["code"], error["exit_status"]), ("invalid_argument", 2), words)

    def test_options_that_help_are_named(self):
        self.succeeds("quantize", TINY_LLAMA, self.scratch / "result")
        error = self.error_of("quantize", TINY_LLAMA, "result", "--scheme", "nf4")
        self.assertEqual((error["code"], "--overwrite" in error["options"]), ("already_exists", True))
        error = self.error_of("inspect", TINY_LLAMA, "--keep-float32", "lm_head")
        self.assertEqual(error["options"], ["--keep-float32"])

    def test_a_result_that_is_no_success_stands_alone(self):
        self.succeeds("quantize", TINY_LLAMA, self.scratch / "result")
        file = self.scratch / "result/model.safetensors"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        result = run("verify", self.scratch / "result", "--json")
        self.assertEqual((result.returncode, json.loads(result.stdout)["good"]), (3, False))

    def test_without_json_stdout_stays_empty(self):
        for words in [["inspect", NOWHERE], ["inspect"], ["frobnicate"], ["tokenize", TINY_LLAMA, "--text", "a", "--", "--json"]]:
            result = run(*words)
            self.assertEqual((result.stdout, result.stderr.count("\n")), ("", 1), words)

    def test_ctrl_c(self):
        folder = self.scratch / "results"
        folder.mkdir()
        with subprocess.Popen([PROGRAM, "synth", "result", "--like", "llama-1.1b", "--json"], cwd=folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8") as process:
            wait_until(lambda: os.listdir(folder), process)
            process.send_signal(signal.SIGINT)
            printed = process.stdout.read()
            messages = messages_of(process)
        error = json.loads(printed)["error"]
        self.assertEqual((process.returncode, error["code"], error["exit_status"]), (130, "interrupted", 130))
        self.assertIn(error["message"], messages)

    def test_version(self):
        said = self.json_of("--version")
        self.assertEqual(said["runs_models"], MODEL_PROGRAM.exists())
        self.assertEqual(f"halfbyte {said['version']}\n", self.succeeds("--version"))


if __name__ == "__main__":
    unittest.main()
