"""What LibTorch refuses, as a user sees it: in halfbyte's words, with its own under -v."""
import json
import os
import resource
import unittest

from command_line import MODEL_PROGRAM, CommandLineTest, copy_of_tiny_llama, run

RAW = ["DefaultCPUAllocator", "c10::", "Exception raised", "enforce fail"]


@unittest.skipIf("HALFBYTE_SANITIZER" in os.environ, "the sanitizer's shadow takes terabytes of address space")
@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Memory(CommandLineTest):
    def setUp(self):
        super().setUp()
        model = copy_of_tiny_llama(self.scratch / "model")
        path = model / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "max_position_embeddings": 2**24}))
        self.words = ["generate", model, "--prompt-tokens", "1,300,301", "--max-gen-len", str(10**9)]
        limit = 6 << 30  # bytes of address space: LibTorch itself takes less, keys and values of 2**24 tokens far more
        self.options = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))}

    def test_memory_that_libtorch_does_not_get_is_one_line(self):
        done = self.fails(4, ["not enough memory", "fewer tokens"], *self.words, **self.options)
        for raw in RAW:
            self.assertNotIn(raw, done.stderr)

    def test_verbose_gives_the_librarys_own_words_too(self):
        done = run(*self.words, "-v", **self.options)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("the library's own words: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
