"""`halfbyte bench`: what it reports is there, agrees with itself and with what the checkpoint holds. No clock is judged."""
import json
import statistics
import struct
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, write_safetensors

SIZES = {"prompt_tokens": 12, "gen_tokens": 5, "batch": 3, "depth": 7, "runs": 4, "loads": 2}
WORDS = [word for name, value in SIZES.items() for word in ("--" + name.replace("_", "-"), value)]
SHAPE_BYTES = 16  # beside packed codes: two whole numbers that products do not read
RATES = {"prefill_tokens_per_s", "decode_tokens_per_s", "memory_bytes_per_s"}


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Bench(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.checkpoint = self.scratch / "quantized"
        self.succeeds("quantize", TINY_LLAMA, self.checkpoint, "--scheme-for", "lm_head=sym_int8", "-q")
        self.config = json.loads((TINY_LLAMA / "config.json").read_text(encoding="utf-8"))

    def bench(self, *words, checkpoint=None):
        return self.json_of("bench", checkpoint or self.checkpoint, *words, "--device", "cpu", "--threads", "2", "-q")

    def attended_bytes(self, positions, value_bytes):
        head_dim = self.config["hidden_size"] // self.config["num_attention_heads"]
        heads = self.config["num_key_value_heads"] * self.config["num_hidden_layers"]
        return 2 * heads * self.config.get("head_dim", head_dim) * positions * value_bytes

    def test_says_what_was_run(self):
        found = self.bench(*WORDS)
        self.assertEqual({name: found[name] for name in SIZES}, SIZES)
        self.assertEqual((found["threads"], found["device"], found["dtype"]), (2, "cpu", "amp:bfloat16"))

    def test_medians_are_of_the_samples_that_it_shows(self):
        found = self.bench(*WORDS)
        samples = found["samples"]
        self.assertEqual(samples.keys(), RATES | {"load_s", "load_to_first_token_s"})
        lengths = {name: len(values) for name, values in samples.items()}
        self.assertEqual(lengths, {"prefill_tokens_per_s": 4, "decode_tokens_per_s": 4, "memory_bytes_per_s": 5, "load_s": 2, "load_to_first_token_s": 2})
        for name, values in samples.items():
            self.assertGreater(min(values), 0, name)
            self.assertAlmostEqual(found[name] / statistics.median(values), 1, 9, name)
        self.assertTrue(all(load < first for load, first in zip(samples["load_s"], samples["load_to_first_token_s"])))
        self.assertAlmostEqual(found["time_to_first_token_s"] * found["prefill_tokens_per_s"] / (3 * 12), 1, 9)

    def test_a_step_reads_the_weights_once_whatever_the_batch(self):
        tensors = {tensor["name"]: tensor["bytes"] for tensor in self.json_of("inspect", self.checkpoint, "--tensors")["tensors"]}
        embedding = tensors.pop("model.embed_tokens.weight")
        for batch in (1, 4):
            found = self.bench("--prompt-tokens", "4", "--gen-tokens", "3", "--runs", "1", "--batch", batch)
            rows = embedding * batch / self.config["vocab_size"]
            self.assertAlmostEqual(found["step_weight_bytes"], sum(tensors.values()) + rows, 3)
            # Tokens 5, 6 and 7 of each sequence attend to as many positions, in bfloat16.
            self.assertAlmostEqual(found["step_cache_bytes"], batch * self.attended_bytes(6, 2), 3)

    def test_keys_and_values_in_8_bits_take_half(self):
        words = ["--prompt-tokens", "4", "--gen-tokens", "3", "--runs", "1"]
        coded, usual = self.bench(*words, "--kv", "int8"), self.bench(*words)
        self.assertEqual((coded["key_values"], usual["key_values"]), ("int8", "bfloat16"))
        head_dim = self.config["hidden_size"] // self.config["num_attention_heads"]
        self.assertAlmostEqual(coded["step_cache_bytes"], self.attended_bytes(6, 1) * (head_dim + 2) / head_dim, 3)
        self.fails(2, "--kv", "bench", self.checkpoint, "--kv", "int4")

    def test_a_tied_head_reads_the_embedding(self):
        source = self.scratch / "tied"
        source.mkdir()
        config = self.config | {"tie_word_embeddings": True}
        (source / "config.json").write_text(json.dumps(config), encoding="utf-8")
        data = (TINY_LLAMA / "model.safetensors").read_bytes()
        header_end = 8 + struct.unpack("<Q", data[:8])[0]
        kept = {}
        for name, tensor in json.loads(data[8:header_end]).items():
            if name not in ("lm_head.weight", "__metadata__"):
                begin, end = tensor["data_offsets"]
                kept[name] = (tensor["dtype"], tensor["shape"], data[header_end + begin:header_end + end])
        write_safetensors(source / "model.safetensors", kept)
        stored = sum(len(values) for _, _, values in kept.values())
        found = self.bench("--prompt-tokens", "4", "--gen-tokens", "1", "--runs", "1", checkpoint=source)
        self.assertAlmostEqual(found["step_weight_bytes"], stored, 3)

    def test_depth_makes_the_cache_larger_and_nothing_else(self):
        words = ["--prompt-tokens", "4", "--gen-tokens", "1", "--runs", "1"]
        shallow, deep = self.bench(*words), self.bench(*words, "--depth", "100")
        self.assertAlmostEqual(deep["step_cache_bytes"] - shallow["step_cache_bytes"], self.attended_bytes(100, 2), 3)
        self.assertEqual(deep["step_weight_bytes"], shallow["step_weight_bytes"])

    def test_rates_agree_with_each_other(self):
        found = self.bench(*WORDS)
        step = found["step_weight_bytes"] + found["step_cache_bytes"]
        self.assertAlmostEqual(found["read_bytes_per_s"] / (step * found["decode_tokens_per_s"] / 3), 1, 9)
        self.assertAlmostEqual(found["memory_share"] * found["memory_bytes_per_s"] / found["read_bytes_per_s"], 1, 9)
        weights = [tensor["shape"] for tensor in self.json_of("inspect", self.checkpoint, "--tensors")["tensors"] if "_proj" in tensor["name"]]
        products = 2 * 12 * sum(rows * columns for rows, columns in weights) + 2 * self.config["vocab_size"] * self.config["hidden_size"]
        queries = self.config["num_hidden_layers"] * self.config["hidden_size"]
        flop = products + 4 * queries * sum(range(8, 20))  # tokens 8 to 19 of a sequence
        self.assertAlmostEqual(found["prefill_gflops"] / (flop * found["prefill_tokens_per_s"] / 12 / 1e9), 1, 9)

    def test_what_the_context_cannot_hold_is_refused(self):
        context = self.config["max_position_embeddings"]
        self.fails(2, ["--depth", str(context + 2), f"context is {context}"], "bench", self.checkpoint, "--depth", context, "--prompt-tokens", "1", "--gen-tokens", "1")
        found = self.bench("--depth", context - 20, "--gen-tokens", "5", "--runs", "1")
        self.assertEqual(found["prompt_tokens"], 15)

    def profile(self, *words, checkpoint=None):
        return self.bench("--prompt-tokens", "12", "--gen-tokens", "6", "--runs", "2", *words, checkpoint=checkpoint)["profile"]

    def test_without_the_option_there_is_no_profile(self):
        self.assertNotIn("profile", self.bench("--prompt-tokens", "4", "--gen-tokens", "1", "--runs", "1"))

    def test_a_profile_is_of_the_whole_pass_and_of_what_it_reads(self):
        found = self.profile("--profile")
        self.assertEqual((found["lost_events"], found["trace"]), (0, None))
        self.assertEqual((found["prefill"]["passes"], found["prefill"]["tokens"]), (1, 12))
        self.assertEqual((found["decode"]["passes"], found["decode"]["tokens"]), (6, 6))
        tensors = {tensor["name"]: tensor["bytes"] for tensor in self.json_of("inspect", self.checkpoint, "--tensors")["tensors"]}
        for part in (found["prefill"], found["decode"]):
            kinds = {work["kind"]: work for work in part["work"]}
            # Many tokens have their gates with gate_up, where the CPU has kernels for that.
            self.assertTrue("gates" in kinds or part is found["prefill"])
            self.assertEqual([kind for kind in kinds if kind != "gates"], ["embedding", "norms", "qkv", "place_heads", "attention", "attention_output", "gate_up", "down", "head", "sampling", "other"])
            self.assertAlmostEqual(sum(work["seconds"] for work in part["work"]) / part["pass_s"], 1, 9)
            self.assertAlmostEqual(sum(work["share"] for work in part["work"]), 1, 9)
            self.assertEqual(kinds["qkv"]["calls"], self.config["num_hidden_layers"])
            self.assertEqual(kinds["down"]["bytes"], sum(size - SHAPE_BYTES for name, size in tensors.items() if "down_proj" in name))
            self.assertEqual(kinds["head"]["flop"], 2 * self.config["vocab_size"] * self.config["hidden_size"])
            self.assertAlmostEqual(kinds["down"]["bytes_per_s"] * kinds["down"]["seconds"] / kinds["down"]["bytes"], 1, 9)
            self.assertTrue(all(kinds["norms"][key] is None for key in ("bytes", "flop", "bytes_per_s", "memory_share", "gflops")))
            self.assertIsNone(kinds["other"]["calls"])
            self.assertEqual(part["threads"].pop("count"), 2)
            self.assertAlmostEqual(sum(part["threads"].values()), 1, 9)
            self.assertTrue(all(0 <= share <= 1 for share in part["threads"].values()), part["threads"])

    def test_a_mixture_of_experts_and_a_recurrent_family_have_their_kinds(self):
        families = TINY_LLAMA.parent / "families"
        for family, wanted in [("mixtral", {"router", "expert_rows", "experts"}), ("lfm2", {"modules", "module_products"})]:
            found = self.profile("--profile", checkpoint=families / family)
            self.assertLessEqual(wanted, {work["kind"] for work in found["decode"]["work"]}, family)

    def test_a_trace_has_the_prefill_and_some_steps(self):
        path = self.scratch / "steps.json"
        found = self.profile("--profile-trace", path)
        self.assertEqual(found["trace"], str(path))
        events = [event for event in json.loads(path.read_text(encoding="utf-8"))["traceEvents"] if event["ph"] == "X"]
        self.assertEqual([event["args"]["tokens"] for event in events if event["name"] == "pass"], [12, 1, 1, 1, 1])
        layers = self.config["num_hidden_layers"]
        self.assertEqual(sum(event["name"] == f"layers.{layers - 1} down" and event["tid"] == 0 for event in events), 5)
        self.assertTrue(all(event["ts"] >= 0 and event["dur"] >= 0 for event in events))
        self.assertEqual([name.name for name in self.scratch.iterdir() if name.name.startswith("steps")], ["steps.json"])

    def test_a_trace_that_cannot_be_written_is_refused_before_the_model_is_read(self):
        for path in (self.scratch, self.scratch / "none" / "steps.json"):
            self.fails(1, str(path), "bench", self.checkpoint, "--profile-trace", path)

    def test_people_read_the_profile_too(self):
        text = self.succeeds("bench", self.checkpoint, *WORDS, "--profile-trace", self.scratch / "t.json", "--threads", "2", "-q")
        self.assertRegex(text, r"a pass of prefill, of 36 tokens, [\d.]+ ms\n")
        self.assertRegex(text, r"a step of decode, of 5 steps, [\d.]+ ms\n")
        self.assertRegex(text, r"queries, keys, values +\d+ +[\d.]+ +[\d.]+ % +[\d.]+ +[\d.]+ % +[\d.]+ +[\d.]+ %\n")
        self.assertRegex(text, r"2 threads: [\d.]+ % at work together, [\d.]+ % with nothing left to do, [\d.]+ % coming, [\d.]+ % outside of shared calls\n")
        self.assertIn(f"trace     {self.scratch}/t.json", text)

    def test_people_read_the_same(self):
        text = self.succeeds("bench", self.checkpoint, *WORDS, "--device", "cpu", "-q")
        self.assertRegex(text, r"prefill +36 tokens +[\d.]+ tokens/s +\d+ GFLOPS")
        self.assertRegex(text, r"decode +15 tokens +[\d.]+ tokens/s +[\d.]+ [kM]B a step, [\d.]+ GB/s")
        self.assertRegex(text, r"memory +[\d.]+ GB/s when nothing but read; decode reads at \d+ % of that")
        self.assertIn("4 runs of 3 sequences after 7 tokens", text)


if __name__ == "__main__":
    unittest.main()
