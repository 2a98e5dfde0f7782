"""--dtype and --verify of the verbs that run a model."""
import json
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, run

PROMPT = ["--prompt-tokens", "1,300,301"]


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class ModelOptions(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.result = self.scratch / "tiny-4bit"
        self.succeeds("quantize", TINY_LLAMA, self.result, "-q")

    def text_of(self, *words):
        done = self.json_of("generate", *words, *PROMPT, "--max-gen-len", "8", "--temperature", "0", "-q")
        return done["generations"][0]["tokens"]

    def test_original_computes_in_the_recorded_dtype(self):
        for checkpoint in [TINY_LLAMA, self.result]:
            self.assertEqual(self.text_of(checkpoint, "--dtype", "original"), self.text_of(checkpoint, "--dtype", "bfloat16"))

    def test_verify_accepts_what_was_written(self):
        self.assertEqual(self.text_of(self.result, "--verify"), self.text_of(self.result))

    def test_verify_refuses_a_changed_byte_before_anything_runs(self):
        path = self.result / "model.safetensors"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        book = TINY_LLAMA.parent / "heldout.txt"
        for words in [["generate", *PROMPT], ["perplexity", "--text", book], ["bench", "--runs", "1"]]:
            verb, *rest = words
            done = self.fails(3, ["not those that were written", "model."], verb, self.result, *rest, "--verify")
            self.assertEqual(done.stdout, "")

    def test_verify_refuses_a_changed_config(self):
        path = self.result / "config.json"
        config = json.loads(path.read_text())
        config["rms_norm_eps"] = 1e-3
        path.write_text(json.dumps(config))
        self.fails(3, ["config.json", "not those that were written"], "generate", self.result, *PROMPT, "--verify")

    def test_verify_says_when_there_is_nothing_to_compare(self):
        done = run("generate", TINY_LLAMA, *PROMPT, "--max-gen-len", "1", "--verify")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nothing to compare", done.stderr)
        self.assertIn("39 tensors", done.stderr)


if __name__ == "__main__":
    unittest.main()
