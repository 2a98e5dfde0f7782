"""A lesser CPU, as a user of the command line sees it."""
import os
import unittest

from command_line import MODEL_PROGRAM, CommandLineTest, copy_of_tiny_llama, run

PROMPT = ["--prompt-tokens", "1,300,301"]
LEVELS = ["avx2", "avx2_vnni"]
LESSER_CPU = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class LesserCpu(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.model = copy_of_tiny_llama(self.scratch / "model")

    def test_a_lesser_cpu_runs_every_policy_and_says_what_it_lacks(self):
        for level in LEVELS:
            with self.subTest(level):
                self.check_every_policy(level)

    def check_every_policy(self, level):
        environment = {**os.environ, **LESSER_CPU, "HALFBYTE_ISA": level}
        for policy in ["amp:bfloat16", "amp:float16", "half", "bfloat16", "float32", "original"]:
            done = run("generate", self.model, *PROMPT, "--max-gen-len", "3", "--temperature", "0", "--dtype", policy, "-v", env=environment)
            if f"HALFBYTE_ISA: this CPU has no {level};" in done.stderr:
                self.skipTest("this CPU is lesser still")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("ONEDNN_MAX_CPU_ISA=AVX2" in done.stderr or "this CPU lacks" in done.stderr, policy != "float32", done.stderr)


if __name__ == "__main__":
    unittest.main()
