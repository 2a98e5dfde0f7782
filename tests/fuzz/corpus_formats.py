"""Formats of checkpoints, written in short or byte by byte: what seeds of the fuzzers are made of."""
import json
import struct


def bundle(files):
    """An input of several files (bundle.h)."""
    out = []
    for name, content in files.items():
        content = content if isinstance(content, bytes) else as_text(content).encode()
        out.append(b"@@ " + name.encode() + b"\n" + content)
    return b"\n".join(out)


def as_text(value):
    return value if isinstance(value, str) else json.dumps(value)


def tensors(header, pattern=b"\x12\x34\x21\x3c"):
    """A ".tensors" file of a bundle."""
    return json.dumps(header).encode() + b"\n" + pattern


# GGUF, byte by byte. Numbers of its types of values:
U8, I32, U32, F32, BOOL, TEXT, LIST = 0, 5, 4, 6, 7, 8, 9
_PACKED = {U8: "<B", I32: "<i", U32: "<I", F32: "<f", BOOL: "<?"}


def gguf_text(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_value(kind, value):
    return gguf_text(value) if kind == TEXT else struct.pack(_PACKED[kind], value)


def gguf_entry(key, kind, value):
    if isinstance(value, list):
        items = b"".join(gguf_value(kind, item) for item in value)
        return gguf_text(key) + struct.pack("<IIQ", LIST, kind, len(value)) + items
    return gguf_text(key) + struct.pack("<I", kind) + gguf_value(kind, value)


def gguf(entries, table, alignment=32, version=3, data=b""):
    """`table`: name, lengths (the fastest first), type, bytes. The fuzzer's program adds zeros at the end."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(table), len(entries))
    out += b"".join(gguf_entry(*entry) for entry in entries)
    offset = 0
    for name, lengths, kind, size in table:
        out += gguf_text(name) + struct.pack("<I", len(lengths)) + struct.pack(f"<{len(lengths)}Q", *lengths)
        out += struct.pack("<IQ", kind, offset)
        offset = (offset + size + alignment - 1) // alignment * alignment
    return out + b"\0" * (-len(out) % alignment) + data


# Pickles of protocol 2, opcode by opcode.
def p_text(text):
    raw = text.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def p_int(value):
    return b"\x8a\x08" + struct.pack("<q", value)


def p_ints(values):
    return b"(" + b"".join(p_int(value) for value in values) + b"t"


def p_global(module, name):
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def p_storage(key, kind, count):
    return b"(" + p_text("storage") + p_global("torch", kind) + p_text(key) + p_text("cpu") + p_int(count) + b"tQ"


def p_tensor(key, count, offset, shape, strides, kind="FloatStorage", rebuild="_rebuild_tensor_v2", end=b""):
    return (p_global("torch._utils", rebuild) + b"(" + p_storage(key, kind, count) + p_int(offset) + p_ints(shape) +
            p_ints(strides) + b"\x89" + p_global("collections", "OrderedDict") + b")R" + end + b"tR")


def p_dict(items):
    return b"}(" + b"".join(p_text(key) + value for key, value in items.items()) + b"u"


def pickle(value, protocol=2):
    return b"\x80" + bytes([protocol]) + value + b"."


# Zip files of members that are stored as they are.
def zip_file(members, is_zip64=False, comment=b""):
    out, directory = b"", b""
    for name, content in members.items():
        raw, size = name.encode(), len(content)
        said = 0xFFFFFFFF if is_zip64 else size
        extra = struct.pack("<HHQQ", 1, 16, size, size) if is_zip64 else b"FB\2\0ZZ"
        fields = struct.pack("<HHHHHIII", 20, 0, 0, 0, 0, 0, said, said)
        central = struct.pack("<HHQQQ", 1, 24, size, size, len(out)) if is_zip64 else b""
        directory += (b"PK\1\2" + struct.pack("<H", 20) + fields + struct.pack("<HHHHHI", len(raw), len(central), 0, 0, 0, 0) +
                      struct.pack("<I", 0xFFFFFFFF if is_zip64 else len(out)) + raw + central)
        out += b"PK\3\4" + fields + struct.pack("<HH", len(raw), len(extra)) + raw + extra + content
    at, count = len(out), len(members)
    out += directory
    if is_zip64:
        end = len(out)
        out += b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, len(directory), at)
        out += b"PK\6\7" + struct.pack("<IQI", 0, end, 1)
    ends = (0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF) if is_zip64 else (count, count, len(directory), at)
    return out + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, *ends, len(comment)) + comment


def torch_members(pickled, storages):
    return {"m/data.pkl": pickled, "m/byteorder": b"little",
            **{f"m/data/{key}": content for key, content in storages.items()}, "m/version": b"3\n"}


# SentencePiece models, field by field.
def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content


def real(field, value):
    return varint(field << 3 | 5) + struct.pack("<f", value)


def sentencepiece(pieces, kind, has_bytes=False, charsmap=b"", trainer=b"", normalizer=b""):
    out = b""
    for text, score, piece in pieces:
        out += block(1, block(1, text.encode()) + real(2, score) + number(3, piece))
    if has_bytes:
        for byte in range(256):
            out += block(1, block(1, b"<0x%02X>" % byte) + real(2, 0) + number(3, 6))
    out += block(2, number(3, kind) + number(35, int(has_bytes)) + trainer)
    return out + block(3, (block(2, charsmap) if charsmap else b"") + number(3, 1) + number(4, 1) + normalizer)
