"""`merge` makes adapters part of a checkpoint's weights: the line, the JSON, the record, and what is refused."""
import json
import math
import os
import random
import struct
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, write_safetensors

BOOK = TINY_LLAMA.parent / "heldout.txt"
QUERY = "model.layers.1.self_attn.q_proj"


def float32(values):
    return struct.pack(f"<{len(values)}f", *values)


def write_adapter(folder, size=0.1, hidden=192, rank=2, module=QUERY, **settings):
    """LoRA as peft writes it: random B and A."""
    chance = random.Random(3)
    folder.mkdir()
    draw = lambda count: float32([chance.gauss(0, size) for _ in range(count)])
    write_safetensors(folder / "adapter_model.safetensors",
                      {f"base_model.model.{module}.lora_A.weight": ("F32", [rank, hidden], draw(rank * hidden)),
                       f"base_model.model.{module}.lora_B.weight": ("F32", [hidden, rank], draw(rank * hidden))})
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": ["q_proj"], **settings}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


class Merge(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.packed, self.adapter, self.out = self.scratch / "packed", self.scratch / "adapter", self.scratch / "out"
        self.succeeds("quantize", TINY_LLAMA, self.packed, "-q")
        write_adapter(self.adapter)

    def test_the_line_the_json_and_the_record(self):
        line = self.succeeds("merge", self.packed, self.adapter, self.out)
        self.assertRegex(line, r"^1\.63 MB -> 1\.63 MB in .* s \(1 tensor merged, changed by 0\.\d+; 1 quantised again, relative error 0\.\d+\)\n$")
        done = self.json_of("merge", self.packed, f"{self.adapter}:0.5", self.out, "--adapter", f"{self.adapter}:-0.5", "--overwrite")
        self.assertEqual(list(done), ["checkpoint", "adapters", "destination", "dequantize", "source_bytes", "result_bytes", "merged_tensors",
                                      "quantized_tensors", "resumed_bytes", "was_complete", "change", "rounding", "rel_rmse", "seconds", "notes", "warnings"])
        self.assertEqual([one["weight"] for one in done["adapters"]], [0.5, -0.5])
        self.assertLess(done["change"], 1e-6)  # they cancel
        record = json.loads((self.out / "halfbyte.json").read_text(encoding="utf-8"))["conversion"]["merge"]
        self.assertEqual([one["name"] for one in record["adapters"]], ["adapter", "adapter"])
        self.assertEqual((record["base"]["name"], list(record["tensors"])), ("packed", [QUERY + ".weight"]))
        self.succeeds("verify", self.out)

    def test_dequantized_it_is_plain_and_every_dtype_is_as_recorded(self):
        line = self.succeeds("merge", self.packed, self.adapter, self.out, "--dequantize")
        self.assertRegex(line, r"^1\.63 MB -> 3\.94 MB in .* s \(1 tensor merged, changed by 0\.\d+; rounded by 0\.00\d+\)\n$")
        self.assertEqual(self.json_of("inspect", self.out)["original_dtypes"].keys(), {"bfloat16"})
        self.assertNotIn("quantization_config", json.loads((self.out / "config.json").read_text(encoding="utf-8")))
        self.succeeds("dequantize", self.packed, self.scratch / "plain")
        found = self.json_of("diff", self.scratch / "plain", self.out)
        self.assertEqual([row["name"] for row in found["tensors"]], [QUERY + ".weight"])

    def test_what_was_done_is_not_done_again(self):
        words = ["merge", self.packed, self.adapter, self.out]
        self.succeeds(*words)
        self.assertIn("complete already", self.succeeds(*words, "--resume"))
        self.fails(1, ["exists already", "--overwrite"], *words)
        self.fails(1, ["exists already and is not what this run would write", "weight"], "merge", self.packed, f"{self.adapter}:2", self.out, "--resume")
        self.fails(2, ["--resume and --restart exclude each other"], *words, "--resume", "--restart")

    def test_what_cannot_be_merged_is_refused(self):
        for status, name, settings, wanted in [(3, "dora", {"use_dora": True}, "magnitude"), (3, "bias", {"bias": "all"}, "bias"),
                                               (3, "ia3", {"peft_type": "IA3"}, "peft_type"), (2, "wide", {"hidden": 128}, "128"),
                                               (2, "deep", {"module": "model.layers.9.self_attn.q_proj"}, "model.layers.9.self_attn.q_proj")]:
            with self.subTest(name):
                write_adapter(self.scratch / name, **settings)
                self.fails(status, wanted, "merge", self.packed, self.scratch / name, self.out)
                self.assertEqual([one for one in os.listdir(self.scratch) if one.startswith("out")], [])
        self.fails(1, "nowhere", "merge", self.packed, self.scratch / "nowhere", self.out)
        (self.adapter / "adapter_model.safetensors").write_bytes(b"\x00" * 9)
        self.fails(3, "adapter_model.safetensors", "merge", self.packed, self.adapter, self.out)

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
    def test_the_merged_model_is_the_model_with_the_adapter(self):
        strong = self.scratch / "strong"
        write_adapter(strong, size=0.3, module="model.layers.2.self_attn.o_proj")
        words = ["--text", BOOK, "--ctx", "64", "--chunks", "4", "--dtype", "float32", "-q"]
        measured = lambda *more: self.json_of("perplexity", *more, *words)["perplexity"]
        plain, beside = measured(TINY_LLAMA), measured(TINY_LLAMA, "--adapter", f"{strong}:0.5")
        self.assertGreater(abs(math.log(beside / plain)), 1e-2)
        self.succeeds("merge", TINY_LLAMA, f"{strong}:0.5", self.out, "-q")
        self.assertAlmostEqual(math.log(measured(self.out)), math.log(beside), delta=1e-3)


if __name__ == "__main__":
    unittest.main()
