"""How many bits each weight of the Linears takes where it is stored, read from the headers of safetensors and GGUF files. For accuracy.py.

A Linear is a matrix of a layer; embedding and head are none. Everything stored for it counts: codes, scales, zero points.
"""
import json
import math
import pathlib
import struct

# Bytes of a GGUF value by its type; 8 is text, 9 a list.
GGUF_VALUES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
GGUF_ALIGNMENT = 32


def safetensors(folder):
    """{name: (shape, bytes)} of all safetensors files in a folder."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with open(path, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        header.pop("__metadata__", None)
        found |= {name: (entry["shape"], entry["data_offsets"][1] - entry["data_offsets"][0]) for name, entry in header.items()}
    return found


def linears(model):
    """{name of a Linear: its number of weights} of the original."""
    return {name.removesuffix(".weight"): math.prod(shape) for name, (shape, _) in safetensors(model).items()
            if ".layers." in name and name.endswith(".weight") and len(shape) == 2}


def bits_of_safetensors(folder, model):
    weights, original = linears(model), safetensors(model)
    beside = {name for name in original if name.rpartition(".")[0] not in weights or not name.endswith(".weight")}
    stored = {name: size for name, (_, size) in safetensors(folder).items() if name not in beside}
    found = sum(size for name, size in stored.items() if any(name.startswith(module + ".") for module in weights))
    return found * 8 / sum(weights.values())


class Gguf:
    """The header of a GGUF file: its values are passed over, its tensors kept as (name, shape, offset)."""

    def __init__(self, path):
        self.path, self.alignment = pathlib.Path(path), GGUF_ALIGNMENT
        with open(path, "rb") as self.file:
            magic, _, tensors, values = self.take("<4sIQQ")
            if magic != b"GGUF":
                raise ValueError(f"{path} is no GGUF file")
            for _ in range(values):
                self.value()
            self.tensors = [self.tensor() for _ in range(tensors)]
            self.begin = -(-self.file.tell() // self.alignment) * self.alignment

    def take(self, layout):
        return struct.unpack(layout, self.file.read(struct.calcsize(layout)))

    def text(self):
        return self.file.read(self.take("<Q")[0]).decode(errors="replace")

    def value(self):
        name, (kind,) = self.text(), self.take("<I")
        if name == "general.alignment":
            self.alignment = self.take("<I")[0]
        else:
            self.skip(kind)

    def skip(self, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            element, count = self.take("<IQ")
            for _ in range(count):
                self.skip(element)
        else:
            self.file.seek(GGUF_VALUES[kind], 1)

    def tensor(self):
        name, (dimensions,) = self.text(), self.take("<I")
        shape = self.take(f"<{dimensions}Q")
        return name, shape, self.take("<IQ")[1]

    def sizes(self):
        """{name: (shape, bytes)}, with the padding behind a tensor: types need not be known."""
        ordered = sorted(self.tensors, key=lambda tensor: tensor[2])
        ends = [offset for _, _, offset in ordered[1:]] + [self.path.stat().st_size - self.begin]
        return {name: (shape, end - offset) for (name, shape, offset), end in zip(ordered, ends)}


def bits_of_gguf(path):
    chosen = [(math.prod(shape), size) for name, (shape, size) in Gguf(path).sizes().items()
              if name.startswith("blk.") and name.endswith(".weight") and len(shape) == 2]
    return sum(size for _, size in chosen) * 8 / sum(weights for weights, _ in chosen)
