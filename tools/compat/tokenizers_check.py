#!/usr/bin/env python3
"""Compares `halfbyte tokenize` with the `tokenizers` and `sentencepiece` libraries on tokenizers trained here.

    tokenizers_check.py HALFBYTE [SCRATCH] [--only WORD] [--megabytes 5] [--speed]

For each kind (tokenizer_kinds.py, the fixtures in ../shared where they are, SentencePiece models): ids with and without special tokens,
the bytes that tokens stand for, and decodings of all that and of random ids, on lines in many languages and on random texts, half of them
invalid UTF-8, which halfbyte is given as it is and the libraries with U+FFFD for what is broken. Prints a row a kind; exit status 0: all
agree, 1: some differ (one differing text of each kind is shown, made shorter), 77: `tokenizers` is not installed.
"""
import argparse
import codecs
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import protobuf
import tokenizer_texts

try:
    import tokenizers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
try:
    import sentencepiece
except ImportError:
    sentencepiece = None

SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared"
OFFSET_TEXTS = 300  # of the random ones


class Halfbyte:
    def __init__(self, program, checkpoint):
        self.words = [program, "tokenize", str(checkpoint)]

    def run(self, *words, data=b""):
        done = subprocess.run([*self.words, *words], input=data, capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}")
        return done.stdout

    def ids(self, texts, *options):
        """A list of strings like "1 306 4658", one a text (bytes)."""
        out = self.run("--file", "-", "--lines", "-0", *options, data=b"".join(text + b"\0" for text in texts))
        return out.decode().split("\n")[:-1]

    def spans(self, texts, *options):
        out = self.run("--file", "-", "--lines", "-0", "--json", *options, data=b"".join(text + b"\0" for text in texts))
        return [json.loads(line)["offsets"] for line in out.decode().split("\n")[:-1]]

    def decode(self, lines, *options):
        out = self.run("--decode", "--file", "-", "--lines", "-0", *options, data="".join(line + "\0" for line in lines).encode())
        return [text.decode("utf-8", "replace") for text in out.split(b"\0")[:-1]]


def joined(ids):
    return " ".join(map(str, ids))


class FastLibrary:
    """tokenizer.json with `tokenizers`."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.plain = []  # options of halfbyte with which it does the same

    def ids(self, texts, special=True):
        return [joined(encoding.ids) for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=special)]

    def spans(self, texts):
        return [encoding.offsets for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def decode(self, lists, skip=True):
        return self.tokenizer.decode_batch(lists, skip_special_tokens=skip)

    def ordinary_ids(self):
        return list(range(self.tokenizer.get_vocab_size()))


class SentencePieceLibrary:
    """tokenizer.model with `sentencepiece`, which reads "</s>" in a text as characters."""

    def __init__(self, path):
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.plain = ["--special-as-text"]

    def ids(self, texts, special=True):
        return [joined(ids) for ids in self.processor.encode(texts, add_bos=special)]

    def spans(self, texts):
        out = []
        for text in texts:
            message = self.processor.encode(text, return_type="serialized_proto")
            pieces = [dict(protobuf.fields(value)) for number, value in protobuf.fields(message) if number == 2]
            spans = [(piece.get(4, 0), piece.get(5, 0)) for piece in pieces]
            # It gives the bytes of a character all to the last of its pieces.
            for at, piece in enumerate(pieces):
                if self.processor.is_byte(piece[2]):
                    size = sum(int(piece[1][3:5], 16) >= first for first in (0, 0xC0, 0xE0, 0xF0))
                    spans[at:at + size] = [spans[at + size - 1]] * size if size > 1 else [spans[at]]
            out.append(in_characters(spans, character_places(text)))
        return out

    def decode(self, lists, skip=True):
        return self.processor.decode(lists)

    def ordinary_ids(self):
        """Without <unk>, which is nothing where tokenizer_config.json makes it a special token."""
        return [number for number in range(self.processor.get_piece_size()) if not self.processor.is_unknown(number)]


def replaced(data):
    """The text that libraries get for `data`, and for each character's beginning, and the end, its place in `data`."""
    broken = []

    def mark(error):
        broken.append((error.start, error.end))
        return "\ufffd", error.end

    codecs.register_error("mark", mark)
    text, places, at = "", [], 0
    data.decode("utf-8", "mark")
    for start, end in [*broken, (len(data), len(data))]:
        part = data[at:start].decode()
        text += part
        for character in part:
            places.append(at)
            at += len(character.encode())
        if end > start:
            text += "\ufffd"
            places.append(start)
        at = end
    return text, [*places, len(data)]


def character_places(text):
    """Where each character begins in the text's UTF-8, and its end."""
    places = [0]
    for character in text:
        places.append(places[-1] + len(character.encode()))
    return places


def in_characters(spans, places):
    """Spans of bytes as spans of the characters that they touch."""
    begins, ends, character = {}, {}, -1
    for byte in range(places[-1] + 1):
        if character + 1 < len(places) and places[character + 1] == byte:
            character += 1
        begins[byte] = character
        ends[byte] = character if places[character] == byte else character + 1
    return [(begins[begin], ends[end] if end > begin else begins[begin]) for begin, end in spans]


class Comparison:
    def __init__(self, name, program, library, halfbyte):
        self.name, self.program, self.library, self.halfbyte = name, program, library, halfbyte
        self.texts = self.differing = 0
        self.examples = {}

    def compare(self, what, ours, theirs, inputs):
        if len(ours) != len(theirs):
            self.differing += 1
            self.examples.setdefault(what, f"{len(ours)} results for {len(theirs)} texts")
            return
        for mine, other, text in zip(ours, theirs, inputs):
            self.texts += 1
            if mine == other:
                continue
            self.differing += 1
            self.examples.setdefault(what, (text, mine, other))

    def encodings(self, data, offset_texts):
        texts, places = zip(*map(replaced, data))
        plain = self.library.plain
        ids = self.library.ids(list(texts))
        self.compare("ids", self.halfbyte.ids(data, *plain), ids, data)
        self.compare("ids without special", self.halfbyte.ids(data, "--no-special", *plain), self.library.ids(list(texts), False), data)
        some = slice(0, offset_texts)
        spans = self.halfbyte.spans(data[some], "--no-special", *plain)
        ours = [in_characters(*pair) for pair in zip(spans, places)]
        self.compare("offsets", ours, [list(map(tuple, spans)) for spans in self.library.spans(list(texts[some]))], data)
        self.decodings(ids)

    def decodings(self, lines):
        lists = [[int(word) for word in line.split()] for line in lines]
        self.compare("decode", self.halfbyte.decode(lines), self.library.decode(lists), lines)
        if not self.library.plain:
            self.compare("decode with special", self.halfbyte.decode(lines, "--special-as-text"), self.library.decode(lists, False), lines)

    def random_ids(self):
        source = random.Random(3)
        known = self.library.ordinary_ids()
        known = [number for number, text in zip(known, self.library.decode([[number] for number in known], False)) if "\0" not in text]
        self.decodings([joined(source.choices(known, k=source.randint(1, 40))) for _ in range(500)])

    def shortest(self, data, options, special):
        """A shorter text on which ids still differ, by leaving out ever smaller parts."""
        def differs(part):
            return self.halfbyte.ids([part], *options) != self.library.ids([replaced(part)[0]], special)

        size, runs = len(data) // 2, 0
        while size >= 1 and runs < 400:
            for at in range(0, len(data), size):
                runs += 1
                shorter = data[:at] + data[at + size:]
                if differs(shorter):
                    data = shorter
                    break
            else:
                size //= 2
        return data, self.halfbyte.ids([data], *options)[0], self.library.ids([replaced(data)[0]], special)[0]

    def print_examples(self):
        for what, example in self.examples.items():
            if isinstance(example, tuple) and what.startswith("ids"):
                options = ["--no-special"] if "without" in what else []
                example = self.shortest(example[0], [*options, *self.library.plain], not options)
            elif isinstance(example, tuple) and what == "offsets":
                text, mine, other = example
                at = next((i for i, pair in enumerate(zip(mine, other)) if pair[0] != pair[1]), min(len(mine), len(other)))
                near = slice(max(0, at - 2), at + 3)
                place = max(0, other[near][0][0] - 2) if other[near] else 0
                example = (f"token {at}, near {replaced(text)[0][place:place + 12]!a}", mine[near], other[near])
            if isinstance(example, tuple):
                example = "\n      ".join(f"{title}: {ascii(part)[:300]}" for title, part in zip(("input", "halfbyte", "library"), example))
            print(f"    {what}: {example}")


def check(name, program, library, checkpoint, data, fixture=()):
    begin = time.monotonic()
    comparison = Comparison(name, program, library, Halfbyte(program, checkpoint))
    try:
        lines = [line.encode() for line in tokenizer_texts.LINES if line]
        comparison.encodings(lines, len(lines))
        if fixture:
            rows = [row for row in fixture if "\0" not in row["text"]]
            texts = [row["text"].encode() for row in rows]
            comparison.compare("fixture ids", comparison.halfbyte.ids(texts), [joined(row["ids"]) for row in rows], texts)
            comparison.compare("fixture ids without special", comparison.halfbyte.ids(texts, "--no-special"),
                               [joined(row["ids_no_special"]) for row in rows], texts)
            comparison.compare("fixture decode", comparison.halfbyte.decode([joined(row["ids"]) for row in rows]),
                               [row["decoded"] for row in rows], texts)
        comparison.encodings(data, OFFSET_TEXTS)
        comparison.random_ids()
    except (RuntimeError, json.JSONDecodeError) as error:
        comparison.differing += 1
        comparison.examples["failed"] = str(error)[:400]
    print(f"{name:42} {comparison.texts:8} {comparison.differing:10} {time.monotonic() - begin:7.1f} s", flush=True)
    comparison.print_examples()
    return comparison.differing == 0


def train_sentence_pieces(scratch, texts):
    """name -> path of SentencePiece models of several sorts."""
    if not sentencepiece:
        print("without the package sentencepiece: its models are not compared")
        return {}
    (scratch / "train.txt").write_text("\n".join(texts), encoding="utf-8")
    common = dict(input=str(scratch / "train.txt"), minloglevel=2, max_sentence_length=1 << 20, num_threads=2, input_sentence_size=20000, character_coverage=0.98)
    llama = dict(normalization_rule_name="identity", byte_fallback=True, remove_extra_whitespaces=False, split_digits=True, add_dummy_prefix=True)
    sorts = {
        "bpe bytes identity": dict(model_type="bpe", vocab_size=2000, allow_whitespace_only_pieces=True, **llama),
        "bpe nmt_nfkc": dict(model_type="bpe", vocab_size=1500, hard_vocab_limit=False),
        "bpe bytes symbols": dict(model_type="bpe", vocab_size=2000, user_defined_symbols=["<|im_start|>", "word", "\n\n", "▁▁"], **llama),
        "unigram nmt_nfkc": dict(model_type="unigram", vocab_size=2000),
        "unigram nfkc_cf bytes": dict(model_type="unigram", vocab_size=2000, normalization_rule_name="nfkc_cf", byte_fallback=True),
        "unigram bytes identity": dict(model_type="unigram", vocab_size=2500, **llama),
    }
    paths = {}
    for name, options in sorts.items():
        folder = scratch / ("spm " + name)
        folder.mkdir(exist_ok=True)
        paths[name] = folder / "tokenizer.model"
        if not paths[name].exists():
            sentencepiece.SentencePieceTrainer.train(model_prefix=str(folder / "tokenizer"), **common, **options)
    return paths


def cases(scratch):
    """(name, folder, function that opens the library's tokenizer, expected rows)"""
    texts = tokenizer_texts.training_texts()
    models = train_sentence_pieces(scratch, texts)
    for name, path in models.items():
        yield "sentencepiece " + name, path.parent, lambda path=path: SentencePieceLibrary(path), ()
    for path in sorted(SHARED.glob("models/*/tokenizer.model")) if sentencepiece else []:
        yield "sentencepiece " + path.parent.name, path.parent, lambda path=path: SentencePieceLibrary(path), ()
    for folder in sorted(SHARED.glob("fixtures/tokenizers/*")):
        expected = [json.loads(line) for line in (folder / "expected.jsonl").read_text(encoding="utf-8").splitlines()]
        yield folder.name, folder, lambda folder=folder: FastLibrary(tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))), expected
    import tokenizer_kinds
    unigram = {name: path for name, path in models.items() if name.startswith("unigram")}
    for name, train in tokenizer_kinds.kinds(unigram).items():
        def trained(name=name, train=train):
            path = scratch / name / "tokenizer.json"
            path.parent.mkdir(exist_ok=True)
            if not path.exists():
                train(texts).save(str(path))
            return FastLibrary(tokenizers.Tokenizer.from_file(str(path)))
        yield name, scratch / name, trained, ()


def measure_speed(program, scratch):
    """MB/s of both on 10 MB of English with the GPT-2 tokenizer, one thread, the best of five, in turn."""
    folder, text = SHARED / "fixtures/tokenizers/gpt2", SHARED / "text/wikitext-2-test.txt"
    if not (folder.exists() and text.exists()):
        print("no speed: the shared GPT-2 tokenizer and English text are not here")
        return
    path = scratch / "english.txt"
    data = text.read_bytes()
    path.write_bytes((data * (10_000_000 // len(data) + 1))[:10_000_000])
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    english = path.read_text(encoding="utf-8", errors="replace")
    words = [program, "tokenize", str(folder), "--file", str(path), "--count"]
    times = {"halfbyte (program, reading included)": [], "tokenizers.encode (one call)": [], "tokenizers.encode_batch (by line)": []}
    lines = english.splitlines(keepends=True)
    actions = [lambda: subprocess.run(words, check=True, capture_output=True), lambda: library.encode(english),
               lambda: library.encode_batch(lines)]
    for _ in range(3):
        for seconds, act in zip(times.values(), actions):
            begin = time.perf_counter()
            act()
            seconds.append(time.perf_counter() - begin)
    for name, seconds in times.items():
        print(f"{name:42} {path.stat().st_size / min(seconds) / 1e6:8.2f} MB/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("halfbyte")
    parser.add_argument("scratch", nargs="?")
    parser.add_argument("--only", default="")
    parser.add_argument("--megabytes", type=float, default=5)
    parser.add_argument("--speed", action="store_true")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="halfbyte-tokenizers-") as temporary:
        scratch = pathlib.Path(words.scratch or temporary)
        scratch.mkdir(exist_ok=True, parents=True)
        if words.speed:
            measure_speed(words.halfbyte, scratch)
            return 0
        data = tokenizer_texts.random_texts(int(words.megabytes * 1e6))
        print(f"{'kind':42} {'compared':>8} {'mismatches':>10}")
        good = [check(name, words.halfbyte, open_library(), folder, data, expected)
                for name, folder, open_library, expected in cases(scratch) if words.only in name]
        print(f"{len(good)} kinds, {good.count(False)} of them differ")
        return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
