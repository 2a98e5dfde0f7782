"""halfbyte finetune, and --adapter of what it wrote."""
import json
import os
import signal
import subprocess
import unittest

from command_line import MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest

BOOK = TINY_LLAMA.parent / "heldout.txt"
SHORT = ["--text", BOOK, "--steps", "4", "--batch", "1", "--ctx", "32", "--lr", "0.01"]


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Finetune(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.model = self.scratch / "tiny4"
        self.succeeds("quantize", TINY_LLAMA, self.model, "--scheme", "nf4", "-q")

    def test_adapters_are_written_told_about_and_used(self):
        log = self.scratch / "log.jsonl"
        done = json.loads(self.succeeds("finetune", self.model, self.scratch / "a", *SHORT, "--rank", "2", "--log", log, "--json", "-q"))
        self.assertEqual((done["steps"], len(done["losses"]), done["tokens"], done["stopped"]), (4, 4, 4 * 31, False))
        self.assertEqual([json.loads(line)["loss"] for line in log.read_text(encoding="utf-8").splitlines()], done["losses"])
        self.assertEqual(sorted(one.name for one in (self.scratch / "a").iterdir()), ["adapter_config.json", "adapter_model.safetensors"])
        config = json.loads((self.scratch / "a/adapter_config.json").read_text(encoding="utf-8"))
        self.assertEqual((config["peft_type"], config["r"], config["target_modules"][0]), ("LORA", 2, "down_proj"))
        words = ["perplexity", self.model, "--text", BOOK, "--ctx", "32", "--chunks", "2", "--json", "-q"]
        plain, beside = (json.loads(self.succeeds(*words, *more))["perplexity"] for more in ([], ["--adapter", self.scratch / "a"]))
        self.assertNotEqual(plain, beside)
        self.succeeds("generate", self.model, "--adapter", self.scratch / "a", "--prompt", "Once", "--max-gen-len", "2", "-q")
        line = self.succeeds("finetune", self.model, self.scratch / "a", *SHORT, "--targets", "q_proj", "--overwrite", "-q")
        self.assertIn("4 steps, loss ", line)
        config = json.loads((self.scratch / "a/adapter_config.json").read_text(encoding="utf-8"))
        self.assertEqual(len(config["target_modules"]), 4)

    def test_what_cannot_be_is_refused(self):
        (self.scratch / "a").mkdir()
        self.fails(1, ["exists already", "--overwrite"], "finetune", self.model, self.scratch / "a", *SHORT)
        self.fails(2, "--rank", "finetune", self.model, self.scratch / "b", *SHORT, "--rank", "0")
        self.fails(2, "'nothing' names no Linear", "finetune", self.model, self.scratch / "b", *SHORT, "--targets", "nothing")
        self.fails(1, "nowhere.txt", "finetune", self.model, self.scratch / "b", "--text", "nowhere.txt")
        short = self.scratch / "short.txt"
        short.write_text("a", encoding="utf-8")
        self.fails(2, "short.txt", "finetune", self.model, self.scratch / "b", "--text", short)
        self.fails(1, "nowhere", "generate", self.model, "--adapter", "nowhere", "--prompt", "a")
        self.fails(2, "--prompt-cache", "generate", self.model, "--adapter", "x", "--prompt", "a", "--prompt-cache", self.scratch / "c")
        self.assertFalse((self.scratch / "b").exists())

    def test_ctrl_c_writes_the_steps_that_were_done(self):
        log = self.scratch / "log"
        os.mkfifo(log)
        words = [PROGRAM, "finetune", self.model, self.scratch / "a", "--text", BOOK, "--steps", "1000000", "--batch", "1", "--ctx", "16", "--log", log, "--json", "-q"]
        with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            with log.open(encoding="utf-8") as lines:
                next(lines)
                next(lines)
                process.send_signal(signal.SIGINT)
                lines.read()
            output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        done = json.loads(output)
        self.assertTrue(done["stopped"] and done["steps"] >= 2)
        self.assertTrue((self.scratch / "a/adapter_model.safetensors").exists())
        self.assertFalse((self.scratch / "a.partial").exists())


if __name__ == "__main__":
    unittest.main()
