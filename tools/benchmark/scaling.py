#!/usr/bin/env python3
"""Measures how speed changes as work grows, and writes docs/performance.md's table and docs/performance.svg.

    scaling.py HALFBYTE SCRATCH [DOCS]

Decode and prefill of a model of 1.1 G parameters after 128 to 4096 tokens of context, with one thread and with two, and of models with
one to four times its layers. SCRATCH takes 14 GB. Nothing else should run on the machine. The table goes between the two markers
in DOCS/performance.md.
"""
import json
import os
import pathlib
import platform
import shutil
import struct
import subprocess
import sys

CONTEXTS = [128, 256, 512, 1024, 2048, 4096]
SIZES = [1, 2, 3, 4]
THREADS = [1, 2]
LAYERS = 22
CHUNK = 64  # tokens of the prompt that is timed after a context
BEGIN, END = "<!-- scaling.py: begin -->\n", "<!-- scaling.py: end -->\n"


def output_of(program, *words):
    done = subprocess.run([str(program), *map(str, words), "--json", "-q"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip())
    return json.loads(done.stdout)


def shifted(name, layers):
    """A tensor's name in another copy of the layers; None for what is outside of them, which stays single."""
    parts = name.split(".")
    if "layers" not in parts:
        return None
    at = parts.index("layers") + 1
    return ".".join([*parts[:at], str(int(parts[at]) + layers), *parts[at + 1:]])


def copy_layers(source, target, layers):
    """The layers of a safetensors file under the names of layers that come `layers` later. Returns their names."""
    with open(source, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        kept, end, parts = {}, 0, []
        for name, tensor in sorted(((name, tensor) for name, tensor in header.items() if name != "__metadata__"), key=lambda item: item[1]["data_offsets"]):
            begin, size = tensor["data_offsets"][0], tensor["data_offsets"][1] - tensor["data_offsets"][0]
            if shifted(name, layers):
                kept[shifted(name, layers)] = tensor | {"data_offsets": [end, end + size]}
                parts.append((begin, size))
                end += size
        text = json.dumps(kept).encode()
        start = file.tell()
        with open(target, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for begin, size in parts:
                file.seek(start + begin)
                out.write(file.read(size))
    return list(kept)


def larger(source, target, times):
    """`source` with its layers `times` over, and room for 8192 tokens."""
    target.mkdir()
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config |= {"num_hidden_layers": LAYERS * times, "max_position_embeddings": 8192}
    (target / "config.json").write_text(json.dumps(config), encoding="utf-8")
    index = json.loads((source / "model.safetensors.index.json").read_text(encoding="utf-8"))
    for shard in sorted(set(index["weight_map"].values())):
        shutil.copyfile(source / shard, target / shard)
        for copy in range(1, times):
            name = f"copy{copy}-{shard}"
            index["weight_map"] |= dict.fromkeys(copy_layers(source / shard, target / name, LAYERS * copy), name)
    (target / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index["weight_map"]}), encoding="utf-8")


def checkpoint(program, scratch, times):
    quantized = scratch / f"times{times}"
    if not quantized.exists():
        source = scratch / "model"
        if not source.exists():
            output_of(program, "synth", source, "--like", "llama-1.1b")
        grown = scratch / "grown"
        shutil.rmtree(grown, ignore_errors=True)
        larger(source.resolve(), grown, times)
        output_of(program, "quantize", grown, quantized, "--group-size", 128, "--scheme-for", "lm_head=sym_int8")
        shutil.rmtree(grown)
    return quantized


def bench(program, model, threads, depth):
    found = output_of(program, "bench", model, "--threads", threads, "--depth", depth, "--prompt-tokens", CHUNK, "--gen-tokens", 32, "--runs", 3)
    print(f"{model.name}, {threads} threads, {depth} tokens: {found['decode_tokens_per_s']:.1f} tokens/s", file=sys.stderr, flush=True)
    return found


def measure(program, scratch):
    """[{threads, context, size, decode, prefill, share}]"""
    jobs = [(threads, context, 1) for threads in THREADS for context in CONTEXTS] + [(2, CHUNK, times) for times in SIZES]
    rows = []
    for threads, context, times in jobs:
        found = bench(program, checkpoint(program, scratch, times), threads, context - CHUNK)
        rows.append({"threads": threads, "context": context, "size": times, "decode": found["decode_tokens_per_s"],
                     "prefill": found["prefill_tokens_per_s"], "share": found["memory_share"]})
    return rows


def machine():
    names = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores, {platform.system()}"


def table(rows):
    lines = [f"Measured on {machine()}.", "", "![decode against context, and against the model's size](performance.svg)", "",
             "| layers | threads | context | decode, tokens/s | of memory's speed | prefill of 64 there, tokens/s |", "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        lines.append(f"| {LAYERS * row['size']} | {row['threads']} | {row['context']} | {row['decode']:.1f} | {row['share']:.0%} | {row['prefill']:.0f} |")
    return "\n".join(lines) + "\n"


def panel(left, title, unit, series):
    """A plot of {name: [(x, y)]} with both axes from 0, as SVG. The widest x is its right edge."""
    width, height, top = 330, 200, 40
    most_x = max(x for points in series.values() for x, _ in points)
    most_y = max(y for points in series.values() for _, y in points) * 1.15
    at = lambda x, y: (left + width * x / most_x, top + height * (1 - y / most_y))
    parts = [f'<text x="{left}" y="22" font-weight="bold">{title}</text>',
             f'<path d="M{left},{top} V{top + height} H{left + width}" fill="none" stroke="#888"/>',
             f'<text x="{left + width}" y="{top + height + 32}" text-anchor="end">{unit}</text>']
    for step in range(5):
        x, y = at(0, most_y * step / 5)
        parts.append(f'<path d="M{x:.1f},{y:.1f} h{width}" stroke="#ddd"/><text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{most_y * step / 5:.0f}</text>')
    marks = {x for points in series.values() for x, _ in points if x >= most_x / 8}
    parts += [f'<text x="{at(x, 0)[0]:.1f}" y="{top + height + 16}" text-anchor="middle">{x:g}</text>' for x in sorted(marks)]
    for color, (name, points) in zip(["#1f6fb4", "#c2571a"], series.items()):
        places = [at(x, y) for x, y in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
        x, y = places[-1]
        parts.append(f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="end" fill="{color}">{name}</text>')
    return "".join(parts)


def plot(rows):
    threads = {f"{count} thread{'s' * (count > 1)}": [(row["context"], row["decode"]) for row in rows if row["threads"] == count and row["context"] in CONTEXTS and row["size"] == 1]
               for count in THREADS}
    sizes = {"2 threads": [(LAYERS * row["size"], row["decode"]) for row in rows if row["context"] == CHUNK]}
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="840" height="290" font-family="sans-serif" font-size="12"><rect width="840" height="290" fill="#fff"/>'
            + panel(50, "decode, tokens/s, against context", "tokens of context", threads) + panel(460, "decode, tokens/s, against size", "layers", sizes) + "</svg>\n")


def main(program, scratch, docs):
    rows = measure(program, scratch)
    page = docs / "performance.md"
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(before + BEGIN + table(rows) + END + after, encoding="utf-8")
    (docs / "performance.svg").write_text(plot(rows), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__.strip())
    main(*(pathlib.Path(word) for word in [*sys.argv[1:3], *(sys.argv[3:] or [pathlib.Path(__file__).resolve().parents[2] / "docs"])]))
