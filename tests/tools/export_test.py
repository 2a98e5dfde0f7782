"""Out to another program's format and back in: `halfbyte export`, and `halfbyte quantize` of what is quantised already."""
import json
import unittest

from command_line import TINY_LLAMA, CommandLineTest, run


class Export(CommandLineTest):
    def path(self, name):
        return str(self.scratch / name)

    def test_gguf_and_back_has_the_same_numbers(self):
        self.succeeds("quantize", TINY_LLAMA, self.path("q"), "--group-size", "32", "-q")
        done = self.json_of("export", self.path("q"), self.path("q.gguf"), "--to", "gguf", "-q")
        self.assertEqual((done["exact_tensors"], done["requantized_tensors"]), (28, 0))
        again = self.json_of("quantize", self.path("q.gguf"), self.path("again"), "-q")
        self.assertEqual((again["quantized_tensors"], again["rel_rmse"]), (28, None))
        compared = self.json_of("diff", self.path("q"), self.path("again"))
        self.assertEqual([t["name"] for t in compared["tensors"] if t.get("max_abs")], [])
        self.assertEqual(self.succeeds("tokenize", self.path("q.gguf"), "--text", "Once upon a time"),
                         self.succeeds("tokenize", TINY_LLAMA, "--text", "Once upon a time"))
        self.assertIn("GGUF", self.succeeds("inspect", self.path("q.gguf")))

    def test_safetensors_are_what_the_original_was(self):
        self.succeeds("quantize", TINY_LLAMA, self.path("q"), "-q")
        self.succeeds("export", self.path("q"), self.path("plain"), "--to", "safetensors", "-q")
        original = self.json_of("inspect", TINY_LLAMA)["original_dtypes"]
        self.assertEqual(self.json_of("inspect", self.path("plain"))["original_dtypes"], original)

    def test_quantised_sources_keep_their_codes_unless_a_scheme_is_said(self):
        self.succeeds("quantize", TINY_LLAMA, self.path("q"), "-q")
        self.succeeds("quantize", self.path("q"), self.path("kept"), "-q")
        for name in ("model.safetensors", "config.json"):
            self.assertEqual((self.scratch / "q" / name).read_bytes(), (self.scratch / "kept" / name).read_bytes())
        record = json.loads((self.scratch / "kept/halfbyte.json").read_text())["tensors"]["model.layers.0.mlp.up_proj.weight"]
        self.assertEqual(record["original_dtype"], "bfloat16")
        self.assertIn("error", record)
        done = run("quantize", self.path("q"), self.path("other"), "--scheme", "sym_int8")
        self.assertEqual(done.returncode, 0)
        self.assertIn("is quantised already", done.stderr)

    def test_what_cannot_be_said_is_refused_and_nothing_is_left(self):
        self.succeeds("quantize", TINY_LLAMA, self.path("q"), "--scheme", "nf4", "-q")
        self.fails(3, "--requantize", "export", self.path("q"), self.path("q.gguf"), "--to", "gguf")
        self.fails(2, "gguf", "export", self.path("q"), self.path("x"), "--to", "onnx")
        self.fails(2, "--type", "export", self.path("q"), self.path("x"), "--to", "safetensors", "--type", "F16")
        self.fails(2, "--scheme", "quantize", self.path("q"), self.path("x"), "--dry-run")
        self.assertEqual(sorted(entry.name for entry in self.scratch.iterdir()), ["q"])


if __name__ == "__main__":
    unittest.main()
