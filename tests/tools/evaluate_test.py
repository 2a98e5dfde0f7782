"""halfbyte evaluate: what it measures, says and refuses."""
import json
import os
import pathlib
import shutil
import tempfile
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, run

BOOK = TINY_LLAMA.parent / "heldout.txt"
SHORT = ["--ctx-size", 64, "--windows", 6]


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Evaluate(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        shared = pathlib.Path(tempfile.mkdtemp(prefix="halfbyte-test-"))
        cls.addClassCleanup(shutil.rmtree, shared)
        cls.packed = shared / "packed"
        assert run("quantize", TINY_LLAMA, cls.packed, "-q").returncode == 0

    def evaluated(self, *words, **options):
        return json.loads(self.succeeds("evaluate", *words, "--text", BOOK, *SHORT, "--json", "-q", **options))

    def test_a_checkpoint_against_its_original(self):
        found = self.evaluated(self.packed, "--against", TINY_LLAMA)
        self.assertEqual((found["context"], found["windows"], found["tokens"], found["stopped"]), (64, 6, 192, False))
        words = ["--against", TINY_LLAMA, "--text", BOOK, "--ctx", 64, "--chunks", 6, "--dtype", "float32", "--compute", "float"]
        wanted = json.loads(self.succeeds("perplexity", self.packed, *words, "--json", "-q"))
        self.assertAlmostEqual(found["perplexity"]["value"] / wanted["perplexity"], 1, places=5)
        self.assertAlmostEqual(found["kl_mean"]["value"] / wanted["kl_mean"], 1, places=3)
        self.assertAlmostEqual(found["top1_agreement"]["value"], wanted["top1_agreement"])
        self.assertLess(found["kl_median"], found["kl_p99"])
        self.assertLessEqual(found["kl_p999"], found["kl_largest"])
        for key in ("perplexity", "original_perplexity", "perplexity_ratio", "kl_mean", "top1_agreement", "top5_agreement"):
            self.assertLess(found[key]["low"], found[key]["value"], key)
            self.assertLess(found[key]["value"], found[key]["high"], key)

    def test_models_that_do_not_fit_together_run_one_after_the_other(self):
        together = self.evaluated(self.packed, "--against", TINY_LLAMA)
        apart = self.evaluated(self.packed, "--against", TINY_LLAMA, "--memory-limit", "1MB", env={**os.environ, "TMPDIR": str(self.scratch)})
        self.assertEqual((together["passes_over_text"], apart["passes_over_text"]), (1, 2))
        self.assertEqual(list(self.scratch.iterdir()), [])
        for key in ("perplexity", "original_perplexity", "kl_mean", "top1_agreement", "top5_agreement"):
            self.assertAlmostEqual(apart[key]["value"] / together[key]["value"], 1, delta=0.001 if key == "kl_mean" else 1e-5, msg=key)

    def test_errors_of_layers_alone_and_with_what_was_before(self):
        found = self.evaluated(self.packed, "--against", TINY_LLAMA, "--layers")
        layers = {row["name"]: row for row in found["layers"]}
        config = json.loads((TINY_LLAMA / "config.json").read_text(encoding="utf-8"))
        self.assertEqual(len(layers), config["num_hidden_layers"] * 8 + 1)
        first, last = layers["model.layers.0.self_attn.q_proj"], layers[f"model.layers.{config['num_hidden_layers'] - 1}"]
        self.assertEqual(first["alone"], first["together"])
        self.assertEqual((first["layer"], first["module"], last["module"]), (0, "self_attn.q_proj", ""))
        self.assertTrue(all(0 < row["alone"] < 0.3 for row in layers.values() if row["module"] != "lm_head"), layers)
        self.assertGreater(last["together"], last["alone"])
        same = self.evaluated(TINY_LLAMA, "--against", TINY_LLAMA, "--layers")
        self.assertEqual({(row["alone"], row["together"]) for row in same["layers"]}, {(0, 0)})

    def test_the_worst_tokens_stand_in_their_text(self):
        worst = self.evaluated(self.packed, "--against", TINY_LLAMA)["worst_tokens"]
        self.assertEqual([token["kl"] for token in worst], sorted((token["kl"] for token in worst), reverse=True))
        self.assertEqual(len(worst), 20)
        book = BOOK.read_text(encoding="utf-8")
        for token in worst:
            shown = token["before"].replace("<s>", "").lstrip()[-40:] + token["token"] + token["after"]
            self.assertTrue(shown in book, shown)

    def test_multiple_choice_tasks(self):
        tasks = self.scratch / "tasks.jsonl"
        lines = [{"query": "The President of the United", "choices": ["zebra", "States"], "gold": 1},
                 {"ctx": "Mr. President, Mr. ", "endings": ["Speaker", "xylophone"], "label": "0"}, {"question": "Ladies and", "choices": ["of", "gentlemen"], "answer": 0}]
        tasks.write_text("\n\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
        found = self.evaluated(self.packed, "--against", TINY_LLAMA, "--tasks", tasks)["tasks"]
        self.assertEqual(found["count"], 3)
        for key in ("acc", "acc_norm", "original_acc", "original_acc_norm", "agreement"):
            self.assertTrue(0 <= found[key]["low"] <= found[key]["value"] <= found[key]["high"] <= 1, key)
        self.assertGreaterEqual(found["acc"]["value"], 0.6)
        self.assertIsNone(self.evaluated(self.packed, "--tasks", tasks)["tasks"]["agreement"])
        words = ["evaluate", self.packed, "--text", BOOK, "--windows", 1, "--tasks", tasks]
        for wrong, wanted in (({"query": "a", "choices": ["b"], "gold": 0}, "two choices at least"), ({"query": "a", "choices": ["b", "c"], "gold": 2}, "gold"),
                              ({"choices": ["b", "c"], "gold": 0}, "query"), ({"query": "a", "choices": ["b", "c"], "gold": "B"}, "0 to 1")):
            tasks.write_text("\n" + json.dumps(wrong), encoding="utf-8")
            self.fails(3, ["tasks.jsonl, line 2", wanted], *words)
        tasks.write_text("{", encoding="utf-8")
        self.fails(3, "tasks.jsonl, line 1", *words)

    def test_log_probabilities_are_kept_for_the_next_comparison(self):
        logits = self.scratch / "logits"
        self.fails(1, ["logits", "no file of log-probabilities"], "evaluate", self.packed, "--logits", logits, "--text", BOOK)
        first = self.evaluated(self.packed, "--against", TINY_LLAMA, "--logits", logits)
        self.assertEqual([path.name for path in self.scratch.iterdir()], ["logits"])
        again = self.evaluated(self.packed, "--logits", logits)
        self.assertEqual(again["kl_mean"], first["kl_mean"])
        self.assertEqual(again["original"], str(TINY_LLAMA))
        self.assertEqual((first["passes_over_text"], again["passes_over_text"]), (2, 1))
        fewer = json.loads(self.succeeds("evaluate", self.packed, "--logits", logits, "--text", BOOK, "--windows", 2, "--json", "-q"))
        self.assertEqual((fewer["windows"], fewer["context"]), (2, 64))
        words = ["evaluate", self.packed, "--logits", logits, "--text", BOOK]
        self.fails(2, ["64 tokens", "now it is"], *words, "--ctx-size", 32)
        self.fails(2, ["holds the log-probabilities of", "packed"], *words, "--against", self.packed)
        other = self.scratch / "other.txt"
        other.write_text(BOOK.read_text(encoding="utf-8")[100:5000], encoding="utf-8")
        self.fails(2, "another text, from window 0 on", "evaluate", self.packed, "--logits", logits, "--text", other, "--windows", 2)
        whole = logits.read_bytes()
        for damaged, wanted in ((whole[:-1], "bytes where its header says otherwise"), (b"x" + whole[1:], "is no file"), (whole[:16] + b"\xff" * 8 + whole[24:], "header is damaged")):
            logits.write_bytes(damaged)
            self.fails(3, wanted, *words)

    def test_alone_and_as_it_runs(self):
        alone = self.evaluated(self.packed)
        self.assertNotIn("kl_mean", alone)
        as_it_runs = self.evaluated(self.packed, "--against", TINY_LLAMA, "--dtype", "amp:bfloat16", "--compute", "auto")
        self.assertNotEqual(alone["perplexity"]["value"], as_it_runs["perplexity"]["value"])
        self.assertIn("kl_mean", as_it_runs)

    def test_a_screen_shows_it_in_lines(self):
        shown = self.succeeds("evaluate", self.packed, "--against", TINY_LLAMA, "--text", BOOK, *SHORT, "-q")
        for word in ("perplexity ", "original's ", "KL divergence ", "top-1 agrees ", "top-5 shared ", "95 % confidence"):
            self.assertIn(word, shown)

    def test_what_cannot_be_measured_is_one_line(self):
        short = self.scratch / "short.txt"
        short.write_text("Once upon a time")
        words = [self.packed, "--against", TINY_LLAMA]
        self.fails(2, "one window needs 255", "evaluate", *words, "--text", short)
        self.fails(1, "missing.txt", "evaluate", *words, "--text", self.scratch / "missing.txt")
        self.fails(2, "this model takes 4 to", "evaluate", *words, "--text", BOOK, "--ctx-size", 1_000_000)
        self.fails(1, "nowhere", "evaluate", self.packed, "--against", "nowhere", "--text", BOOK)
        bare = self.scratch / "bare"
        bare.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copy(TINY_LLAMA / name, bare / name)
        self.fails(1, ["bare", "no tokenizer", "tokenizer.model"], "evaluate", bare, "--text", BOOK)
        self.assertIn("kl_mean", self.evaluated(bare, "--against", TINY_LLAMA))  # the original's


if __name__ == "__main__":
    unittest.main()
