"""Trains one small tokenizer of each kind that checkpoints have, with the `tokenizers` library. For tokenizers_check.py."""
import json
import struct

import protobuf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
         r"""|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
         r"""|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
DEEPSEEK = ["[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+"]
SPACE = "▁"
BYTES = [f"<0x{value:02X}>" for value in range(256)]


def trained(tokenizer, texts, vocab_size, special=(), alphabet=None, **options):
    alphabet = pre_tokenizers.ByteLevel.alphabet() if alphabet is None else alphabet
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, special_tokens=list(special), show_progress=False, **options)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def edited(tokenizer, edit):
    """The same tokenizer after `edit` has changed its JSON."""
    tree = json.loads(tokenizer.to_str())
    edit(tree)
    return Tokenizer.from_str(json.dumps(tree))


def byte_level(texts, vocab_size=1500, pattern=None, normalizer=None, add_prefix_space=False, special=("<|endoftext|>",), trim=True, **model):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    if pattern:
        split = [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=False)]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim)
    trained(tokenizer, texts, vocab_size, special)
    return edited(tokenizer, lambda tree: tree["model"].update(model)) if model else tokenizer


def with_pre_tokenizers(texts, steps, vocab_size=1200):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return trained(tokenizer, texts, vocab_size, ["<|endoftext|>"])


def llama3(texts):
    tokenizer = byte_level(texts, 2500, LLAMA3, special=["<|begin_of_text|>", "<|im_start|>", "<|im_end|>"], trim=False, ignore_merges=True)
    template = processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
                                             special_tokens=[("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def added_tokens(texts, normalizer=None):
    """One token for each flag that an added token can have. No two become the same word when normalised: which of them is found then,
    the library leaves to chance (0.23 answers differently from one from_file to the next)."""
    tokenizer = byte_level(texts, 1000, normalizer=normalizer)
    tokenizer.add_special_tokens([AddedToken("<|im_start|>", lstrip=True, normalized=False), AddedToken("<|im_end|>", rstrip=True, normalized=False),
                                  AddedToken("[MASK]", lstrip=True, rstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("word", single_word=True), AddedToken("SHIP", normalized=True), AddedToken("Word", normalized=False),
                          AddedToken("</s>", lstrip=True), AddedToken("<s>", rstrip=True, single_word=True), AddedToken("the", normalized=True),
                          AddedToken("Ångström", normalized=True), AddedToken("  ", normalized=False), AddedToken("\n\n", normalized=False)])
    return tokenizer


def sentence_piece_bpe(texts, pre_tokenizer=None, normalizer=None, decoder=None, vocab_size=1500):
    """BPE over characters with pieces for bytes, as converted from SentencePiece."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # words, so that training is quick
    trained(tokenizer, texts, vocab_size, ["<unk>", "<s>", "</s>"], alphabet=[], limit_alphabet=300)

    def add_bytes(tree):
        vocab = tree["model"]["vocab"]
        for piece in BYTES:
            vocab[piece] = len(vocab)
        tree["model"].update(byte_fallback=True)
        tree["pre_tokenizer"] = None

    tokenizer = edited(tokenizer, add_bytes)
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    strip = [decoders.Strip(" ", 1, 0)] if decoder == "strip" else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def metaspace(texts, scheme, split):
    tokenizer = sentence_piece_bpe(texts, pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split))
    if not split:
        return tokenizer
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme, split=split)
    return tokenizer


def llama2(texts, vocab_size=1500):
    prepend = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    return sentence_piece_bpe(texts, normalizer=prepend, decoder="strip", vocab_size=vocab_size)


def gemma(texts):
    tokenizer = sentence_piece_bpe(texts, pre_tokenizers.Split(" ", "merged_with_previous"), normalizers.Replace(" ", SPACE))
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("\t\t", normalized=False), AddedToken(SPACE * 2, normalized=False)])
    return tokenizer


def from_sentence_piece(path, byte_fallback=False, normalizer_after=(), scheme="always"):
    """A Unigram tokenizer of the pieces, scores and normalisation rules of a SentencePiece model."""
    pieces, rules = [], b""
    for number, value in protobuf.fields(path.read_bytes()):
        if number == 1:
            piece = dict(protobuf.fields(value))
            pieces.append((piece[1].decode(), struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0))
        elif number == 3:
            rules = dict(protobuf.fields(value)).get(2, b"")
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=byte_fallback))
    steps = [normalizers.Precompiled(rules)] if rules else []
    steps += [*normalizer_after, normalizers.Replace(Regex(" {2,}"), " ")]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def unigram_trained(texts):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=1500, special_tokens=["<unk>", "<pad>"], unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator([text for text in texts if text.isascii()], trainer)  # fewer characters than pieces
    return tokenizer


def bert(texts, **options):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**options)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=2000, special_tokens=special, show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def kinds(sentence_piece_models):
    """name -> function of the training texts. `sentence_piece_models`: name -> path of a unigram model."""
    level, isolated = pre_tokenizers.ByteLevel, lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated")
    rows = {
        "byte-level gpt2 600": lambda t: byte_level(t, 600),
        "byte-level gpt2 6000": lambda t: byte_level(t, 6000, trim=False),
        "byte-level gpt2 prefix space": lambda t: byte_level(t, add_prefix_space=True),
        "byte-level gpt2 by Split": lambda t: byte_level(t, pattern=GPT2),
        "byte-level nfkc": lambda t: byte_level(t, normalizer=normalizers.NFKC()),
        "byte-level nfd lower strip accents": lambda t: byte_level(
            t, normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])),
        "byte-level nfkd": lambda t: byte_level(t, normalizer=normalizers.NFKD()),
        "byte-level strip": lambda t: byte_level(t, normalizer=normalizers.Strip()),
        "byte-level llama3": llama3,
        "byte-level qwen2 nfc": lambda t: byte_level(t, 2000, QWEN2, normalizers.NFC(), special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], trim=False),
        "byte-level gpt4o": lambda t: byte_level(t, 2000, GPT4O),
        "byte-level deepseek": lambda t: with_pre_tokenizers(
            t, [*map(isolated, DEEPSEEK), pre_tokenizers.Digits(True), level(add_prefix_space=False, use_regex=False)]),
        "byte-level falcon": lambda t: with_pre_tokenizers(
            t, [pre_tokenizers.Punctuation("contiguous"), level(add_prefix_space=False), pre_tokenizers.Digits(False), isolated("[0-9][0-9][0-9]")]),
        "byte-level starcoder": lambda t: with_pre_tokenizers(t, [pre_tokenizers.Digits(True), level(add_prefix_space=False)]),
        "byte-level whitespace splits": lambda t: with_pre_tokenizers(
            t, [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), level(add_prefix_space=False, use_regex=False)]),
        "added tokens": added_tokens,
        "added tokens lowercase": lambda t: added_tokens(t, normalizers.Lowercase()),
        "added tokens nfkc": lambda t: added_tokens(t, normalizers.NFKC()),
        "spm bpe llama2": llama2,
        "spm bpe llama2 4000": lambda t: llama2(t, 4000),
        "spm bpe gemma": gemma,
        "wordpiece bert uncased": bert,
        "wordpiece bert cased": lambda t: bert(t, lowercase=False, strip_accents=False),
        "unigram trained": unigram_trained,
    }
    for scheme in ("always", "first", "never"):
        for split in (True, False):
            rows[f"spm bpe metaspace {scheme} {'split' if split else 'whole'}"] = lambda t, scheme=scheme, split=split: metaspace(t, scheme, split)
    for name, path in sentence_piece_models.items():
        rows[f"unigram from {name}"] = lambda t, name=name, path=path: from_sentence_piece(path, byte_fallback="bytes" in name)
    return rows
