#!/usr/bin/env python3
"""Files of strangers, opened from Python: small checkpoints of every format, damaged in COUNT ways, are read or refused with halfbyte.Error, in one line.

    python_hostile_check.py TINY_LLAMA [COUNT [PEERS [FIRST]]]     run by the Python that has the wheel (tools/wheel.sh); 77: it is not there

COUNT is 10000 unless said. PEERS: a folder of other programs' checkpoints. Input n is the same in every run; FIRST begins with another than 0.
A second process does the work: when it ends before it should, that is said with its input's number and what faulthandler has seen.
"""
import collections
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

from python_helpers import SCHEMES, halfbyte, torch

import hostile_files

COUNT = 10_000
LIMIT_S = 30  # of one input
MEMORY = 1 << 30  # beyond what the process has when it begins
MOST_CRASHES = 20
PRINTED = re.compile(r"[^\n]+")


def ours(tiny, scratch):
    """halfbyte's own checkpoints: of a very small model in every scheme, and of TINY_LLAMA."""
    source = scratch / "llama"
    source.mkdir()
    for name, data in hostile_files.unpacked(next(iter(hostile_files.checkpoints.plain([]))), scratch / "file").items():
        (source / name).write_bytes(data)
    for name in ("tokenizer.model", "tokenizer_config.json"):
        shutil.copy(tiny / name, source)
    for scheme in SCHEMES:
        halfbyte.quantize(source, scratch / scheme, scheme=scheme, halfbyte_only=True)
        yield hostile_files.files_in(scratch / scheme)
    halfbyte.quantize(source, scratch / "nested", scheme="nf4", nested_scales=True)
    halfbyte.quantize(source, scratch / "shards", shard_size=4096)
    halfbyte.quantize(tiny, scratch / "tiny")
    for name in ("nested", "shards", "tiny"):
        yield hostile_files.files_in(scratch / name)


def seeds_of(tiny, peers, scratch):
    own = list(ours(tiny, scratch))
    out = own * 6 + list(hostile_files.corpora(scratch / "file"))
    if peers and pathlib.Path(peers).is_dir():
        out += list(hostile_files.peers_in(pathlib.Path(peers)))
    return out


def touch(state):
    for value in state.values():
        if isinstance(value, halfbyte.LowBitTensor):
            value.dequantize()
        else:
            value.reshape(-1)[:1].clone()


def load_state(path, _):
    touch(halfbyte.load_state(path))


def load_dense(path, _):
    touch(halfbyte.load_state(path, "half", dequantize=True))


def load_low_bit(path, _):
    halfbyte.load_low_bit(path).generate([[1, 2]], max_gen_len=2, temperature=0)


def load_verified(path, _):
    halfbyte.load_low_bit(path, "float32", verify=True)


def tokenizer(path, _):
    made = halfbyte.Tokenizer(path)
    made.decode(made.encode("Once upon a time, \u00e9\U0001f600 <s></s>"))
    made.encode_chat([{"role": "user", "content": "a"}])


def verify(path, _):
    found = halfbyte.verify(path)
    assert isinstance(found["problems"], list)


def quantize(path, out):
    halfbyte.quantize(path, out)


def requantize(path, out):
    halfbyte.quantize(path, out, scheme="nf4", requantize=True, assume_original="float16")


def dequantize(path, out):
    halfbyte.dequantize(path, out)


def export(path, out):
    halfbyte.export(path, out, "gguf", requantize=True)


def inspect(path, _):
    halfbyte.inspect(path, tensors=True)


CALLS = (load_state, load_state, load_dense, load_low_bit, load_low_bit, load_verified, tokenizer, verify, quantize, requantize, dequantize, export)
PROGRAM_EVERY = 250  # inputs; `inspect` starts the program, which loads LibTorch


def written(files, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        if data is not None:
            (folder / name).write_bytes(data)
    single = [name for name in files if name.endswith((".gguf", ".pt", ".bin"))]
    return folder / single[0] if len(files) == 1 and single and (folder / single[0]).exists() else folder


def outcome(call, path, out):
    """"read", or the refusal's code; anything else is a defect, described."""
    try:
        call(path, out)
        return "read"
    except halfbyte.Error as error:
        text = str(error)
        if not error.code or error.code == "internal" or not PRINTED.fullmatch(text) or len(text) > 4000:
            return f"DEFECT of {call.__name__}: a refusal of {len(text)} characters, code {error.code!r}: {text[:300]!r}"
        return error.code
    except BaseException as error:
        return f"DEFECT of {call.__name__}: {type(error).__name__}: {str(error)[:300]}"


def work(tiny, peers, first, last, at, scratch):
    """Prints a JSON object a line: defects as they come, and now and then how often each outcome was. `at` has the number of the input at work."""
    import faulthandler

    (scratch / "seeds").mkdir(parents=True)
    seeds, counts, trace = seeds_of(pathlib.Path(tiny), peers, scratch / "seeds"), collections.Counter(), scratch / "trace"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    for number in range(first, last):
        at.write_text(str(number))
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        chance = hostile_files.chance_of(number)
        path = written(hostile_files.hostile(chance.choice(seeds), chance, trace, scratch / "file"), scratch / "in")
        for call in [inspect] if number % PROGRAM_EVERY == 0 else chance.sample(CALLS, 2):
            shutil.rmtree(scratch / "out", ignore_errors=True)
            (scratch / "out").unlink(missing_ok=True) if not (scratch / "out").is_dir() else None
            found = outcome(call, path, scratch / "out")
            if found.startswith("DEFECT"):
                print(json.dumps({"input": number, "defect": found}), flush=True)
            counts[(call.__name__, found if not found.startswith("DEFECT") else "DEFECT")] += 1
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
        if grown > MEMORY or trace.exists():
            print(json.dumps({"input": number, "defect": "a pickle's command was run" if trace.exists() else f"{grown >> 20} MiB more memory than before"}), flush=True)
            trace.unlink(missing_ok=True)
            before += max(0, grown - MEMORY) + MEMORY if grown > MEMORY else 0
        if number % 100 == 99 or number == last - 1:
            print(json.dumps({"counts": [[*key, value] for key, value in counts.items()], "grown": grown}), flush=True)
            counts.clear()
    faulthandler.cancel_dump_traceback_later()
    return 0


def check_state_dicts():
    """A state dict is a stranger's file too: what its packed parts say is refused, or computes something."""
    from halfbyte.nn import LowBitLinear

    found = collections.Counter()
    for number in range(600):
        chance = hostile_files.chance_of(f"state {number}")
        layer = LowBitLinear.from_linear(torch.nn.Linear(64, 24), chance.choice(SCHEMES))
        state = layer.state_dict()
        name = chance.choice(["format", "format", *state])
        one, how = state[name], chance.randrange(4)
        if name == "format" and how:
            state[name] = torch.tensor(list(hostile_format(bytes(one.tolist()), chance)), dtype=torch.uint8)
        elif how == 0:
            del state[name]
        elif how == 1:
            state[name] = one.to(chance.choice((torch.float64, torch.int8, torch.int64, torch.bool)))
        elif how == 2 and one.dim():
            state[name] = one[:chance.randrange(one.shape[0])]
        else:
            state[name] = torch.full_like(one, chance.choice((0, 1, 127)))
        try:
            layer.load_state_dict(state, assign=chance.random() < 0.5)
            layer(torch.randn(2, 64))
            found["taken"] += 1
        except (RuntimeError, ValueError) as error:
            found[type(error).__name__] += 1
        except Exception as error:
            found[f"DEFECT, {type(error).__name__}"] += 1
    return found


def hostile_format(text, chance):
    words = text.split(b" ")
    if chance.randrange(3) == 0:
        return hostile_files.damaged(text, chance)
    words[chance.randrange(len(words))] = chance.choice((b"", b"0", b"-1", b"99999999999999999999", b"int8", b"nn", b"float64", b"hb4", b"nothing", b"\xff", b"1.5"))
    return b" ".join(words)


def run_worker(words, first, last, scratch):
    """(what it printed, the input it ended at or None, what it said on stderr)"""
    at = scratch / "at"
    shutil.rmtree(scratch / "work", ignore_errors=True)
    command = [sys.executable, "-W", "ignore", "-X", "faulthandler", __file__, "--work", *words, str(first), str(last), str(at), str(scratch / "work")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return lines, None if done.returncode == 0 else int(at.read_text()), f"status {done.returncode}\n{done.stderr[-3000:]}"


def main(tiny, count=COUNT, peers="", first=0):
    first, last = int(first), int(first) + int(count)
    counts, defects, crashes, grown = collections.Counter(), [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        while first < last and len(crashes) < MOST_CRASHES:
            lines, ended, said = run_worker([os.path.abspath(tiny), os.path.abspath(peers) if peers else ""], first, last, pathlib.Path(folder))
            for line in lines:
                defects += [f"input {line['input']}: {line['defect']}"] if "defect" in line else []
                counts.update({(call, what): times for call, what, times in line.get("counts", [])})
                grown = max(grown, line.get("grown", 0))
            crashes += [] if ended is None else [f"input {ended} ended the process: {said}"]
            first = last if ended is None else ended + 1
    return report(counts, defects, crashes, grown, int(count), check_state_dicts())


def report(counts, defects, crashes, grown, count, states):
    codes = collections.Counter()
    for (_, what), times in counts.items():
        codes[what] += times
    for call in sorted({call for call, _ in counts}):
        print(f"{call}: " + ", ".join(f"{what} {times}" for (name, what), times in sorted(counts.items()) if name == call))
    print("state dicts:", dict(states))
    defects = [f"state dict: {what}" for what in states if what.startswith("DEFECT")] + defects
    for one in [*defects[:60], *crashes]:
        print(one)
    if defects or crashes:
        print(f"{len(defects)} defects, {len(crashes)} crashes in {count} inputs")
        return 1
    print(f"{count} hostile inputs, {grown >> 20} MiB at most beyond the beginning: " + ", ".join(f"{what} {times}" for what, times in codes.most_common()))
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        sys.exit(work(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), pathlib.Path(sys.argv[6]), pathlib.Path(sys.argv[7])))
    sys.exit(main(*sys.argv[1:]))
