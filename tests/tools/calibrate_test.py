"""`halfbyte quantize --calibrate`: the loss is smaller, and the same words give the same bytes."""
import json
import random
import shutil
import signal
import subprocess
import unittest

from command_line import MODEL_PROGRAM, PROGRAM, TINY_LLAMA, copy_of_tiny_llama, messages_of, wait_until
from held_out import TOKENS, HeldOutTest


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Calibrate(HeldOutTest):
    def calibrated(self, name, *words):
        return self.quantize(name, "--calibrate", self.read, *TOKENS, *words)

    def loss(self, checkpoint):
        found = self.json_of("perplexity", checkpoint, "--against", TINY_LLAMA, "--text", self.kept, "--dtype", "float32", "--ctx", 128, "--chunks", 16, "-q")
        return found["kl_mean"]

    def test_every_method_loses_less_than_the_weights_alone(self):
        alone = self.loss(self.quantize("alone"))
        search = self.loss(self.calibrated("search", "--method", "search"))
        gptq = self.loss(self.calibrated("gptq", "--method", "gptq"))
        gptaq = self.loss(self.calibrated("gptaq", "--method", "gptaq"))
        self.assertLess(search, alone)  # .0061 of .0062
        self.assertLess(gptq, 0.75 * alone)  # .0041
        self.assertLess(gptaq, 0.95 * gptq)

    def test_the_same_words_give_the_same_bytes(self):
        once, again = self.calibrated("once"), self.calibrated("again")
        for name in ("model.safetensors", "halfbyte.json"):
            self.assertEqual((once / name).read_bytes(), (again / name).read_bytes(), name)
        self.succeeds("verify", once, "--against", TINY_LLAMA, "-q")

    def test_the_record_says_how(self):
        manifest = json.loads((self.calibrated("default") / "halfbyte.json").read_text(encoding="utf-8"))
        said = manifest["conversion"]["calibration"]
        self.assertEqual((said["method"], said["tokens"], said["threads"]), ("gptaq", 2048, 2))
        self.assertEqual(said.keys(), {"method", "text", "ids", "sequences", "tokens", "isa", "threads", "libtorch"})

    def test_the_built_in_text_and_what_is_said_of_it(self):
        words = ("quantize", TINY_LLAMA, self.scratch / "result", "--calibrate", "builtin", *TOKENS, "--method", "search")
        plan = self.json_of(*words, "--dry-run")["calibration"]
        self.assertEqual((plan["method"], plan["tokens"], plan["sequences"]), ("search", 2048, 16))
        self.assertIn("calibration: search on 2048 tokens in 16 sequences\n", self.succeeds(*words, "--dry-run"))
        self.assertFalse((self.scratch / "result").exists())
        done = self.json_of(*words, "-q")["calibration"]
        self.assertEqual({**done, "threads": 0}, {**plan, "threads": 0})
        self.assertEqual(json.loads((self.scratch / "result/halfbyte.json").read_text(encoding="utf-8"))["conversion"]["calibration"], done)

    def test_without_it_a_line_says_what_it_would_give(self):
        said = self.succeeds("quantize", TINY_LLAMA, self.scratch / "alone")
        self.assertIn("\nby the weights alone: --calibrate builtin", said)
        self.assertIsNone(self.json_of("quantize", TINY_LLAMA, self.scratch / "again", "-q")["calibration"])
        for words in (("--scheme", "sym_int8"), ("-q",)):
            self.assertNotIn("--calibrate", self.succeeds("quantize", TINY_LLAMA, self.scratch / "other", *words, "--overwrite"))

    def lines(self, name, values):
        path = self.scratch / name
        path.write_text("".join((value if isinstance(value, str) else json.dumps(value)) + "\n" for value in values), encoding="utf-8")
        return path

    def said_of(self, text, **words):
        """What the record says of a calibration on this file."""
        self.succeeds("quantize", words.get("model", TINY_LLAMA), self.scratch / "said", "--calibrate", text, "--calibration-tokens", 512,
                      "--calibration-ctx", 64, "--method", "search", "--overwrite", "-q")
        manifest = json.loads((self.scratch / "said/halfbyte.json").read_text(encoding="utf-8"))
        return {key: manifest["conversion"]["calibration"][key] for key in ("ids", "sequences", "tokens")}

    def test_token_ids_are_read_as_they_are_and_need_no_tokenizer(self):
        ids = [3 + n * n % 701 for n in range(200)]
        whole = self.said_of(self.lines("whole.jsonl", [{"input_ids": ids}]))
        self.assertEqual((whole["sequences"], whole["tokens"]), (3, 192))
        self.assertEqual(self.said_of(self.lines("parts.jsonl", [ids[:70], "", {"input_ids": ids[70:]}])), whole)
        (self.scratch / "list.json").write_text(json.dumps([ids[:70], ids[70:]]), encoding="utf-8")
        self.assertEqual(self.said_of(self.scratch / "list.json"), whole)
        bare = self.scratch / "bare"
        bare.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copy(TINY_LLAMA / name, bare / name)
        self.assertEqual(self.said_of(self.scratch / "list.json", model=bare), whole)
        self.fails(2, ["bare", "there is no tokenizer", ".jsonl"], "quantize", bare, self.scratch / "none", "--calibrate", self.read)

    def test_lines_of_text_are_read_by_the_tokenizer(self):
        text = self.read.read_text(encoding="utf-8")[:600]
        found = self.said_of(self.lines("texts.jsonl", [{"text": text}, {"prompt": text}]))
        self.assertEqual(found, self.said_of(self.lines("again.jsonl", [{"text": text, "more": 1}, {"text": text}])))
        self.assertGreaterEqual(found["sequences"], 2)

    def test_conversations_go_through_the_template(self):
        chat = copy_of_tiny_llama(self.scratch / "chat")
        config = json.loads((chat / "tokenizer_config.json").read_text(encoding="utf-8"))
        template = "{% for message in messages %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% endfor %}"
        (chat / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": template}), encoding="utf-8")
        said = [{"role": "user", "content": "Tell me of the ship."}, {"role": "assistant", "content": "It sailed north, " * 30}]
        found = self.said_of(self.lines("chat.jsonl", [{"messages": said}]), model=chat)
        plain = self.said_of(self.lines("plain.jsonl", [{"text": "".join(each["content"] for each in said)}]), model=chat)
        self.assertGreaterEqual(found["sequences"], 1)
        self.assertNotEqual(found["ids"], plain["ids"])

    def test_a_bad_line_is_named(self):
        good = {"input_ids": [3, 4, 5]}
        for bad, said in [("{", "JSON"), ({"input_ids": [3, 99_999]}, "99999 is no token id"), ({"input_ids": []}, "no list of token ids"),
                          ({"input_ids": [1.5]}, "1.5 is no token id"), ({"texts": "a"}, "in one file"), ([], "no list of token ids")]:
            path = self.lines("bad.jsonl", [good, bad])
            self.fails(3, ["bad.jsonl: line 2: ", said], "quantize", TINY_LLAMA, self.scratch / "none", "--calibrate", path)
        for bad, said in [({"texts": "a"}, "none of {\"input_ids\": [..]}"), ({"messages": []}, "no list of messages"),
                          ({"messages": [{"role": "tool", "content": "a"}]}, "a message is")]:
            path = self.lines("bad.jsonl", [bad])
            self.fails(3, ["bad.jsonl: line 1: ", said], "quantize", TINY_LLAMA, self.scratch / "none", "--calibrate", path)
        self.assertFalse((self.scratch / "none.partial").exists())

    def test_ctrl_c_ends_it_and_resume_goes_on(self):
        words = ["quantize", TINY_LLAMA, self.scratch / "stopped", "--calibrate", self.read, "--calibration-tokens", 8192, "--threads", 1]
        work = self.scratch / "stopped.partial"
        for more, is_left in (((), False), (("--resume",), True)):
            with subprocess.Popen([PROGRAM, *map(str, words), *more], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  encoding="utf-8") as process:
                wait_until((work / "calibration/quantized-1").exists, process)
                process.send_signal(signal.SIGINT)
                messages = messages_of(process)
            self.assertEqual((process.returncode, messages.count("\n")), (130, 1), messages)
            self.assertEqual((work.exists(), (self.scratch / "stopped").exists()), (is_left, False))
        self.succeeds(*words, "--resume", "-q")
        self.succeeds(*words[:2], self.scratch / "whole", *words[3:], "-q")
        for name in ("model.safetensors", "halfbyte.json"):
            self.assertEqual((self.scratch / "stopped" / name).read_bytes(), (self.scratch / "whole" / name).read_bytes(), name)

    def test_a_mixture_of_experts(self):
        numbers = random.Random(3)
        ids = self.lines("ids.jsonl", [[numbers.randrange(3, 120) for _ in range(32)] for _ in range(32)])
        mixtral = TINY_LLAMA.parent / "families/mixtral"
        words = ("--calibrate", ids, "--calibration-ctx", 32, "--group-size", 32, "--threads", 1, "-q")
        self.succeeds("quantize", mixtral, self.scratch / "alone", *words[4:])
        for count in (1024, 32):  # with few tokens an expert sees fewer than gptaq needs, or none
            result = self.scratch / f"experts{count}"
            notes = self.json_of("quantize", mixtral, result, *words, "--calibration-tokens", count)["notes"]
            self.assertEqual(any("matrices saw too few tokens for gptaq" in note for note in notes), count == 32, notes)
            self.succeeds("verify", result, "--against", mixtral, "-q")
            self.assertNotEqual((result / "model.safetensors").read_bytes(), (self.scratch / "alone/model.safetensors").read_bytes())


if __name__ == "__main__":
    unittest.main()
