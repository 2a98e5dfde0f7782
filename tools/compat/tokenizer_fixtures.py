#!/usr/bin/env python3
"""Writes tests/data/tokenizers: a small tokenizer of each kind, and what the libraries make of a few awkward texts with it.

    tokenizer_fixtures.py [--check] FOLDER      exit status 0: written, or right; 1: the libraries give something else; 77: tokenizers, sentencepiece or tiktoken is missing

FOLDER/texts.json has the texts, and some bytes that are not UTF-8 (in hexadecimal; the libraries get U+FFFD for what is broken).
FOLDER/NAME/ has a tokenizer and expected.json: what is put before and after each text; for each text its ids, what they give back
without and with special tokens (null: the same), the bytes that its tokens stand for where the text is short (first and last + 1,
widened to whole characters); then lists of ids and what they give. FOLDER/NAME.json is like the tokenizer that it names, but for the
changes in it; of each text it has what is not as there.
"""
import base64
import contextlib
import json
import pathlib
import random
import shutil
import sys
import tempfile

try:
    import sentencepiece
    import tiktoken
    import tokenizers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import fixture_kinds
import protobuf
from fixture_texts import BROKEN, TEXTS

LONGEST_WITH_SPANS = 36  # characters
LISTS, LIST_LENGTH = 4, 18
RULES = {"Ａ": "A", "Ｂ": "B", "ﬁ": "fi", "e\u0301": "é", "\u00a0": " ", "\t": " ", "ⅷ": "viii", "½": "1/2", "  ": " ", "\u00ad": ""}
PIECES = dict(vocab_size=180, hard_vocab_limit=False, minloglevel=2, character_coverage=0.98, num_threads=1, normalization_rule_name="identity")
SENTENCE_PIECES = {
    "sentencepiece-bpe": dict(model_type="bpe", remove_extra_whitespaces=False),
    "sentencepiece-bpe-bytes": dict(model_type="bpe", vocab_size=420, byte_fallback=True, remove_extra_whitespaces=False, split_digits=True),
    "sentencepiece-bpe-symbols": dict(model_type="bpe", user_defined_symbols=["[MASK]", "\n\n", "ab"], control_symbols=["<|end|>"], add_dummy_prefix=False),
    "sentencepiece-bpe-suffix": dict(model_type="bpe", treat_whitespace_as_suffix=True),
    "sentencepiece-unigram": dict(model_type="unigram"),
    "sentencepiece-unigram-bytes": dict(model_type="unigram", vocab_size=420, byte_fallback=True, remove_extra_whitespaces=False),
    "sentencepiece-unigram-rules": dict(model_type="unigram", rules=RULES),
    "sentencepiece-unigram-unknown": dict(model_type="unigram", unk_surface="[?]"),
}


GLM4_SPECIAL = ["<|end|>", "[MASK]", "[gMASK]", "<sop>"]


def write_json(path, tree):
    path.write_text(json.dumps(tree, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def text_of(data):
    return data.decode("utf-8", "replace")


def in_bytes(text, spans):
    """Spans of characters as spans of bytes, all in one list."""
    places = [0]
    for character in text:
        places.append(places[-1] + len(character.encode()))
    return [places[at] for span in spans for at in span]


class FastLibrary:
    """tokenizer.json with `tokenizers`."""
    special_as_text = False

    def __init__(self, tree):
        self.tokenizer = tokenizers.Tokenizer.from_str(json.dumps(tree))

    def ids(self, text, special):
        return self.tokenizer.encode(text, add_special_tokens=special).ids

    def spans(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).offsets

    def decode(self, ids, skip):
        return self.tokenizer.decode(ids, skip_special_tokens=skip)

    def known(self):
        return sorted(self.tokenizer.get_vocab().values())


class SentencePieceLibrary:
    """tokenizer.model with `sentencepiece`, which reads "</s>" in a text as characters, and always skips it in ids."""
    special_as_text = True

    def __init__(self, folder):
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))

    def ids(self, text, special):
        return self.processor.encode(text, add_bos=special)

    def spans(self, text):
        return None

    def decode(self, ids, skip):
        return self.processor.decode(ids) if skip else None

    def known(self):
        return list(range(self.processor.get_piece_size()))


class RankedLibrary:
    """tokenizer.model as GLM-4 has it, a list of tokens and their ranks, with `tiktoken`."""
    special_as_text = False

    def __init__(self, ranks):
        special = {name: len(ranks) + number for number, name in enumerate(GLM4_SPECIAL)}
        self.prefix = [special["[gMASK]"], special["<sop>"]]
        self.encoding = tiktoken.Encoding("glm4", pat_str=fixture_kinds.LLAMA3, mergeable_ranks=ranks, special_tokens=special)

    def ids(self, text, special):
        return [*(self.prefix if special else []), *self.encoding.encode(text, allowed_special="all")]

    def spans(self, text):
        return None

    def decode(self, ids, skip):
        special = self.encoding.special_tokens_set
        return self.encoding.decode([number for number in ids if not (skip and self.encoding.decode_single_token_bytes(number).decode("latin-1") in special)])

    def known(self):
        return list(range(self.encoding.n_vocab))


def around(library):
    """What is put before and after every text."""
    ids, whole = library.ids("x", False), library.ids("x", True)
    at = next(at for at in range(len(whole) + 1) if whole[at:at + len(ids)] == ids)
    return whole[:at], whole[at + len(ids):]


def row(library, text, prefix, suffix, with_spans):
    ids = library.ids(text, False)
    assert library.ids(text, True) == prefix + ids + suffix, text
    out = {"ids": ids, **decodings(library, prefix + ids + suffix)}
    spans = library.spans(text) if with_spans else None
    return {**out, "spans": spans and in_bytes(text, spans)}


def decodings(library, ids):
    text, with_special = library.decode(ids, True), library.decode(ids, False)
    return {"text": text, "with_special": None if with_special == text else with_special}


def expected(library, name):
    prefix, suffix = around(library)
    source = random.Random(name)
    lists = [source.choices(library.known(), k=LIST_LENGTH) for _ in range(LISTS)]
    return {
        "special_as_text": library.special_as_text, "prefix": prefix, "suffix": suffix,
        "rows": [row(library, text, prefix, suffix, len(text) <= LONGEST_WITH_SPANS) for text in TEXTS] +
                [row(library, text_of(data), prefix, suffix, False) for data in BROKEN],
        "lists": [{"ids": ids, **decodings(library, ids)} for ids in lists],
    }


def write_sentence_pieces(folder, model_type, rules=None, **options):
    """In the folder itself: models keep the names that they were made of."""
    with contextlib.chdir(folder):
        pathlib.Path("texts").write_text("\n".join([*TEXTS, *TEXTS]), encoding="utf-8")
        if rules:
            code_points = lambda text: " ".join(f"{ord(character):X}" for character in text)
            pathlib.Path("rules").write_text("".join(f"{code_points(old)}\t{code_points(new)}\n" for old, new in rules.items()), encoding="utf-8")
            options["normalization_rule_tsv"] = "rules"
        sentencepiece.SentencePieceTrainer.train(input="texts", model_prefix="tokenizer", model_type=model_type, **{**PIECES, **options})
        for path in pathlib.Path().iterdir():
            if path.name != "tokenizer.model":
                path.unlink()


def charsmap_of(model):
    """The compiled map of characters of a SentencePiece model."""
    return dict(protobuf.fields(dict(protobuf.fields(model.read_bytes()))[3]))[2]


def changed(tree, changes):
    """Of the model, single options (None: left out); all else as a whole."""
    model = {**tree["model"], **changes.get("model", {})}
    return {**tree, **changes, "model": {key: value for key, value in model.items() if value is not None}}


def difference(rows, others):
    """Of each row, what is not as in the other one."""
    return [{key: value for key, value in row.items() if value != other[key]} for row, other in zip(rows, others)]


def write_ranked(folder, vocab):
    """The tokens of byte-level BPE, but for the special one, by their ids."""
    letters = {letter: byte for byte, letter in fixture_kinds.byte_letters().items()}
    spelled = [bytes(letters[letter] for letter in token) for token in sorted(vocab, key=vocab.get) if token != "<|end|>"]
    ranks = {token: rank for rank, token in enumerate(spelled)}
    (folder / "tokenizer.model").write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()))
    library = RankedLibrary(ranks)
    write_json(folder / "tokenizer_config.json", {"added_tokens_decoder": {
        str(len(ranks) + number): {"content": name, "special": True} for number, name in enumerate(GLM4_SPECIAL)}})
    return library


def write_vocab_and_merges(folder, tree, **config):
    """The two files of GPT-2's kind; returns the tokenizer.json that they stand for."""
    write_json(folder / "vocab.json", tree["model"]["vocab"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(merge + "\n" for merge in tree["model"]["merges"]), encoding="utf-8")
    write_json(folder / "tokenizer_config.json", {"eos_token": "<|end|>", **config})
    return FastLibrary(fixture_kinds.of_class(tree, config["tokenizer_class"]))


def write_older_files(root, tree):
    """What stands where there is no tokenizer.json."""
    for name, make in (("ranked-tokens", lambda folder: write_ranked(folder, tree["model"]["vocab"])),
                       ("vocab-and-merges-gpt2", lambda folder: write_vocab_and_merges(folder, tree, tokenizer_class="GPT2Tokenizer")),
                       ("vocab-and-merges-qwen2", lambda folder: write_vocab_and_merges(folder, tree, tokenizer_class="Qwen2Tokenizer"))):
        (root / name).mkdir()
        write_json(root / name / "expected.json", expected(make(root / name), name))


def write_all(root):
    write_json(root / "texts.json", {"texts": TEXTS, "broken": [data.hex() for data in BROKEN]})
    for name, options in SENTENCE_PIECES.items():
        (root / name).mkdir()
        write_sentence_pieces(root / name, **options)
        write_json(root / name / "expected.json", expected(SentencePieceLibrary(root / name), name))
    trees, results = fixture_kinds.whole(), {}
    for name, tree in trees.items():
        results[name] = expected(FastLibrary(tree), name)
        (root / name).mkdir()
        write_json(root / name / "tokenizer.json", tree)
        write_json(root / name / "expected.json", results[name])
    write_older_files(root, trees["bytes"])
    for name, like, changes in fixture_kinds.changed(charsmap_of(root / "sentencepiece-unigram-rules" / "tokenizer.model")):
        result = expected(FastLibrary(changed(trees[like], changes)), name)
        result["rows"] = difference(result["rows"], results[like]["rows"])
        write_json(root / f"{name}.json", {"like": like, "changes": changes, **result})


def written_again(root):
    """Names of what the libraries' present versions train, or answer, otherwise."""
    with tempfile.TemporaryDirectory(prefix="halfbyte-fixtures-") as scratch:
        write_all(pathlib.Path(scratch))
        files = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
        found = sorted(path.relative_to(scratch) for path in pathlib.Path(scratch).rglob("*") if path.is_file())
        return [str(name) for name in sorted({*files, *found})
                if name not in files or name not in found or (root / name).read_bytes() != pathlib.Path(scratch, name).read_bytes()]


def main():
    if len(sys.argv) < 2 or sys.argv[1:-1] not in ([], ["--check"]):
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[-1])
    if sys.argv[1] == "--check":
        different = written_again(root)
        print("all as before" if not different else "different: " + ", ".join(different))
        sys.exit(1 if different else 0)
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    write_all(root)


if __name__ == "__main__":
    main()
