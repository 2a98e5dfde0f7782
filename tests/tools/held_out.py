"""A text that the model was not trained on: most of it to calibrate by, the rest to judge by."""
from command_line import TINY_LLAMA, CommandLineTest

HELDOUT = TINY_LLAMA.parent / "heldout.txt"
TOKENS = ("--calibration-tokens", 2048, "--calibration-ctx", 128)


class HeldOutTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        text = HELDOUT.read_text(encoding="utf-8")
        self.read, self.kept = self.scratch / "read.txt", self.scratch / "kept.txt"
        self.read.write_text(text[len(text) // 4:], encoding="utf-8")
        self.kept.write_text(text[:len(text) // 4], encoding="utf-8")

    def quantize(self, name, *words):
        self.succeeds("quantize", TINY_LLAMA, self.scratch / name, "--threads", 2, *words, "-q")
        return self.scratch / name
