"""Small checkpoints of every format, and what hostile hands do to their files: for python_hostile_check.py. Needs torch; the seeds are those of tests/fuzz."""
import copy
import itertools
import json
import pathlib
import random
import struct
import sys
import zipfile

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))

import corpus_checkpoints as checkpoints  # noqa: E402
import make_corpus  # noqa: E402

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32, "I16": torch.int16,
          "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
ZEROS = 65536


def values_of(said, dtype, size):
    """The bytes of one tensor of a ".tensors" file (tests/fuzz/bundle.h), as far as it spells them out."""
    if len(said) < 3:
        return b""
    if isinstance(said[2], str):
        return said[2].encode()[:size]
    wide = torch.tensor(said[2], dtype=torch.float64 if dtype.is_floating_point else torch.int64)
    return bytes(wide.to(dtype).view(torch.uint8).flatten().tolist())[:size]


def tensors_of(text):
    """{name: (safetensors' dtype, shape, bytes)}"""
    header, _, pattern = text.partition(b"\n")
    rest = itertools.cycle(pattern or b"\0")
    out = {}
    for name, said in json.loads(header).items():
        dtype = DTYPES[said[0]]
        size = dtype.itemsize
        for length in said[1]:
            size *= length
        given = values_of(said, dtype, size)
        out[name] = said[0], said[1], given + bytes(itertools.islice(rest, size - len(given)))
    return out


def safetensors(tensors):
    at, header = 0, {}
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def torch_file(tensors, path):
    values = {name: torch.frombuffer(bytearray(data), dtype=torch.uint8).view(DTYPES[dtype]).view(shape) if data else torch.empty(shape, dtype=DTYPES[dtype])
              for name, (dtype, shape, data) in tensors.items()}
    torch.save(values, path)
    return path.read_bytes()


def unpacked(bundle, scratch):
    """The files of a bundle: {name: bytes}."""
    out = {}
    for part in (b"\n" + bundle).split(b"\n@@ ")[1:]:
        name, _, content = part.partition(b"\n")
        name = name.decode()
        if name.endswith(".tensors"):
            name = name.removesuffix(".tensors")
            tensors = tensors_of(content)
            content = safetensors(tensors) if name.endswith(".safetensors") else torch_file(tensors, scratch)
        elif name.endswith(".zeros"):
            name, content = name.removesuffix(".zeros"), content + b"\0" * ZEROS
        out[name] = content
    return out


def files_in(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def corpora(scratch):
    """Seeds of the fuzzers as files, all of which a parser reads at least in part."""
    every = [checkpoints.plain([]), checkpoints.gptq(), checkpoints.awq(), checkpoints.hqq(), checkpoints.compressed_tensors(), checkpoints.bitsandbytes(),
             checkpoints.float4(), checkpoints.ipex_llm(), checkpoints.meta(), checkpoints.pytorch(), checkpoints.packed(make_corpus.manifests()),
             make_corpus.indices(), make_corpus.tokenizer_folders(), make_corpus.chat_folders()]
    for bundle in itertools.chain.from_iterable(every):
        yield unpacked(bundle, scratch)
    for one in checkpoints.ggufs():
        yield {"m.gguf": one + b"\0" * ZEROS}
    for one in checkpoints.zips():
        yield {"m.pt": one}
    for one in checkpoints.llama2c():
        yield {"stories.bin": one[2:] + b"\0" * ZEROS}
    for one in list(make_corpus.tokenizer_jsons())[:20]:
        yield {"tokenizer.json": one}
    llama = unpacked(next(itertools.islice(checkpoints.plain([]), 0, None)), scratch)
    for one in list(make_corpus.configs())[::7]:
        yield {**llama, "config.json": one}


def peers_in(folder):
    """Other programs' checkpoints: a directory each, or a GGUF file."""
    for path in sorted(folder.iterdir()):
        if (path / "config.json").is_file():
            yield {name: data for name, data in files_in(path).items() if not name.startswith(("expected", "logits"))}
    for path in sorted(folder.glob("gguf/*Q4_0.gguf")):
        yield {path.name: path.read_bytes()}


# What a value of JSON becomes.
JUNK = (None, True, -1, 0, 1, 2**31, 2**53, 2**63 - 1, 2**64, -(2**63), 1e308, 0.5, float("nan"), float("inf"), "", "x", "sym_int4", "\u0000", "../../etc/passwd", "/dev/zero",
        "A" * 5000, [], {}, [[]], [2**40, 2**40], [-1, -1], {"a": {"a": {}}}, [0] * 300, "float8_e4m3", "int4", 1e-320, "1", ["a", 1])
HUGE = (0, 1, 7, 8, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def nodes(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value[:200]) if isinstance(value, list) else ()
    for key, child in children:
        yield from nodes(child, (*path, key))


def changed_json(value, chance):
    """With one node replaced, left out, repeated or under another name."""
    path = chance.choice(list(itertools.islice(nodes(value), 4000)))
    if not path:
        return copy.deepcopy(chance.choice(JUNK))
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    key, how = path[-1], chance.randrange(6)
    if how == 0:
        del parent[key]
    elif how == 1 and isinstance(parent, dict):
        name = chance.choice((key + "x", key.upper(), "", chance.choice(list(parent))))
        parent[name] = parent.pop(key)
    elif how == 2 and isinstance(parent[key], (int, float)):
        parent[key] = parent[key] * chance.choice((2, -1, 3, 10**6, 2**31, 0.5)) + chance.choice((0, 1, -1))
    elif how == 3 and isinstance(parent, list):
        parent.extend(parent * chance.choice((1, 20)))
    else:
        parent[key] = copy.deepcopy(chance.choice(JUNK))
    return value


def hostile_json(data, chance):
    how = chance.randrange(12)
    if how == 0:
        return chance.choice((b"", b"null", b"[]", b"{", b"[" * 100000, b'{"a":' * 50000, b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0", b"1e999", b'"\\ud800"', b"{}{}", b'{"a":1,"a":2}'))
    if how == 1:
        return damaged(data, chance)
    try:
        value = json.loads(data)
    except ValueError:
        return damaged(data, chance)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        value = changed_json(value, chance)
        if not isinstance(value, (dict, list)):
            break
    return json.dumps(value, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")


def damaged(data, chance):
    """Bits, bytes, numbers, pieces and ends; the first bytes, where headers are, oftener than others."""
    out = bytearray(data)
    reach = max(1, min(len(out), chance.choice((16, 64, 512, 4096, len(out) or 1))))
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at, how = chance.randrange(reach), chance.randrange(8)
        if how <= 1 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif how == 2 and at < len(out):
            out[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif how == 3:
            out[at:at + 8] = struct.pack("<Q", chance.choice(HUGE))
        elif how == 4:
            out[at:at + 4] = struct.pack("<I", chance.choice(HUGE) & 0xFFFFFFFF)
        elif how == 5:
            del out[at:at + chance.choice((1, 2, 8, 100))]
        elif how == 6:
            out[at:at] = chance.choice((b"\0", b"\xff" * 8, bytes(out[at:at + 64]), b"A" * 1000))
        else:
            del out[chance.randrange(len(out) + 1):]
    return bytes(out)


def hostile_safetensors(data, chance):
    """A header of another meaning, or of another length than it says."""
    how = chance.randrange(6)
    size = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else 0
    if how <= 1 or not 0 < size <= len(data) - 8:
        return damaged(data, chance)
    if how == 2:
        said = chance.choice((*HUGE, size - 1, size + 1, size * 2, len(data), len(data) - 8))
        return struct.pack("<Q", said % 2**64) + data[8:]
    header = hostile_json(data[8:8 + size], chance)
    return struct.pack("<Q", len(header)) + header + data[8 + size:]


class Command:
    """What a pickle would run."""

    def __init__(self, words):
        self.words = words

    def __reduce__(self):
        import os

        return os.system, (self.words,)


def hostile_pickle(data, chance, trace, scratch):
    """A command beside tensors, or members of the archive damaged with sums that are right."""
    if chance.randrange(6) == 0:
        torch.save({"a.weight": torch.ones(4, 64), "x": Command(f"touch {trace}")}, scratch)
        return scratch.read_bytes()
    if chance.randrange(2) == 0 or data[:2] != b"PK":
        return damaged(data, chance)
    try:
        with zipfile.ZipFile(scratch_of(scratch, data)) as old:
            members = {one.filename: old.read(one) for one in old.infolist()}
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError):
        return damaged(data, chance)
    if not members:
        return damaged(data, chance)
    name = chance.choice(sorted(members))
    members[name] = damaged(members[name], chance)
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(scratch, "w", method) as new:
        for name, content in members.items():
            new.writestr(name, content)
    return scratch.read_bytes()


def scratch_of(path, data):
    path.write_bytes(data)
    return path


def hostile(files, chance, trace, scratch):
    """Other files of the same names, one or two of which are not what they were; a missing one is None."""
    out = dict(files)
    for name in chance.sample(sorted(out), min(len(out), chance.choice((1, 1, 1, 2)))):
        if chance.randrange(40) == 0:
            out[name] = None
        elif name.endswith(".json"):
            out[name] = hostile_json(out[name], chance)
        elif name.endswith(".safetensors"):
            out[name] = hostile_safetensors(out[name], chance)
        elif name.endswith((".bin", ".pt", ".pth")):
            out[name] = hostile_pickle(out[name], chance, trace, scratch)
        else:
            out[name] = damaged(out[name], chance)
    return out


def chance_of(number):
    return random.Random(f"halfbyte {number}")
