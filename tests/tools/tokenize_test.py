"""`halfbyte tokenize` as a user sees it: ids, pieces, bytes, texts of many lines, and what is refused."""
import base64
import json
import os
import resource
import shutil
import subprocess
import unittest

from command_line import LONGEST, PROGRAM, TINY_LLAMA, CommandLineTest, copy_of_tiny_llama

ONCE = [1, 417, 958, 319, 671, 261, 625]  # <s> and "Once upon a time"


def tokenize(*words, data=b""):
    """Bytes on stdout of `halfbyte tokenize` with the small model, which must succeed."""
    return subprocess.run([PROGRAM, "tokenize", TINY_LLAMA, *words], input=data, capture_output=True, check=True, timeout=LONGEST).stdout


class Tokenize(CommandLineTest):
    def json_here(self, *words):
        return self.json_of("tokenize", TINY_LLAMA, *words)

    def test_ids_stand_on_one_line(self):
        self.assertEqual(self.succeeds("tokenize", TINY_LLAMA, "--text", "Once upon a time"), " ".join(map(str, ONCE)) + "\n")
        self.assertEqual(self.succeeds("tokenize", TINY_LLAMA, "--text", ""), "1\n")
        self.assertEqual(self.succeeds("tokenize", TINY_LLAMA, "--text", "Once upon a time", "--no-special", "--count"), "6\n")

    def test_json_has_pieces_and_the_bytes_they_stand_for(self):
        result = self.json_here("--text", "Once upon a time")
        self.assertEqual(result["ids"], ONCE)
        self.assertEqual(result["pieces"], ["<s>", "▁O", "n", "ce", "▁upon", "▁a", "▁time"])
        self.assertEqual(result["offsets"], [[0, 0], [0, 1], [1, 2], [2, 4], [4, 9], [9, 11], [11, 16]])
        self.assertEqual(self.json_here("--text", "Once", "--count"), {"count": 4})

    def test_pieces_are_a_table(self):
        lines = self.succeeds("tokenize", TINY_LLAMA, "--text", "a \x1b", "--pieces").splitlines()
        self.assertEqual(lines[0].split(), ["id", "bytes", "piece"])
        self.assertEqual(lines[2].split(), ["261", "0-1", "▁a"])
        self.assertTrue(all(line.isprintable() for line in lines), lines)

    def test_special_tokens_are_parsed_or_text(self):
        self.assertEqual(self.json_here("--text", "a</s>", "--no-special")["ids"], [261, 2])
        as_text = self.json_here("--text", "a</s>", "--no-special", "--special-as-text")
        self.assertNotIn(2, as_text["ids"])
        self.assertEqual(as_text["offsets"][-1][1], 5)

    def test_a_checkpoint_says_what_stands_around_a_text(self):
        model = copy_of_tiny_llama(self.scratch / "model")
        path = model / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "add_bos_token": False, "add_eos_token": True}))
        result = self.json_of("tokenize", model, "--text", "a")
        self.assertEqual((result["ids"], result["offsets"]), ([261, 2], [[0, 1], [1, 1]]))
        self.assertEqual(self.json_of("tokenize", model / "model.safetensors", "--text", "a"), result)

    def test_decode_takes_ids_in_any_form(self):
        for form in ("1 417 958 319", "1,417,958,319", "[1, 417, 958, 319]\n"):
            self.assertEqual(self.succeeds("tokenize", TINY_LLAMA, "--decode", "--text", form), "Once\n")
        self.assertEqual(tokenize("--decode", data=b"1 417 958 319\n"), b"Once\n")
        self.assertEqual(self.json_here("--decode", "--text", "1 417 958 319"), {"text": "Once"})
        self.assertEqual(self.succeeds("tokenize", TINY_LLAMA, "--decode", "--special-as-text", "--text", "1 417 2"), "<s>O</s>\n")

    def test_every_line_is_a_text(self):
        (self.scratch / "lines.txt").write_bytes(b"a\n\n b\r\nlast")
        lines = self.succeeds("tokenize", TINY_LLAMA, "--file", self.scratch / "lines.txt", "--lines", "--json").splitlines()
        self.assertEqual([json.loads(line)["ids"][:2] for line in lines], [[1, 261], [1], [1, 272], [1, 943]])
        ids = tokenize("--file", "-", "--lines", "-0", data=b"a\nb\0c\0")
        self.assertEqual(len(ids.splitlines()), 2)
        self.assertEqual(tokenize("--decode", "--lines", "-0", data=ids.replace(b"\n", b"\0")), b"a\nb\0c\0")

    def test_a_list_of_ranked_tokens_is_read_with_its_configuration(self):
        tokens = [bytes([value]) for value in range(256)] + [b"ab", b"bc", b" a", b"abc", b" abc"]
        lines = "".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens))
        (self.scratch / "tokenizer.model").write_text(lines)
        self.fails(1, ["tokenizer.model", "tokenizer_config.json"], "tokenize", self.scratch, "--text", "a")
        special = {str(261 + i): {"content": text, "special": True} for i, text in enumerate(["[gMASK]", "<sop>", "<|user|>"])}
        config = self.scratch / "tokenizer_config.json"
        config.write_text(json.dumps({"added_tokens_decoder": special}))
        result = self.json_of("tokenize", self.scratch, "--text", "abc abc<|user|>é")
        self.assertEqual(result["ids"], [261, 262, 259, 260, 263, 0xC3, 0xA9])
        self.assertEqual(self.succeeds("tokenize", self.scratch, "--decode", "--text", "261 262 259 260"), "abc abc\n")
        config.write_text("{}")
        self.fails(3, ["tokenizer_config.json", "[gMASK]"], "tokenize", self.scratch, "--text", "a")
        (self.scratch / "tokenizer.model").write_text(lines + "?? 9\n")
        config.write_text(json.dumps({"added_tokens_decoder": special}))
        self.fails(3, ["tokenizer.model", "line 262"], "tokenize", self.scratch, "--text", "a")

    def test_any_bytes_are_a_text(self):
        data = bytes(range(1, 256)) * 3
        (self.scratch / "bytes").write_bytes(data)
        result = self.json_of("tokenize", TINY_LLAMA, "--file", self.scratch / "bytes")
        offsets = result["offsets"]
        self.assertEqual((offsets[0], offsets[-1][1]), ([0, 0], len(data)))
        self.assertTrue(all(a[0] <= b[0] and a[1] <= b[1] for a, b in zip(offsets, offsets[1:])))
        decoded = tokenize("--decode", data=" ".join(map(str, result["ids"])).encode())
        self.assertEqual(decoded[:-1].decode().split(), data.decode("utf-8", "replace").split())

    @unittest.skipIf("HALFBYTE_SANITIZER" in os.environ, "the sanitizer's shadow takes terabytes of address space")
    def test_a_large_file_takes_memory_for_itself_and_its_ids(self):
        size = 20_000_000
        (self.scratch / "large.txt").write_bytes((b"Once upon a time " * (size // 17 + 1))[:size])
        limit = 20 * size + (256 << 20)  # bytes of address space; SentencePiece's own takes hundreds for each byte of text
        counted = self.succeeds("tokenize", TINY_LLAMA, "--file", self.scratch / "large.txt", "--count",
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        self.assertGreater(int(counted), size // 6)


class Refusals(CommandLineTest):
    def test_a_broken_source_says_what_is_broken(self):
        self.succeeds("export", TINY_LLAMA, self.scratch / "m.gguf", "--to", "gguf", "-q")
        sound = (self.scratch / "m.gguf").read_bytes()
        for content, wanted in ((sound[:4] + b"\x07" + sound[5:], "m.gguf"), (sound[:5000], "m.gguf"), (sound[:8] + b"\xff" * 8 + sound[16:], "m.gguf")):
            (self.scratch / "m.gguf").write_bytes(content)
            done = self.fails(3, wanted, "tokenize", self.scratch / "m.gguf", "--text", "a")
            self.assertNotIn("no tokenizer", done.stderr)
        (self.scratch / "config.json").write_text("{")
        (self.scratch / "model.safetensors").write_bytes((TINY_LLAMA / "model.safetensors").read_bytes())
        self.fails(3, "config.json", "tokenize", self.scratch, "--text", "a")

    def test_wrong_usage(self):
        self.fails(2, ["which text", "--text", "--file"], "tokenize", TINY_LLAMA)
        self.fails(2, "--file", "tokenize", TINY_LLAMA, "--text", "a", "--file", "b")
        self.fails(2, "--lines", "tokenize", TINY_LLAMA, "--text", "a", "-0")
        self.fails(2, "'x' is not a token id", "tokenize", TINY_LLAMA, "--decode", "--text", "1,x")
        self.fails(2, "'99999999999999999999' is not", "tokenize", TINY_LLAMA, "--decode", "--text", "99999999999999999999")
        self.fails(2, ["1024", "1024 pieces"], "tokenize", TINY_LLAMA, "--decode", "--text", "1024")

    def test_missing_files(self):
        self.fails(1, ["nowhere", "download"], "tokenize", self.scratch / "nowhere", "--text", "a")
        self.fails(1, "No such file", "tokenize", TINY_LLAMA, "--file", self.scratch / "nowhere")
        self.fails(1, "is a directory", "tokenize", TINY_LLAMA, "--file", self.scratch)
        self.fails(1, ["tokenizer.json", "tokenizer.model", "vocab.json"], "tokenize", self.scratch, "--text", "a")

    def test_broken_tokenizers(self):
        model = (TINY_LLAMA / "tokenizer.model").read_bytes()
        for content in (b"", b"x", model[:-200] + b"\xff" * 200, model[:5000], b"\x0a\xff\xff\xff\xff\x07" + model, b"\0" * 100_000):
            (self.scratch / "tokenizer.model").write_bytes(content)
            self.fails(3, "tokenizer.model", "tokenize", self.scratch, "--text", "a")
        shutil.copy(TINY_LLAMA / "tokenizer.model", self.scratch)
        (self.scratch / "tokenizer_config.json").write_text('{"added_tokens_decoder": {"7e9": {"content": "a"}}}')
        self.fails(3, ["tokenizer_config.json", "7e9"], "tokenize", self.scratch, "--text", "a")


if __name__ == "__main__":
    unittest.main()
