"""Out to another program's format and back in: `halfbyte export`, and `halfbyte quantize` of what is quantised already."""
import json
import unittest

from command_line import TINY_LLAMA, CommandLineTest, run


def files_of(folder):
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


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

    def test_each_format_has_the_same_numbers_and_comes_back_to_the_same_files(self):
        for scheme, formats in {"sym_int4": ["compressed-tensors", "gptq", "awq"], "asym_int4": ["compressed-tensors", "gptq", "awq"],
                                "sym_int8": ["compressed-tensors", "gptq"], "nf4": ["bitsandbytes"], "fp4": ["bitsandbytes"]}.items():
            self.succeeds("quantize", TINY_LLAMA, self.path(scheme), "--scheme", scheme, "-q")
            for target in formats:
                with self.subTest(scheme=scheme, target=target):
                    name = f"{scheme}-{target}"
                    done = run("export", self.path(scheme), self.path(name), "--to", target, "--json")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    counts = json.loads(done.stdout)
                    self.assertEqual([counts[key] for key in ("exact_tensors", "rounded_tensors", "requantized_tensors", "dequantized_tensors")],
                                     [28, 0, 0, 0])
                    compared = self.json_of("diff", self.path(scheme), self.path(name), "--tensors")
                    self.assertEqual([t["name"] for t in compared["tensors"] if t.get("max_abs")], [])
                    self.assertEqual(len(compared["tensors"]), 39)
                    self.succeeds("quantize", self.path(name), self.path(name + "-in"), "-q")
                    self.succeeds("export", self.path(name + "-in"), self.path(name + "-again"), "--to", target, "-q")
                    self.assertEqual(files_of(self.scratch / name), files_of(self.scratch / (name + "-again")))
                    self.assertNotIn("halfbyte.json", files_of(self.scratch / name))

    def test_readers_are_told_of_what_is_packed_and_what_is_not(self):
        self.succeeds("quantize", TINY_LLAMA, self.path("q"), "--keep", "model.layers.1.mlp", "-q")
        kept = [f"model.layers.1.mlp.{part}_proj" for part in ("down", "gate", "up")]
        for target in ("compressed-tensors", "gptq", "awq"):
            self.succeeds("export", self.path("q"), self.path(target), "--to", target, "-q")
            config = json.loads((self.scratch / target / "config.json").read_text())["quantization_config"]
            self.assertEqual(config["quant_method"], target)
            if target == "gptq":
                self.assertEqual(sorted(config["dynamic"]), ["-:^" + name.replace(".", "\\.") + "$" for name in kept])
                self.assertEqual(len(config["modules_in_block_to_quantize"][0]), 25)
                self.assertEqual(config, json.loads((self.scratch / target / "quantize_config.json").read_text()))
            else:
                self.assertEqual(config["ignore" if target == "compressed-tensors" else "modules_to_not_convert"], ["lm_head", *kept])

    def test_offsets_become_zero_points_where_every_reader_has_them(self):
        self.succeeds("quantize", TINY_LLAMA, self.path("q"), "--scheme", "affine_int4", "--group-size", "32", "--halfbyte-only", "-q")
        for target, scheme in (("compressed-tensors", "asym_int4"), ("awq", "asym_int4"), ("gptq", "sym_int4")):
            done = run("export", self.path("q"), self.path(target), "--to", target, "--requantize")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"28 tensors of affine_int4 quantised again, as {scheme}", done.stderr)
            self.succeeds("quantize", self.path(target), self.path("in"), "--overwrite", "-q")
            self.succeeds("export", self.path("in"), self.path("again"), "--to", target, "--overwrite", "-q")
            self.assertEqual(files_of(self.scratch / target), files_of(self.scratch / "again"))

    def test_other_schemes_are_quantised_again_on_demand_and_it_is_said(self):
        self.succeeds("quantize", TINY_LLAMA, self.path("q"), "--scheme", "nf4", "-q")
        self.fails(3, ["--requantize", "--to bitsandbytes keeps its numbers"], "export", self.path("q"), self.path("x"), "--to", "gptq")
        done = run("export", self.path("q"), self.path("x"), "--to", "gptq", "--requantize")
        self.assertEqual(done.returncode, 0)
        self.assertIn("28 tensors of nf4 quantised again, as sym_int4", done.stderr)
        self.assertIn("relative RMSE", done.stderr)
        self.assertIn("28 quantised again", done.stdout)

    def test_what_cannot_be_said_is_refused_and_nothing_is_left(self):
        self.succeeds("quantize", TINY_LLAMA, self.path("q"), "--scheme", "nf4", "-q")
        self.fails(3, "--requantize", "export", self.path("q"), self.path("q.gguf"), "--to", "gguf")
        self.fails(2, "gguf", "export", self.path("q"), self.path("x"), "--to", "onnx")
        self.fails(2, "--type", "export", self.path("q"), self.path("x"), "--to", "safetensors", "--type", "F16")
        self.fails(2, "--type", "export", self.path("q"), self.path("x"), "--to", "bitsandbytes", "--type", "F16")
        self.fails(3, ["nothing in it is quantised", "halfbyte quantize"], "export", TINY_LLAMA, self.path("x"), "--to", "awq")
        self.fails(2, "within", "export", self.path("q"), self.path("q/x"), "--to", "bitsandbytes")
        self.fails(2, "--scheme", "quantize", self.path("q"), self.path("x"), "--dry-run")
        self.assertEqual(sorted(entry.name for entry in self.scratch.iterdir()), ["q"])


if __name__ == "__main__":
    unittest.main()
