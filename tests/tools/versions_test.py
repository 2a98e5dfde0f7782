"""Checkpoints of other versions of the format: a newer minor one is read with a note, a newer major one is refused by name."""
import json
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, run

PROMPT = ["--prompt-tokens", "1,300", "--max-gen-len", "1"]


class Versions(CommandLineTest):
    def checkpoint(self, **changes):
        result = self.scratch / "tiny-4bit"
        self.succeeds("quantize", TINY_LLAMA, result, "-q")
        path = result / "halfbyte.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        return result

    def test_a_newer_minor_version_is_read_with_a_note(self):
        checkpoint = self.checkpoint(format_minor=7, a_key_of_tomorrow=[1])
        words = ["of format version 1.7", "reads 1.0"]
        self.assertIn("note        halfbyte.json is of format version 1.7", self.succeeds("inspect", checkpoint))
        done = run("dequantize", checkpoint, self.scratch / "dense")
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in words:
            self.assertIn(part, done.stderr)
        if MODEL_PROGRAM.exists():
            done = run("generate", checkpoint, *PROMPT, "-v")
            self.assertEqual(done.returncode, 0, done.stderr)
            for part in words:
                self.assertIn(part, done.stderr)

    def test_a_newer_major_version_is_refused_by_name(self):
        checkpoint = self.checkpoint(format_version=2)
        verbs = [["inspect"], ["verify"], ["dequantize", self.scratch / "dense"]]
        if MODEL_PROGRAM.exists():
            verbs += [["generate", *PROMPT], ["bench", "--runs", "1"]]
        for verb, *words in verbs:
            self.fails(3, ["halfbyte.json", "format_version", "format version 2", "use a newer one"], verb, checkpoint, *words)


if __name__ == "__main__":
    unittest.main()
