"""halfbyte finetune, and --adapter of what it wrote."""
import json
import os
import shutil
import signal
import struct
import subprocess
import unittest

from command_line import MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest

BOOK = TINY_LLAMA.parent / "heldout.txt"
SHORT = ["--text", BOOK, "--steps", "4", "--batch", "1", "--ctx", "32", "--lr", "0.01"]


def data(checkpoint):
    """The bytes of a checkpoint of one file, tensor after tensor by name."""
    whole = (checkpoint / "model.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", whole[:8])[0]
    places = {name: one["data_offsets"] for name, one in json.loads(whole[8:begin]).items() if name != "__metadata__"}
    return b"".join(whole[begin + places[name][0] : begin + places[name][1]] for name in sorted(places))


def header(checkpoint):
    """Names, dtypes and shapes of a checkpoint of one file."""
    with (checkpoint / "model.safetensors").open("rb") as file:
        tensors = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return {name: (one["dtype"], one["shape"]) for name, one in tensors.items() if name != "__metadata__"}


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
        report = self.scratch / "<report>"
        line = self.succeeds("finetune", self.model, self.scratch / "a", *SHORT, "--targets", "q_proj", "--overwrite", "--report", report, "--eval", BOOK, "--eval-every", "2", "-q")
        self.assertIn("4 steps, loss ", line)
        page, data = ((report / name).read_text(encoding="utf-8") for name in ("report.html", "report.json"))
        self.assertEqual((page.count("<circle"), page.count('class="reach"'), len(json.loads(data)["losses"])), (2, 3, 4))
        self.assertIn(f"{json.loads(data)['losses'][-1]:.4f} nats a token", page)
        self.assertNotIn("<script", page)
        config = json.loads((self.scratch / "a/adapter_config.json").read_text(encoding="utf-8"))
        self.assertEqual(len(config["target_modules"]), 4)

    def test_what_cannot_be_is_refused(self):
        (self.scratch / "a").mkdir()
        self.fails(1, ["exists already", "--overwrite"], "finetune", self.model, self.scratch / "a", *SHORT)
        self.fails(2, "--rank", "finetune", self.model, self.scratch / "b", *SHORT, "--rank", "0")
        self.fails(2, "'nothing' names no Linear", "finetune", self.model, self.scratch / "b", *SHORT, "--targets", "nothing")
        self.fails(1, "nowhere.txt", "finetune", self.model, self.scratch / "b", "--text", "nowhere.txt")
        short = self.scratch / "short.txt"
        short.write_text("", encoding="utf-8")
        self.fails(2, "short.txt", "finetune", self.model, self.scratch / "b", "--text", short)
        self.fails(1, "nowhere", "generate", self.model, "--adapter", "nowhere", "--prompt", "a")
        self.fails(2, "--prompt-cache", "generate", self.model, "--adapter", "x", "--prompt", "a", "--prompt-cache", self.scratch / "c")
        self.fails(2, ["--report", "no folder"], "finetune", self.model, self.scratch / "b", *SHORT, "--report", short)
        self.assertFalse((self.scratch / "b").exists())

    def test_all_weights_come_back_in_their_dtypes(self):
        out = self.scratch / "full"
        done = json.loads(self.succeeds("finetune", TINY_LLAMA, out, *SHORT, "--method", "full", "--lr", "0.001", "--eval", BOOK, "--json", "-q"))
        self.assertEqual([step for step, _ in (one.values() for one in done["evaluations"])], [4])
        self.assertEqual(header(out), header(TINY_LLAMA))
        self.assertNotEqual((out / "model.safetensors").read_bytes(), (TINY_LLAMA / "model.safetensors").read_bytes())
        manifest = json.loads((out / "halfbyte.json").read_text(encoding="utf-8"))
        self.assertEqual(manifest["conversion"]["training"]["base"]["name"], TINY_LLAMA.name)
        self.succeeds("verify", out, "-q")
        self.fails(2, ["is packed", "train adapters beside it"], "finetune", self.model, self.scratch / "b", *SHORT, "--method", "full")
        for words in (["--masters", "bfloat16"], ["--fake-quantize", "nf4"]):
            self.fails(2, "is for training all weights", "finetune", self.model, self.scratch / "b", *SHORT, *words)

    def test_masters_begin_with_what_is_stored_not_with_what_products_take(self):
        ids = self.scratch / "ids.jsonl"
        ids.write_text(json.dumps(list(range(3, 40))) + "\n", encoding="utf-8")
        for dtype, size in [("float32", 4), ("float16", 2)]:
            drawn, out = self.scratch / dtype, self.scratch / f"{dtype}-trained"
            self.succeeds("synth", drawn, "--config", TINY_LLAMA, "--dtype", dtype, "-q")
            # A rate at which next to nothing is learnt.
            self.succeeds("finetune", drawn, out, "--method", "full", "--jsonl", ids, "--steps", "1", "--batch", "1", "--optimizer", "sgd", "--lr", "1e-12", "-q")
            before, after = data(drawn), data(out)
            changed = sum(before[at : at + size] != after[at : at + size] for at in range(0, len(before), size)) * size
            self.assertLess(changed, 0.01 * len(before), dtype)

    def test_from_a_config(self):
        config, out = self.scratch / "config", self.scratch / "new"
        config.mkdir()
        for name in ("config.json", "tokenizer.model", "tokenizer_config.json"):
            shutil.copy(TINY_LLAMA / name, config / name)
        words = ["--init", config, *SHORT, "--seed", "5"]
        first = json.loads(self.succeeds("finetune", out, *words, "--json", "-q"))["losses"]
        self.assertGreater(first[0], 6.5)  # of 1024 tokens, none of which is known: log(1024) = 6.9
        self.succeeds("generate", out, "--prompt", "Once", "--max-gen-len", "2", "-q")
        self.assertEqual(header(out), header(TINY_LLAMA))
        again = self.scratch / "again"
        self.assertEqual(json.loads(self.succeeds("finetune", again, *words, "--json", "-q"))["losses"], first)
        self.assertEqual((again / "model.safetensors").read_bytes(), (out / "model.safetensors").read_bytes())
        self.fails(2, "give OUT alone", "finetune", self.model, self.scratch / "b", *words)
        self.fails(2, "OUT is missing", "finetune", self.model, *SHORT)
        self.fails(1, "nowhere", "finetune", self.scratch / "b", "--init", "nowhere", *SHORT)
        (config / "config.json").write_text('{"architectures": ["Nobodys"], "model_type": "nobodys"}', encoding="utf-8")
        self.fails(3, "of no family that is known", "finetune", self.scratch / "b", *words)

    def test_an_adapter_to_begin_with(self):
        first, second = self.scratch / "first", self.scratch / "second"
        before = json.loads(self.succeeds("finetune", self.model, first, *SHORT, "--rank", "4", "--rslora", "--json", "-q"))
        after = json.loads(self.succeeds("finetune", self.model, second, *SHORT, "--adapter", first, "--json", "-q"))
        self.assertNotEqual(before["losses"][0], after["losses"][0])
        config = json.loads((second / "adapter_config.json").read_text(encoding="utf-8"))
        self.assertEqual((config["r"], config["use_rslora"]), (4, True))
        self.fails(2, "adapter", "finetune", TINY_LLAMA, self.scratch / "b", *SHORT, "--method", "full", "--adapter", first)

    def test_a_log_has_each_step_once(self):
        log, out = self.scratch / "log.jsonl", self.scratch / "a"
        words = ["finetune", self.model, out, *SHORT[:2], "--batch", "1", "--ctx", "32", "--log", log, "-q", "--steps"]
        self.succeeds(*words, "6")
        wanted = [json.loads(line)["loss"] for line in log.read_text(encoding="utf-8").splitlines()]
        self.assertEqual(len(wanted), 6)
        shutil.rmtree(out)
        self.stopped_after(2, ["finetune", self.model, out, *SHORT[:2], "--batch", "1", "--ctx", "32", "--steps", "6", "-q"])
        log.write_text("".join(json.dumps({"step": i + 1, "loss": 0}) + "\n" for i in range(6)) + "[\n", encoding="utf-8")
        self.fails(1, ["--resume", "--restart"], *words, "6")
        self.fails(2, "another steps", *words, "7", "--resume")
        done = json.loads(self.succeeds(*words, "6", "--resume", "--json"))
        self.assertGreaterEqual(done["resumed_steps"], 2)
        found = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        self.assertEqual([one["step"] for one in found], list(range(1, 7)))
        self.assertEqual([one["loss"] for one in found][done["resumed_steps"]:], wanted[done["resumed_steps"]:])
        self.assertEqual(done["losses"], wanted)
        self.assertFalse((self.scratch / "a.partial").exists())

    def stopped_after(self, steps, words):
        """By Ctrl-C, while a step of its log is not yet read."""
        log = self.scratch / "fifo"
        os.mkfifo(log)
        with subprocess.Popen([PROGRAM, *map(str, words), "--log", log, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            with log.open(encoding="utf-8") as lines:
                for _ in range(steps):
                    next(lines)
                process.send_signal(signal.SIGINT)
                lines.read()
            output, error = process.communicate(timeout=60)
        log.unlink()
        self.assertEqual(process.returncode, 130, error)
        done = json.loads(output)
        self.assertTrue(done["stopped"] and done["steps"] >= steps, done)
        return error

    def test_ctrl_c_says_how_to_go_on(self):
        out = self.scratch / "a"
        error = self.stopped_after(2, ["finetune", self.model, out, "--text", BOOK, "--steps", "1000000", "--batch", "1", "--ctx", "16"])
        self.assertIn("--resume goes on", error)
        self.assertFalse(out.exists())
        self.fails(1, ["--resume", "--restart"], "finetune", self.model, out, *SHORT)
        self.succeeds("finetune", self.model, out, *SHORT, "--restart", "-q")
        self.assertFalse((self.scratch / "a.partial").exists())


if __name__ == "__main__":
    unittest.main()
