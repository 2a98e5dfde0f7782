"""--dtype, --dtype-for, --keep-float32 and --verify of the verbs that run a model, and what float16 cannot hold."""
import array
import json
import struct
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, copy_of_tiny_llama, run

POLICIES = ["amp:bfloat16", "amp:float16", "half", "bfloat16", "float32", "original"]
BOOK = TINY_LLAMA.parent / "heldout.txt"
DOWN = "model.layers.2.mlp.down_proj"
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
        for words in [["generate", *PROMPT], ["perplexity", "--text", BOOK], ["bench", "--runs", "1"]]:
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

    def test_an_override_is_in_the_report_and_one_that_matches_nothing_is_refused(self):
        said = run("generate", self.result, *PROMPT, "--max-gen-len", "1", "-v", "--dtype-for", "*down_proj=half",
                   "--dtype-for", f"{DOWN}=float32")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn(f"{DOWN}.weight: bfloat16 -> sym_int4 g64, mapped, multiplied in float32 (override {DOWN}=float32)", said.stderr)
        self.assertIn("model.layers.1.mlp.down_proj.weight: bfloat16 -> sym_int4 g64, mapped, multiplied in float16", said.stderr)
        for words in (["generate", *PROMPT], ["perplexity", "--text", BOOK], ["bench", "--runs", "1"]):
            for option, pattern in (("--dtype-for", "*dwon_proj"), ("--keep-float32", "lm_haed")):
                value = pattern + "=half" * (option == "--dtype-for")
                self.fails(2, [f'"{pattern}"', "matches no tensor or module"], words[0], self.result, *words[1:], option, value)
        for value, wanted in (("*down_proj", "is not PATTERN=POLICY"), ("lm_head=haf", '"haf" is not one of'), ("=half", "is not PATTERN")):
            self.fails(2, ["--dtype-for", wanted], "generate", self.result, *PROMPT, "--dtype-for", value)

    def test_compute_is_reported_and_what_is_none_is_refused(self):
        words = ["bench", self.result, "--runs", "1", "--prompt-tokens", "4", "--gen-tokens", "2", "--compute"]
        for mode in ["float", "int8"]:
            self.assertEqual(self.json_of(*words, mode)["compute"], mode)
        self.assertIn(self.json_of(*words, "auto")["compute"], ["float", "mixed"])
        self.assertEqual(self.json_of(*words, "auto", "--dtype", "float32")["compute"], "float")
        self.fails(2, ["--compute", "int4"], *words, "int4")

    def test_inspect_foretells_an_override(self):
        told = self.json_of("inspect", self.result, "--policy", "half", "--dtype-for", f"{DOWN}=float32", "--keep-float32", "lm_head")
        tensors = {tensor["name"]: tensor for tensor in told["policy"]["tensors"]}
        self.assertEqual((tensors[f"{DOWN}.weight"]["operand"], tensors[f"{DOWN}.weight"]["note"]),
                         ("float32", f"override {DOWN}=float32"))
        self.assertEqual((tensors["lm_head.weight"]["loaded"], tensors["lm_head.weight"]["note"]), ("float32", "kept in float32"))
        self.assertEqual(tensors["model.layers.0.mlp.down_proj.weight"]["operand"], "float16")
        self.assertIsNone(tensors["model.norm.weight"]["operand"])
        self.fails(2, ['"lm_haed"', "matches no tensor"], "inspect", self.result, "--policy", "half", "--keep-float32", "lm_haed")
        self.fails(2, "--dtype-for goes with --policy", "inspect", self.result, "--dtype-for", "lm_head=half")

    def test_an_overflow_of_float16_is_one_line_that_names_the_module_and_its_cure_works(self):
        wide = copy_of_tiny_llama(self.scratch / "wide")
        scale(wide / "model.safetensors", "model.layers.2.mlp.up_proj.weight", 16)
        done = self.fails(3, [f"{DOWN}: an activation of", "float16, which ends at 65504", "--dtype amp:bfloat16",
                              f"--dtype-for '{DOWN}=float32'"], "generate", wide, *PROMPT, "--dtype", "amp:float16")
        self.assertEqual(done.stdout, "")
        self.text_of(wide, "--dtype", "amp:float16", "--dtype-for", f"{DOWN}=float32")
        self.text_of(wide, "--dtype", "amp:bfloat16")

    def test_a_measured_text_is_text_whatever_it_spells(self):
        plain, book = BOOK.read_text()[:4000], self.scratch / "book.txt"
        book.write_text("</s>".join(plain[i:i + 200] for i in range(0, len(plain), 200)))
        words = ["perplexity", TINY_LLAMA, "--text", book, "--ctx", "32", "--json"]
        as_text, as_tokens = (run(*words, *more) for more in ([], ["--special-tokens"]))
        for done, said in ((as_text, ["read as text", "--special-tokens"]), (as_tokens, ["read as those tokens"])):
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (0, 1), done.stderr)
            for part in ["book.txt", "19 names of special tokens (</s>)", *said]:
                self.assertIn(part, done.stderr)
            self.assertEqual(json.loads(done.stdout)["special_names"], 19)
        self.assertGreater(json.loads(as_text.stdout)["tokens"], json.loads(as_tokens.stdout)["tokens"])
        self.assertNotEqual(json.loads(as_text.stdout)["perplexity"], json.loads(as_tokens.stdout)["perplexity"])
        table = self.json_of(*words[:-1], "--policies", "bfloat16", "--chunks", "1", "-q")
        self.assertEqual(table["special_names"], 19)
        unspelled = self.json_of("perplexity", TINY_LLAMA, "--text", BOOK, "--ctx", "32", "--chunks", "2")
        self.assertEqual(unspelled["special_names"], 0)
        piped = run("perplexity", TINY_LLAMA, "--text", "-", "--ctx", "32", "--chunks", "2", "--json", input=BOOK.read_text())
        self.assertEqual(json.loads(piped.stdout), unspelled)
        self.fails(1, "nowhere.txt: No such file or directory", "perplexity", TINY_LLAMA, "--text", "nowhere.txt")

    def test_one_table_over_all_policies(self):
        words = ["perplexity", self.result, "--text", BOOK, "--ctx", "64", "--chunks", "2", "--policies", "all"]
        table = self.json_of(*words, "--against", TINY_LLAMA, "-q")
        self.assertEqual([row["dtype"] for row in table["policies"]], POLICIES)
        self.assertEqual((table["tokens"], table["context"], table["reference"]["dtype"]), (64, 64, "float32"))
        for row in table["policies"]:
            one = self.json_of(*words[:-2], "--against", TINY_LLAMA, "--dtype", row["dtype"], "-q")
            for key, value in one.items():
                if key not in ("tokens", "reference_perplexity", "special_names", "stopped"):
                    self.assertEqual(row[key], value, (row["dtype"], key))
            self.assertIsNone(row["problem"])
            self.assertGreater(min(row["prefill_tokens_per_s"], row["decode_tokens_per_s"], row["evaluation_tokens_per_s"]), 0)
            cost = self.json_of("inspect", self.result, "--policy", row["dtype"])["policy"]
            self.assertEqual((row["mapped_bytes"], row["own_bytes"]), (cost["mapped_bytes"], cost["own_bytes"]))
        itself = self.json_of(*words[:-1], "float32,half", "-q")
        self.assertEqual([row["kl_mean"] for row in itself["policies"]][0], 0)
        self.assertGreater(itself["policies"][1]["max_logit_difference"], 0)
        text = self.succeeds(*words[:-1], "float32,half", "-q")
        self.assertEqual([line.split()[0] for line in text.splitlines()], ["against", "policy", "float32", "half"])

    def test_a_policy_that_cannot_run_is_a_row_that_says_why(self):
        wide = copy_of_tiny_llama(self.scratch / "wide")
        scale(wide / "model.safetensors", "model.layers.2.mlp.up_proj.weight", 16)
        words = ["perplexity", wide, "--text", BOOK, "--ctx", "64", "--chunks", "1", "-q"]
        rows = {row["dtype"]: row for row in self.json_of(*words, "--policies", "all")["policies"]}
        self.assertEqual({name for name, row in rows.items() if row["problem"]}, {"half", "amp:float16"})
        self.assertIn(f"{DOWN}: an activation of", rows["amp:float16"]["problem"])
        self.assertIn("amp:float16: " + DOWN, self.succeeds(*words, "--policies", "bfloat16,amp:float16"))
        done = run(*words, "--policies", "amp:float16", "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)["reference"]["perplexity"]), (3, None))
        self.fails(2, ["--policies", '"haf" is not one of'], *words, "--policies", "half,haf")
        self.fails(2, ["--policies", "--dtype"], *words, "--policies", "half", "--dtype", "half")


def scale(path, tensor, power):
    """Multiplies a bfloat16 tensor of a safetensors file by 2 ** power, in its exponents."""
    data = bytearray(path.read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    begin, end = (8 + length + offset for offset in json.loads(data[8:8 + length])[tensor]["data_offsets"])
    values = array.array("H", data[begin:end])
    data[begin:end] = array.array("H", [value + (power << 7) if value & 0x7F80 else value for value in values]).tobytes()
    path.write_bytes(data)


if __name__ == "__main__":
    unittest.main()
