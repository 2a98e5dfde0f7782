#!/usr/bin/env python3
"""The package for Python, where a wheel of it is installed: bytes and tokens are the program's, errors are exceptions, Ctrl-C and what a progress raises
leave nothing behind, one OpenMP runtime.

    python_check.py HALFBYTE TINY_LLAMA     run by the Python that has the wheel (tools/wheel.sh); 77: it is not there
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

try:
    import torch  # noqa: F401

    BEGAN = time.perf_counter()
    import halfbyte
except ImportError as error:
    print(error)
    sys.exit(77)
IMPORT_S = time.perf_counter() - BEGAN


def bytes_in(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in pathlib.Path(folder).iterdir()}


def refused(code, call, *words, **options):
    try:
        call(*words, **options)
    except halfbyte.Error as error:
        assert error.code == code and "\n" not in str(error), (error.code, error)
        return
    raise AssertionError("it was taken")


def check_conversions(program, tiny, scratch):
    for name, words, options in [("a", [], {}), ("b", ["--scheme", "nf4", "--group-size", "32"], {"scheme": "nf4", "group_size": 32}),
                                 ("c", ["--head", "sym_int8", "--keep", "*.o_proj.*"], {"head": "sym_int8", "keep": ["*.o_proj.*"]})]:
        seen = []
        made = halfbyte.quantize(tiny, scratch / name, progress=lambda done, total: seen.append((done, total)), **options)
        subprocess.run([program, "quantize", tiny, scratch / (name + "-program"), "-q", *words], check=True, stdout=subprocess.DEVNULL)
        ours, others = bytes_in(scratch / name), bytes_in(scratch / (name + "-program"))
        # The record spells options as each has them (keep, --keep); all else is the same.
        assert {key for key in ours.keys() | others.keys() if ours.get(key) != others.get(key)} <= {"halfbyte.json"}, (name, "other bytes")
        assert seen and seen[-1][0] == seen[-1][1] and made["quantized_tensors"] > 0
    halfbyte.dequantize(scratch / "a", scratch / "plain")
    found = halfbyte.verify(scratch / "a")
    assert found["problems"] == [] and found["tensors_hashed"] > 0
    assert halfbyte.verify(scratch / "a", expect=found["hash"])["hash"] == found["hash"]


def check_tokens(program, scratch):
    ids = [1, 265, 350, 816]
    words = [program, "generate", scratch / "a", "--prompt-tokens", ",".join(map(str, ids)), "--max-gen-len", "40", "--temperature", "0", "--json", "-q"]
    wanted = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["generations"][0]["tokens"]
    model = halfbyte.load_low_bit(scratch / "a")
    assert model.generate([ids], max_gen_len=40, temperature=0) == [wanted]
    tokenizer = halfbyte.Tokenizer(scratch / "a")
    text = "Once upon a time"
    words = [program, "generate", scratch / "a", "--prompt", text, "--max-gen-len", "20", "--temperature", "0", "--json", "-q"]
    answer = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["generations"][0]
    seen = []
    assert model.generate([tokenizer.encode(text)], max_gen_len=20, temperature=0, on_token=lambda _, token: seen.append(token)) == [answer["tokens"]]
    assert seen == answer["tokens"] and tokenizer.decode(seen).strip() == answer["text"].strip()
    assert len(model.generate([ids], max_gen_len=20, temperature=0, on_token=lambda *_: False)[0]) < 20
    refused("unsupported", tokenizer.encode_chat, [{"role": "user", "content": "a"}])
    refused("invalid_argument", tokenizer.decode, [10**6])
    try:
        model.generate([ids], on_token=lambda *_: 1 // 0)
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError("what on_token raised is lost")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(one == [wanted] for one in pool.map(lambda _: model.generate([ids], max_gen_len=40, temperature=0), range(16)))


def check_errors(tiny, scratch):
    refused("already_exists", halfbyte.quantize, tiny, scratch / "a")
    refused("not_found", halfbyte.quantize, scratch / "nowhere", scratch / "x")
    refused("invalid_argument", halfbyte.quantize, tiny, scratch / "x", scheme="int3")
    refused("invalid_argument", halfbyte.load_low_bit, scratch / "a", dtype="int3")
    refused("invalid_argument", halfbyte.dequantize, scratch / "a", scratch / "x", dtype="nothing")
    for wrong in [lambda: halfbyte.quantize(tiny, scratch / "x", colour=1), lambda: halfbyte.quantize(tiny, scratch / "x", keep=5)]:
        try:
            wrong()
        except TypeError:
            continue
        raise AssertionError("it was taken")
    damaged = scratch / "damaged"
    halfbyte.quantize(tiny, damaged)
    weights = next(damaged.glob("*.safetensors"))
    whole = weights.read_bytes()
    for size in range(0, 4000, 40):
        weights.write_bytes(whole[:size])
        refused("corrupt", halfbyte.load_low_bit, damaged)


def check_stops(tiny, scratch):
    def fall(done, total):
        raise LookupError("enough")

    def interrupt(done, total):
        os.kill(os.getpid(), signal.SIGINT)

    for progress, kind in [(fall, LookupError), (interrupt, KeyboardInterrupt)]:
        for call, source in [(halfbyte.quantize, tiny), (halfbyte.dequantize, scratch / "a")]:
            try:
                call(source, scratch / "stopped", progress=progress)
            except kind:
                assert not list(scratch.glob("stopped*")), "something is left"
                continue
            raise AssertionError(f"{kind} was not raised")
    try:
        halfbyte.verify(scratch / "a", progress=fall)
    except LookupError:
        return
    raise AssertionError("verify went on")


def main(program, tiny):
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        check_conversions(program, tiny, scratch)
        check_tokens(program, scratch)
        check_errors(tiny, scratch)
        check_stops(tiny, scratch)
    runtimes = {line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text(encoding="utf-8").splitlines() if "omp" in line.rsplit("/", 1)[-1]}
    assert len(runtimes) == 1, runtimes
    print(f"bytes, tokens, errors and stops: pass; import beyond torch {IMPORT_S:.3f} s; one OpenMP runtime")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
