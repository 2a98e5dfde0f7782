"""--prompt-cache of generate and chat: what is read again, what is written when, what is refused, and Ctrl-C."""
import json
import shutil
import signal
import subprocess
import unittest

from command_line import MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest, copy_of_tiny_llama, run

GREEDY = ["--temperature", "0", "--dtype", "float32", "-q"]
SYSTEM = ",".join(str(3 + 37 * i % 90) for i in range(60))


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class PromptCache(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.cache = self.scratch / "system.cache"

    def generation(self, prompt, *words, model=TINY_LLAMA):
        return self.json_of("generate", model, "--prompt-tokens", prompt, "--max-gen-len", 5, *GREEDY, *words)["generations"][0]

    def cached(self, prompt, *words):
        """As without a cache, and how much of it came from there."""
        alone = self.generation(prompt)
        self.assertEqual(alone["cached_tokens"], 0)
        kept = self.generation(prompt, "--prompt-cache", self.cache, *words)
        self.assertEqual({**kept, "cached_tokens": 0}, alone)
        return kept["cached_tokens"]

    def test_a_prompt_that_begins_alike_is_not_read_again(self):
        self.assertEqual(self.cached(SYSTEM), 0)
        self.assertEqual(self.cached(SYSTEM), 59)  # one is read again, for what it says next
        self.assertEqual(self.cached(SYSTEM + ",100,101"), 60)
        self.assertEqual(self.cached(SYSTEM + ",100,102"), 61)
        self.assertEqual([path.name for path in self.scratch.iterdir()], ["system.cache"])

    def test_only_a_prompt_that_the_file_lacks_is_written(self):
        self.cached(SYSTEM)
        first = self.cache.read_bytes()
        self.assertEqual(self.cached(SYSTEM + ",100", "--prompt-cache-ro"), 60)
        self.assertEqual(self.cached(SYSTEM), 59)
        self.assertEqual(self.cache.read_bytes(), first)
        self.assertEqual(self.cached(SYSTEM + ",100"), 60)
        self.assertGreater(len(self.cache.read_bytes()), len(first))
        self.cache.unlink()
        self.cached(SYSTEM)
        self.assertEqual(self.cache.read_bytes(), first)  # the same run writes the same bytes

    def test_a_text_is_shown_as_it_is_without(self):
        words = ["generate", TINY_LLAMA, "--prompt", "The ship", "--max-gen-len", 12, *GREEDY]
        wanted = self.succeeds(*words)
        for _ in range(2):
            self.assertEqual(self.succeeds(*words, "--prompt-cache", self.cache), wanted)
        self.assertRegex(run(*words[:-1], "-v", "--prompt-cache", self.cache).stderr, "[1-9] tokens of the prompt came from .*system.cache")

    def test_a_chat_goes_on_from_the_one_before(self):
        words = ["chat", TINY_LLAMA, "--chat-template", "zephyr", *GREEDY, "--max-gen-len", "6", "--json"]

        def turns(*lines):
            done = run(*words, "--prompt-cache", self.cache, input="".join(line + "\n" for line in lines))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return [json.loads(line) for line in done.stdout.splitlines()]

        first = turns("The ship was late.", "Why?")
        again = turns("The ship was late.", "Why?", "Who?")
        self.assertEqual(first[0]["cached_tokens"], 0)
        self.assertEqual(again[0]["cached_tokens"], again[0]["prompt_tokens"] - 1)
        self.assertEqual([turn["tokens"] for turn in again[:2]], [turn["tokens"] for turn in first])
        other = turns("The ship was early.")
        self.assertGreater(other[0]["cached_tokens"], 5)

    def test_what_does_not_fit_is_refused_in_one_line_and_stays(self):
        self.cached(SYSTEM)
        kept = self.cache.read_bytes()
        other = copy_of_tiny_llama(self.scratch / "other")
        config = json.loads((other / "config.json").read_text())
        (other / "config.json").write_text(json.dumps(config | {"rope_theta": 500.0}))
        words = ["--prompt-tokens", SYSTEM, "--prompt-cache", self.cache]
        self.fails(1, ["system.cache", "made with another model", "delete it"], "generate", other, *GREEDY, *words)
        self.fails(1, "another dtype policy", "generate", TINY_LLAMA, *words)
        self.cache.write_bytes(kept[:-1])
        self.fails(3, "truncated or damaged", "generate", TINY_LLAMA, *GREEDY, *words)
        self.cache.write_bytes(kept[:-9000] + bytes([kept[-9000] ^ 1]) + kept[-8999:])
        self.fails(3, "its bytes have another hash than it says", "generate", TINY_LLAMA, *GREEDY, *words)
        self.assertEqual(self.cache.read_bytes()[-8999:], kept[-8999:])

    def test_what_does_not_go_together_is_refused(self):
        words = ["generate", TINY_LLAMA, "--prompt", "x"]
        self.fails(2, "one at a time", *words, "--prompt", "y", "--prompt-cache", self.cache)
        self.fails(2, "--prompt-cache", *words, "--prompt-cache-ro")
        self.fails(2, "names no file", *words, "--prompt-cache", "")
        self.fails(1, "there is no such file", *words, "--prompt-cache", self.cache, "--prompt-cache-ro")
        self.fails(1, "no such folder", *words, "--prompt-cache", self.scratch / "absent/cache")
        weights = self.scratch / "model.safetensors"
        shutil.copy(TINY_LLAMA / "model.safetensors", weights)
        before = weights.read_bytes()
        self.fails(3, "is no prompt cache", *words, "--prompt-cache", weights)
        self.assertEqual(weights.read_bytes(), before)

    def test_ctrl_c_keeps_the_prompt_that_was_read(self):
        roomy = copy_of_tiny_llama(self.scratch / "roomy")
        config = json.loads((roomy / "config.json").read_text())
        (roomy / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 60_000}))
        words = ["generate", roomy, "--prompt-tokens", SYSTEM, "--prompt-cache", self.cache]
        process = subprocess.Popen([PROGRAM, *map(str, words), "--ignore-eos", "--max-gen-len", "30000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        self.assertTrue(process.stdout.read(1))
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=120)
        self.assertEqual((process.returncode, messages.endswith(b"halfbyte: stopped\n")), (130, True), messages)
        again = self.json_of(*words, "--max-gen-len", 1, "-q")["generations"][0]
        self.assertEqual(again["cached_tokens"], 59)
        self.assertEqual({path.name for path in self.scratch.iterdir()}, {"system.cache", "roomy"})


if __name__ == "__main__":
    unittest.main()
