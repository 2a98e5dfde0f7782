"""What `halfbyte` does when all is well, what it says when the command line is not, and what Ctrl-C leaves."""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import unittest

from command_line import LONGEST, MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest, messages_of, run, wait_until

CORE_VERBS = ["quantize", "inspect", "verify", "dequantize", "merge", "diff", "doctor", "synth"]
MODEL_VERBS = ["generate", "perplexity", "evaluate", "bench", "serve", "finetune"]

# (words, status, parts of the one line)
MISTAKES = [
    ([], 2, ["which verb", "halfbyte --help"]),
    (["quantise", "a", "b"], 2, ["'quantise'", "did you mean 'quantize'", "halfbyte --help"]),
    (["frobnicate"], 2, ["unknown verb 'frobnicate'"]),
    (["--hlep"], 2, ["did you mean '--help'"]),
    (["-v", "quantize"], 2, ["a verb comes first"]),
    (["quantize"], 2, ["SRC is required", "halfbyte quantize --help"]),
    (["quantize", "a"], 2, ["DST is required"]),
    (["quantize", "a", "b", "c"], 2, ["unexpected argument 'c'"]),
    (["quantize", "a", "b", "--shceme", "sym_int4"], 2, ["'--shceme'", "did you mean '--scheme'"]),
    (["quantize", "--groupsize=64", "a", "b"], 2, ["'--groupsize'", "did you mean '--group-size'"]),
    (["quantize", "--groupsize", "64", "a"], 2, ["did you mean '--group-size'"]),
    (["quantize", "a", "b", "-z"], 2, ["unknown option '-z'"]),
    (["quantize", "a", "b", "--scheme"], 2, ["--scheme needs a value"]),
    (["quantize", "a", "b", "--scheme", "sym_in4"], 2, ["'sym_in4'", "sym_int8", "did you mean 'sym_int4'"]),
    (["quantize", "a", "b", "--group-size", "48"], 2, ["'48'", "128, 64, 32, 16, channel"]),
    (["quantize", "a", "b", "--search", "serach"], 2, ["did you mean 'search'"]),
    (["quantize", "a", "b", "--threads", "two"], 2, ["'two' is not a whole number"]),
    (["quantize", "a", "b", "--threads", "-1"], 2, ["'-1' is not a whole number"]),
    (["quantize", "a", "b", "--scheme-for", "lm_head"], 2, ["'lm_head' is not PATTERN=SCHEME"]),
    (["quantize", "a", "b", "--scheme-for", "lm_head=sym_int9"], 2, ["'sym_int9'", "did you mean"]),
    (["inspect", "a", "-q", "-v"], 2, ["exclude each other"]),
    (["inspect", TINY_LLAMA, "--policy", "haf"], 2, ['"haf" is not one of', "half", "amp:bfloat16"]),
    (["inspect", TINY_LLAMA, "--keep-float32", "lm_head"], 2, ["--keep-float32 goes with --policy"]),
    (["synth", "a", "--like", "llama-7c"], 2, ["did you mean 'llama-7b'"]),
    (["synth", "a", "--dtype", "bf16"], 2, ["'bf16'", "bfloat16"]),
    (["quantize", TINY_LLAMA, "b", "--keep", "no_such_tensor"], 2, ["no_such_tensor"]),
    (["inspect", "/no/such/model"], 1, ["/no/such/model"]),
    (["inspect", "meta-llama/Llama-2-7b"], 1, ["meta-llama/Llama-2-7b", "ownload"]),
    (["verify", TINY_LLAMA, "--against", "/no/such/model"], 1, ["/no/such/model"]),
]


class Help(CommandLineTest):
    def test_help_lists_every_verb_and_three_examples(self):
        text = self.succeeds("--help")
        for verb in CORE_VERBS + MODEL_VERBS:
            self.assertRegex(text, rf"(?m)^  {verb} +\w")
        self.assertEqual(len(re.findall(r"(?m)^  halfbyte ", text)), 3)

    def test_help_of_a_verb_comes_either_way(self):
        for verb in ["quantize", *(MODEL_VERBS if MODEL_PROGRAM.exists() else [])]:
            with self.subTest(verb):
                self.assertEqual(self.succeeds("help", verb), self.succeeds(verb, "--help"))
                self.assertEqual(self.succeeds("--help", verb, "--json"), self.succeeds(verb, "--help", "--json"))
        self.assertEqual(self.succeeds("help"), self.succeeds("--help"))
        self.fails(2, "did you mean 'quantize'", "help", "quantise")

    def test_each_verb_has_help_with_an_example(self):
        for verb in CORE_VERBS + (MODEL_VERBS if MODEL_PROGRAM.exists() else []):
            with self.subTest(verb):
                text = self.succeeds(verb, "--help")
                self.assertIn(f"Usage: halfbyte {verb}", text)
                self.assertRegex(text, rf"(?m)^  halfbyte {verb} ")
                self.assertIn("--json", text)

    def test_version(self):
        self.assertRegex(self.succeeds("--version"), r"^halfbyte \d+\.\d+\.\d+\n$")

    def test_mistakes_are_named_in_one_line(self):
        for words, status, parts in MISTAKES:
            with self.subTest(words=words):
                self.fails(status, parts, *words, cwd=self.scratch)
        self.assertEqual(os.listdir(self.scratch), [])


class Isolation(CommandLineTest):
    def test_no_torch_is_linked_or_loaded(self):
        linked = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True, timeout=LONGEST).stdout
        self.assertNotRegex(linked, r"lib(torch|c10|dnnl)")
        loaded = run("inspect", TINY_LLAMA, env={**os.environ, "LD_DEBUG": "libs"}).stderr
        self.assertIn("find library=", loaded)
        self.assertNotRegex(loaded, r"lib(torch|c10|dnnl)")

    @unittest.skipIf(MODEL_PROGRAM.exists(), "this build has LibTorch")
    def test_model_verbs_say_what_is_missing(self):
        of_modules = {"generate": ["--prompt-tokens", "1,2", "--dtype", "half"]}  # else it needs none
        for verb in MODEL_VERBS:
            self.fails(1, ["without LibTorch", verb], verb, TINY_LLAMA, *of_modules.get(verb, []))

    def test_a_full_standard_output_is_a_failure(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            result = subprocess.run([PROGRAM, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=LONGEST)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (4, 1))


class RoundTrip(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.result = self.scratch / "tiny-4bit"

    def test_quantize_inspect_verify(self):
        line = self.succeeds("quantize", TINY_LLAMA, self.result)
        self.assertRegex(line, r"^3\.94 MB -> 1\.63 MB in .* \(28 tensors to sym_int4, 11 kept; relative error 0\.0\d\d\)\n"
                               r"the embedding and the output head are [^\n]*\n(by the weights alone: [^\n]*\n)?$")
        self.assertEqual(os.listdir(self.scratch), ["tiny-4bit"])
        text = self.succeeds("inspect", self.result)
        for part in ["llama", "sym_int4 g64", "bits per weight", "original dtype", "kept", "error", "halfbyte.json"]:
            self.assertIn(part, text)
        self.assertIn("model.layers.3.mlp.down_proj.weight", self.succeeds("inspect", self.result, "--tensors"))
        self.assertIn("all good", self.succeeds("verify", self.result))
        compared = self.json_of("verify", self.result, "--against", TINY_LLAMA)
        self.assertEqual((compared["good"], len(compared["differences"])), (True, 39))
        by_name = {row["tensor"]: row for row in compared["differences"]}
        self.assertEqual(by_name["model.norm.weight"]["max_abs"], 0)
        self.assertLess(by_name["model.layers.0.mlp.up_proj.weight"]["rel_rmse"], 0.12)
        self.assertGreater(by_name["model.layers.0.mlp.up_proj.weight"]["rel_rmse"], 0.05)

    def test_json_of_quantize_and_inspect(self):
        done = self.json_of("quantize", TINY_LLAMA, self.result, "--group-size", "32", "--scheme-for", "*down_proj*=sym_int8")
        self.assertEqual((done["source_bytes"], done["quantized_tensors"], done["kept_tensors"]), (3935616, 28, 11))
        seen = self.json_of("inspect", self.result, "--tensors")
        self.assertEqual(seen["stored"]["sym_int4 g32"]["tensors"], 24)
        self.assertEqual(seen["stored"]["sym_int8 g32"]["tensors"], 4)
        self.assertEqual(seen["original_dtypes"]["bfloat16"], {"tensors": 39, "values": 1967808, "bytes": 3935616})
        self.assertEqual((seen["family"], seen["manifest"], len(seen["tensors"])), ("llama", "halfbyte.json", 39))
        self.assertEqual(sum(len(names) for names in seen["kept"].values()), 11)

    def test_inspect_says_what_a_policy_costs(self):
        self.succeeds("quantize", TINY_LLAMA, self.result)
        stored = self.json_of("inspect", self.result)["bytes"]
        bfloat16 = self.json_of("inspect", self.result, "--policy", "bfloat16")["policy"]
        self.assertEqual((bfloat16["mapped_bytes"], bfloat16["own_bytes"], bfloat16["read_to_cast_bytes"]), (stored, 0, 0))
        half = self.json_of("inspect", self.result, "--policy", "half")["policy"]
        self.assertEqual(half["mapped_bytes"] + half["own_bytes"], stored)
        self.assertEqual((half["own_bytes"], half["peak_bytes"]), (half["read_to_cast_bytes"], stored + half["own_bytes"]))
        lines = {row["name"]: row for row in half["tensors"]}
        self.assertEqual((len(lines), lines["lm_head.weight"]["placement"], lines["lm_head.weight"]["loaded"]), (40, "cast", "float16"))
        wide = self.json_of("inspect", self.result, "--policy", "half", "--keep-float32", "lm_head")["policy"]
        self.assertEqual(wide["own_bytes"] - half["own_bytes"], lines["lm_head.weight"]["bytes"])
        text = self.succeeds("inspect", self.result, "--policy", "half")
        self.assertRegex(text, r"(?m)^  lm_head\.weight +bfloat16 +bfloat16 +float16 +cast +")
        self.assertIn("each process holds", text)

    def test_dry_run_writes_nothing_and_keeps_its_word(self):
        text = self.succeeds("quantize", TINY_LLAMA, self.result, "--dry-run", "--keep", "model.layers.1")
        self.assertIn("nothing was written", text)
        self.assertRegex(text, r"model\.layers\.1\.mlp\.up_proj\.weight .*kept: .*model\.layers\.1")
        plan = self.json_of("quantize", TINY_LLAMA, self.result, "--dry-run")
        self.assertEqual(os.listdir(self.scratch), [])
        self.assertEqual(len(plan["tensors"]), 39)
        done = self.json_of("quantize", TINY_LLAMA, self.result)
        self.assertEqual((plan["bytes_before"], plan["bytes_after"]), (done["source_bytes"], done["result_bytes"]))

    def test_options_are_flags_wherever_the_program_names_them(self):
        plan = self.json_of("quantize", TINY_LLAMA, self.result, "--dry-run", "--keep", "*.up_proj.*", "--scheme-for", "*.o_proj.*=keep")
        reasons = {tensor["name"]: tensor["reason"] for tensor in plan["tensors"]}
        self.assertEqual(reasons["lm_head.weight"], "the output head; quantised when --head asks for it")
        self.assertEqual(reasons["model.layers.0.mlp.up_proj.weight"], "matched --keep *.up_proj.*")
        self.assertEqual(reasons["model.layers.0.self_attn.o_proj.weight"], "matched --scheme-for *.o_proj.*=keep")
        self.succeeds("quantize", TINY_LLAMA, self.result, "--keep", "*.up_proj.*", "--scheme-for", "*.o_proj.*=keep")
        kept = json.loads((self.result / "halfbyte.json").read_text())["kept"]
        self.assertEqual(kept, {name: reasons[name] for name in kept})
        for line, words in [("--overwrite replaces it", [TINY_LLAMA, self.result, "--scheme", "nf4"]),
                            ('--keep "nothing" matches no tensor', [TINY_LLAMA, self.scratch / "x", "--keep", "nothing"]),
                            ("give --memory-limit ", [TINY_LLAMA, self.scratch / "x", "--memory-limit", "1MB"]),
                            ("--nested-scales is for nf4", [TINY_LLAMA, self.scratch / "x", "--nested-scales"]),
                            ("add --halfbyte-only if", [TINY_LLAMA, self.scratch / "x", "--scheme", "fp4_e2m1"]),
                            ("--resume: the source is quantised already and keeps its codes; say --scheme to quantise it again",
                             [self.result, self.scratch / "x", "--resume"]),
                            ("--dry-run: the source is quantised already and keeps its codes; say --scheme to quantise it again",
                             [self.result, self.scratch / "x", "--dry-run"])]:
            with self.subTest(line):
                done = run("quantize", *words)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(line, done.stderr)
        nothing = run("quantize", TINY_LLAMA, self.scratch / "x", "--keep", "*")
        self.assertIn("no tensor is quantised; --dry-run says why of each", nothing.stderr)

    def test_an_original_is_inspected_with_a_derived_manifest(self):
        self.assertIn("there is no halfbyte.json", self.succeeds("inspect", TINY_LLAMA))
        self.assertEqual(self.json_of("inspect", TINY_LLAMA)["manifest"], "derived")

    def test_verify_of_an_original_says_what_it_could_not_check(self):
        text = self.succeeds("verify", TINY_LLAMA)
        self.assertIn("0 were compared with their hash, 39 have no hash on record", text)
        self.assertIn("nothing says whether a value was changed", text)
        self.assertNotIn("all good", text)
        self.assertIn("hash of the checkpoint: ", text)

    def test_verify_knows_a_checkpoint_again_by_its_hash(self):
        self.succeeds("quantize", TINY_LLAMA, self.result)
        for checkpoint in [TINY_LLAMA, self.result]:
            report = self.json_of("verify", checkpoint)
            self.assertIn(report["hash"], self.succeeds("verify", checkpoint))
            expected = self.json_of("verify", checkpoint, "--expect", report["hash"])
            self.assertEqual((expected["good"], expected["expected"]), (True, report["hash"]))
            other = "0123456789abcdef" * 2
            done = run("verify", checkpoint, "--expect", other, "--json")
            self.assertEqual((done.returncode, done.stderr.count("\n")), (3, 1))
            self.assertIn(report["hash"], done.stderr)
            self.assertIn(other, done.stderr)
            self.assertFalse(json.loads(done.stdout)["good"])
        self.assertEqual(run("verify", self.result, "--expect", "abc").returncode, 2)

    def test_overwrite_replaces_and_is_needed(self):
        self.succeeds("quantize", TINY_LLAMA, self.result)
        before = (self.result / "model.safetensors").read_bytes()
        self.fails(1, ["tiny-4bit", "--overwrite"], "quantize", TINY_LLAMA, self.result, "--scheme", "sym_int8")
        self.assertEqual((self.result / "model.safetensors").read_bytes(), before)
        self.succeeds("quantize", TINY_LLAMA, self.result, "--scheme", "sym_int8", "--overwrite")
        self.assertNotEqual((self.result / "model.safetensors").read_bytes(), before)
        self.assertEqual(os.listdir(self.scratch), ["tiny-4bit"])

    def test_the_bytes_depend_on_neither_threads_nor_kernels(self):
        results = []
        for threads, isa in [("1", "ref"), ("2", ""), ("3", "ref")]:
            name = self.scratch / f"{threads}{isa}"
            environment = {**os.environ, **({"HALFBYTE_ISA": isa} if isa else {})}
            self.succeeds("quantize", TINY_LLAMA, name, "--threads", threads, env=environment)
            results.append((name / "model.safetensors").read_bytes())
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])

    def test_a_single_file_is_a_model_too(self):
        self.succeeds("quantize", TINY_LLAMA / "model.safetensors", self.scratch / "with the rest")
        self.assertIn("family      llama", self.succeeds("inspect", self.scratch / "with the rest"))
        lone = self.scratch / "model.safetensors"
        lone.write_bytes((TINY_LLAMA / "model.safetensors").read_bytes())
        result = run("quantize", lone, self.result)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"^halfbyte: warning: .*config\.json.*\n$")
        self.succeeds("quantize", lone, self.scratch / "quiet", "-q")
        self.assertIn("all good", self.succeeds("verify", self.result))

    def test_synth_is_a_model_and_repeats(self):
        paths = [self.scratch / "one", self.scratch / "two"]
        for path in paths:
            done = self.json_of("synth", path, "--like", "tiny", "--dtype", "float16", "--seed", "7")
            self.assertEqual((done["dtype"], done["seed"]), ("float16", 7))
        files = sorted(file.name for file in paths[0].iterdir())
        self.assertEqual(files, sorted(file.name for file in paths[1].iterdir()))
        for file in files:
            self.assertEqual((paths[0] / file).read_bytes(), (paths[1] / file).read_bytes(), file)
        self.succeeds("quantize", paths[0], self.result)

    def test_a_flipped_bit_is_found(self):
        self.succeeds("quantize", TINY_LLAMA, self.result)
        file = self.result / "model.safetensors"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        result = run("verify", self.result, "--json")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (3, 1))
        report = json.loads(result.stdout)
        self.assertEqual((report["good"], len(report["findings"])), (False, 1))

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "this build has no LibTorch")
    def test_model_verbs_answer_in_json(self):
        self.succeeds("quantize", TINY_LLAMA, self.result)
        words = ["--prompt-tokens", "1,300", "--max-gen-len", "4", "--temperature", "0", "--ignore-eos", "--json"]
        made = json.loads(run("generate", self.result, *words).stdout)["generations"]
        self.assertEqual([len(generation["tokens"]) for generation in made], [4])
        text = TINY_LLAMA.parent / "heldout.txt"
        words = ["--text", text, "--ctx", "64", "--chunks", "1", "--against", TINY_LLAMA, "--json"]
        measured = json.loads(run("perplexity", self.result, *words).stdout)
        self.assertLessEqual({"perplexity", "kl_mean", "kl_p99", "top1_agreement", "tokens"}, measured.keys())
        speed = json.loads(run("bench", self.result, "--prompt-tokens", "16", "--gen-tokens", "4", "--runs", "1", "--json").stdout)
        self.assertLessEqual({"prefill_tokens_per_s", "decode_tokens_per_s"}, speed.keys())


class Interrupt(CommandLineTest):
    """Ctrl-C while data are being written: status 130, one line, and no trace beside the source."""

    def interrupt(self, signal_number, *words):
        folder = self.scratch / "results"
        folder.mkdir()
        with subprocess.Popen([PROGRAM, *map(str, words)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              encoding="utf-8") as process:
            wait_until(lambda: os.listdir(folder), process)
            process.send_signal(signal_number)
            messages = messages_of(process)
        self.assertEqual((process.returncode, messages.count("\n")), (130, 1), messages)
        self.assertTrue(messages.startswith("halfbyte: "), messages)
        self.assertEqual(os.listdir(folder), [])
        shutil.rmtree(folder)

    def test_quantize(self):
        rows, columns, layers = 16384, 4096, 8
        size = rows * columns * 2
        header = {f"model.layers.{n}.mlp.up_proj.weight": {"dtype": "BF16", "shape": [rows, columns],
                                                           "data_offsets": [n * size, (n + 1) * size]} for n in range(layers)}
        text = json.dumps(header).encode()
        source = self.scratch / "sparse.safetensors"
        with open(source, "wb") as file:  # 1 GB of zeros that take no space
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + layers * size)
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            self.interrupt(signal_number, "quantize", source, "result")

    def test_synth(self):
        self.interrupt(signal.SIGINT, "synth", "result", "--like", "llama-1.1b")


if __name__ == "__main__":
    unittest.main()
