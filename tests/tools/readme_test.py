"""The commands of README.md, run in their order on tiny-llama under the names that they use."""
import pathlib
import re
import shlex
import subprocess
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, copy_of_tiny_llama, run

README = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
MODEL_VERBS = {"generate", "chat", "perplexity", "evaluate", "bench", "finetune"}
COMMAND = re.compile(r"(?m)(?:^|`)(?:build/release/bin/)?halfbyte ((?:quantize|inspect|verify|dequantize|merge|diff|export|doctor|generate|chat|"
                     r"perplexity|evaluate|tokenize|bench|finetune|synth) [^`\n#]+)")


def commands():
    return [shlex.split(found) for found in COMMAND.findall(README)]


class Readme(CommandLineTest):
    def test_every_command_works_after_those_before_it(self):
        self.assertGreater(len(commands()), 15)
        for name in ["llama-bf16", "llama-70b"]:
            copy_of_tiny_llama(self.scratch / name)
        book = (TINY_LLAMA.parent / "heldout.txt").read_text(encoding="utf-8")
        (self.scratch / "book.txt").write_text(book[:1500], encoding="utf-8")
        self.succeeds("export", TINY_LLAMA, self.scratch / "llama-q4_0.gguf", "--to", "gguf", "--type", "Q4_0", "--requantize", "-q")
        for verb, *words in commands():
            needs_model = verb in MODEL_VERBS or "--calibrate" in words or verb == "merge"  # of what finetune wrote
            if needs_model and not MODEL_PROGRAM.exists():
                continue
            words = ["bfloat16" if word == "all" else word for word in words]  # each policy's speed is measured for seconds
            words = [self.hash_of(words[0]) if word == "HASH" else word for word in words]
            with self.subTest(f"{verb} {' '.join(words)}"):
                result = run(verb, *words, cwd=self.scratch, stdin=subprocess.DEVNULL)
                if verb == "chat" and result.returncode != 0:  # tiny-llama was trained on no turns
                    self.assertIn("--chat-template", result.stderr)
                else:
                    self.assertEqual(result.returncode, 0, result.stderr)

    def hash_of(self, checkpoint):
        return self.json_of("verify", self.scratch / checkpoint)["hash"]


if __name__ == "__main__":
    unittest.main()
