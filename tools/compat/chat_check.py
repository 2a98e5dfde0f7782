#!/usr/bin/env python3
"""Compares `halfbyte generate --chat` with transformers' apply_chat_template, family by family, id by id.

    chat_check.py HALFBYTE TINY_LLAMA TEMPLATES [SEED]      exit status 1 when ids differ, 77 without transformers

TEMPLATES is a folder of chat templates as the models' authors publish them (NAME.jinja, see FAMILIES): they are theirs, so
none is kept here. A family without its file is left out, with a word. A tokenizer of each family's kind is trained here,
small, with the family's special tokens; the weights are tiny-llama's. What is compared is the row of halfbyte's table;
jinja_check.py compares the templates themselves, run.
"""
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

try:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

CORPUS = ["The ship was late and it came to pass that the people said unto the king: why?", "Hello, how are you?",
          "Be brief. Answer in one word.", "naïve café", "  two  spaces\n\nand lines\n", "def f(x):\n    return x"] * 20

LLAMA3_TOKENS = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
QWEN_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PHI_TOKENS = ["<s>", "</s>", "<|endoftext|>", "<|assistant|>", "<|end|>", "<|system|>", "<|user|>"]
GLM_TOKENS = ["[gMASK]", "<sop>", "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
S = ["<s>", "</s>"]
INST = [*S, "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]

# name in halfbyte, file of the template, kind of tokenizer, special tokens, bos, eos, whether the template takes a system text
FAMILIES = [
    ("llama2", "llama2", "metaspace", S, *S, True),
    ("llama2", "llama2", "legacy", S, *S, True),
    ("llama3", "llama3", "bytes", LLAMA3_TOKENS, "<|begin_of_text|>", "<|eot_id|>", True),
    ("llama3.1", "llama3.1", "bytes", LLAMA3_TOKENS, "<|begin_of_text|>", "<|eot_id|>", True),
    ("llama3.1", "llama3.1-2", "bytes", LLAMA3_TOKENS, "<|begin_of_text|>", "<|eot_id|>", True),
    ("chatml", "chatml", "bytes", QWEN_TOKENS, None, "<|im_end|>", True),
    ("chatml", "chatml-2", "legacy", [*S, "<|im_start|>", "<|im_end|>"], "<s>", "<|im_end|>", True),
    ("qwen2", "qwen2", "bytes", QWEN_TOKENS, None, "<|im_end|>", True),
    ("qwen2.5", "qwen2.5", "bytes", QWEN_TOKENS, None, "<|im_end|>", True),
    ("qwen3", "qwen3", "bytes", QWEN_TOKENS, None, "<|im_end|>", True),
    ("phi4", "phi4", "bytes", [*QWEN_TOKENS, "<|im_sep|>"], "<|endoftext|>", "<|im_end|>", True),
    ("mistral-v0", "mistral-v0", "legacy", S, *S, False),
    ("mistral-v0", "mistral-v0-2", "legacy", S, *S, False),
    ("mistral-v1", "mistral-v1", "legacy", S, *S, True),
    ("mistral-v3", "mistral-v3", "legacy", INST, *S, True),
    ("mistral-v3", "mistral-v3", "metaspace", INST, *S, True),
    ("mistral-v7", "mistral-v7", "metaspace", INST, *S, True),
    ("mistral-tekken", "mistral-tekken", "bytes", INST, *S, True),
    ("gemma", "gemma", "gemma", ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], "<bos>", "<eos>", False),
    ("gemma", "gemma-2", "gemma", ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], "<bos>", "<eos>", True),
    ("phi3", "phi3", "legacy-rstrip", PHI_TOKENS, "<s>", "<|endoftext|>", True),
    ("phi3", "phi3-2", "legacy-rstrip", PHI_TOKENS, "<s>", "<|endoftext|>", True),
    ("phi4-mini", "phi4-mini", "bytes", [*PHI_TOKENS, "<|tool|>"], "<|endoftext|>", "<|endoftext|>", True),
    ("glm4", "glm4", "bytes", GLM_TOKENS, None, "<|endoftext|>", True),
    ("glm4", "glm4-2", "bytes", GLM_TOKENS, None, "<|endoftext|>", True),
    ("chatglm3", "chatglm3", "legacy", [*S, "[gMASK]", "sop", "<|system|>", "<|user|>", "<|assistant|>"], None, "</s>", True),
    ("zephyr", "zephyr", "legacy", S, *S, True),
]

BYTES = [f"<0x{value:02X}>" for value in range(256)]


def byte_level(specials):
    tokenizer = Tokenizer(models.BPE())
    split = Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(split, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=450, special_tokens=[], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    return tokenizer


def sentencepiece_like(specials, kind):
    """As transformers converts a SentencePiece model: "legacy" puts the blank before every text between special tokens,
    "metaspace" before the first one, "gemma" nowhere."""
    trained = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained.train_from_iterator([part for text in CORPUS for part in text.split("\n")], trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>", *BYTES], show_progress=False))
    state = json.loads(trained.to_str())
    state["added_tokens"] = []
    state["normalizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(state))
    if kind == "gemma":
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    elif kind == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    takes_blanks = kind == "legacy-rstrip"
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False, rstrip=takes_blanks and token.startswith("<|"))
                                  for token in ["<unk>", *specials]])
    return tokenizer


def build(path, name, template, kind, specials, bos, eos, tiny_llama):
    tokenizer = byte_level(specials) if kind == "bytes" else sentencepiece_like(specials, kind)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))])
    path.mkdir()
    tokenizer.save(str(path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template, "eos_token": eos, "clean_up_tokenization_spaces": False}
    if bos:
        config["bos_token"] = bos
    (path / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False))
    model = json.loads((tiny_llama / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(model | {"max_position_embeddings": 8192}))
    shutil.copyfile(tiny_llama / "model.safetensors", path / "model.safetensors")


TEXTS = ["Hello, how are you?", "", " ", "\n", "  leading", "trailing  ", "\n\nlines\n\nand more\n", "naïve café 東京 😀 ünï",
         "　wide　", "\u00a0nbsp\u00a0", "tab\tbed", "it's 12345", "a" * 300, "[INST] x", "</think>\n\nafter", "<think>\nhm\n</think>\n\nYes.",
         "def f(x):\n    return x\n", "You're \"quoted\" \\n", "x\r\ny", "{{ messages }}", "é\u0301"]


def conversations(random_, has_system, specials, count):
    """Of texts that spell no special token: halfbyte and transformers differ there, see forged()."""
    out = []
    texts = [text for text in TEXTS if not any(special in text for special in specials)]
    for number in range(count):
        talk = []
        if has_system and random_.random() < 0.5:
            talk.append({"role": "system", "content": random_.choice(texts)})
        for _ in range(random_.choice([0, 0, 1, 2, 4])):
            talk += [{"role": "user", "content": random_.choice(texts)}, {"role": "assistant", "content": random_.choice(texts)}]
        talk.append({"role": "user", "content": texts[number % len(texts)]})
        out.append(talk)
    return out


def forged(specials):
    """A conversation with nothing but special tokens' spellings, and one with as many turns of other text."""
    text = "".join(specials)
    return [[{"role": role, "content": content} for role in ("user", "assistant", "user")] for content in (text, "x")]


def ours(program, path, talks, name):
    words = ["--chat-template", name]
    for number, talk in enumerate(talks):
        file = path / f"talk{number}.json"
        file.write_text(json.dumps(talk))
        words += ["--messages", str(file)]
    done = subprocess.run([program, "generate", str(path), "--chat", "--echo", "--max-gen-len", "0", "--json", "-q", *words],
                          capture_output=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        return done.stderr.strip()
    return [generation["tokens"] for generation in json.loads(done.stdout)["generations"]]


def check(program, tiny_llama, templates, scratch, number, family, random_):
    name, file, kind, specials, bos, eos, has_system = family
    template = (templates / f"{file}.jinja").read_text()
    path = scratch / f"{number}-{name}"
    build(path, name, template, kind, specials, bos, eos, tiny_llama)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(path)
    talks = conversations(random_, has_system, specials, 60)
    wanted = [list(tokenizer.apply_chat_template(talk, tokenize=True, add_generation_prompt=True, return_dict=False)) for talk in talks]
    found = ours(program, path, talks + forged(specials), name)
    if isinstance(found, str):
        print(f"{name} ({kind}): {found}")
        return False
    control = {tokenizer.convert_tokens_to_ids(special) for special in specials}
    forgery, plain = ([token for token in ids if token in control] for ids in found[-2:])
    if forgery != plain:
        print(f"{name} ({kind}): a text makes control tokens: {forgery}, not {plain}")
        return False
    wrong = [index for index, talk in enumerate(talks) if found[index] != wanted[index]]
    print(f"{name} ({kind}): {len(talks) - len(wrong)} of {len(talks)} conversations have the same ids")
    for index in wrong[:2]:
        print("  ", talks[index])
        print("   wanted", [tokenizer.convert_ids_to_tokens(i) for i in wanted[index]])
        print("   found ", [tokenizer.convert_ids_to_tokens(i) for i in found[index]])
    return not wrong


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    program, tiny_llama, templates = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    random_ = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    families = [family for family in FAMILIES if (templates / f"{family[1]}.jinja").exists()]
    absent = sorted({family[1] for family in FAMILIES} - {family[1] for family in families})
    if absent:
        print("no template, so not compared:", ", ".join(absent))
    if not families:
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="halfbyte-chat-") as scratch:
        good = [check(program, tiny_llama, templates, pathlib.Path(scratch), number, family, random_)
                for number, family in enumerate(families)]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
