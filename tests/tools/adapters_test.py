"""--adapter in every verb that runs a model: each says what the merged model says."""
import json
import subprocess
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, run
from merge_test import write_adapter
from serve_test import serving

PROMPT = "Once upon a time"
FLOAT32 = ["--dtype", "float32", "--compute", "float"]


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Adapters(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.model, self.merged = self.scratch / "plain", self.scratch / "merged"
        self.succeeds("dequantize", TINY_LLAMA, self.model, "--dtype", "float32", "-q")
        write_adapter(self.scratch / "one", size=0.3)
        write_adapter(self.scratch / "two", size=0.2, module="model.layers.2.self_attn.o_proj")
        one, two = f"{self.scratch / 'one'}:0.5", self.scratch / "two"
        self.beside = ["--adapter", one, "--adapter", two]
        self.succeeds("merge", self.model, one, self.merged, "--adapter", two, "-q")

    def generated(self, model, *words):
        return self.json_of("generate", model, *words, "--prompt", PROMPT, "--max-gen-len", "24", "--temperature", "0", *FLOAT32, "-q")

    def test_generate(self):
        plain, merged, beside = self.generated(self.model), self.generated(self.merged), self.generated(self.model, *self.beside)
        self.assertEqual(beside, merged)
        self.assertNotEqual(beside, plain)
        self.fails(2, "--prompt-cache", "generate", self.model, *self.beside, "--prompt", "a", "--prompt-cache", self.scratch / "c")
        self.fails(1, "nowhere:x", "generate", self.model, "--adapter", "nowhere:x", "--prompt", "a")

    def test_chat(self):
        def said(model, *words):
            result = run("chat", model, *words, "--chat-template", "llama2", "--max-gen-len", "16", "--temperature", "0", "--json", *FLOAT32, "-q",
                         input=PROMPT + "\n")
            self.assertEqual(result.returncode, 0, result.stderr)
            return json.loads(result.stdout)["text"]
        self.assertEqual(said(self.model, *self.beside), said(self.merged))
        self.assertNotEqual(said(self.model, *self.beside), said(self.model))
        self.fails(2, "--prompt-cache", "chat", self.model, *self.beside, "--prompt-cache", self.scratch / "c", stdin=subprocess.DEVNULL)

    def test_serve(self):
        answers = []
        for words in [[self.model, *self.beside], [self.merged], [self.model]]:
            with serving(*words, *FLOAT32, "-q") as server:
                answers.append(server.complete(PROMPT, tokens=24)["choices"][0]["text"])
        self.assertEqual(answers[0], answers[1])
        self.assertNotEqual(answers[0], answers[2])
        self.fails(2, "--adapter", "serve", self.model, self.merged, "--port", "0", *self.beside)

    def test_bench(self):
        self.succeeds("bench", self.model, *self.beside, "--prompt-tokens", "8", "--gen-tokens", "2", "--runs", "1", "-q")


if __name__ == "__main__":
    unittest.main()
