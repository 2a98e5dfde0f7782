"""What people type from habit of other programs is answered with what it is here."""
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, run

M = str(TINY_LLAMA)
# (words, what the one line says)
CORE = [
    (["quantize", "-m", M, "-o", "x"], "the model is the first word"),
    (["quantize", "--model", M, "x"], "the model is the first word"),
    (["quantize", M, "--output_dir", "x"], "the result is the second word"),
    (["quantize", M, "x", "Q4_0"], "a scheme is given with --scheme"),
    (["quantize", M, "x", "--load_in_4bit"], "4 bits are what it writes"),
    (["quantize", M, "x", "--load-in-8bit"], "--scheme sym_int8"),
    (["quantize", M, "x", "--outtype", "q8_0"], "here it is '--scheme'"),
    (["quantize", M, "x", "--bits", "4"], "here it is '--scheme'"),
    (["quantize", M, "x", "--groupsize", "64"], "did you mean '--group-size'"),
    (["quantize", M, "x", "--q_group_size=64"], "here it is '--group-size'"),
    (["quantize", M, "x", "--imatrix", "y"], "no text is needed"),
    (["quantize", M, "x", "-y"], "here it is '--overwrite'"),
    (["quantize", M, "x", "--trust-remote-code"], "no code of a model is ever run"),
    (["export", M, "x", "--outtype", "f16"], "here it is '--type'"),
    (["export", M, "x", "--format", "gguf"], "here it is '--to'"),
    (["export", M, "x", "--to", "ollama"], "here it is 'gguf'"),
    (["export", M, "x", "--to", "gguf", "--type", "q4_k_m"], "nearest to it is 'Q4_1'"),
    (["export", M, "x", "--to", "gguf", "--type", "q4_0"], "did you mean 'Q4_0'"),
    (["dequantize", M, "x", "--outtype", "f32"], "here it is '--dtype'"),
    (["dequantize", M, "x", "--dtype", "fp16"], "here it is 'float16'"),
    (["synth", "x", "--dtype", "half"], "here it is 'float16'"),
    (["inspect", M, "--policy", "fp16"], "here it is 'float16'"),
    (["inspect", M, M], "'halfbyte diff A B' compares"),
    (["verify", M, M], "--against"),
    (["tokenize", M, "Once", "upon"], "a text is given with --text"),
    (["tokenize", M, "-p", "a"], "here it is '--text'"),
    (["tokenize", M, "-f", "a"], "here it is '--file'"),
    (["run", M], "here it is 'generate'"),
    (["convert", M, "x"], "here it is 'quantize'"),
    (["llama-server", M], "here it is 'serve'"),
    (["ppl", M], "here it is 'perplexity'"),
    (["info", M], "here it is 'inspect'"),
    (["pull", "org/model"], "nothing is downloaded"),
    (["-V"], "here it is '--version'"),
    ([M], f"halfbyte inspect {M}"),
]
SCHEMES = [("int4", "'sym_int4'"), ("4bit", "'sym_int4'"), ("4", "'sym_int4'"), ("INT8", "'sym_int8'"), ("q8_0", "'sym_int8'"),
           ("Q4_0", "--group-size 32"), ("q4_k_m", "'asym_int4'"), ("Q4_1", "'asym_int4'"), ("iq4", "'iq4_nl'"), ("mxfp4", "'fp4_e2m1'"),
           ("bitsandbytes", "'nf4'"), ("gptq", "'sym_int4'"), ("awq", "'asym_int4'"), ("q5_k_m", "4 and 8 bits"), ("int3", "4 and 8 bits"),
           ("fp16", "halfbyte dequantize --dtype"), ("bf16", "halfbyte dequantize --dtype"), ("sym_in4", "did you mean 'sym_int4'")]
MODEL = [
    (["generate", "-m", M, "-p", "a"], "the model is the first word"),
    (["generate", M, "Once upon a time"], "a prompt is given with --prompt"),
    (["generate", M, "--prompt", "a", "-n32"], "here it is '--max-gen-len'"),
    (["generate", M, "--prompt", "a", "--device", "gpu"], "here it is 'cuda'"),
    (["generate", M, "--prompt", "a", "--dtype", "fp16"], "here it is 'float16'"),
    (["generate", M, "--prompt", "a", "--dtype", "int4"], "halfbyte quantize --scheme"),
    (["chat", M, "hello"], "standard input"),
    (["serve", M, "-np", "4"], "here it is '--parallel'"),
    (["serve", M, "--max-model-len", "4"], "here it is '--ctx-size'"),
    (["serve", M, "--api-key", "secret"], "HALFBYTE_API_KEY"),
    (["generate", M, "--prompt", "a", "--prompt-cache-all"], "of a chat all is kept"),
    (["perplexity", M, "-f", "a"], "here it is '--text'"),
]


class Habits(CommandLineTest):
    def answers(self, words, part):
        with self.subTest(words=words):
            self.fails(2, part, *words, cwd=self.scratch)
            self.assertEqual(list(self.scratch.iterdir()), [])

    def test_options_and_values_of_other_programs(self):
        for words, part in CORE:
            self.answers(words, part)
        for scheme, part in SCHEMES:
            self.answers(["quantize", M, "x", "--scheme", scheme], part)
        self.answers(["quantize", M, "x", "--scheme-for", "lm_head=int8"], "'sym_int8'")

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
    def test_options_and_values_of_other_programs_that_run_models(self):
        for words, part in MODEL:
            self.answers(words, part)

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
    def test_every_dtype_in_a_list_works_and_all_that_work_are_listed(self):
        listed = run("generate", M, "--prompt", "a", "--dtype", "!").stderr.partition("is not one of ")[2].partition(";")[0].split(", ")
        self.assertLessEqual({"float16", "half", "amp", "original"}, set(listed))
        help_text = "".join(self.succeeds("generate", "--help").split())
        self.assertIn("|".join(listed), help_text)
        for policy in listed:
            self.succeeds("inspect", M, "--policy", policy)
        for alias in ["float16", "amp"]:
            words = ["--prompt-tokens", "1,300", "--max-gen-len", "1", "-q", "--dtype", alias]
            self.assertEqual(run("generate", M, *words).returncode, 0, alias)


class LastWins(CommandLineTest):
    def test_of_one_value_the_last_counts(self):
        made = self.json_of("synth", self.scratch / "a", "--like", "llama-1.1b", "--like", "tiny", "--seed", "1", "--seed", "2")
        self.assertEqual((made["like"], made["seed"]), ("tiny", 2))
        plan = self.json_of("quantize", M, "x", "--dry-run", "--scheme", "nf4", "--scheme", "sym_int8", "--group-size", "64", "--group-size=32")
        self.assertEqual({(t["scheme"], t["group_size"]) for t in plan["tensors"] if t["scheme"]}, {("sym_int8", 32)})
        self.assertEqual(self.succeeds("tokenize", M, "--text", "a", "--text", "b"), self.succeeds("tokenize", M, "--text", "b"))

    def test_an_earlier_value_is_checked_too(self):
        self.fails(2, "'two'", "quantize", M, "x", "--threads", "two", "--threads", "2")

    def test_lists_stay_lists(self):
        plan = self.json_of("quantize", M, "x", "--dry-run", "--keep", "model.layers.0", "--keep", "model.layers.1")
        kept = {t["name"] for t in plan["tensors"] if "--keep" in t["reason"]}
        self.assertEqual({name.split(".")[2] for name in kept}, {"0", "1"})

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
    def test_scalars_of_generate(self):
        words = ["generate", M, "--prompt-tokens", "1,300", "--ignore-eos", "-q"]
        made = self.json_of(*words, "--max-gen-len", "9", "--max-gen-len", "2", "--temperature", "1", "--temperature", "0", "--seed", "1", "--seed", "2")
        self.assertEqual(len(made["generations"][0]["tokens"]), 2)
        self.assertEqual(len(self.json_of(*words, "--prompt-tokens", "1,301", "--max-gen-len", "1")["generations"]), 2)


if __name__ == "__main__":
    unittest.main()
