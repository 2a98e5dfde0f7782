"""`halfbyte quantize --target-bpw` and `--target-size`: the budget holds, the prediction is about what is lost, words that name tensors are kept."""
import json
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA
from held_out import TOKENS, HeldOutTest


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Budget(HeldOutTest):
    def plan(self, *words):
        return self.json_of("quantize", TINY_LLAMA, self.scratch / "none", "--threads", 2, "--dry-run", *words, "-q")

    def test_the_budget_holds_and_the_loss_is_about_what_was_predicted(self):
        words = ("--halfbyte-only", "--target-bpw", 4.6, "--calibrate", self.read, *TOKENS)
        checkpoint = self.quantize("mixed", *words)
        said = json.loads((checkpoint / "halfbyte.json").read_text(encoding="utf-8"))
        budget = said["conversion"]["budget"]
        stored = {tensor["stored"] for tensor in self.json_of("inspect", checkpoint, "--tensors")["tensors"]}
        self.assertLessEqual(budget["bits_per_weight"], 4.6)
        self.assertGreater(budget["bits_per_weight"], 4.5)
        self.assertGreater(len(stored - {"bfloat16"}), 1)
        lost = self.json_of("perplexity", checkpoint, "--against", TINY_LLAMA, "--text", self.kept, "--dtype", "float32", "--ctx", 128, "--chunks", 16, "-q")
        self.assertLess(abs(budget["predicted_kl"] / lost["kl_mean"] - 1), 0.4)
        self.assertIn("4.60 bits a weight wanted", self.succeeds("inspect", checkpoint))

    def test_the_same_words_give_the_same_bytes(self):
        words = ("--target-bpw", 5, "--calibrate", self.read, *TOKENS)
        once, again = self.quantize("once", *words), self.quantize("again", *words)
        for name in ("model.safetensors", "halfbyte.json"):
            self.assertEqual((once / name).read_bytes(), (again / name).read_bytes(), name)
        self.succeeds("verify", once, "--against", TINY_LLAMA, "-q")

    def test_without_a_text_a_size_is_met_and_named_tensors_stay_as_asked(self):
        words = ("--keep", "*q_proj*", "--scheme-for", "*v_proj*=sym_int8", "--head", "sym_int8", "--embedding", "sym_int8", "--halfbyte-only")
        size = self.plan(*words)["bytes_after"]
        plan = self.plan("--target-size", size, *words)
        self.assertLessEqual(plan["bytes_after"], size)
        self.assertIn("rough", plan["budget"]["measured_on"])
        schemes = {tensor["name"]: tensor["scheme"] for tensor in plan["tensors"]}
        self.assertEqual({scheme for name, scheme in schemes.items() if "q_proj" in name}, {None})
        self.assertEqual({scheme for name, scheme in schemes.items() if "v_proj" in name}, {"sym_int8"})
        self.assertEqual({schemes["lm_head.weight"], schemes["model.embed_tokens.weight"]}, {"sym_int8"})
        self.assertEqual({tensor["ways"] for tensor in plan["tensors"] if tensor["role"] in ("head", "embedding")}, {None})
        self.assertEqual({scheme for scheme in schemes.values() if scheme} - {"hb4", "hb4_fine", "sym_int8"}, set())

    def test_what_cannot_be_met_is_refused_with_what_can(self):
        words = ("quantize", TINY_LLAMA, self.scratch / "none", "-q")
        self.fails(2, ["--target-bpw 3.00 cannot be met: the smallest mix of these schemes takes 4.", " bits a weight"], *words, "--target-bpw", 3)
        self.fails(2, "--target-bpw 20.00 needs no quantising: the original takes 16", *words, "--target-bpw", 20)
        self.fails(2, "--target-size", *words, "--target-bpw", 5, "--target-size", "1MB")


if __name__ == "__main__":
    unittest.main()
