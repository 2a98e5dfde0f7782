#!/usr/bin/env python3
"""The package for Python, where a wheel of it is installed: bytes and tokens are the program's, errors are exceptions, Ctrl-C and what a progress raises
leave nothing behind, one OpenMP runtime.

    python_check.py HALFBYTE TINY_LLAMA     run by the Python that has the wheel (tools/wheel.sh); 77: it is not there
"""
import concurrent.futures
import hashlib
import json
import math
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

try:
    import torch  # noqa: F401

    BEGAN = time.perf_counter()
    import halfbyte
except ImportError as error:
    print(error)
    sys.exit(77)
IMPORT_S = time.perf_counter() - BEGAN

from python_helpers import taken  # noqa: E402  which imports halfbyte


def bytes_in(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in pathlib.Path(folder).iterdir()}


def refused(code, call, *words, **options):
    error = taken(halfbyte.Error, call, *words, **options)
    assert error.code == code and "\n" not in str(error), (error.code, error)


def program_json(program, *words):
    return json.loads(subprocess.run([program, *words, "--json", "-q"], check=True, capture_output=True, text=True).stdout)


def same(ours, others, *differ):
    """Equal objects, with the same keys, but for what is named: times, and paths that are not the same."""
    assert ours.keys() == others.keys(), ours.keys() ^ others.keys()
    wrong = {key: (ours[key], others[key]) for key in ours if key not in (*differ, "seconds") and ours[key] != others[key]}
    assert not wrong, wrong


CALIBRATED = {"calibrate": "builtin", "calibration_tokens": 2048, "calibration_ctx": 128, "threads": 2}
BUDGET = {"target_bpw": 5, "calibrate": "builtin", "calibration_tokens": 2048, "method": "search", "threads": 2}
CONVERSIONS = {  # name: words of the program, the same options here
    "a": ([], {}),
    "b": (["--scheme", "nf4", "--group-size", "32", "--nested-scales"], {"scheme": "nf4", "group_size": 32, "nested_scales": True}),
    "c": (["--head", "sym_int8", "--keep", "*.o_proj.*"], {"head": "sym_int8", "keep": ["*.o_proj.*"]}),
    "d": (["--search", "absmax", "--group-size", "channel", "--shard-size", "2MB", "--memory-limit", "256MiB"],
          {"search": "absmax", "group_size": "channel", "shard_size": "2MB", "memory_limit": 256 << 20}),
    "e": (["--scheme", "hb4", "--halfbyte-only", "--scheme-for", "*down_proj*=sym_int8", "--embedding", "sym_int8", "--assume-original", "float16"],
          {"scheme": "hb4", "halfbyte_only": True, "scheme_for": {"*down_proj*": "sym_int8"}, "embedding": "sym_int8", "assume_original": "float16"}),
    "f": (["--calibrate", "builtin", "--calibration-tokens", "2048", "--calibration-ctx", "128", "--threads", "2"], CALIBRATED),
    "g": (["--target-bpw", "5", "--calibrate", "builtin", "--calibration-tokens", "2048", "--method", "search", "--threads", "2"], BUDGET),
}


def check_conversions(program, tiny, scratch):
    for name, (words, options) in CONVERSIONS.items():
        seen = []
        made = halfbyte.quantize(tiny, scratch / name, progress=lambda done, total: seen.append((done, total)), **options)
        theirs = program_json(program, "quantize", tiny, scratch / (name + "-program"), *words)
        assert bytes_in(scratch / name) == bytes_in(scratch / (name + "-program")), (name, "other bytes")
        same(made, theirs, "destination", "advice", "notes")  # which spell options as each has them
        assert seen and seen[-1][0] == seen[-1][1] and made["quantized_tensors"] > 0
        assert halfbyte.plan(tiny, **options) == program_json(program, "quantize", tiny, "x", "--dry-run", *words), name
    # What is quantised keeps its codes, unless a scheme is said.
    halfbyte.quantize(scratch / "c", scratch / "kept")
    assert halfbyte.diff(scratch / "c", scratch / "kept")["same"]
    assert any("original would be better" in note for note in halfbyte.quantize(scratch / "b", scratch / "again", scheme="sym_int4")["notes"])
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


def check_program_verbs(program, tiny, scratch):
    dashed = pathlib.Path("-a")
    os.chdir(scratch)
    dashed.symlink_to(tiny)
    assert halfbyte.inspect(dashed, tensors=True) == program_json(program, "inspect", "./-a", "--tensors") | {"path": "-a"}
    options = {"policy": "half", "keep_float32": ["*norm*", "lm_head"], "dtype_for": {"*down_proj": "float32", "*up_proj": "bfloat16"}}
    words = ["--policy", "half", "--keep-float32", "*norm*", "--keep-float32", "lm_head", "--dtype-for", "*down_proj=float32", "--dtype-for", "*up_proj=bfloat16"]
    assert halfbyte.inspect(scratch / "a", **options) == program_json(program, "inspect", scratch / "a", *words)
    assert halfbyte.diff(tiny, scratch / "a", tensors=True) == program_json(program, "diff", tiny, scratch / "a", "--tensors")
    ours, theirs = halfbyte.doctor(), program_json(program, "doctor")
    assert ours.keys() == theirs.keys() and ours["well"] and ours["halfbyte"] == theirs["halfbyte"]
    refused("not_found", halfbyte.inspect, scratch / "nowhere")
    refused("not_found", halfbyte.inspect, "--tensors")
    refused("invalid_argument", halfbyte.inspect, tiny, keep_float32=["a"])
    refused("invalid_argument", halfbyte.plan, tiny, scheme="int3")
    refused("invalid_argument", halfbyte.plan, scratch / "a")  # which keeps its codes
    assert halfbyte.plan(scratch / "a", requantize=True)["tensors"]
    taken(TypeError, halfbyte.plan, tiny, colour=1)


FORMATS = {"gguf": ({"type": "Q8_0", "requantize": True}, ["--type", "Q8_0", "--requantize"]), "safetensors": ({"assume_original": "float16"}, ["--assume-original", "float16"]),
           "compressed-tensors": ({}, []), "gptq": ({}, []), "awq": ({"requantize": True}, ["--requantize"]), "bitsandbytes": ({"requantize": True}, ["--requantize"])}


def files_of(path):
    return bytes_in(path) if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


def check_exports(program, scratch):
    for to, (options, words) in FORMATS.items():
        seen = []
        ours = halfbyte.export(scratch / "a", scratch / f"{to}-ours", to, progress=lambda done, total: seen.append((done, total)), **options)
        theirs = program_json(program, "export", scratch / "a", scratch / f"{to}-theirs", "--to", to, *words)
        same(ours, theirs, "destination", "notes", "rel_rmse")
        # An export adds its errors up in the order in which threads come; the bytes are the same.
        assert math.isclose(ours.get("rel_rmse") or 0, theirs.get("rel_rmse") or 0, rel_tol=1e-12)
        assert files_of(scratch / f"{to}-ours") == files_of(scratch / f"{to}-theirs") and seen[-1][0] == seen[-1][1], to
        refused("already_exists", halfbyte.export, scratch / "a", scratch / f"{to}-ours", to, **options)
    for options in [{"to": "exe"}, {"to": "gguf", "type": "Q9"}, {"to": "gptq", "type": "Q8_0"}, {"to": "gguf", "assume_original": "float16"}, {"to": "gptq", "assume_original": "int8"}]:
        refused("invalid_argument", halfbyte.export, scratch / "a", scratch / "x", **options)
    ours = halfbyte.synth(scratch / "random", "tiny", layers=2, seed=7, dtype="float16")
    same(ours, program_json(program, "synth", scratch / "random-theirs", "--like", "tiny", "--layers", "2", "--seed", "7", "--dtype", "float16"), "destination")
    assert bytes_in(scratch / "random") == bytes_in(scratch / "random-theirs")
    for options in [{"like": "nothing"}, {"like": "tiny", "experts": "x"}, {"like": "tiny", "layers": -1}, {"like": "tiny", "layers": 10**6}, {"like": "tiny", "dtype": "int8"}]:
        refused("invalid_argument", halfbyte.synth, scratch / "x", **options)


def check_training(program, tiny, scratch):
    """What is learnt and merged has the program's bytes."""
    text = pathlib.Path(tiny).parent / "heldout.txt"
    options = {"steps": 2, "batch": 1, "ctx": 32, "rank": 2, "targets": ["q_proj", "v_proj"], "packing": False, "recompute": False, "threads": 1, "log": scratch / "log"}
    words = ["--steps", "2", "--batch", "1", "--ctx", "32", "--rank", "2", "--targets", "q_proj", "--targets", "v_proj", "--no-packing", "--no-recompute", "--threads", "1"]
    ours = halfbyte.finetune(scratch / "a", scratch / "learnt", text, **options)
    same(ours, program_json(program, "finetune", scratch / "a", scratch / "learnt-theirs", "--text", text, *words), "destination", "tokens_per_s")
    learnt = scratch / "learnt" / "adapter_model.safetensors"
    assert learnt.read_bytes() == (scratch / "learnt-theirs" / learnt.name).read_bytes()
    assert [json.loads(line)["loss"] for line in (scratch / "log").read_text(encoding="utf-8").splitlines()] == ours["losses"]
    drawn = halfbyte.finetune(None, scratch / "drawn", text, init=tiny, steps=1, batch=1, ctx=16)
    assert drawn["steps"] == 1 and halfbyte.verify(scratch / "drawn")["tensors_hashed"]
    ours = halfbyte.merge(scratch / "a", [(scratch / "learnt", 0.5), scratch / "learnt-theirs"], scratch / "merged", dequantize=True)
    assert ours["merged_tensors"] == 8 and [one["weight"] for one in ours["adapters"]] == [0.5, 1.0], ours
    program_json(program, "merge", scratch / "a", f"{scratch / 'learnt'}:0.5", scratch / "merged-theirs", "--adapter", scratch / "learnt-theirs", "--dequantize")
    assert bytes_in(scratch / "merged") == bytes_in(scratch / "merged-theirs")
    refused("already_exists", halfbyte.merge, scratch / "a", scratch / "learnt", scratch / "merged")
    refused("invalid_argument", halfbyte.finetune, scratch / "a", scratch / "x", text, rank=0)
    taken(TypeError, halfbyte.finetune, scratch / "a", scratch / "x", text, ranks=1)
    taken(ValueError, halfbyte.merge, scratch / "a", [], scratch / "x")


def check_perplexity(program, tiny, scratch):
    text = "</s> and <unk>. " + (pathlib.Path(tiny).parent / "heldout.txt").read_text(encoding="utf-8")[:20000]
    (scratch / "text").write_text(text, encoding="utf-8")
    for options, words in [({}, []), ({"ctx": 64, "chunks": 3, "windows": "llama.cpp", "dtype": "half"}, ["--ctx", "64", "--chunks", "3", "--windows", "llama.cpp", "--dtype", "half"]),
                           ({"ctx": 128, "against": tiny, "keep_float32": ["lm_head"], "special_tokens": True},
                            ["--ctx", "128", "--against", tiny, "--keep-float32", "lm_head", "--special-tokens"])]:
        wanted = program_json(program, "perplexity", scratch / "a", "--text", scratch / "text", *words)
        assert halfbyte.perplexity(scratch / "a", scratch / "text", **options) == wanted, options
        seen = []
        assert halfbyte.perplexity(scratch / "a", text, progress=lambda done, total: seen.append((done, total)), **options) == wanted
        assert seen[-1][0] == seen[-1][1]
    for options in [{"dtype": "int3"}, {"ctx": 3}, {"chunks": -1}, {"windows": "x"}, {"against_dtype": "x"}, {"keep_float32": ["nothing*"]}, {"ctx": 10**6}]:
        refused("invalid_argument", halfbyte.perplexity, scratch / "a", text, **options)
    refused("invalid_argument", halfbyte.perplexity, scratch / "a", "short")
    refused("not_found", halfbyte.perplexity, scratch / "a", scratch / "no text")


def check_errors(tiny, scratch):
    refused("already_exists", halfbyte.quantize, tiny, scratch / "a")
    refused("not_found", halfbyte.quantize, scratch / "nowhere", scratch / "x")
    refused("invalid_argument", halfbyte.quantize, tiny, scratch / "x", scheme="int3")
    refused("invalid_argument", halfbyte.load_low_bit, scratch / "a", dtype="int3")
    refused("invalid_argument", halfbyte.dequantize, scratch / "a", scratch / "x", dtype="nothing")
    for wrong in [{"calibration_tokens": 5}, {"calibrate": "builtin", "calibration_tokens": 0}, {"method": "x"}, {"search": "x"}, {"group_size": "row"}, {"target_bpw": 1000},
                  {"memory_limit": "4G"}, {"target_bpw": 5, "target_size": "1MB"}, {"assume_original": "int8"}, {"threads": -1}, {"keep_packed": True}]:
        refused("invalid_argument", halfbyte.quantize, tiny, scratch / "x", **wrong)
    for wrong in [{"colour": 1}, {"keep": 5}, {"memory_limit": -1}]:
        taken(TypeError, halfbyte.quantize, tiny, scratch / "x", **wrong)
    damaged = scratch / "damaged"
    halfbyte.quantize(tiny, damaged)
    weights = next(damaged.glob("*.safetensors"))
    whole = weights.read_bytes()
    for size in range(0, 4000, 40):
        weights.write_bytes(whole[:size])
        refused("corrupt", halfbyte.load_low_bit, damaged)


def check_what_errors_name(scratch):
    """Of the message: the first tensor, the path that it begins with, and the names as they were before they were shown."""
    for message, tensor, file in [('/a b/c: tensor "x.weight": bad, and tensor "y"', "x.weight", "/a b/c"), ("m/sub: bad", "", "m/sub"), (f"{scratch}: bad", "", f"{scratch}"),
                                  ("threads: -1 is negative", "", ""), ("model.layers.0.mlp: the input is on meta", "", ""), ('"a/b": bad', "", ""), ("", "", ""),
                                  ('tensor "open', "", ""), ("cannot do a/b: bad", "", ""), ('tensor "a\\', "", ""), ('the state has no tensor "q"', "q", ""),
                                  (r'/a\xff\u200b/b: tensor "\x1b\u202e\U000e0001\q\x4": bad', "\x1b\u202e\U000e0001\\q\\x4", "/a\udcff\u200b/b")]:
        error = halfbyte._halfbyte.error_of("corrupt", message)
        assert (str(error), error.code, error.tensor, error.file) == (message, "corrupt", tensor, file), (message, error.tensor, error.file)
    for call, tensor, file in [(lambda: halfbyte.load_state(scratch / "nowhere"), "", scratch / "nowhere"), (lambda: halfbyte.inspect(scratch / "nowhere"), "", scratch / "nowhere"),
                               (lambda: halfbyte.quantize_state_dict({"a.weight": torch.full((2, 64), torch.nan)}, scratch / "x"), "a.weight", "")]:
        error = taken(halfbyte.Error, call)
        assert (error.tensor, error.file) == (tensor, str(file)), (error.tensor, error.file)
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is halfbyte.Error and vars(again) == vars(error) and str(again) == str(error)
    assert (halfbyte.Error.__module__, halfbyte.Error("x").tensor, halfbyte.Error("x").file) == ("halfbyte", "", "")


def assert_nothing_half(scratch):
    """A stop that comes with the last step may find a whole result, never part of one."""
    for one in scratch.glob("stopped*"):
        assert one.name in ("stopped", "stopped.gguf") and halfbyte.verify(one)["problems"] == [], f"{one} is left"
        shutil.rmtree(one) if one.is_dir() else one.unlink()


def check_stops(tiny, scratch):
    def fall(done, total):
        raise LookupError("enough")

    def interrupt(done, total):
        os.kill(os.getpid(), signal.SIGINT)

    text = (pathlib.Path(tiny).parent / "heldout.txt").read_text(encoding="utf-8")[:20000]
    for progress, kind in [(fall, LookupError), (interrupt, KeyboardInterrupt)]:
        for call, words, options in [(halfbyte.quantize, [tiny, scratch / "stopped"], {}), (halfbyte.quantize, [tiny, scratch / "stopped"], CALIBRATED),
                                     (halfbyte.quantize, [tiny, scratch / "stopped"], BUDGET), (halfbyte.dequantize, [scratch / "a", scratch / "stopped"], {}),
                                     (halfbyte.export, [scratch / "a", scratch / "stopped", "gptq"], {}), (halfbyte.export, [scratch / "a", scratch / "stopped.gguf", "gguf"], {}),
                                     (halfbyte.synth, [scratch / "stopped", "tiny"], {}), (halfbyte.perplexity, [scratch / "a", text], {"ctx": 64})]:
            taken(kind, call, *words, progress=progress, **options)
            assert_nothing_half(scratch)
    taken(LookupError, halfbyte.verify, scratch / "a", progress=fall)


def check_ends_the_program(tiny):
    """Ctrl-C while the program runs, told to this process alone."""
    children = pathlib.Path(f"/proc/self/task/{threading.main_thread().native_id}/children")

    def interrupt():
        while not children.read_text(encoding="utf-8"):
            time.sleep(0.01)
        time.sleep(0.1)  # it is started, and loads LibTorch
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    taken(KeyboardInterrupt, halfbyte.plan, tiny, target_bpw=5, calibrate=pathlib.Path(tiny).parent / "heldout.txt", calibration_tokens=10**6)
    taken(ChildProcessError, os.waitpid, -1, os.WNOHANG)  # none is left


def main(program, tiny):
    program, tiny = os.path.abspath(program), os.path.abspath(tiny)
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        check_conversions(program, tiny, scratch)
        check_tokens(program, scratch)
        check_program_verbs(program, tiny, scratch)
        check_exports(program, scratch)
        check_training(program, tiny, scratch)
        check_perplexity(program, tiny, scratch)
        check_errors(tiny, scratch)
        check_what_errors_name(scratch)
        check_stops(tiny, scratch)
        check_ends_the_program(tiny)
    runtimes = {line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text(encoding="utf-8").splitlines() if "omp" in line.rsplit("/", 1)[-1]}
    assert len(runtimes) == 1, runtimes
    print(f"bytes, tokens, reports, errors and stops: pass; import beyond torch {IMPORT_S:.3f} s; one OpenMP runtime")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
