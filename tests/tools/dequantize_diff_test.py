"""`dequantize` brings the plain checkpoint back; `diff` says how far two checkpoints are from each other."""
import json
import os
import pathlib
import signal
import struct
import subprocess
import unittest

from command_line import (PROGRAM, TINY_LLAMA, CommandLineTest, bf16_rows, copy_of_tiny_llama, messages_of, run, wait_until, write_safetensors)

BFLOAT16_ROUNDING = 2.0**-9  # half a unit in the last place, relative


class Dequantize(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.packed = self.scratch / "packed"
        self.plain = self.scratch / "plain"

    def test_the_line_the_files_and_the_json(self):
        self.succeeds("quantize", TINY_LLAMA, self.packed)
        line = self.succeeds("dequantize", self.packed, self.plain)
        self.assertRegex(line, r"^1\.63 MB -> 3\.94 MB in .* s \(28 tensors dequantised, 11 copied\)\n$")
        self.assertEqual(sorted(os.listdir(self.plain)), sorted(os.listdir(TINY_LLAMA)))
        for file in TINY_LLAMA.iterdir():
            if file.name.startswith("tokenizer"):
                self.assertEqual((self.plain / file.name).read_bytes(), file.read_bytes(), file.name)
        self.assertEqual(json.loads((self.plain / "config.json").read_text()), json.loads((TINY_LLAMA / "config.json").read_text()))
        done = self.json_of("dequantize", self.packed, self.plain, "--dtype", "float32", "--overwrite")
        self.assertEqual((done["dtype"], done["result_bytes"], done["cast_tensors"]), ("float32", 2 * 3935616, 11))
        self.assertIn("float32", (self.plain / "config.json").read_text())
        self.assertEqual(self.json_of("inspect", self.plain)["original_dtypes"].keys(), {"float32"})

    def test_sym_int8_back_has_every_dtype_and_the_error_of_the_manifest(self):
        self.succeeds("quantize", TINY_LLAMA, self.packed, "--scheme", "sym_int8")
        self.succeeds("dequantize", self.packed, self.plain)
        found = self.json_of("diff", TINY_LLAMA, self.plain, "--tensors")
        recorded = {row["name"]: row for row in self.json_of("inspect", self.packed, "--tensors")["tensors"]}
        self.assertEqual((found["counts"]["tensors"], found["config"], len(recorded)), (39, [], 39))
        for counted in ["other_original_dtype", "stored_otherwise", "other_shape", "only_in_a", "only_in_b"]:
            self.assertEqual(found["counts"][counted], 0, counted)
        for row in found["tensors"]:
            wanted = recorded[row["name"]]
            self.assertEqual(row["b"]["stored"], row["a"]["original_dtype"], row["name"])
            self.assertEqual(row["b"]["original_dtype"], wanted["original_dtype"], row["name"])
            self.assertAlmostEqual(row["rel_rmse"], wanted["rel_rmse"] or 0, delta=BFLOAT16_ROUNDING, msg=row["name"])
            largest_weight = 1  # of tiny-llama's Linears
            self.assertAlmostEqual(row["max_abs"], wanted["max_abs"] or 0, delta=BFLOAT16_ROUNDING * largest_weight, msg=row["name"])
        # In float32 nothing is rounded, and the manifest's figures are met.
        self.succeeds("dequantize", self.packed, self.scratch / "exact", "--dtype", "float32")
        for row in self.json_of("diff", TINY_LLAMA, self.scratch / "exact", "--tensors")["tensors"]:
            wanted = recorded[row["name"]]
            self.assertAlmostEqual(row["rel_rmse"], wanted["rel_rmse"] or 0, delta=1e-6, msg=row["name"])
            self.assertAlmostEqual(row["max_abs"], wanted["max_abs"] or 0, delta=1e-6, msg=row["name"])

    def test_every_scheme_comes_back(self):
        for scheme, words in [("asym_int4", []), ("nf4", []), ("fp4", []), ("fp4_e2m1", ["--halfbyte-only"]), ("affine_int4", ["--halfbyte-only"]),
                              ("iq4_nl", ["--halfbyte-only"]), ("hb4", ["--halfbyte-only"]), ("hb4_fine", ["--halfbyte-only"])]:
            with self.subTest(scheme=scheme):
                packed, plain = self.scratch / scheme, self.scratch / f"{scheme}-plain"
                self.succeeds("quantize", "-q", TINY_LLAMA, packed, "--scheme", scheme, *words)
                self.succeeds("dequantize", packed, plain)
                recorded = {row["name"]: row for row in self.json_of("inspect", packed, "--tensors")["tensors"]}
                found = self.json_of("diff", TINY_LLAMA, plain, "--tensors")
                self.assertEqual((found["counts"]["other_original_dtype"], found["config"]), (0, []))
                self.assertEqual(found["counts"]["other_values"], 28)
                for row in found["tensors"]:
                    self.assertAlmostEqual(row["rel_rmse"], recorded[row["name"]]["rel_rmse"] or 0, delta=BFLOAT16_ROUNDING, msg=row["name"])

    def test_transitive(self):
        """quantize, dequantize, quantize: the second result is a checkpoint like the first."""
        self.succeeds("quantize", TINY_LLAMA, self.packed)
        self.succeeds("dequantize", self.packed, self.plain)
        self.succeeds("quantize", self.plain, self.scratch / "again")
        found = self.json_of("diff", self.packed, self.scratch / "again")
        self.assertEqual(found["counts"]["stored_otherwise"], 0)

    def test_too_large_for_float16_is_named(self):
        write_safetensors(self.scratch / "big.safetensors", {"model.layers.0.mlp.up_proj.weight": bf16_rows(2, 64, value=0x47FF)})
        self.fails(3, ["model.layers.0.mlp.up_proj.weight", "float16", "--dtype"], "dequantize", "-q", self.scratch / "big.safetensors",
                   self.plain, "--dtype", "float16")
        self.assertEqual(os.listdir(self.scratch), ["big.safetensors"])

    def test_mistakes(self):
        for status, parts, words in [
                (2, ["CKPT is required"], []),
                (2, ["DST is required"], [TINY_LLAMA]),
                (2, ["'bf16' is not one of recorded, float32, float16, bfloat16"], ["a", "b", "--dtype", "bf16"]),
                (2, ["'recoded'", "did you mean 'recorded'"], ["a", "b", "--dtype", "recoded"]),
                (2, ["did you mean '--overwrite'"], ["a", "b", "--overwite"]),
                (2, ["lie within each other"], [TINY_LLAMA, TINY_LLAMA / "inner"]),
                (1, ["/no/such/model"], ["/no/such/model", self.plain]),
                (1, ["there is no such directory"], [TINY_LLAMA, self.scratch / "no" / "such"])]:
            with self.subTest(words=words):
                self.fails(status, parts, "dequantize", *words)
        self.plain.mkdir()
        self.fails(1, ["plain", "--overwrite"], "dequantize", TINY_LLAMA, self.plain)

    def test_a_stop_leaves_nothing(self):
        rows, columns, layers = 16384, 4096, 8
        size = rows * columns * 2
        text = json.dumps({f"model.layers.{n}.mlp.up_proj.weight": {"dtype": "BF16", "shape": [rows, columns],
                                                                    "data_offsets": [n * size, (n + 1) * size]} for n in range(layers)}).encode()
        with open(self.scratch / "sparse.safetensors", "wb") as file:  # 1 GB of zeros that take no space
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + layers * size)
        folder = pathlib.Path(self.scratch, "results")
        folder.mkdir()
        words = [PROGRAM, "dequantize", str(self.scratch / "sparse.safetensors"), "result", "--dtype", "float32", "-q"]
        with subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, encoding="utf-8") as process:
            wait_until(lambda: os.listdir(folder), process)
            process.send_signal(signal.SIGINT)
            messages = messages_of(process)
        self.assertEqual((process.returncode, messages.count("\n")), (130, 1), messages)
        self.assertEqual(os.listdir(folder), [])


class Diff(CommandLineTest):
    def test_a_checkpoint_and_itself(self):
        self.assertIn("39 tensors: 39 the same\n", self.succeeds("diff", TINY_LLAMA, TINY_LLAMA, "--exit-code"))
        found = self.json_of("diff", TINY_LLAMA, TINY_LLAMA)
        self.assertEqual((found["same"], found["tensors"], found["counts"]["same"]), (True, [], 39))

    def test_original_and_quantised(self):
        packed = self.scratch / "packed"
        self.succeeds("quantize", TINY_LLAMA, packed)
        text = self.succeeds("diff", TINY_LLAMA, packed)
        for part in ["stored  bfloat16 -> sym_int4 g64: 28 tensors", "config  quantization_config: only in B", "and 18 more that differ",
                     "39 tensors: 11 the same, 28 with other values, 28 stored otherwise; config.json differs in 1 key"]:
            self.assertIn(part, text)
        self.assertLessEqual(max(map(len, text.splitlines()[2:])), 100)
        rows = self.json_of("diff", TINY_LLAMA, packed)["tensors"]
        errors = [row["rel_rmse"] for row in rows]
        self.assertEqual((len(rows), errors), (28, sorted(errors, reverse=True)))
        against = self.json_of("verify", packed, "--against", TINY_LLAMA)["differences"]
        self.assertEqual(errors, [row["rel_rmse"] for row in against if row["rel_rmse"] > 0])

    def test_two_schemes(self):
        four, eight = self.scratch / "four", self.scratch / "eight"
        self.succeeds("quantize", TINY_LLAMA, four)
        self.succeeds("quantize", TINY_LLAMA, eight, "--scheme", "sym_int8", "--group-size", "32")
        found = self.json_of("diff", four, eight)
        self.assertEqual(found["counts"]["stored_otherwise"], 28)
        row = found["tensors"][0]
        self.assertEqual((row["a"]["stored"], row["a"]["group_size"], row["b"]["stored"], row["b"]["group_size"]), ("sym_int4", 64, "sym_int8", 32))

    def test_the_exit_status_says_it_when_asked(self):
        other = copy_of_tiny_llama(self.scratch / "other")
        config = json.loads((other / "config.json").read_text())
        (other / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5}))
        self.assertIn("rms_norm_eps: ", self.succeeds("diff", TINY_LLAMA, other))
        result = run("diff", TINY_LLAMA, other, "--exit-code")
        self.assertEqual((result.returncode, result.stderr), (1, ""))

    def test_names_and_shapes(self):
        one = {"a.weight": bf16_rows(2, 64), "b.weight": bf16_rows(2, 64), "n": ("I64", [1], b"01234567")}
        two = {"a.weight": bf16_rows(4, 32), "c.weight": bf16_rows(2, 64), "n": ("I64", [1], b"0123456X")}
        for name, tensors in [("one", one), ("two", two)]:
            write_safetensors(self.scratch / f"{name}.safetensors", tensors)
        found = json.loads(run("diff", self.scratch / "one.safetensors", self.scratch / "two.safetensors", "--json").stdout)
        differs = {row["name"]: row["differs"] for row in found["tensors"]}
        self.assertEqual(differs, {"a.weight": ["other_shape"], "b.weight": ["only_in_a"], "c.weight": ["only_in_b"], "n": ["other_values"]})
        text = self.succeeds("diff", self.scratch / "one.safetensors", self.scratch / "two.safetensors")
        for part in ["[2, 64]", "[4, 32]", "only in A", "only in B", "other bytes"]:
            self.assertIn(part, text)

    def test_mistakes(self):
        for status, parts, words in [(2, ["A is required"], []), (2, ["B is required"], [TINY_LLAMA]),
                                     (2, ["did you mean '--exit-code'"], ["a", "b", "--exitcode"]), (1, ["/no/such"], [TINY_LLAMA, "/no/such"])]:
            with self.subTest(words=words):
                self.fails(status, parts, "diff", *words)


if __name__ == "__main__":
    unittest.main()
