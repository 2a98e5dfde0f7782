#!/usr/bin/env python3
"""LoRA on halfbyte's kernels with peft: 50 steps against peft with bitsandbytes on the same batches, then merged, unmerged, saved and opened again.

    python_peft_check.py TINY_LLAMA     run by the Python that has the wheel; 77: it, transformers, peft or bitsandbytes is not there
"""
import copy
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

from python_helpers import assert_equal, assert_near, difference, halfbyte, packages, run, taken, torch

try:
    import bitsandbytes  # noqa: F401  transformers imports it only when it meets such a checkpoint
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM

    from halfbyte.nn import LowBitLinear
    from halfbyte.transformers import HalfbyteConfig
    from halfbyte_program import PROGRAM, environment
except ImportError as error:
    packages.skip(error)

STEPS, LENGTH, BATCH = 50, 64, 4
LOSS_BOUND = 0.02  # of every loss, relative. Measured: 0.4 %
SCHEMES = ("sym_int4", "nf4", "asym_int4", "hb4")


def opened(path, dtype=torch.bfloat16, kernels=True):
    config = {} if kernels else {"quantization_config": HalfbyteConfig(kernels=False)}
    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype, **config)


def batches(tiny, folder):
    """Windows of the held-out text, which overlap where it is short."""
    text = (pathlib.Path(tiny).parent / "heldout.txt").read_text(encoding="utf-8")
    ids = torch.tensor(halfbyte.Tokenizer(folder).encode(text))
    size = LENGTH * BATCH
    return [ids[(i * 199) % (len(ids) - size):][:size].view(BATCH, LENGTH) for i in range(STEPS)]


def with_adapter(model, target="all-linear", bias="none"):
    torch.manual_seed(0)
    out = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=target, lora_dropout=0.0, bias=bias))
    torch.manual_seed(1)
    for name, one in sorted(out.named_parameters()):
        if "lora_A" in name:
            torch.nn.init.normal_(one, std=0.02)
    return out


def trained(model, data, rate=1e-3):
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=rate)
    losses = []
    model.train()
    for batch in data:
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    model.eval()
    return losses


def logits(model, batch):
    with torch.no_grad():
        return model(batch).logits


def parts_of(model):
    return {name: {key: one.clone() for key, one in module.weight.parts.items()} for name, module in model.named_modules() if isinstance(module, LowBitLinear)}


def assert_same_parts(found, wanted):
    assert found.keys() == wanted.keys()
    for name, parts in wanted.items():
        for part, value in parts.items():
            assert_equal(found[name][part], value, name, part)


def check_training(folder, data):
    """Against bitsandbytes' kernels on the same codes."""
    ours, theirs = with_adapter(opened(folder)), with_adapter(opened(folder, kernels=False))
    own = {name.replace(".base_layer", "") for name, _ in ours.named_parameters() if "lora_" in name}
    assert own and own == {name.replace(".base_layer", "") for name, _ in theirs.named_parameters() if "lora_" in name}, "other layers have adapters"
    before = parts_of(ours)
    found, wanted = trained(ours, data), trained(theirs, data)
    off = max(abs(a - b) / b for a, b in zip(found, wanted, strict=True))
    assert off <= LOSS_BOUND, (off, found, wanted)
    assert_same_parts(parts_of(ours), before)
    return off


def check_merging(folder, data):
    """Merged is the sum, quantised again; unmerged is what was there, bit for bit."""
    model = with_adapter(opened(folder, torch.float32))
    plain = logits(model, data[0])
    trained(model, data[:10], 5e-3)
    before, wanted = parts_of(model), logits(model, data[0])
    assert not torch.equal(wanted, plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.merge_adapter()
    merged = logits(model, data[0])
    assert_near(merged, wanted, 0.25, folder.name, "merged")  # rounded to 4 bits a second time
    assert not torch.equal(merged, wanted)
    model.unmerge_adapter()
    assert_same_parts(parts_of(model), before)
    assert_equal(logits(model, data[0]), wanted, "unmerged")
    with model.disable_adapter():
        assert_equal(logits(model, data[0]), plain, "disabled")
    return merged, model


def check_saving(folder, data, scratch):
    """An adapter goes into a model opened anew; a merged model is a checkpoint of halfbyte's."""
    model = with_adapter(opened(folder))
    trained(model, data[:10], 5e-3)
    wanted = logits(model, data[0])
    model.save_pretrained(scratch / f"{folder.name}-adapter")
    again = PeftModel.from_pretrained(opened(folder), scratch / f"{folder.name}-adapter").eval()
    assert_equal(logits(again, data[0]), wanted, "adapter opened again")
    copied = copy.deepcopy(again)
    assert_equal(logits(copied, data[0]), wanted, "copied")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        merged = again.merge_and_unload()
    assert sum(isinstance(one, LowBitLinear) for one in merged.modules()) == len(parts_of(model))
    merged.save_pretrained(scratch / f"{folder.name}-merged")
    found = halfbyte.verify(scratch / f"{folder.name}-merged")
    assert not found["problems"] and found["tensors_hashed"], found
    assert_equal(logits(opened(scratch / f"{folder.name}-merged").eval(), data[0]), logits(merged, data[0]), "merged and opened again")
    assert_equal(logits(copied.unload(), data[0]), logits(opened(folder).eval(), data[0]), "unloaded")


def check_targets(folder, data):
    """Layers chosen by name, gradient checkpointing, a second adapter, and a bias that trains."""
    model = with_adapter(opened(folder, torch.float32), ["q_proj", "down_proj"])
    kinds = {name.split(".")[-4] for name, _ in model.named_parameters() if "lora_" in name}
    assert kinds == {"q_proj", "down_proj"}, kinds
    straight = trained(model, data[:3])
    model = with_adapter(opened(folder, torch.float32), ["q_proj", "down_proj"])
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    found = trained(model, data[:3])
    assert max(abs(a - b) for a, b in zip(found, straight, strict=True)) < 1e-4, (found, straight)
    model.add_adapter("second", LoraConfig(r=4, target_modules=["q_proj"]))
    first = logits(model, data[0])
    model.set_adapter("second")
    assert not torch.equal(logits(model, data[0]), first)
    model.set_adapter("default")
    assert_equal(logits(model, data[0]), first)
    losses = trained(model, data[:1] * 12, 5e-3)
    assert losses[-1] < 0.9 * losses[0], ("nothing is learnt", losses)


def check_refusals(folder):
    """What takes the dense weight apart is refused, and not done wrong."""
    error = taken(Exception, get_peft_model, opened(folder), LoraConfig(r=4, target_modules=["q_proj"], use_dora=True))
    assert not isinstance(error, AttributeError) and str(error), repr(error)


def check_finetuned(tiny, folder, scratch):
    """What `halfbyte finetune` writes is peft's, and gives the same logits there as beside halfbyte's own modules."""
    out, text = scratch / "finetuned", pathlib.Path(tiny).parent / "heldout.txt"
    words = [PROGRAM, "finetune", folder, out, "--text", text, "--steps", "8", "--ctx", "64", "--lr", "0.005", "--rslora", "-q"]
    subprocess.run(words, check=True, env=environment(), stdout=subprocess.DEVNULL)
    ids = torch.arange(3, 60).unsqueeze(0)
    with torch.no_grad():
        theirs = PeftModel.from_pretrained(opened(folder, torch.float32), out).eval()(ids).logits
    ours = halfbyte.load_low_bit(folder, "float32", adapter=out).logits(ids)
    assert_near(ours, theirs, 1e-5, "an adapter of finetune")
    assert difference(halfbyte.load_low_bit(folder, "float32").logits(ids), theirs) > 1e-2


def main(tiny):
    tiny = os.path.abspath(tiny)
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        for scheme in SCHEMES:
            halfbyte.quantize(tiny, scratch / scheme, scheme=scheme, halfbyte_only=scheme == "hb4")
        data = batches(tiny, scratch / "nf4")
        checks = {"training": functools.partial(check_training, scratch / "nf4", data), "targets": functools.partial(check_targets, scratch / "sym_int4", data),
                  "refusals": functools.partial(check_refusals, scratch / "nf4"), "finetuned": functools.partial(check_finetuned, tiny, scratch / "nf4", scratch)}
        for scheme in SCHEMES:
            checks[f"merging {scheme}"] = functools.partial(check_merging, scratch / scheme, data)
            checks[f"saving {scheme}"] = functools.partial(check_saving, scratch / scheme, data, scratch)
        said = run(checks)
    print(f"LoRA: losses of {STEPS} steps within {100 * said['training']:.2f} % of bitsandbytes', merged, unmerged to the bit, saved and opened again: pass")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
