"""`halfbyte quantize --embedding` and `--head`: what is packed, what every other verb makes of it, and what cannot be had."""
import json
import pathlib
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, write_tiny_model

PACKED = ("--group-size", 32, "--embedding", "sym_int8", "--head", "sym_int8", "--halfbyte-only", "-q")
EMBEDDING = "model.embed_tokens.weight"


def manifest_of(checkpoint):
    return json.loads((pathlib.Path(checkpoint) / "halfbyte.json").read_text(encoding="utf-8"))


class Embedding(CommandLineTest):
    def quantize(self, *words, model=TINY_LLAMA):
        self.succeeds("quantize", model, self.scratch / "packed", "--overwrite", *words)
        return self.scratch / "packed"

    def test_every_verb_takes_a_packed_embedding(self):
        packed = self.quantize(*PACKED)
        manifest = manifest_of(packed)
        self.assertEqual({manifest["tensors"][name]["stored"] for name in (EMBEDDING, "lm_head.weight")}, {"sym_int8"})
        self.assertEqual((manifest["format_version"], manifest["conversion"]["embedding"], manifest["conversion"]["head"]), (1, "sym_int8", "sym_int8"))
        config = json.loads((packed / "config.json").read_text(encoding="utf-8"))
        self.assertEqual(config["quantization_config"], {"quant_method": "halfbyte"})
        stored = {tensor["name"]: tensor["stored"] for tensor in self.json_of("inspect", packed, "--tensors")["tensors"]}
        self.assertEqual(stored[EMBEDDING], "sym_int8")
        self.succeeds("verify", packed, "--against", TINY_LLAMA, "-q")
        self.succeeds("dequantize", packed, self.scratch / "dense", "--dtype", "float32", "-q")
        counts = self.json_of("diff", packed, self.scratch / "dense", "-q")["counts"]
        self.assertEqual(counts["other_values"], 0)
        self.assertGreater(counts["stored_otherwise"], 0)
        self.succeeds("export", packed, self.scratch / "packed.gguf", "--to", "gguf", "-q")
        self.assertEqual(self.json_of("diff", packed, self.scratch / "packed.gguf", "-q")["counts"]["other_values"], 0)

    def test_other_formats_have_it_dense_or_refuse_it(self):
        packed = self.quantize("--group-size", 32, "--embedding", "sym_int8", "--halfbyte-only", "-q")
        for name in ("compressed-tensors", "gptq", "awq"):
            self.fails(3, ["embed_tokens", "no packed embeddings", "--requantize"], "export", packed, self.scratch / name, "--to", name, "-q")
            self.succeeds("export", packed, self.scratch / name, "--to", name, "--requantize", "-q")
            tensors = {tensor["name"]: tensor["stored"] for tensor in self.json_of("inspect", self.scratch / name, "--tensors")["tensors"]}
            self.assertEqual(tensors[EMBEDDING], "bfloat16")

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
    def test_it_says_what_the_original_says(self):
        packed = self.quantize(*PACKED, "--keep", "*layers*")
        text = self.scratch / "text.txt"
        text.write_text((TINY_LLAMA.parent / "heldout.txt").read_text(encoding="utf-8")[:6000], encoding="utf-8")
        lost = self.json_of("perplexity", packed, "--against", TINY_LLAMA, "--text", text, "--dtype", "float32", "--ctx", 128, "-q")
        self.assertLess(lost["kl_mean"], 1e-4)
        self.assertGreater(lost["kl_mean"], 0)
        generated = self.json_of("generate", packed, "--prompt", "Once upon a time", "--max-gen-len", 8, "--temperature", 0, "-q")
        self.assertEqual(len(generated["generations"][0]["tokens"]), 8)

    def test_a_tied_model_has_one_tensor_for_both(self):
        model = self.scratch / "tied"
        write_tiny_model(model)
        said = self.json_of("quantize", model, self.scratch / "none", "--head", "sym_int8", "--halfbyte-only", "--dry-run", "-q")
        tensor = next(tensor for tensor in said["tensors"] if tensor["name"] == EMBEDDING)
        self.assertEqual((tensor["role"], tensor["scheme"]), ("embedding", "sym_int8"))
        self.assertIn(f"--head sym_int8 is for the embedding and the head: in this model they are one tensor ({EMBEDDING})", said["notes"])
        self.fails(2, ["--embedding hb4 and --head sym_int8", EMBEDDING, "ask for one scheme"], "quantize", model, self.scratch / "none", "-q",
                   "--embedding", "hb4", "--head", "sym_int8", "--halfbyte-only")
        self.fails(2, ["lm_head.weight, which is tied to", "--embedding is for both"], "quantize", model, self.scratch / "none", "-q",
                   "--scheme-for", "lm_head=sym_int8")

    def test_a_large_embedding_is_worth_a_line(self):
        model = self.scratch / "tied"
        write_tiny_model(model)
        advice = "the embedding, which is the output head too, is "
        self.assertIn(advice, self.succeeds("quantize", model, self.scratch / "none", "--dry-run"))
        self.assertIn(advice, self.succeeds("quantize", model, self.scratch / "dense"))
        said = self.json_of("quantize", model, self.scratch / "none", "--dry-run")["advice"]
        self.assertIn("; --embedding sym_int8 --halfbyte-only makes that ", said)
        self.assertIsNone(self.json_of("quantize", model, self.scratch / "none", "--dry-run", "--embedding", "keep")["advice"])

    def test_what_cannot_be_had_is_refused(self):
        words = ("quantize", TINY_LLAMA, self.scratch / "none", "-q")
        self.fails(2, ["a packed embedding", "--halfbyte-only"], *words, "--embedding", "sym_int8")
        self.fails(2, ["--embedding", "sym_int9"], *words, "--embedding", "sym_int9")
        self.fails(3, ["--scheme-for *embed* names nothing", "an embedding, which --embedding packs"], *words, "--scheme-for", "*embed*=sym_int8")
        self.assertFalse((self.scratch / "none").exists())


if __name__ == "__main__":
    unittest.main()
