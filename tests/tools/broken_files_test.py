"""Checkpoints that are not what they claim: each ends with its status and one line that names the cause, and leaves nothing."""
import json
import os
import shutil
import struct
import subprocess
import unittest

from command_line import (MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, bf16_rows, copy_of_tiny_llama, file_of, header_of, run,
                          write_safetensors)

WEIGHT = "model.layers.0.mlp.up_proj.weight"
ROW = b"\0" * 128  # one row of 64 bfloat16 values


def entry(**changes):
    return {"dtype": "BF16", "shape": [1, 64], "data_offsets": [0, 128], **changes}


def header(**changes):
    return json.dumps({WEIGHT: entry(**changes)}).encode()


SOUND = header()
TWICE = b'{"a":' + json.dumps(entry()).encode() + b',"a":' + json.dumps(entry()).encode() + b"}"
TWO = {"a": entry(), "b": entry()}

# name: (the bytes of a lone .safetensors file, parts of the message)
BROKEN_FILES = {
    "empty file": (b"", []),
    "shorter than a length": (b"\x10\0\0", []),
    "header cut": (file_of(SOUND, b"", length=len(SOUND) + 500), []),
    "data cut": (file_of(SOUND, ROW[:100]), []),
    "data beyond the last tensor": (file_of(SOUND, ROW + b"more"), []),
    "oversized header": (file_of(SOUND, ROW, length=2**40), []),
    "length overflows": (file_of(SOUND, ROW, length=2**64 - 1), []),
    "not JSON": (file_of(b'{"a": [1, 2', ROW), []),
    "an array": (file_of(b"[1, 2, 3]", ROW), []),
    "nested too deeply": (file_of(b"[" * 100000 + b"]" * 100000, ROW), []),
    "entry is a number": (file_of(b'{"a": 5}', ROW), ["a"]),
    "shape of strings": (file_of(header(shape=["1", "64"]), ROW), [WEIGHT]),
    "shape negative": (file_of(header(shape=[-1, -64]), ROW), [WEIGHT]),
    "shape fractional": (file_of(header(shape=[1.5, 64]), ROW), [WEIGHT]),
    "shape overflows": (file_of(header(shape=[2**33, 2**33]), ROW), [WEIGHT]),
    "shape and extent disagree": (file_of(header(shape=[2, 64]), ROW), [WEIGHT]),
    "dtype is a number": (file_of(header(dtype=16), ROW), [WEIGHT]),
    "dtype unknown": (file_of(header(dtype="BF17"), ROW), [WEIGHT, "BF17"]),
    "offsets reversed": (file_of(header(data_offsets=[128, 0]), ROW), [WEIGHT]),
    "offsets beyond the file": (file_of(header(data_offsets=[0, 2**62]), ROW), [WEIGHT]),
    "offsets missing": (file_of(json.dumps({WEIGHT: {"dtype": "BF16", "shape": [1, 64]}}).encode(), ROW), [WEIGHT]),
    "overlap": (file_of(json.dumps(TWO).encode(), ROW), []),
    "hole": (file_of(header(data_offsets=[128, 256]), ROW + ROW), []),
    "duplicate name": (file_of(TWICE, ROW), ["a"]),
    "name that steers a terminal": (file_of(json.dumps({"a\n\x1b[2J": entry(dtype="BF17")}).encode(), ROW), []),
    "no UTF-8": (file_of(b'{"\xff\xfe": 1}', ROW), []),
}


def write_shards(folder, weight_map, shards):
    folder.mkdir()
    shutil.copy(TINY_LLAMA / "config.json", folder)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name, tensors in shards.items():
        write_safetensors(folder / name, tensors)


ONE, OTHER = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
MATRIX = bf16_rows(4, 64)

# name: (weight_map, shards, status, parts)
BROKEN_SHARDS = {
    "missing shard": ({"a": ONE, "b": OTHER}, {ONE: {"a": MATRIX}}, 3, [OTHER]),
    "a name in two shards": ({"a": ONE, "b": OTHER}, {ONE: {"a": MATRIX}, OTHER: {"a": MATRIX, "b": MATRIX}}, 3, ["a"]),
    "a name listed and absent": ({"a": ONE, "b": ONE}, {ONE: {"a": MATRIX}}, 3, ["b"]),
    "a shard outside the folder": ({"a": "../" + ONE}, {ONE: {"a": MATRIX}}, 3, ["../"]),
    "an absolute shard": ({"a": "/etc/passwd"}, {ONE: {"a": MATRIX}}, 3, ["/etc/passwd"]),
    "a map of numbers": ({"a": 5}, {ONE: {"a": MATRIX}}, 3, []),
}


class BrokenFiles(CommandLineTest):
    def refused(self, status, parts, source):
        """By every verb that reads, and nothing is left of a conversion."""
        results = self.scratch / "results"
        results.mkdir(exist_ok=True)
        self.fails(status, parts, "inspect", source)
        self.fails(status, parts, "verify", source)
        self.fails(status, parts, "quantize", source, results / "out")
        self.assertEqual(os.listdir(results), [])

    def test_lone_files(self):
        file = self.scratch / "model.safetensors"
        for name, (data, parts) in BROKEN_FILES.items():
            with self.subTest(name):
                file.write_bytes(data)
                self.refused(3, [str(file), *parts], file)

    def test_names_that_are_not_utf8(self):
        for name in [b"si\xffde.txt", b"mod\xffel.safetensors"]:
            with self.subTest(name):
                folder = copy_of_tiny_llama(self.scratch / name.hex())
                bad = os.path.join(os.fsencode(folder), name)
                if name.endswith(b".safetensors"):
                    os.rename(folder / "model.safetensors", bad)
                else:
                    shutil.copy(folder / "config.json", bad)
                for verb in ["quantize", "dequantize"]:
                    self.fails(3, ["not UTF-8", "rename it"], verb, folder, self.scratch / "out")

    def test_shards(self):
        for number, (name, (weight_map, shards, status, parts)) in enumerate(BROKEN_SHARDS.items()):
            with self.subTest(name):
                folder = self.scratch / str(number)
                write_shards(folder, weight_map, shards)
                self.refused(status, parts, folder)

    def test_config(self):
        for number, text in enumerate(["{", "[]", '{"model_type": "llama", "hidden_size": "many"}',
                                       '{"model_type": "llama", "hidden_size": -192}']):
            with self.subTest(text):
                folder = copy_of_tiny_llama(self.scratch / str(number))
                (folder / "config.json").write_text(text)
                self.refused(3, "config.json", folder)

    def test_manifest(self):
        self.succeeds("quantize", TINY_LLAMA, self.scratch / "sound")
        text = (self.scratch / "sound/halfbyte.json").read_text()
        sound = json.loads(text)
        changes = {
            "cut": text[: len(text) // 2],
            "another format": json.dumps({**sound, "format": "quarterbyte"}),
            "a later version": json.dumps({**sound, "format_version": 99}),
            "tensors of the wrong type": json.dumps({**sound, "tensors": 5}),
            "a tensor less": json.dumps({**sound, "tensors": dict(list(sound["tensors"].items())[1:])}),
        }
        for number, (name, changed) in enumerate(changes.items()):
            with self.subTest(name):
                folder = self.scratch / str(number)
                shutil.copytree(self.scratch / "sound", folder)
                (folder / "halfbyte.json").write_text(changed)
                self.fails(3, [], "inspect", folder)

    def test_values_that_are_no_numbers(self):
        for number, (value, word) in enumerate([(0x7FC0, "NaN"), (0xFF80, "inf")]):
            with self.subTest(word):
                dtype, shape, data = bf16_rows(4, 64)
                data = data[:266] + struct.pack("<H", value) + data[268:]  # row 2, column 5
                folder = self.scratch / str(number)
                folder.mkdir()
                write_safetensors(folder / "model.safetensors", {WEIGHT: (dtype, shape, data)})
                result = self.fails(3, [WEIGHT, "row 2", "column 5"], "quantize", folder, self.scratch / "out")
                self.assertIn(word.lower(), result.stderr.lower())
                self.assertFalse((self.scratch / "out").exists())
                self.assertEqual(run("verify", folder).returncode, 3)

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "this build has no LibTorch")
    def test_verbs_that_run_a_model_refuse_alike(self):
        folder = copy_of_tiny_llama(self.scratch / "cut")
        os.truncate(folder / "model.safetensors", 3_000_000)
        missing = self.scratch / "missing"
        write_shards(missing, *BROKEN_SHARDS["missing shard"][:2])
        for source in (folder, missing):
            self.fails(3, str(source), "generate", source, "--prompt-tokens", "1")
            self.fails(3, str(source), "bench", source)
        self.fails(1, "/no/such", "perplexity", "/no/such", "--text", TINY_LLAMA.parent / "heldout.txt")
        self.fails(2, "did you mean '--prompt-tokens'", "generate", TINY_LLAMA, "--prompt-token", "1")

    def test_no_model(self):
        (self.scratch / "empty").mkdir()
        self.fails(1, "empty", "inspect", self.scratch / "empty")
        (self.scratch / "text.txt").write_text("a plain text, and long enough to hold a length and a header\n" * 9)
        self.fails(3, "text.txt", "inspect", self.scratch / "text.txt")


class Destinations(CommandLineTest):
    def test_a_file_is_in_the_way(self):
        target = self.scratch / "file"
        target.write_text("mine")
        for verb in (["quantize", TINY_LLAMA, target], ["synth", target, "--like", "tiny"]):
            for more in ([], ["--overwrite"]):
                with self.subTest(verb=verb[0], more=more):
                    self.fails(1, str(target), *verb, *more)
        self.assertEqual((target.read_text(), os.listdir(self.scratch)), ("mine", ["file"]))

    def test_the_source_is_never_the_destination(self):
        folder = copy_of_tiny_llama(self.scratch / "model")
        before = (folder / "model.safetensors").read_bytes()
        result = run("quantize", folder, folder, "--overwrite")
        self.assertIn(result.returncode, (1, 2), result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)
        self.assertEqual((folder / "model.safetensors").read_bytes(), before)

    def test_a_folder_that_cannot_be_written(self):
        self.fails(1, "/proc", "quantize", TINY_LLAMA, "/proc/halfbyte-test")

    def test_full_disk(self):
        disk = self.scratch / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)], capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("a small disk cannot be mounted here (needs root)")
        try:
            self.fails(4, str(disk), "quantize", TINY_LLAMA, disk / "out")
            self.assertEqual(os.listdir(disk), [])
            self.fails(4, str(disk), "synth", disk / "out", "--like", "tiny")
            self.assertEqual(os.listdir(disk), [])
        finally:
            subprocess.run(["umount", str(disk)], check=True)


if __name__ == "__main__":
    unittest.main()
