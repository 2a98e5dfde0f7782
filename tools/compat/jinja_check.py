#!/usr/bin/env python3
"""Compares what halfbyte makes of chat templates with transformers' apply_chat_template: texts and ids, over conversations
with tools, documents and switches drawn at random.

    jinja_check.py HALFBYTE TINY_LLAMA TEMPLATES [SEED]      exit status 1 when one differs, 77 without transformers

TEMPLATES is a folder of templates as the models' authors publish them (*.jinja); they are theirs, so none is kept here.
Each gets two tokenizers with the special tokens that its text spells: one of bytes, so that ids tell the text exactly, and one
of SentencePiece's kind, which puts blanks beside special tokens. The weights are tiny-llama's. Where transformers' run ends in an error, so must halfbyte's.
"""
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

try:
    from chat_check import byte_level, sentencepiece_like
    from transformers import PreTrainedTokenizerFast
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

COUNT = 60
SPECIAL = re.compile(r"<\|[A-Za-z0-9_.▁/ -]{1,40}\|>|<｜[^｜<>]{1,40}｜>|\[/?[A-Z_]{3,30}\]|</?[a-z_]{3,30}>|<(?:start|end)_of_[a-z]+>")
TEXTS = ["Hello, how are you?", "", "  leading and trailing \n", "line\n\nline\n", "naïve café 東京 😀", "it's \"quoted\" \\n {{ x }}", "12345", "def f(x):\n    return x",
         "<b>&amp;</b>", "reasoning first\n\nthen the answer", "a" * 200, "x\r\ny\ttab"]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Tells the weather – now.", "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "Where?"}, "days": {"type": "integer", "default": 3}, "unit": {"type": "string", "enum": ["C", "F"]}}, "required": ["city"]}}},
         {"type": "function", "function": {"name": "search", "description": "Looks up.\nTwo lines.", "parameters": {"type": "object", "properties": {
            "query": {"type": "array", "items": {"type": "string"}}, "exact": {"type": ["boolean", "null"]}, "where": {"type": "object", "properties": {"x": {"type": "number"}}}}},
            "return": {"type": "string", "description": "A <text>."}}},
         {"type": "function", "function": {"name": "stop", "description": "", "parameters": {"type": "object", "properties": {}}}}]
DOCUMENTS = [{"title": "One", "text": "First \"text\"."}, {"title": "Zwei", "text": "Über\nLines", "url": "https://x.y"}]
SWITCHES = [{}, {}, {"enable_thinking": False}, {"enable_thinking": True}, {"thinking": True}, {"reasoning_effort": "low"}, {"add_vision_id": True}, {"keep_past_thinking": True}]
DATE = "26 Jul 2024"  # both are told it


def calls(random_, number):
    arguments = random_.choice([{"city": "Paris"}, {"query": ["a", "b"], "exact": None}, {"days": 2, "city": "Zürich", "f": 1.5}, {}])
    name = random_.choice(["get_weather", "search", "stop"])
    return {"id": f"call{number:05d}", "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation(random_, has_tools):
    talk = []
    if random_.random() < 0.5:
        talk.append({"role": "system", "content": random_.choice(TEXTS)})
    for number in range(random_.choice([0, 0, 1, 1, 2, 3])):
        talk.append({"role": "user", "content": random_.choice(TEXTS)})
        answer = {"role": "assistant", "content": random_.choice(TEXTS)}
        if random_.random() < 0.3:
            answer["reasoning_content"] = random_.choice(TEXTS)
        elif random_.random() < 0.2:
            answer["content"] = "<think>\nhm\n</think>\n\n" + answer["content"]
        if has_tools and random_.random() < 0.6:
            asked = [calls(random_, number * 10 + each) for each in range(random_.choice([1, 1, 2]))]
            talk.append(answer | {"tool_calls": asked, "content": random_.choice(["", "Let me see.", None]) if random_.random() < 0.7 else answer["content"]})
            for one in asked:
                talk.append({"role": "tool", "tool_call_id": one["id"], "name": one["function"]["name"], "content": random_.choice(["22", '{"t": 1}', *TEXTS])})
        if not has_tools or random_.random() < 0.8:
            talk.append(answer)
    talk.append({"role": "user", "content": random_.choice(TEXTS)})
    return talk


def drawn(random_):
    has_tools = random_.random() < 0.5
    request = {"messages": conversation(random_, has_tools), "chat_template_kwargs": random_.choice(SWITCHES)}
    if has_tools:
        request["tools"] = random_.sample(TOOLS, random_.choice([1, 2, 3]))
    if random_.random() < 0.15:
        request["documents"] = DOCUMENTS
    if random_.random() < 0.1:
        request["messages"][-1]["content"] = [{"type": "text", "text": random_.choice(TEXTS)}, {"type": "text", "text": "second"}]
    return request


def build(path, template, kind, tiny_llama):
    specials = sorted(set(SPECIAL.findall(template)))
    bos, eos = "<the_bos>", "<the_eos>"
    tokenizer = (byte_level if kind == "bytes" else lambda names: sentencepiece_like(names, kind))([bos, eos, *specials])
    path.mkdir()
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": bos, "eos_token": eos, "clean_up_tokenization_spaces": False}))
    (path / "chat_template.jinja").write_text(template, encoding="utf-8", newline="")
    model = json.loads((tiny_llama / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(model | {"max_position_embeddings": 65536}))
    shutil.copyfile(tiny_llama / "model.safetensors", path / "model.safetensors")
    return PreTrainedTokenizerFast.from_pretrained(path)


def wanted(tokenizer, request):
    """The ids, or the error's text."""
    try:
        return list(tokenizer.apply_chat_template(
            request["messages"], tools=request.get("tools"), documents=request.get("documents"), tokenize=True, add_generation_prompt=True,
            return_dict=False, date_string=DATE, **request["chat_template_kwargs"]))
    except Exception as error:  # noqa: BLE001: whatever a template does
        return f"{type(error).__name__}: {error}"


def ours(program, path, requests):
    """The ids of each, or the error's text of all."""
    words = []
    for number, request in enumerate(requests):
        file = path / f"talk{number}.json"
        file.write_text(json.dumps(request))
        words += ["--messages", str(file)]
    done = subprocess.run([program, "generate", str(path), "--chat", "--echo", "--max-gen-len", "0", "--json", "-q", "--chat-argument", f"date_string={DATE}", *words],
                          capture_output=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        return done.stdout.strip() + done.stderr.strip()
    return [generation["tokens"] for generation in json.loads(done.stdout)["generations"]]


def is_spelled(request, tokenizer):
    """Whether texts spell special tokens, which transformers reads as tokens and halfbyte as text."""
    return any(token in json.dumps(request, ensure_ascii=False) for token in tokenizer.all_special_tokens + list(tokenizer.get_added_vocab()))


def check(program, tiny_llama, scratch, file, kind, random_):
    template = file.read_text(encoding="utf-8")
    path = scratch / f"{file.stem}-{kind}"
    tokenizer = build(path, template, kind, tiny_llama)
    requests = [request for request in (drawn(random_) for _ in range(COUNT * 3)) if not is_spelled(request, tokenizer)][:COUNT]
    answers = [(request, wanted(tokenizer, request)) for request in requests]
    good = [(request, ids) for request, ids in answers if isinstance(ids, list)]
    bad = [(request, error) for request, error in answers if isinstance(error, str)]
    found = ours(program, path, [request for request, _ in good]) if good else []
    if isinstance(found, str):  # one by one, to see which
        found = [ids[0] if isinstance(ids, list) else ids for ids in (ours(program, path, [request]) for request, _ in good)]
    wrong = [(request, ids, got) for (request, ids), got in zip(good, found) if ids != got]
    missed = []
    for request, error in bad[:6]:
        got = ours(program, path, [request])
        may_fold = request["messages"][0]["role"] == "system"  # halfbyte puts it before the user's text then
        if isinstance(got, list) and not may_fold:
            missed.append((request, error))
    print(f"{file.stem:58} {kind:6} {len(good) - len(wrong):3} of {len(good):3} the same, {len(bad):3} refused by both" + (f", {len(missed)} by transformers alone" if missed else ""), flush=True)
    for request, ids, got in wrong[:1]:
        print("   ", json.dumps(request, ensure_ascii=False)[:1500])
        print("    wanted", repr(tokenizer.decode(ids))[-1500:])
        print("    found ", got[:400] if isinstance(got, str) else repr(tokenizer.decode(got))[-1500:])
    for request, error in missed[:1]:
        print("    not refused:", error, json.dumps(request, ensure_ascii=False)[:1000])
    return not wrong and not missed


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    program, tiny_llama, templates = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    files = sorted(templates.glob("*.jinja"))
    if not files:
        print("skipped: no templates in", templates)
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="halfbyte-jinja-") as scratch:
        good = [all([check(program, tiny_llama, pathlib.Path(scratch), file, kind, random.Random(f"{seed}{file.stem}{kind}")) for kind in ("bytes", "legacy")])
                for file in files]
    print(f"{sum(good)} of {len(good)} templates agree")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
