"""halfbyte generate without LibTorch: where it can, what it gives, and how it leaves to modules what is theirs."""
import json
import os
import pathlib
import shutil
import unittest

from command_line import MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest, run

FAMILIES = TINY_LLAMA.parent / "families"
GREEDY = ["--temperature", "0", "--max-gen-len", "8", "--ignore-eos"]
IDS = ["--prompt-tokens", "3,5,7,11,13"]


class Alone(CommandLineTest):
    """The program as it is where nothing of LibTorch was built."""

    def setUp(self):
        super().setUp()
        self.program = self.scratch / "bin/halfbyte"
        self.program.parent.mkdir()
        shutil.copy(PROGRAM, self.program)

    def alone(self, *words, **options):
        return run(*words, **{"executable": self.program, **options})

    def test_it_needs_nothing_beside_it(self):
        words = ["generate", TINY_LLAMA, "--prompt", "The ship", *GREEDY]
        done = self.alone(*words)
        self.assertEqual((done.returncode, done.stdout.count("\n")), (0, 1), done.stderr)
        self.assertEqual(run(*words).stdout, done.stdout)
        asked = self.alone("generate", TINY_LLAMA, "--prompt", "-", "--json", *GREEDY, input="The ship\n")
        self.assertEqual(json.loads(asked.stdout)["generations"][0]["text"] + "\n", done.stdout)

    def test_what_is_for_modules_is_refused_by_name(self):
        for words in ([FAMILIES / "gemma2", *IDS], [TINY_LLAMA, *IDS, "--dtype", "half"], [TINY_LLAMA, *IDS, "--adapter", "a"]):
            done = self.alone("generate", *words)
            self.assertEqual((done.returncode, done.stdout), (1, ""), words)
            self.assertIn("built without LibTorch", done.stderr)
            self.assertIn("kernels alone do not run this: ", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_mistakes_are_told_before_anything_is_read(self):
        for words, part in ((["--promt", "x"], "--prompt"), (["--prompt", "x", "--top-p", "2"], "--top-p"), ([], "--prompt TEXT")):
            done = self.alone("generate", TINY_LLAMA, *words, input="")
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(part, done.stderr)
        self.assertEqual(self.alone("generate", self.scratch / "none", "--prompt", "x").returncode, 1)


    def test_it_names_a_damaged_weight_however_the_prompt_comes(self):
        copy = pathlib.Path(shutil.copytree(TINY_LLAMA, self.scratch / "model"))
        path = copy / "model.safetensors"
        data = bytearray(path.read_bytes())
        size = int.from_bytes(data[:8], "little")
        begin = json.loads(data[8:8 + size])["model.norm.weight"]["data_offsets"][0]
        os.chmod(path, 0o644)
        data[8 + size + begin:8 + size + begin + 2] = b"\xc0\x7f"  # a NaN
        path.write_bytes(data)
        for words, options in ((IDS, {}), ([*IDS, "--json"], {}), (["--prompt", "-"], {"input": "The ship"})):
            for program in {PROGRAM, self.program}:
                done = run("generate", copy, *words, *GREEDY, "-q", executable=program, **options)
                self.assertEqual(done.returncode, 3, words)
                self.assertIn("model.norm.weight holds 1 of", done.stderr)

    def test_its_help_knows_the_verb(self):
        self.assertIn("generate", self.alone("completion", "bash").stdout)
        self.assertIn("--prompt-tokens", self.alone("man").stdout.replace("\\-", "-"))


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Both(CommandLineTest):
    def by_modules(self, *words, **options):
        return run(*words, **{"executable": MODEL_PROGRAM, **options})

    def test_both_programs_give_the_same(self):
        for words in ([TINY_LLAMA, *IDS], [TINY_LLAMA, *IDS, "--kv", "int8"], [FAMILIES / "mixtral", *IDS], [FAMILIES / "qwen3", *IDS]):
            words = ["generate", *words, *GREEDY, "--json", "--logprobs", "-q"]
            found, wanted = run(*words), self.by_modules(*words)
            self.assertEqual((found.returncode, found.stdout, found.stderr), (0, wanted.stdout, wanted.stderr), words)

    def test_verbose_says_which_ran_and_why(self):
        self.assertIn("kernels alone", run("generate", TINY_LLAMA, *IDS, *GREEDY, "-v").stderr)
        done = run("generate", FAMILIES / "gemma2", *IDS, *GREEDY, "-v")
        self.assertIn("by LibTorch's modules: its logits are capped", done.stderr)
        self.assertEqual(done.returncode, 0)

    def test_what_is_read_once_reaches_the_modules(self):
        words = ["generate", TINY_LLAMA, "--prompt", "-", "--dtype", "half", *GREEDY, "-q"]
        found = run(*words, input="The ship")
        self.assertEqual((found.returncode, found.stdout), (0, self.by_modules(*words, input="The ship").stdout))


if __name__ == "__main__":
    unittest.main()
