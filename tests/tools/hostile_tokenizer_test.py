"""Tokenizers of strangers: whatever their steps do to a text, memory and time stay in proportion, and what goes too far is named."""
import base64
import json
import os
import resource
import shutil
import struct
import unittest

from command_line import TINY_LLAMA, CommandLineTest

MEMORY = 256 << 20  # bytes of address space, and 20 for each of the file's
SECONDS = 20        # of the CPU, where the longest takes less than one
TEXT = "ab " * 2000
WORDS = {"<unk>": 0, "a": 1, "b": 2, " ": 3}


def words(**parts):
    """A tokenizer.json whose model takes every word for unknown."""
    return {"model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": WORDS}, **parts}


def bpe(**options):
    return {"type": "BPE", "vocab": WORDS, "merges": [], "unk_token": "<unk>", **options}


def bytes_bpe(**options):
    """A BPE in which every byte has a token."""
    vocab = {**WORDS, **{f"<0x{byte:02X}>": 4 + byte for byte in range(256)}}
    return bpe(vocab=vocab, byte_fallback=True, **options)


def sequence(kind, steps):
    key = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders", "post_processor": "processors"}[kind]
    return {kind: {"type": "Sequence", key: steps}}


def replace(old, new, how="String"):
    return {"type": "Replace", "pattern": {how: old}, "content": new}


def charsmap(replacement):
    """Rules that put `replacement` for the letter a: one unit a node of the double array."""
    units = [0] * 256
    units[0] = 1 << 10                        # the root's children begin at 1 ^ byte
    units[1 ^ 0x61] = 0x61 | 1 << 8 | (1 ^ 0x61 ^ 5) << 10  # "a" ends here, its value stands at 5
    units[5] = 1 << 31
    data = struct.pack("<256I", *units)
    return base64.b64encode(struct.pack("<I", len(data)) + data + replacement.encode() + b"\0").decode()


def rounds(count, prepends):
    """Steps of which each puts a character before every piece, and then cuts the pieces up."""
    return [step for i in range(count) for step in (prepends(i), {"type": "FixedLength", "length": 1})]


def metaspaces(count):
    return rounds(count, lambda i: {"type": "Metaspace", "replacement": chr(0x100 + i), "prepend_scheme": "always"})


def byte_levels(count):
    return rounds(count, lambda i: {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False})


NESTED = [{"id": 10 + i, "content": "a" * (i + 1), "special": i % 2 == 0, "normalized": i % 3 == 0} for i in range(3000)]
LONE = [{"id": 10 + i, "content": chr(0x4E00 + i) + "a" * 3000, "special": False, "normalized": False} for i in range(1500)]
HUGE = "x" * 1_000_000

# Name, file, what the message must say. Each is refused with status 3 on TEXT.
ENCODINGS = [
    ("Replace, thrice", words(**sequence("normalizer", [replace("a", "a" * 300)] * 3)), "normalizer.normalizers[1]"),
    ("Replace, a lot of text", words(normalizer=replace("a", HUGE)), "normalizer"),
    ("Replace by a regular expression", words(normalizer=replace("[ab]", HUGE, "Regex")), "normalizer"),
    ("Replace of what is empty", words(normalizer=replace("x*", HUGE, "Regex")), "normalizer"),
    ("Prepend", words(**sequence("normalizer", [{"type": "Prepend", "prepend": HUGE}] * 60)), "normalizer.normalizers["),
    ("Prepend, in each stretch", words(normalizer={"type": "Prepend", "prepend": "x" * 9000},
                                       added_tokens=[{"id": 4, "content": "b", "normalized": False}]), "normalizer"),
    ("ByteLevel", words(**sequence("normalizer", [{"type": "ByteLevel"}] * 60)), "normalizer.normalizers["),
    ("Precompiled, one long", words(normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap("a" * 1001)}), "normalizer"),
    ("Precompiled, again and again", words(**sequence("normalizer", [{"type": "Precompiled", "precompiled_charsmap": charsmap("a" * 900)}] * 9)),
     "normalizer.normalizers["),
    ("ByteLevel that cuts", words(**sequence("pre_tokenizer", byte_levels(32))), "pre_tokenizer.pretokenizers["),
    ("Metaspace that cuts", words(**sequence("pre_tokenizer", metaspaces(32))), "pre_tokenizer.pretokenizers["),
    ("too many steps", words(**sequence("pre_tokenizer", [{"type": "Digits"}] * 5000)), "64 pre-tokenizers"),
    ("an added token that grows", words(normalizer=replace("a", "a" * 3000), added_tokens=[{"id": 4, "content": "aaaaaaaa", "normalized": True}]),
     "added_tokens"),
    ("an added token", words(added_tokens=[{"id": 4, "content": HUGE}]), "added_tokens"),
    ("a word of the vocabulary", {"model": bpe(vocab={**WORDS, HUGE: 4})}, "model: vocab"),
    ("a piece", {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], [HUGE, -1]]}}, "model"),
    ("an affix", {"model": bytes_bpe(end_of_word_suffix=HUGE)}, "end_of_word_suffix"),
    ("a prefix", {"model": bytes_bpe(continuing_subword_prefix=HUGE)}, "continuing_subword_prefix"),
    ("bytes of affixes", {"model": bytes_bpe(continuing_subword_prefix="x" * 250)}, "model"),
    ("TemplateProcessing, one token", words(post_processor={
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}] * 20_000 + [{"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1] * 1000, "tokens": ["<s>"]}}}), "post_processor"),
    ("TemplateProcessing, many ids", words(post_processor={
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1] * 100_000, "tokens": ["<s>"]}}}), "post_processor.special_tokens"),
    ("BertProcessing", words(**sequence("post_processor", [{"type": "BertProcessing", "cls": ["a", 1], "sep": ["b", 2]}] * 5000)), "post_processor"),
]
DECODINGS = [
    ("Replace, thrice", words(**sequence("decoder", [replace("a", "a" * 300)] * 3)), "decoder.decoders[1]"),
    ("Replace, a lot of text", words(decoder=replace("a", HUGE)), "decoder"),
    ("Replace by a regular expression", words(decoder=replace("[ab]", HUGE, "Regex")), "decoder"),
    ("Replace of what is empty", words(decoder=replace("x*", HUGE, "Regex")), "decoder"),
]
# Name, file, text. These are read: in linear time, and in memory for the file and the text.
HARMLESS = [
    ("nested added tokens", words(added_tokens=NESTED), "a" * 100_000 + "b"),
    ("added tokens that share nothing", words(added_tokens=LONE), ("\u4e00" + "a" * 2999) * 40),
    ("a token that takes the white space along", words(added_tokens=[{"id": 4, "content": " ", "rstrip": True, "normalized": False}]), " " * 100_000),
    ("long words by pieces", {"model": {"type": "WordPiece", "unk_token": "<unk>", "max_input_chars_per_word": 4_000_000_000,
                                        "vocab": {**WORDS, "a" * 16_000: 4, "##a": 5, "##" + "a" * 15_000 + "c": 6}}}, "a" * 40_000),
    ("a decomposition that is long", words(normalizer={"type": "NFKD"}), "\ufdfa" * 100_000),
]


def limits_for(path):
    def limit():
        if "HALFBYTE_SANITIZER" not in os.environ:  # whose shadow takes terabytes of address space
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY + 20 * path.stat().st_size,) * 2)
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    return {"preexec_fn": limit}


class HostileTokenizers(CommandLineTest):
    def options_for(self, description):
        path = self.scratch / "tokenizer.json"
        path.write_text(json.dumps(description))
        return limits_for(path)

    def test_a_step_that_multiplies_a_text_is_named(self):
        text = self.scratch / "text"
        text.write_text(TEXT)
        for name, description, where in ENCODINGS:
            with self.subTest(name):
                options = self.options_for(description)
                self.fails(3, ["tokenizer.json", where], "tokenize", self.scratch, "--file", text, **options)
                self.fails(3, ["tokenizer.json", where], "tokenize", self.scratch, "--file", text, "--json", **options)

    def test_a_decoder_that_multiplies_a_text_is_named(self):
        ids = self.scratch / "ids"
        ids.write_text("1 2 3 " * 2000)
        for name, description, where in DECODINGS:
            with self.subTest(name):
                options = self.options_for(description)
                self.fails(3, ["tokenizer.json", where], "tokenize", self.scratch, "--decode", "--file", ids, **options)

    def test_what_only_looks_costly_is_read(self):
        text = self.scratch / "text"
        for name, description, content in HARMLESS:
            with self.subTest(name):
                text.write_text(content)
                options = self.options_for(description)
                self.assertGreater(int(self.succeeds("tokenize", self.scratch, "--file", text, "--count", **options)), 0)

    def test_files_beside_a_tokenizer_nest_no_deeper(self):
        shutil.copy(TINY_LLAMA / "tokenizer.model", self.scratch)
        for name in ("tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"):
            with self.subTest(name):
                path = self.scratch / name
                path.write_text('{"a": ' + "[" * 30_000_000)
                self.fails(3, [name, "not a JSON object"], "tokenize", self.scratch, "--text", "a", **limits_for(path))
                path.unlink()

    def test_a_regular_expression_has_one_limit_for_all_pieces_of_a_text(self):
        steps = [{"type": "Split", "pattern": {"String": "|"}, "behavior": "Removed", "invert": False},
                 {"type": "Split", "pattern": {"Regex": "(a|aa|a?a)+$"}, "behavior": "Isolated", "invert": False}]
        text = self.scratch / "text"
        text.write_text(("a" * 13 + "b|") * 1000)  # each piece alone is within the limit
        self.fails(3, ["tokenizer.json", "limit"], "tokenize", self.scratch, "--file", text,
                   **self.options_for(words(**sequence("pre_tokenizer", steps))))


if __name__ == "__main__":
    unittest.main()
