"""What people met in ipex-llm when they saved a model and loaded it again, done with halfbyte. docs/migrating-from-ipex-llm.md names these."""
import json
import os
import pathlib
import shutil
import struct
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, copy_of_tiny_llama, run

SHARED = pathlib.Path(os.environ.get("HALFBYTE_SHARED_DIR", pathlib.Path(__file__).resolve().parents[2].parent / "shared"))
GENERATE = ["--prompt-tokens", "1,300,301", "--max-gen-len", "8", "--temperature", "0", "-q"]


class Migration(CommandLineTest):
    def text_of(self, checkpoint, *words):
        return self.json_of("generate", checkpoint, *GENERATE, *words)["generations"][0]["tokens"]

    def quantized(self, source=TINY_LLAMA, *words):
        result = self.scratch / "tiny-4bit"
        self.succeeds("quantize", source, result, "-q", *words)
        return result

    def test_side_files_are_copied_byte_for_byte(self):
        source = copy_of_tiny_llama(self.scratch / "source")
        files = {"tokenizer.json": b'{"a": "\xc3\xa9"}\r\n', "preprocessor_config.json": b"{ }", "chat_template.jinja": b"{{ x }}\n\n",
                 "generation_config.json": b'{"eos_token_id": 2}', "special_tokens_map.json": b"{}", "vocab.txt": bytes(range(256)), "LICENSE": b"words"}
        for name, data in files.items():
            (source / name).write_bytes(data)
        result = self.quantized(source)
        for name in [*files, "tokenizer.model", "tokenizer_config.json"]:
            self.assertEqual((result / name).read_bytes(), (source / name).read_bytes(), name)

    def test_what_save_low_bit_wrote_is_read(self):
        saved = SHARED / "fixtures/peers/ipexllm-sym_int4"
        if not saved.exists():
            self.skipTest(f"{saved} is not here")
        report = self.json_of("inspect", saved)
        self.assertEqual(report["format"], "ipex-llm")
        self.succeeds("verify", saved, "-q")
        for words, dtype in [([], "F32"), (["--assume-original", "bfloat16"], "BF16")]:
            plain = self.scratch / dtype
            self.succeeds("dequantize", saved, plain, "-q", *words)
            header = (plain / "model.safetensors").read_bytes()
            header = json.loads(header[8 : 8 + struct.unpack("<Q", header[:8])[0]])
            self.assertEqual({tensor["dtype"] for name, tensor in header.items() if name != "__metadata__"}, {dtype})
            config = json.loads((plain / "config.json").read_text())
            self.assertNotIn("bigdl_transformers_low_bit", config)
            self.assertEqual(config["torch_dtype"], {"F32": "float32", "BF16": "bfloat16"}[dtype])
            self.assertFalse((plain / "load_keys.json").exists())

    def test_what_save_low_bit_wrote_of_other_types_is_refused_with_the_way_out(self):
        path = copy_of_tiny_llama(self.scratch / "other")
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, "bigdl_transformers_low_bit": "q4_k_m"}))
        for words in [["quantize", path, self.scratch / "result"], ["inspect", path], ["verify", path]]:
            self.fails(3, ["ipex-llm", "q4_k_m", "original checkpoint"], *words)

    def test_other_pickles_are_refused_as_pickles(self):
        path = self.scratch / "pickle"
        path.mkdir()
        (path / "config.json").write_text('{"model_type": "llama"}')
        (path / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
        self.fails(3, ["pytorch_model.bin", "PyTorch pickle", "safetensors"], "inspect", path)

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
    def test_a_moved_directory_needs_nothing_else(self):
        source = copy_of_tiny_llama(self.scratch / "source")
        result = self.quantized(source)
        before = self.text_of(result)
        text = self.json_of("generate", result, "--prompt", "Once", *GENERATE[2:])["generations"][0]["text"]
        shutil.rmtree(source)
        elsewhere = self.scratch / "some where" / "else"
        elsewhere.parent.mkdir()
        result.rename(elsewhere)
        self.assertEqual(self.text_of(elsewhere), before)
        self.assertEqual(self.json_of("generate", elsewhere, "--prompt", "Once", *GENERATE[2:])["generations"][0]["text"], text)
        self.assertTrue(self.json_of("verify", elsewhere)["good"])
        self.assertNotIn(str(source), (elsewhere / "halfbyte.json").read_text() + (elsewhere / "config.json").read_text())

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
    def test_an_original_and_its_copy_take_the_same_commands(self):
        result = self.quantized()
        for checkpoint in [TINY_LLAMA, result, TINY_LLAMA / "model.safetensors"]:
            self.assertEqual(self.json_of("inspect", checkpoint)["parameters"], self.json_of("inspect", TINY_LLAMA)["parameters"])
            self.assertTrue(self.json_of("verify", checkpoint)["good"])
        for checkpoint in [TINY_LLAMA, result]:
            self.assertEqual(len(self.text_of(checkpoint)), 8)
            self.assertGreater(self.json_of("perplexity", checkpoint, "--text", TINY_LLAMA.parent / "heldout.txt", "--ctx", "32", "--chunks", "2", "-q")["perplexity"], 1)

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
    def test_what_was_chosen_is_not_asked_for_again(self):
        result = self.quantized(TINY_LLAMA, "--group-size", "32", "--keep", "model.layers.0", "--scheme-for", "lm_head=sym_int8")
        done = run("generate", result, *GENERATE[:-1], "-v")
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in ["lm_head.weight: bfloat16 -> sym_int8 g32", "model.layers.1.mlp.up_proj.weight: bfloat16 -> sym_int4 g32",
                     "model.layers.0.mlp.up_proj.weight: bfloat16 -> bfloat16"]:
            self.assertIn(line, done.stderr)

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
    def test_no_code_from_a_checkpoint_is_run(self):
        source = copy_of_tiny_llama(self.scratch / "source")
        marker = self.scratch / "code was run"
        for name in ["modeling_tiny.py", "configuration_tiny.py", "tokenization_tiny.py", "__init__.py", "sitecustomize.py"]:
            (source / name).write_text(f"open({str(marker)!r}, 'w')\n")
        config = json.loads((source / "config.json").read_text())
        config["auto_map"] = {"AutoConfig": "configuration_tiny.C", "AutoModelForCausalLM": "modeling_tiny.M"}
        (source / "config.json").write_text(json.dumps(config))
        done = run("quantize", source, self.scratch / "result", cwd=source)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("code is never copied", done.stderr)
        self.assertIn("auto_map", done.stderr)
        self.assertEqual([path.name for path in (self.scratch / "result").glob("*.py")], [])
        for checkpoint in [source, self.scratch / "result"]:
            self.assertEqual(len(self.text_of(checkpoint)), 8)
        self.assertFalse(marker.exists())

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
    def test_a_tensor_that_is_missing_is_an_error_for_every_verb_that_runs_a_model(self):
        path = copy_of_tiny_llama(self.scratch / "source")
        data = (path / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        old = b'"model.layers.2.self_attn.q_proj.weight"'
        header = data[8:8 + size]
        self.assertEqual(header.count(old), 1)
        (path / "model.safetensors").write_bytes(data[:8] + header.replace(old, b'"model.layers.2.self_attn.x_proj.weight"') + data[8 + size:])
        book = TINY_LLAMA.parent / "heldout.txt"
        for verb, *words in [["generate", "--prompt-tokens", "1"], ["perplexity", "--text", book], ["bench", "--runs", "1"]]:
            self.fails(3, ["model.layers.2.self_attn.q_proj.weight", "missing"], verb, path, *words)


if __name__ == "__main__":
    unittest.main()
