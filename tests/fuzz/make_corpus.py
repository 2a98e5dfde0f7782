#!/usr/bin/env python3
"""Writes the corpora that fuzzing begins with, a folder a target, and DESTINATION/TARGET.dict, its words.

usage: make_corpus.py DESTINATION

From tests/data and from what corpus_formats.py and corpus_checkpoints.py make; what lies in ../shared beside the
repository is read too where it is there and small."""
import hashlib
import json
import re
import sys
from pathlib import Path

import corpus_checkpoints as checkpoints
from corpus_formats import bundle, sentencepiece

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"
SHARED = ROOT.parent / "shared/fixtures"
LARGEST = 20_000  # bytes of a seed
TOKENIZER_FILES = ("tokenizer.model", "tokenizer_config.json", "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json")


def small(paths):
    return [path for path in sorted(paths) if path.stat().st_size <= LARGEST]


def headers():
    """Safetensors headers behind the size of their data, in two bytes."""
    table = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, dtype, shape, size in (("a", "F32", [2, 3], 24), ("b", "BF16", [], 2), ("c", "F4", [4], 2), ("d", "F8_E4M3", [0, 5], 0), ("é", "I64", [1, 1, 2], 16)):
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    yield at.to_bytes(2, "big") + json.dumps(table).encode()
    yield b"\0\0{}"
    yield b"\0\4" + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  '


def indices():
    shards = {f"model-0000{i}-of-00002.safetensors": "x" for i in (1, 2)}
    places = {"a.weight": "model-00001-of-00002.safetensors", "b.weight": "model-00002-of-00002.safetensors"}
    yield bundle({**shards, "model.safetensors.index.json": {"metadata": {"total_size": 8}, "weight_map": places}, "config.json": "{}", "x.py": "", "tokenizer.json": ""})
    yield bundle({**shards, "config.json": "{}"})
    yield bundle({"model-00001-of-00002.safetensors": "x", "model.safetensors": "y", "model.safetensors.index.json": {"weight_map": places}})
    yield bundle({"a.safetensors": "x", "b.safetensors": "x", "halfbyte.json": "{}"})
    yield bundle({"pytorch_model-00001-of-00002.bin": "x", "pytorch_model.bin.index.json": {"weight_map": {"a": "pytorch_model-00001-of-00002.bin"}}})
    yield bundle({"m-00001-of-00002.gguf": "GGUF\3\0\0\0", "m.pt": "x", "a.h5": "", "b.onnx": "", "c.msgpack": "", "model.safetensors.index.json": "[]"})


HASH = "0123456789abcdef0123456789abcdef"


def manifests():
    part = {"codes": "a.weight_packed", "scale": "a.weight_scale", "shape": "a.weight_shape"}
    packed = {"kind": "parameter", "shape": [2, 32], "original_dtype": "bfloat16", "stored": "sym_int4", "parts": part, "bytes": 56, "error": {"rel_rmse": 0.1, "max_abs": 0.25}}
    dense = {"kind": "parameter", "shape": [3], "original_dtype": "float32", "stored": "float32", "parts": {"codes": "n.weight"}, "bytes": 12}
    out = {"format": "halfbyte", "format_version": 1, "format_minor": 0, "created_by": "halfbyte 0.1.0",
           "source": {"kind": "safetensors", "files": [{"name": "model.safetensors", "bytes": 1234, "xxh3_128": HASH}], "declared_dtype": "float16"},
           "conversion": {"scheme": "sym_int4"}, "schemes": {"sym_int4": {"bits": 4, "group_size": 16, "zero_point": False, "scale_dtype": "bfloat16"}},
           "tensors": {"a.weight": packed, "n.weight": dense},
           "buffers": {"r.inv_freq": {"original_dtype": "float32", "how": "rope", "inputs": {"rope_theta": 10000.0}}}, "ties": [["h.weight", "a.weight"]],
           "kept": {"n.weight": "a norm"}, "dtype": {"recommended": "half", "keep_float32": ["*.router.*"]},
           "files": []}
    yield out
    yield {**out, "files": [{"name": "config.json", "bytes": 20, "hashed_bytes": 20, "xxh3_128": HASH}], "ties": [], "buffers": {}}
    book = {"bits": 4, "group_size": 16, "zero_point": False, "scale_dtype": "uint8", "codebook": checkpoints.NF4}
    nested = {**packed, "stored": "nf4", "nested_offset": 0.3, "xxh3_128": HASH,
              "parts": {"codes": "a.weight", "scale": "a.weight.absmax", "codebook": "a.weight.quant_map", "nested_scale": "a.weight.nested_absmax", "nested_codebook": "a.weight.nested_quant_map", "state": "a.weight.quant_state.bitsandbytes__nf4"}}
    yield {**out, "schemes": {"nf4": book}, "tensors": {"a.weight": nested}}
    asym = {"bits": 4, "group_size": 16, "zero_point": True, "scale_dtype": "float16"}
    affine = {"bits": 4, "group_size": 16, "zero_point": False, "offset": True, "scale_dtype": "float16"}
    yield {**out, "schemes": {"asym_int4": asym}, "tensors": {"a.weight": {**packed, "stored": "asym_int4", "parts": {**part, "zero_point": "a.weight_zero_point"}}}}
    yield {**out, "schemes": {"affine_int4": affine}, "tensors": {"a.weight": {**packed, "stored": "affine_int4", "group_size": 32, "scale_dtype": "float32", "parts": {**part, "offset": "a.weight_offset", "column_order": "a.weight_g_idx"}}}}


def configs():
    for path in sorted(list(DATA.glob("families/*/config.json")) + list(SHARED.glob("families/*/config.json"))):
        yield path.read_bytes()
    base = {**checkpoints.LLAMA, "num_hidden_layers": 2, "sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1, "num_experts": 4, "num_local_experts": 4,
            "num_experts_per_tok": 2, "moe_intermediate_size": 32, "eos_token_id": [1, 2], "bos_token_id": 1, "hidden_activation": "gelu_pytorch_tanh",
            "layer_types": ["sliding_attention", "full_attention"]}
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    ropes = [{"rope_type": kind, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32, "mscale": 1.0, "mscale_all_dim": 0.5, **factors}
             for kind in ("default", "linear", "dynamic", "llama3", "yarn", "longrope")]
    for family in ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "phi3", "gemma", "gemma2", "glm", "glm4"):
        for i, rope in enumerate(ropes):
            yield json.dumps({**base, "model_type": family, "rope_parameters" if i % 2 else "rope_scaling": rope}).encode()


def journals():
    identity = {"journal": 1, "program": "halfbyte 0.1.0", "conversion": {"scheme": "sym_int4"}, "source": {}, "result": {}}
    line = {"tensor": 0, "source_hash": HASH, "xxh3_128": HASH, "error": [1.5, 2.5, 0.25], "nested_offset": 0.5}
    yield "\n".join(json.dumps(value) for value in (identity, line, {**line, "tensor": 3})).encode()
    yield (json.dumps(identity) + "\n" + HASH + " {}\n").encode()


def tokenizer_folders():
    for folder in sorted((DATA / "tokenizers").iterdir()):
        files = {name: (folder / name).read_bytes() for name in TOKENIZER_FILES if (folder / name).is_file()}
        if files and sum(map(len, files.values())) <= LARGEST:
            yield bundle(files)
    config = {"added_tokens_decoder": {"5": {"content": "<x>", "special": True, "lstrip": True}}, "bos_token": {"content": "<s>"}, "unk_token": "a", "tokenizer_class": "Qwen2Tokenizer"}
    yield bundle({"vocab.json": {"a": 0, "b": 1, "ab": 2, "<s>": 3}, "merges.txt": "#version: 0.2\na b\r\n", "tokenizer_config.json": config,
                  "added_tokens.json": {"<y>": 4}, "special_tokens_map.json": {"eos_token": "<y>"}})
    yield bundle({"tokenizer.model": spm_models()[0], "tokenizer_config.json": {"add_bos_token": True, "add_eos_token": True, "legacy": False, "bos_token": "<s>",
                  "added_tokens_decoder": {"0": {"content": "<unk>", "special": True}, "9": {"content": "<new>", "rstrip": True}}}})
    yield bundle({"tokenizer.model": "YQ== 0\nYg== 1\nYWI= 2\n", "tokenizer_config.json": {"added_tokens_decoder": {str(i + 3): {"content": text} for i, text in enumerate(("[gMASK]", "<sop>", "<e>"))}}})


def spm_models():
    pieces = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), ("▁a", -1, 1), ("b", -2, 1), ("▁ab", -1.5, 1), ("c", -3, 4), ("a", -3, 1), ("x", 0, 5)]
    return [sentencepiece(pieces, kind, has_bytes) for kind in (1, 2) for has_bytes in (False, True)] + [sentencepiece(pieces, kind) for kind in (3, 4)]


def fixture(path):
    """A tokenizer; of one that says only what it changes of another, all of it."""
    if path.is_dir():
        return json.loads((path / "tokenizer.json").read_text())
    said = json.loads(path.read_text())
    out = fixture(path.parent / said["like"])
    changes = dict(said["changes"])
    model = {**out["model"], **changes.pop("model", {})}
    return {**out, **changes, "model": {key: value for key, value in model.items() if value is not None}}


def tokenizer_jsons():
    folders = [path for path in sorted((DATA / "tokenizers").iterdir()) if (path / "tokenizer.json").is_file()]
    changed = [path for path in sorted((DATA / "tokenizers").glob("*.json")) if path.name != "texts.json"]
    for path in folders + changed:
        yield json.dumps(fixture(path), ensure_ascii=False).encode()


def chat_templates():
    """Strings that templates are recognised by, and those that change a family's own."""
    source = (ROOT / "models/chat/chat_family.cpp").read_text() + (ROOT / "models/chat/recognise.cpp").read_text()
    words = [json.loads(f'"{word}"') for word in re.findall(r'"((?:[^"\\\n]|\\["\\nrt])+)"', source)]
    marks = re.findall(r"\.marks = \{([^}]*)\}", source)
    for row in marks:
        row = row.replace("\\n", "\n")
        yield (" ".join(re.findall(r'"([^"]*)"', row)) + " bos_token add_generation_prompt <|im_start|>assistant\n<think>\n").encode()
    for word in words:
        yield ("{{ '<|im_start|>' }}<|im_end|>" + word).encode()
    yield b"<|im_start|>system\\nYou are kind.<|im_end|>' <|im_end|> | trim strftime_now if item['content'] loop.first and system_message eos_token + ' '"


def jinja_templates():
    """Those of the interpreter's test, and one of a chat model's kind."""
    source = (ROOT / "tests/models/chat/jinja_cases.h").read_text(encoding="utf-8")
    for text in re.findall(r'\{R"\((.*?)\)",', source, re.DOTALL):
        yield text.encode()
    yield (b"{%- if tools %}{{- '<|im_start|>system\\n' }}{%- for tool in tools %}{{- tool | tojson(indent=2) }}{%- endfor %}{%- endif %}\n"
           b"{%- set ns = namespace(last=messages|length - 1) %}{%- for message in messages[::-1] %}{%- set i = (messages|length - 1) - loop.index0 %}"
           b"{%- if message.role == 'user' and message.content is string %}{%- set ns.last = i %}{%- break %}{%- endif %}{%- endfor %}\n"
           b"{%- for m in messages %}{{- '<|im_start|>' ~ m.role ~ '\\n' ~ (m.content.split('</think>')[-1].lstrip('\\n') if m.content is string else m.content[0].text) }}"
           b"{%- for call in m.tool_calls or [] %}{{- call.function.arguments | items | list }}{%- endfor %}{%- endfor %}{% macro f(a, b=1) %}{{ a ~ b }}{{ caller() }}{% endmacro %}"
           b"{% call f(2) %}x{% endcall %}{{ strftime_now('%d %b %Y') }}{% if x %}{{ raise_exception('no') }}{% endif %}")


def chat_folders():
    templates = list(chat_templates())
    for one in templates[:40:3]:
        yield bundle({"tokenizer_config.json": {"chat_template": one.decode(), "bos_token": "<s>", "eos_token": {"content": "</s>"}}, "generation_config.json": {"eos_token_id": [1, 2]}})
    yield bundle({"chat_template.jinja": templates[0]})
    yield bundle({"chat_template.json": {"chat_template": templates[1].decode()}, "special_tokens_map.json": {"eos_token": "</s>"}})
    yield bundle({"tokenizer_config.json": {"chat_template": [{"name": "default", "template": templates[2].decode()}, {"name": "tool", "template": "x"}]}})
    for family in ("llama", "qwen2", "gemma2", "chatglm", "phi3", "mistral"):
        yield bundle({"config.json": {"model_type": family}, "generation_config.json": {"eos_token_id": 2}})


def options():
    for word in ("256MiB", "1 GB", "65536", "0", "1e3", "-5", "sym_int4", "nf4", "amp:float16", "half", "original", "*down_proj*", "layers.?.mlp", "float8_e4m3", "0.5", "sym_in4"):
        yield (word + "\nmodel.layers.10.mlp.down_proj.weight").encode()


def resumes():
    for how in range(12):
        yield bytes([how]) + b"\0\1x\3\7\2"
        yield bytes([how])


def sources():
    """Of whole conversions: plain ones, and one of each kind of packed. The last byte says how."""
    every = [checkpoints.plain([]), checkpoints.gptq(), checkpoints.awq(), checkpoints.hqq(), checkpoints.compressed_tensors(), checkpoints.bitsandbytes(), checkpoints.float4(),
             checkpoints.ipex_llm(), checkpoints.meta(), checkpoints.pytorch()]
    count = 0
    for kind in every:
        for one in kind:
            for _ in range(3):
                yield one + bytes([count * 37 % 256])
                count += 1
    for one in checkpoints.ggufs():
        yield bundle({"m.gguf.zeros": one + b"\x11"})
    model = spm_models()[3]
    tokenizer = {"tokenizer.model": model, "tokenizer_config.json": {"add_bos_token": True}}
    from corpus_formats import tensors
    vocabulary = dict(checkpoints.llama())
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        vocabulary[name] = ["BF16", [265, 32]]
    for choice in range(0, 256, 15):
        yield bundle({"config.json": {**checkpoints.LLAMA, "vocab_size": 265}, checkpoints.FILE: tensors(vocabulary), **tokenizer}) + bytes([choice])


def schemas():
    """A line of schema, then bytes that choose."""
    parts = [{"type": "string", "minLength": 1, "maxLength": 3}, {"type": "integer", "minimum": -7, "exclusiveMaximum": 120}, {"type": "number", "maximum": 0.5},
             {"enum": ["a", "ab", 1, 12, None, "\u00e4"]}, {"type": ["boolean", "null"]}, {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
             {"type": "array", "prefixItems": [{"const": 1}, {"type": "string"}], "items": False}, {"type": "object", "additionalProperties": {"type": "number"}}, {}, True]
    whole = {"type": "object", "properties": {"a": parts[0], "b": parts[1], "c": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}}, "required": ["a", "c"],
             "$defs": {"N": {"type": "object", "properties": {"v": parts[3], "n": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["n"]}}}
    apart = {"oneOf": [{"type": "object", "properties": {"k": {"const": kind}}, "required": ["k"]} for kind in "xy"]}
    return [json.dumps(one).encode() + b"\n" + bytes(range(40)) for one in [*parts, whole, apart]]


def words_of(seeds):
    """Strings of JSON and of formats, for libFuzzer's dictionary."""
    found = set()
    for seed in seeds:
        found.update(re.findall(rb'"([A-Za-z_][A-Za-z0-9_.:<>|-]{1,40})"', seed))
        found.update(re.findall(rb"\n@@ ([^\n]{1,60})", seed))
    return sorted(found)[:600]


FORMAT_WORDS = {
    "gguf": [b"GGUF", b"general.architecture", b"general.alignment", b"tokenizer.ggml.tokens", b"tokenizer.ggml.model", b"split.count", b"rope.scaling.type", b"token_embd.weight", b".bias"],
    "pickle": [b"ctorch._utils\n_rebuild_tensor_v2\n", b"ccollections\nOrderedDict\n", b"ctorch\nFloatStorage\n", b"tR", b"Q", b"}(", b"u.", b"\x80\x02", b"\x8a\x08"],
    "zip": [b"PK\1\2", b"PK\3\4", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"data.pkl", b"byteorder", b"version"],
    "sentencepiece": [b"\xe2\x96\x81", b"<0x41>", b"<unk>"],
}

TARGETS = {
    "safetensors": headers, "index": indices, "manifest": lambda: (json.dumps(one).encode() for one in manifests()), "packed": lambda: checkpoints.packed(manifests()),
    "config": configs, "journal": journals, "options": options, "gguf": checkpoints.ggufs, "pickle": checkpoints.pickles, "zip": checkpoints.zips,
    "pytorch": checkpoints.pytorch, "meta_params": checkpoints.meta_params, "meta": checkpoints.meta, "llama2c": checkpoints.llama2c, "llama2c_tokenizer": checkpoints.llama2c_tokenizer, "gptq": checkpoints.gptq,
    "awq": checkpoints.awq, "hqq": checkpoints.hqq, "compressed_tensors": checkpoints.compressed_tensors, "bitsandbytes": checkpoints.bitsandbytes,
    "float4": checkpoints.float4, "ipex_llm": checkpoints.ipex_llm,
    "sentencepiece": lambda: spm_models() + [path.read_bytes() for path in small((DATA / "tokenizers").glob("sentencepiece*/tokenizer.model"))],
    "tokenizer_json": tokenizer_jsons, "tokenizer_files": tokenizer_folders, "chat_text": chat_templates, "chat_jinja": jinja_templates, "chat_files": chat_folders, "schema": schemas, "conversion": sources, "resume": resumes,
}


def as_entry(word):
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in word) + '"'


def main(destination):
    for name, make in TARGETS.items():
        folder = destination / name
        folder.mkdir(parents=True, exist_ok=True)
        seeds = list(make())
        for seed in seeds:
            (folder / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
        words = [*FORMAT_WORDS.get(name, []), *words_of(seeds)]
        (destination / f"{name}.dict").write_text("".join(as_entry(word) + "\n" for word in words))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
