#!/usr/bin/env python3
"""Files that PyTorch's own torch.save writes, read by halfbyte and compared with what PyTorch holds, byte for byte.

    pickle_check.py HALFBYTE ORIGINAL       exit status 0: agrees, 1: does not, 77: PyTorch is not installed

ORIGINAL is a Llama checkpoint in safetensors. It is saved as pytorch_model.bin, in shards, and in Meta's layout over one and two files;
each is dequantised, compared and quantised as the original is. Then many dtypes and views under every pickle protocol, and
pickles that would run a command, which must leave no trace.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

import packages

try:
    import safetensors.torch
    import torch
except ImportError as error:
    packages.skip(error)

PROTOCOLS = (2, 3, 4, 5)
META_NAMES = {"self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
              "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
              "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}
META_TOP = {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output"}


def run(program, *words):
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True)


def tensors_in(folder):
    out = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        out.update(safetensors.torch.load_file(file))
    return out


def as_bytes(tensor):
    return tensor.detach().contiguous().flatten().view(torch.uint8)


def differences(found, wanted):
    out = [f"{name} is in one only" for name in found.keys() ^ wanted.keys()]
    for name in found.keys() & wanted.keys():
        a, b = found[name], wanted[name]
        if a.dtype != b.dtype or a.shape != b.shape or not torch.equal(as_bytes(a), as_bytes(b)):
            out.append(f"{name}: {a.dtype} {tuple(a.shape)} is not {b.dtype} {tuple(b.shape)}, or other values")
    return out


def many_tensors():
    torch.manual_seed(0)
    out = {str(dtype).split(".")[1]: torch.arange(12).reshape(3, 4).to(dtype)
           for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
                         torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64)}
    shared = torch.randn(20, 4)
    return out | {"transposed": torch.randn(7, 9).t(), "expanded": torch.randn(5, 1).expand(5, 6), "slice": torch.randn(8, 8)[2:5],
                  "steps": torch.randn(8, 8)[::2, 1::3], "permuted": torch.randn(2, 3, 4).permute(2, 0, 1), "column": torch.randn(5, 7)[:, 3],
                  "half transposed": torch.randn(6, 8).bfloat16().t(), "empty": torch.zeros(0, 4), "empty transposed": torch.zeros(3, 0).t(),
                  "scalar": torch.tensor(3.5), "parameter": torch.nn.Parameter(torch.randn(3, 3)), "shared": shared, "shared rows": shared[5:15],
                  "tied": shared, "name with \u00e9": torch.ones(2)}


def many_files(folder):
    """(name, what is in it) of every way to save the same tensors."""
    tensors = many_tensors()
    for protocol in PROTOCOLS:
        torch.save(tensors, folder / f"protocol{protocol}.pt", pickle_protocol=protocol)
        yield f"protocol{protocol}.pt", tensors
    torch.save(tensors, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    yield "legacy.pt", tensors
    torch.save({"state_dict": tensors, "epoch": 3, "optimizer": {"lr": 1e-3}}, folder / "nested.pt")
    yield "nested.pt", tensors
    torch.save({**tensors, "epoch": 3, "names": ["a", ("b", None)]}, folder / "mixed.pt")
    yield "mixed.pt", tensors
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    torch.save(module.state_dict(), folder / "module.pt")
    yield "module.pt", module.state_dict()
    with zipfile.ZipFile(folder / "protocol2.pt") as old, zipfile.ZipFile(folder / "zip64.pt", "w") as new:
        for member in old.infolist():
            with new.open(zipfile.ZipInfo(member.filename), "w", force_zip64=True) as out:
                out.write(old.read(member))
    yield "zip64.pt", tensors


def check_many(program, folder):
    problems = []
    for name, tensors in many_files(folder):
        result = run(program, "dequantize", folder / name, folder / "out", "--overwrite")
        found = differences(tensors_in(folder / "out"), tensors) if result.returncode == 0 else [result.stderr.strip()]
        print(f"{name}: {'agrees' if not found else found[0]}")
        problems += found
    return problems


def to_meta(tensors, config):
    def interleaved(weight, heads):
        rows, columns = weight.shape
        return weight.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)

    out = {"rope.freqs": torch.zeros(config["head_dim"] // 2)}
    for name, tensor in tensors.items():
        stem = name.removesuffix(".weight")
        if stem in META_TOP:
            out[META_TOP[stem] + ".weight"] = tensor
            continue
        _, _, layer, rest = stem.split(".", 3)
        if rest.endswith("q_proj"):
            tensor = interleaved(tensor, config["num_attention_heads"])
        if rest.endswith("k_proj"):
            tensor = interleaved(tensor, config["num_key_value_heads"])
        out[f"layers.{layer}.{META_NAMES[rest]}.weight"] = tensor
    return out


def meta_part(name, tensor, shards, shard, splits_embedding_columns):
    if "norm" in name or "rope" in name:
        return tensor
    columns = ".wo." in name or ".w2." in name or (splits_embedding_columns and name.startswith("tok_"))
    return tensor.chunk(shards, 1 if columns else 0)[shard]  # a view: what it shares a storage with is saved too


def write_meta(folder, original, tensors, config, shards, splits_embedding_columns):
    folder.mkdir()
    meta = to_meta(tensors, config)
    for shard in range(shards):
        part = {name: meta_part(name, tensor, shards, shard, splits_embedding_columns) for name, tensor in meta.items()}
        torch.save(part, folder / f"consolidated.{shard:02}.pth")
    params = {"dim": config["hidden_size"], "n_layers": config["num_hidden_layers"], "n_heads": config["num_attention_heads"],
              "n_kv_heads": config["num_key_value_heads"], "multiple_of": 256, "norm_eps": config["rms_norm_eps"], "vocab_size": -1}
    (folder / "params.json").write_text(json.dumps(params))
    shutil.copy(original / "tokenizer.model", folder)


def write_sharded(folder, tensors):
    names = list(tensors)
    files = {f"pytorch_model-0000{i + 1}-of-00002.bin": names[i::2] for i in range(2)}
    for file, part in files.items():
        torch.save({name: tensors[name] for name in part}, folder / file)
    index = {"metadata": {}, "weight_map": {name: file for file, part in files.items() for name in part}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def models(folder, original, tensors, config):
    for name in ("single", "sharded"):
        (folder / name).mkdir()
        for file in original.iterdir():
            if file.suffix != ".safetensors" and file.is_file() and not file.name.endswith("index.json"):
                shutil.copy(file, folder / name)
    torch.save(tensors, folder / "single" / "pytorch_model.bin")
    write_sharded(folder / "sharded", tensors)
    yield from ("single", "sharded")
    for shards in (1, 2):
        for splits_embedding_columns in (False, True):
            name = f"meta, {shards} files, columns {splits_embedding_columns}"
            write_meta(folder / name, original, tensors, config, shards, splits_embedding_columns)
            yield name


def check_models(program, folder, original):
    tensors, config = tensors_in(original), json.loads((original / "config.json").read_text())
    run(program, "quantize", original, folder / "wanted")
    wanted, problems = tensors_in(folder / "wanted"), []
    for name in models(folder, original, tensors, config):
        found = []
        for verb, truth in (("dequantize", tensors), ("quantize", wanted)):
            result = run(program, verb, folder / name, folder / "out", "--overwrite")
            found += differences(tensors_in(folder / "out"), truth) if result.returncode == 0 else [result.stderr.strip()]
        for words in (["diff", folder / name, original], ["verify", folder / name]):
            result = run(program, *words)
            if result.returncode != 0:
                found.append(f"{words[0]}: {result.stdout}{result.stderr}")
        print(f"{name}: {'agrees' if not found else found[0]}")
        problems += found
    return problems


class Payload:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def check_hostile(program, folder):
    import os
    trace, problems = folder / "trace", []
    calls = {"os.system": (os.system, (f"touch {trace}",)), "eval": (eval, (f"open({str(trace)!r}, 'w')",)),
             "subprocess.Popen": (subprocess.Popen, (["touch", str(trace)],))}
    for name, call in calls.items():
        for protocol in PROTOCOLS:
            torch.save({"weight": torch.zeros(2), "x": Payload(*call)}, folder / "hostile.pt", pickle_protocol=protocol)
            for words in (["inspect", folder / "hostile.pt"], ["quantize", folder / "hostile.pt", folder / "never"],
                          ["dequantize", folder / "hostile.pt", folder / "never"], ["verify", folder / "hostile.pt"]):
                result = run(program, *words)
                if result.returncode != 3 or "nothing was run" not in result.stderr or trace.exists() or (folder / "never").exists():
                    problems.append(f"{name}, protocol {protocol}: {words[0]} gave {result.returncode}, {result.stderr.strip()}")
    print(f"hostile: {'refused, all of them' if not problems else problems[0]}")
    return problems


def main():
    program, original = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        problems = check_many(program, folder) + check_models(program, folder, original) + check_hostile(program, folder)
    sys.exit(1 if problems else 0)


main()
