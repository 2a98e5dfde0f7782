"""Usual mistakes of new users, over all verbs that run no model: one line, the right status, and nothing left behind."""
import os
import subprocess
import unittest

from command_line import CommandLineTest, copy_of_tiny_llama

# (command, status, parts of the one line)
MISTAKES = [
    ("quantize", 2, ["SRC is required", "halfbyte quantize --help"]),
    ("quantize llama", 2, ["DST is required"]),
    ("quantize llama out int4", 2, ["unexpected argument 'int4'", "--scheme"]),
    ("quantize lama out", 1, ["lama", "no such"]),
    ("quantize meta-llama/Llama-2-7b out", 1, ["meta-llama/Llama-2-7b"]),
    ("quantize llama llama", 2, ["llama", "elsewhere"]),
    ("quantize llama exists", 1, ["exists already", "--overwrite"]),
    ("quantize llama exists --overwrite", 1, ["holds files that are no checkpoint"]),
    ("quantize empty out", 1, ["empty", "is it a checkpoint?"]),
    ("quantize empty.safetensors out", 3, ["empty.safetensors", "is empty"]),
    ("quantize html.safetensors out", 3, ["html.safetensors", "is a web page", "hf download"]),
    ("quantize lfs out", 3, ["lfs/model.safetensors", "is a pointer of Git LFS", "git lfs pull"]),
    ("quantize llama nowhere/deep/out", 1, ["nowhere/deep", "create it first"]),
    ("quantize llama notes.txt", 1, ["notes.txt", "not a directory"]),
    ("quantize llama out --scheme q4_k_m", 2, ["'q4_k_m'", "'asym_int4'"]),
    ("quantize llama out --scheme=", 2, ["--scheme needs a value"]),
    ("quantize llama out --group-size 100", 2, ["'100'", "128, 64, 32, 16, channel"]),
    ("quantize llama out --memory-limit lots", 2, ["'lots' is not a size", "256MiB"]),
    ("quantize llama out --memory-limit 4G", 2, ["'4G' is not a size; is 4GiB meant, or 4GB?"]),
    ("quantize llama out --shard-size 1.5GB", 2, ["'1.5GB' is not a size"]),
    ("quantize llama out --keep", 2, ["--keep needs a value"]),
    ("quantize llama out --keep lm_haed", 2, ["lm_haed", "matches no tensor"]),
    ("quantize llama out --scheme-for sym_int8=lm_head", 2, ["'lm_head' is not one of"]),
    ("quantize llama out -scheme nf4", 2, ["did you mean '--scheme'"]),
    ("quantize llama out --bits 4 --group_size 64", 2, ["'--bits'", "'--scheme'"]),
    ("inspect", 2, ["CKPT is required"]),
    ("inspect llama llama", 2, ["halfbyte diff A B"]),
    ("inspect empty", 1, ["is it a checkpoint?"]),
    ("inspect llama --tensor", 2, ["did you mean '--tensors'"]),
    ("verify llama llama", 2, ["--against"]),
    ("verify llama --against", 2, ["--against needs a value"]),
    ("verify llama --against empty", 1, ["empty"]),
    ("dequantize llama llama", 2, ["llama"]),
    ("dequantize llama", 2, ["DST is required"]),
    ("dequantize llama out --dtype fp16", 2, ["'float16'"]),
    ("merge llama", 2, ["ADAPTER is required"]),
    ("merge llama adapter", 2, ["OUT is required"]),
    ("diff llama", 2, ["B is required"]),
    ("diff llama llama llama", 2, ["unexpected argument"]),
    ("export llama out.gguf", 2, ["--to gguf|safetensors", "is required"]),
    ("export llama out --to ollama", 2, ["'gguf'"]),
    ("export llama out --to gptq", 3, ["nothing in it is quantised", "halfbyte quantize"]),
    ("tokenize llama", 2, ["--text TEXT or --file FILE"]),
    ("tokenize llama hello", 2, ["--text"]),
    ("tokenize llama --text a --file b", 2, ["excludes"]),
    ("tokenize llama --file missing.txt", 1, ["missing.txt"]),
    ("tokenize llama --decode --text hello", 2, ["'hello' is not a token id"]),
    ("synth", 2, ["DST is required"]),
    ("synth out --like llama3", 2, ["'llama3'", "llama-1.1b"]),
    ("synth exists", 1, ["--overwrite"]),
    ("doctor now", 2, ["unexpected argument 'now'"]),
    ("convert llama out", 2, ["'quantize'"]),
    ("llama", 2, ["halfbyte inspect llama"]),
    ("--model llama", 2, ["a verb comes first"]),
    ("completion tcsh", 2, ["bash, zsh, fish"]),
    ("man quantize", 2, ["unexpected argument"]),
]


class Mistakes(CommandLineTest):
    def setUp(self):
        super().setUp()
        copy_of_tiny_llama(self.scratch / "llama")
        for folder in ["empty", "exists", "lfs"]:
            (self.scratch / folder).mkdir()
        for file, text in [("empty.safetensors", ""), ("notes.txt", "hello\n"), ("exists/mine", "mine"),
                           ("html.safetensors", "<!DOCTYPE html><html>404</html>"), ("lfs/config.json", "{}"),
                           ("lfs/model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 12\n")]:
            (self.scratch / file).write_text(text, encoding="ascii")

    def test_each_is_answered_in_one_line_and_leaves_nothing(self):
        before = sorted(os.listdir(self.scratch))
        for command, status, parts in MISTAKES:
            with self.subTest(command):
                self.fails(status, parts, *command.split(), cwd=self.scratch, stdin=subprocess.DEVNULL)
                self.assertEqual(sorted(os.listdir(self.scratch)), before)
        self.assertEqual((self.scratch / "exists/mine").read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
