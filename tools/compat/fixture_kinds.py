"""The tokenizers of tests/data/tokenizers: one for each kind of step that a tokenizer.json can have. For tokenizer_fixtures.py.

Their vocabularies are trained on the texts without being cut into words, so that merges reach across every border that a
pre-tokenizer can draw: where it draws another one, ids differ. Most kinds are one of the first three with a step changed.
"""
import json

from fixture_texts import TEXTS
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPACE = "▁"
LLAMA3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
N, P, D, Q = normalizers, pre_tokenizers, decoders, processors
NORMALIZERS = {
    "nfc": N.NFC(), "nfd": N.NFD(), "nfkc": N.NFKC(), "nfkd": N.NFKD(), "lowercase": N.Lowercase(), "strip": N.Strip(),
    "strip-left": N.Strip(right=False), "strip-right": N.Strip(left=False), "strip-accents": N.Sequence([N.NFD(), N.StripAccents()]),
    "prepend": N.Prepend(SPACE), "replace": N.Replace("o", "00"), "replace-regex": N.Replace(Regex(r"\s{2,}|(?<=a)b"), SPACE),
    "nmt": N.Nmt(), "bert": N.BertNormalizer(), "bert-cased": N.BertNormalizer(clean_text=False, handle_chinese_chars=False, lowercase=False),
    "bert-accents": N.BertNormalizer(strip_accents=True, lowercase=False), "bert-kept-accents": N.BertNormalizer(strip_accents=False),
}
PRE_TOKENIZERS = {
    "whitespace": P.Whitespace(), "whitespace-split": P.WhitespaceSplit(), "bert": P.BertPreTokenizer(), "digits": P.Digits(False),
    "digits-individual": P.Digits(True), "delimiter": P.CharDelimiterSplit("-"), "fixed-length": P.FixedLength(3),
    "split-string": P.Split("--", "isolated"), "split-inverted": P.Split(Regex(r"\p{L}+"), "removed", invert=True),
    "sequence": P.Sequence([P.Split(",", "merged_with_previous"), P.Metaspace(prepend_scheme="first"), P.Digits(True)]),
}
LEFT_OUT = {"<unk>", "京", "ｶ", "\uff9e"}  # spelled by bytes instead
BEHAVIORS = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
DECODERS = {
    "replace-regex": D.Replace(Regex("[aeiou]+"), "_"), "strip-left": D.Strip("a", 2, 0), "strip-right": D.Strip("b", 0, 1),
    "ctc": D.CTC(pad_token="a", word_delimiter_token="|"), "ctc-as-it-is": D.CTC(pad_token="o", word_delimiter_token=" ", cleanup=False),
    "wordpiece": D.WordPiece(), "wordpiece-other-prefix": D.WordPiece("lo", cleanup=False), "bpe": D.BPEDecoder("er"), "byte-fallback": D.ByteFallback(),
    "sequence": D.Sequence([D.Replace("a", "<0x41>"), D.ByteFallback(), D.Strip("-", 1, 0), D.Fuse()]),
}


def tree_of(tokenizer):
    return json.loads(tokenizer.to_str())


def step(made):
    """The JSON of a normalizer, pre-tokenizer, ... of the library."""
    return json.loads(made.__getstate__())


def characters():
    """BPE over the characters that the texts have, as they are and normalised. What is no token is <unk>."""
    texts = [*TEXTS, *(text.replace(" ", SPACE) for text in TEXTS)]
    alphabet = set("".join(texts)).union(*(normalizer.normalize_str(text) for text in TEXTS for normalizer in NORMALIZERS.values()))
    alphabet = sorted(alphabet - set("ⅷ\ue000ष"))
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.decoder = D.Fuse()
    trainer = trainers.BpeTrainer(vocab_size=len(alphabet) + 101, special_tokens=["<unk>"], show_progress=False, initial_alphabet=alphabet, limit_alphabet=len(alphabet))
    tokenizer.train_from_iterator(texts, trainer)
    return tree_of(tokenizer)


def alphabet_of_bytes():
    """Byte-level BPE, with some words that no merge reaches: tokens with ignore_merges alone."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = P.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = D.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=257 + 90, initial_alphabet=P.ByteLevel.alphabet(), special_tokens=["<|end|>"], show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tree = tree_of(tokenizer)
    for word in ("Hello", "Ġworld", "Ġlowest"):
        tree["model"]["vocab"].setdefault(word, len(tree["model"]["vocab"]))
    tree["model"]["merges"] = [" ".join(pair) for pair in tree["model"]["merges"]]  # as older files have them
    return tree


def of_class(tree, name):
    """The byte-level one as vocab.json and merges.txt of that class stand for it."""
    steps = {"pre_tokenizer": step(P.ByteLevel(add_prefix_space=False)), "post_processor": step(Q.ByteLevel(trim_offsets=False))}
    if name == "Qwen2Tokenizer":
        split = P.Split(Regex(LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")), "isolated")
        steps |= {"normalizer": step(N.NFC()), "pre_tokenizer": step(P.Sequence([split, P.ByteLevel(add_prefix_space=False, use_regex=False)]))}
    return {**tree, **steps}


def byte_letters():
    """byte -> the character that stands for it in a byte-level vocabulary. Source: GPT-2's encoder.py."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {**{byte: chr(byte) for byte in shown}, **{byte: chr(256 + number) for number, byte in enumerate(hidden)}}


def words():
    known = ["<unk>", "Hello", ",", "world", "!", "123", "4", "56789", "low", "lower", "newer", "<s>", "</s>", "x", "I", "am", ".", "user", "the", "|", "a", "'", "t"]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(known)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = P.Whitespace()
    return tree_of(tokenizer)


def llama2():
    """BPE over characters with pieces for bytes, as converted from SentencePiece."""
    tree = characters()
    kept = [piece for piece in tree["model"]["vocab"] if piece not in LEFT_OUT]
    numbered = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *kept]
    tree["model"].update(byte_fallback=True, fuse_unk=True, vocab={piece: number for number, piece in enumerate(numbered)})
    tree["added_tokens"] = []
    tokenizer = Tokenizer.from_str(json.dumps(tree))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.normalizer = N.Sequence([N.Prepend(SPACE), N.Replace(" ", SPACE)])
    tokenizer.decoder = D.Sequence([D.Replace(SPACE, " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    tokenizer.post_processor = Q.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tree_of(tokenizer)


def unigram(byte_fallback=False):
    """The pieces of the BPE one, scored by their length and place."""
    kept = sorted(piece for piece in characters()["model"]["vocab"] if piece not in LEFT_OUT)
    pieces = [("<unk>", 0.0), ("</s>", 0.0)] + [(piece, -(4 + number % 17 / 4 + len(piece) / 2)) for number, piece in enumerate(kept)]
    if byte_fallback:
        pieces += [(f"<0x{byte:02X}>", -9.0) for byte in range(256)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=byte_fallback))
    tokenizer.pre_tokenizer = P.Metaspace()
    tokenizer.decoder = D.Sequence([D.ByteFallback(), D.Metaspace()]) if byte_fallback else D.Metaspace()
    return tree_of(tokenizer)


def trained(tokenizer, trainer, special, marked):
    """`marked`: the characters as they are spelled inside words. Numbered here, since the trainers leave their order to chance."""
    texts = [tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text for text in TEXTS]
    order = special + [marked(character) for character in sorted(set("".join(texts)))]
    tokenizer.train_from_iterator(TEXTS, trainer(vocab_size=len(order) + 200, special_tokens=order, show_progress=False))
    tree = tree_of(tokenizer)
    return {**tree, "added_tokens": tree["added_tokens"][:len(special)]}


def wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = P.BertPreTokenizer()
    tokenizer.normalizer = N.BertNormalizer()
    tokenizer.decoder = D.WordPiece()
    tokenizer.post_processor = Q.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return trained(tokenizer, trainers.WordPieceTrainer, ["[UNK]", "[CLS]", "[SEP]", "[MASK]"], lambda character: "##" + character)


def affixed(pre_tokenizer, decoder, marked, **affix):
    """BPE whose tokens have a mark where a word goes on (continuing_subword_prefix) or ends (end_of_word_suffix)."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **affix))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    return trained(tokenizer, lambda **options: trainers.BpeTrainer(**options, **affix), ["<unk>"], marked)


def llama3():
    split = P.Sequence([P.Split(Regex(LLAMA3), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)])
    template = Q.TemplateProcessing(single="<|end|> $A <|end|>", pair="$A $B", special_tokens=[("<|end|>", 0)])
    return {"model": {"ignore_merges": True}, "pre_tokenizer": step(split), "post_processor": step(Q.Sequence([Q.ByteLevel(trim_offsets=False), template]))}


def added_tokens():
    """One token for each option that an added token can have."""
    tokenizer = Tokenizer.from_str(json.dumps(alphabet_of_bytes()))
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True, rstrip=True, normalized=False), AddedToken("<s>", rstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("word", single_word=True), AddedToken("SHIP", normalized=True), AddedToken("</s>", lstrip=True),
                          AddedToken("the", normalized=True, single_word=True), AddedToken("  ", normalized=False), AddedToken("\n\n", normalized=False)])
    return tree_of(tokenizer)["added_tokens"]


def changed_characters(charsmap):
    """name -> what is changed of `characters`."""
    normalizer = {**NORMALIZERS, "precompiled": N.Precompiled(charsmap)}
    pre_tokenizer = {**PRE_TOKENIZERS, **{"split-" + name.replace("_", "-"): P.Split(Regex("[-a]"), name) for name in BEHAVIORS},
                     **{"punctuation-" + name.replace("_", "-"): P.Punctuation(name) for name in BEHAVIORS}}
    rows = {f"normalizer-{name}": {"normalizer": step(made)} for name, made in normalizer.items()}
    rows |= {f"pre-tokenizer-{name}": {"pre_tokenizer": step(made)} for name, made in pre_tokenizer.items()}
    rows |= {f"decoder-{name}": {"decoder": step(made)} for name, made in DECODERS.items()}
    mask = {"id": 4, "content": "---", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    for scheme in ("always", "first", "never"):
        for split in (True, False):
            made = {"prepend_scheme": scheme, "split": split}
            rows[f"pre-tokenizer-metaspace-{scheme}" + ("" if split else "-whole")] = {
                "pre_tokenizer": step(P.Metaspace(**made)), "decoder": step(D.Metaspace(**made)), "added_tokens": [mask]}
    rows["decoder-none"] = {"decoder": None}
    for adds in (True, False):  # as older files have it
        old = {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": adds, **({} if adds else {"prepend_scheme": "never"})}
        rows["pre-tokenizer-metaspace-old" + ("" if adds else "-without")] = {"pre_tokenizer": old, "decoder": old}
    rows["bpe-without-unknown"] = {"model": {"unk_token": None}}
    rows["bpe-fused-unknown"] = {"model": {"fuse_unk": True}}
    return rows


def changed_bytes():
    rows = {"normalizer-byte-level": {"pre_tokenizer": None, "normalizer": step(N.ByteLevel())}, "bpe-llama3": llama3(),
            "added-tokens": {"added_tokens": added_tokens()}, "added-tokens-lowercase": {"added_tokens": added_tokens(), "normalizer": step(N.Lowercase())}}
    for space in (True, False):
        for regex in (True, False):
            rows["pre-tokenizer-byte-level" + ("-prefix" if space else "") + ("" if regex else "-whole")] = {
                "pre_tokenizer": {**step(P.ByteLevel(add_prefix_space=space, use_regex=regex)), "trim_offsets": space},
                "post_processor": {**step(Q.ByteLevel(add_prefix_space=space, trim_offsets=regex)), "use_regex": space},
                "decoder": {**step(D.ByteLevel()), "add_prefix_space": space, "trim_offsets": regex, "use_regex": not space}}
    return rows


def changed_words():
    template = Q.TemplateProcessing(single="<unk> $A:0 world:1 <unk>:1", pair="$A $B", special_tokens=[("<unk>", 0), ("world", 3)])
    made = {
        "template": template, "bert": Q.BertProcessing(("</s>", 12), ("<s>", 11)), "roberta": Q.RobertaProcessing(("</s>", 12), ("<s>", 11)),
        "roberta-untrimmed": Q.RobertaProcessing(("</s>", 12), ("<s>", 11), trim_offsets=False, add_prefix_space=False),
        "sequence": Q.Sequence([Q.ByteLevel(trim_offsets=True), template]),
    }
    return {f"post-processor-{name}": {"post_processor": step(post)} for name, post in made.items()}


def whole():
    """name -> the tokenizer's JSON."""
    return {
        "characters": characters(), "bytes": alphabet_of_bytes(), "words": words(), "bpe-llama2": llama2(),
        "bpe-continuing-prefix": affixed(P.WhitespaceSplit(), D.WordPiece("##", cleanup=False), lambda character: "##" + character, continuing_subword_prefix="##"),
        "bpe-end-of-word": affixed(P.BertPreTokenizer(), D.BPEDecoder("</w>"), lambda character: character + "</w>", end_of_word_suffix="</w>"),
        "unigram": unigram(), "unigram-byte-fallback": unigram(True), "wordpiece": wordpiece(),
    }


def changed(charsmap):
    """(name, the one that it is like, what is changed; None: left out). `charsmap`: a compiled map of characters, as SentencePiece makes it."""
    for like, rows in (("characters", changed_characters(charsmap)), ("bytes", changed_bytes()), ("words", changed_words())):
        for name, changes in rows.items():
            yield name, like, changes
    for like in ("characters", "words", "unigram", "wordpiece"):
        yield f"{like}-of-no-type", like, {"model": {"type": None}}  # as older files have it
    yield "wordpiece-short-words", "wordpiece", {"model": {"max_input_chars_per_word": 6}}
    yield "unigram-with-special", "unigram", {"added_tokens": [{"id": 1, "content": "</s>", "single_word": False, "lstrip": False, "rstrip": False,
                                                                "normalized": False, "special": True}]}
