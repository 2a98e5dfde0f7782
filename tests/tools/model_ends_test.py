"""What runs a model and is ended by the system, for want of memory or of the file it reads: one line and a status."""
import json
import os
import resource
import subprocess
import unittest

from command_line import MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest, copy_of_tiny_llama, messages_of, run

LONG = 30_000  # tokens, which take some seconds
LIMITS = [200, *range(400, 480, 16), 600, 6144]  # MiB of address space, of which LibTorch alone takes about 400
COMMANDS = {"generate": ["--prompt", "The ship"], "perplexity": ["--text", TINY_LLAMA / "tokenizer_config.json", "--ctx", "32"], "chat": ["--chat-template", "zephyr"]}


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class ModelEnds(CommandLineTest):
    def test_too_little_memory_is_said(self):
        ends = set()
        for verb, words in COMMANDS.items():
            for limit in LIMITS:
                done = run(verb, TINY_LLAMA, *words, "-q", preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_AS, (limit << 20,) * 2))
                ends.add(done.returncode)
                if done.returncode == 0:
                    continue
                self.assertEqual((done.returncode, done.stderr.count("\n")), (4, 1), (verb, limit, done.stderr))
                self.assertTrue(done.stderr.startswith("halfbyte: "), done.stderr)
                self.assertRegex(done.stderr, "memory|threads?", (verb, limit))
        self.assertEqual(ends, {0, 4})

    def test_a_file_cut_while_it_is_read_is_named(self):
        model = copy_of_tiny_llama(self.scratch / "roomy")
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 2 * LONG}))
        with subprocess.Popen([PROGRAM, "generate", model, "--prompt", "The ship", "--ignore-eos", "--max-gen-len", str(LONG)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
            self.assertTrue(process.stdout.read(1))
            os.truncate(model / "model.safetensors", 4096)
            messages = messages_of(process)
        self.assertEqual((process.returncode, messages.count("\n")), (3, 1), messages)
        self.assertIn(str(model / "model.safetensors"), messages)


if __name__ == "__main__":
    unittest.main()
