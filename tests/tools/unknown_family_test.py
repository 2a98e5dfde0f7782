"""Models of families that halfbyte does not know: converted, inspected, verified, brought back, compared; not run, and told why."""
import json
import struct
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, bf16_rows, run, write_safetensors

BOOK = TINY_LLAMA.parent / "heldout.txt"
CODE = "raise SystemExit('code from a checkpoint was run')\n"

# name -> (config.json or None for none, how messages call the family, other files)
KINDS = {
    "model_type": ({"model_type": "made_up", "hidden_size": 64, "torch_dtype": "bfloat16"}, 'the family "made_up" is not known', {}),
    "class": ({"architectures": ["MadeUpForCausalLM"]}, 'the family "MadeUpForCausalLM" is not known', {}),
    "neither": ({"hidden_size": 64}, "neither a model_type nor architectures", {}),
    "odd": ({"model_type": 7, "architectures": "MadeUp"}, "neither a model_type nor architectures", {}),
    "none": (None, "there is no config.json", {}),
    "code": ({"model_type": "made_up", "auto_map": {"AutoModelForCausalLM": "modeling_made_up.MadeUp"}}, "code from a checkpoint is never run",
             {"modeling_made_up.py": CODE, "configuration_made_up.py": CODE}),
}


def tensors():
    floats = struct.pack("<64f", *range(64))
    return {"backbone.embed.weight": bf16_rows(128, 64), "backbone.blocks.0.mixer.weight": ("BF16", [64, 128], struct.pack("<128H", *range(0x3F00, 0x3F80)) * 64),
            "backbone.blocks.0.mixer.bias": ("F32", [64], floats), "backbone.blocks.0.norm.weight": ("F32", [64], floats),
            "backbone.blocks.0.conv.weight": ("F16", [4, 4, 4], bytes(128)), "backbone.blocks.0.positions": ("I64", [8], bytes(64)),
            "lm_head.weight": bf16_rows(128, 64)}


class UnknownFamily(CommandLineTest):
    def source(self, kind):
        config, _, files = KINDS[kind]
        path = self.scratch / kind
        path.mkdir()
        write_safetensors(path / "model.safetensors", tensors())
        if config is not None:
            (path / "config.json").write_text(json.dumps(config))
        for name, text in files.items():
            (path / name).write_text(text)
        return path

    def quantized(self, kind):
        source, result = self.source(kind), self.scratch / f"{kind}-4bit"
        done = run("quantize", source, result)
        self.assertEqual(done.returncode, 0, done.stderr)
        return source, result, done.stderr

    def test_it_is_converted_and_says_so(self):
        for kind, (config, _, files) in KINDS.items():
            source, result, said = self.quantized(kind)
            self.assertIn("family", said, kind)
            self.assertIn("not known", said, kind)
            inspected = self.json_of("inspect", result, "--tensors")
            self.assertIsNone(inspected["family"])
            stored = {tensor["name"]: tensor["stored"] for tensor in inspected["tensors"]}
            self.assertEqual(set(stored), set(tensors()))
            self.assertEqual({name for name, scheme in stored.items() if scheme == "sym_int4"}, {"backbone.blocks.0.mixer.weight"}, kind)
            for name in files:
                self.assertIn(name, said)
                self.assertFalse((result / name).exists())
            self.assertEqual((result / "config.json").exists(), config is not None)

    def test_it_is_inspected_verified_and_compared(self):
        for kind in KINDS:
            source, result, _ = self.quantized(kind)
            self.assertIn("family      not known: ", self.succeeds("inspect", result))
            self.assertNotIn('"no model_type', self.succeeds("inspect", result))
            self.assertTrue(self.json_of("verify", result, "--against", source)["good"])
            counts = self.json_of("diff", source, result)["counts"]
            self.assertEqual((counts["tensors"], counts["stored_otherwise"], counts["only_in_a"]), (7, 1, 0), kind)

    def test_it_comes_back_in_the_dtypes_it_had(self):
        for kind in KINDS:
            source, result, _ = self.quantized(kind)
            again = self.scratch / f"{kind}-again"
            done = run("dequantize", result, again)
            self.assertEqual(done.returncode, 0, done.stderr)
            counts = self.json_of("diff", source, again)["counts"]
            self.assertEqual((counts["other_original_dtype"], counts["stored_otherwise"], counts["other_shape"]), (0, 0, 0), kind)

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
    def test_it_is_not_run_and_the_line_says_why_and_what_else_can_be_done(self):
        for kind, (_, words, _) in KINDS.items():
            source, result, _ = self.quantized(kind)
            verbs = [["generate", "--prompt-tokens", "1,2"], ["perplexity", "--text", BOOK], ["bench"]] if kind == "model_type" else [["generate", "--prompt-tokens", "1"]]
            for verb, *rest in verbs:
                for checkpoint in [source, result]:
                    done = self.fails(3, [words, "can be run: llama", "load_state"], verb, checkpoint, *rest)
                    self.assertEqual(done.stdout, "")

    def test_a_known_family_with_tensors_of_another_is_told_that_nothing_was_quantised(self):
        path = self.source("model_type")
        (path / "config.json").write_text((TINY_LLAMA / "config.json").read_text())
        done = run("quantize", path, self.scratch / "result")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no tensor is quantised", done.stderr)

    def test_a_hostile_name_stays_on_its_line(self):
        path = self.source("model_type")
        (path / "config.json").write_text(json.dumps({"model_type": "a\nb\u001b[31m" + "x" * 5000}))
        done = run("quantize", path, self.scratch / "result")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\x1b", done.stderr)
        self.assertTrue(all(line.startswith("halfbyte: ") or " -> " in line for line in done.stderr.splitlines()), done.stderr)
        self.assertLess(len(done.stderr), 2000)


if __name__ == "__main__":
    unittest.main()
