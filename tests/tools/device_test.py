"""--device of the verbs that run a model: what is chosen, what is said, and what is refused."""
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, run

VERBS = [["generate", "--prompt-tokens", "1,300", "--max-gen-len", "2"],
         ["perplexity", "--text", TINY_LLAMA.parent / "heldout.txt", "--ctx", "16", "--chunks", "1"],
         ["bench", "--runs", "1", "--prompt-tokens", "4", "--gen-tokens", "2"]]
FINETUNE, TEXT = ["finetune", TINY_LLAMA], ["--text", TINY_LLAMA.parent / "heldout.txt"]


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Devices(CommandLineTest):
    def present(self):
        return {device["name"] for device in self.json_of("doctor")["torch"]["devices"] if device["works"]}

    def test_every_verb_that_runs_a_model_takes_a_device(self):
        for verb, *words in VERBS:
            done = run(verb, TINY_LLAMA, *words, "--device", "cpu", "-v")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("device cpu (asked for)", done.stderr, verb)
            wanted = "in kernels alone, without LibTorch" if verb == "generate" else r"LibTorch (\d+\.\d+)\S*, built against \1"
            self.assertRegex(done.stderr, wanted, verb)

    def test_auto_says_which_and_why(self):
        if self.present() != {"CPU"}:
            self.skipTest("this machine has another device")
        for verb, *words in VERBS:
            done = run(verb, TINY_LLAMA, *words, "--device", "auto", "-v")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"device cpu \(auto: .*CUDA.*\)", verb)

    def test_bench_records_the_device(self):
        verb, *words = VERBS[2]
        self.assertEqual(self.json_of(verb, TINY_LLAMA, *words, "-q")["device"], "cpu")

    def test_a_device_that_is_not_there_is_one_line_with_the_way_out(self):
        present = self.present()
        for name, title in [("cuda", "CUDA"), ("cuda:3", "CUDA"), ("xpu", "XPU"), ("mps", "MPS")]:
            if title in present:
                continue
            verb, *words = VERBS[0]
            done = self.fails(1, [f"device {name.split(':')[0]}", title, "or choose device cpu"], verb, TINY_LLAMA, *words, "--device", name)
            self.assertEqual(done.stdout, "")
            self.fails(1, [f"device {name.split(':')[0]}", title], *FINETUNE, self.scratch / "out", *TEXT, "--device", name)
            self.assertFalse((self.scratch / "out").exists())

    def test_what_is_no_device_is_refused_before_anything_runs(self):
        for verb, *words in VERBS:
            self.fails(2, ['"gpu"', "auto, cpu, cuda", "--help"], verb, TINY_LLAMA, *words, "--device", "gpu")
        self.fails(2, ["no values"], "generate", TINY_LLAMA, "--prompt-tokens", "1", "--device", "meta")
        self.fails(2, ["no values"], *FINETUNE, self.scratch / "out", *TEXT, "--device", "meta")

    def test_training_records_the_device(self):
        done = self.json_of(*FINETUNE, self.scratch / "out", *TEXT, "--steps", "1", "--ctx", "16", "--batch", "1", "--device", "cpu", "-q")
        self.assertEqual(done["device"], "cpu")


if __name__ == "__main__":
    unittest.main()
