#!/usr/bin/env python3
"""Measures what 4-bit conversions lose of a model: halfbyte's own and those of llama.cpp, ik_llama.cpp, bitsandbytes and AutoRound.

All are measured by `halfbyte evaluate` in float32, on dequantised weights and with the original's tokenizer. Embedding and head stay in
bfloat16 for everybody, and bits count what is stored for the Linears of the layers, scales and all. All calibrate on the same text, with as many tokens.
A peer that cannot be installed, built or run is left out, with a line that says why. What is built, installed and converted stays in the
scratch folder for the next time, and figures that FILE of --json has already are not measured again: a run that was cut off goes on.
"""
import argparse
import json
import os
import pathlib
import shutil
import sys

import accuracy_plot
import accuracy_table
from accuracy_convert import TOOLS
from accuracy_place import Place
from accuracy_rows import ROWS, with_and_without
from peers import machine
from peers_setup import HERE, Absent

FIGURES = ["kl_mean", "perplexity", "perplexity_ratio", "original_perplexity", "top1_agreement", "kl_median", "kl_p99", "tokens"]


def converted(place, tool, row):
    """A folder with what the tool made of the model, and what that took."""
    folder = place.folder / "".join(letter if letter.isalnum() else "_" for letter in row.name)
    record = folder / "spent.json"
    if not record.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        spent = tool.make(row, folder)
        record.write_text(json.dumps({key: sum(part[key] for part in spent) for key in spent[0]}), encoding="utf-8")
    return folder, json.loads(record.read_text(encoding="utf-8"))


def measured(place, tool, row):
    folder, spent = converted(place, tool, row)
    found = place.evaluate(tool.checkpoint(folder))
    return {"tool": row.tool, "is_calibrated": row.is_calibrated, "bits": tool.bits(folder), "bytes": tool.size(folder), **spent,
            **{key: found[key] for key in FIGURES}}


def wanted(options):
    also = [row for name, _, words in (text.partition("=") for text in options.also) for row in with_and_without(f"halfbyte {name}", "halfbyte", *words.split())]
    for row in [*ROWS, *also]:
        is_named = not options.only or any(part in row.name for part in options.only)
        if is_named and not any(part in row.name for part in options.without):
            if row.is_calibrated and not options.calibrate:
                print(f"left out: {row.name}: no --calibrate", file=sys.stderr)
            else:
                yield row


def begun(path, settings):
    """What a file of figures has already."""
    if not path or not path.exists():
        return {"settings": settings, "machine": machine(), "rows": {}}
    found = json.loads(path.read_text(encoding="utf-8"))
    if found["settings"] != settings:
        sys.exit(f"{path} has figures of another model, text, program or calibration: name another file, or delete it")
    return found


def measure_all(place, options, found):
    tools, absent = {}, {}
    for row in wanted(options):
        if row.name in found["rows"] or row.tool in absent:
            continue
        print(row.name, file=sys.stderr, flush=True)
        try:
            if row.tool not in tools:
                tools[row.tool] = None
                tools[row.tool] = TOOLS[row.tool](place)
            found["rows"][row.name] = measured(place, tools[row.tool], row)
        except (Absent, OSError, ValueError, KeyError, StopIteration) as reason:
            if tools[row.tool] is None:
                absent[row.tool] = reason
            print(f"left out: {row.name if tools[row.tool] else row.tool}: {reason or 'nothing was made'}", file=sys.stderr)
            continue
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def parsed():
    parser = argparse.ArgumentParser(prog="accuracy.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a Hugging Face directory in bfloat16, of a family that halfbyte and the peers know")
    parser.add_argument("text", help="text to measure on; not the one to calibrate on")
    parser.add_argument("--calibrate", metavar="FILE", help="text to calibrate on; without it nothing is calibrated")
    parser.add_argument("--calibration-tokens", type=int, default=32768)
    parser.add_argument("--windows", type=int, default=160, help="of the text, 256 tokens each")
    parser.add_argument("--halfbyte", default=HERE.parent.parent / "build/release/bin/halfbyte", help="the program")
    parser.add_argument("--scratch", default=pathlib.Path.home() / ".cache/halfbyte-peers", help="where everything is built and made")
    parser.add_argument("--llama-cpp", metavar="DIR", help="folder with llama-quantize and llama-imatrix, instead of building them")
    parser.add_argument("--llama-source", metavar="DIR", help="llama.cpp's source, instead of downloading it")
    parser.add_argument("--ik-llama-cpp", metavar="DIR", help="folder with ik_llama.cpp's llama-quantize and llama-imatrix; without it they are left out")
    parser.add_argument("--python", help="a Python with auto-round, bitsandbytes, transformers, sentencepiece and torch, instead of a new environment")
    parser.add_argument("--autoround-iterations", type=int, default=200, help="its own default is 200")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only rows whose name has this in it; repeatable")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="leave out rows whose name has this in it; repeatable")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=WORDS", help="more of halfbyte: 'fp4 g64=--scheme fp4'; repeatable")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the raw figures; those that it has are kept")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE", help="draw bits against KL divergence as SVG")
    options = parser.parse_args()
    if not (pathlib.Path(options.model) / "config.json").is_file():
        parser.error(f"{options.model}: is no model's directory (it has no config.json)")
    for path in filter(None, (options.text, options.calibrate, options.halfbyte)):
        if not pathlib.Path(path).is_file():
            parser.error(f"{path}: is no file")
    return options


def main():
    options = parsed()
    # Threads that wait by spinning take processor time from those that compute, and from the others on this machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    place = Place(options)
    found = begun(options.json, place.settings())
    measure_all(place, options, found)
    rows = {row.name: found["rows"][row.name] for row in wanted(options) if row.name in found["rows"]}
    if not rows:
        sys.exit("nothing was measured")
    print(accuracy_table.as_text(rows, found["machine"], options.markdown))
    if options.plot:
        options.plot.write_text(accuracy_plot.svg(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
