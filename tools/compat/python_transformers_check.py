#!/usr/bin/env python3
"""halfbyte.transformers: checkpoints of several families and formats on halfbyte's kernels, against transformers' own models with the same weights.

    python_transformers_check.py HALFBYTE FAMILIES [PEERS]     run by the Python that has the wheel; 77: it, or transformers, is not there

FAMILIES: a folder of tiny checkpoints with random weights. PEERS: checkpoints that GPTQ, AWQ, bitsandbytes and compressed-tensors wrote.
Under float32, logits agree within 2e-4 of the largest magnitude and 24 greedy tokens are equal: what a directory holds, what is quantised while
it loads, what is saved and opened again, and what plain transformers makes of that; also of architectures that halfbyte does not run.
"""
import collections
import copy
import functools
import gc
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile
import weakref

from python_helpers import halfbyte, packages, run, torch
from torch.utils._python_dispatch import TorchDispatchMode

try:
    import transformers
    from python_cache import check_caches
    from halfbyte._attention import MARK
    from halfbyte.nn import LowBitLinear
    from halfbyte.transformers import HalfbyteConfig
except ImportError as error:
    packages.skip(error)

BOUND = 2e-4
NEW_TOKENS = 24
FAMILIES = ("llama2", "qwen3", "gemma2", "mistral-sw", "phi3", "mixtral", "qwen3.5", "olmo2", "granite", "gpt-oss", "glm4-9b", "qwen3-next")
SCHEMES = {"sym_int4": {"scheme": "sym_int4", "group_size": 32}, "nf4": {"scheme": "nf4", "group_size": 32}, "sym_int8": {"scheme": "sym_int8", "group_size": 64},
           "asym_int4": {"scheme": "asym_int4", "group_size": 64}, "hb4": {"scheme": "hb4", "halfbyte_only": True}}
# Whose experts a checkpoint holds in one tensor: they stay dense when it is quantised while it loads, and the directory has them packed.
EXPERTS = {"gpt-oss"}
ZERO_POINTS = {"asym_int4", "awq-g64", "gptq-asym-g64"}  # plain transformers computes nothing with them, and has to dequantise
# Where it rounds: dequantised in the dtype of the scales, and what bitsandbytes wrote multiplied in what its tensors were before.
ROUNDED = {"asym_int4", "awq-g64", "gptq-asym-g64", "bnb-nf4", "bnb-nf4-dq", "bnb-fp4"}
IDS = torch.tensor([[1, 265, 35, 81, 20, 30, 7, 300, 9, 11]])


class Scratch:
    """Folders with names of their own."""

    def __init__(self, path):
        self.path, self.count = path, 0

    def new(self):
        self.count += 1
        return self.path / str(self.count)


def opened(path, config=None, **options):
    given = {} if config is None else {"quantization_config": config}
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **given, **options).eval()


def packed_in(model):
    return sum(isinstance(one, LowBitLinear) for one in model.modules())


def same(model, other, *what, bound=BOUND):
    with torch.inference_mode():
        found, wanted = model(IDS).logits, other(IDS).logits
    off = ((found - wanted).abs().max() / wanted.abs().max()).item()
    assert off <= bound, (*what, off)
    options = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False, "pad_token_id": 0}
    ours, theirs = model.generate(IDS, **options), other.generate(IDS, **options)
    assert ours.shape[1] == IDS.shape[1] + NEW_TOKENS and torch.equal(ours, theirs), (*what, ours.tolist(), theirs.tolist())
    return off


def plain_model(path, scratch):
    """transformers' own model of the weights as halfbyte dequantises them."""
    plain = scratch.new()
    halfbyte.dequantize(path, plain, dtype="float32")
    model = opened(plain)
    assert packed_in(model) == 0
    return model


def opened_by_others(path, name):
    """What transformers with its own quantizer makes of a directory of halfbyte's, in float32."""
    has_zero_points = name in ZERO_POINTS
    model = opened(path, transformers.CompressedTensorsConfig(dequantize=True) if has_zero_points else HalfbyteConfig(kernels=False))
    assert packed_in(model) == 0
    for one in model.modules():
        if hasattr(getattr(one, "weight", None), "quant_state"):
            one.weight.quant_state.dtype = torch.float32  # else each value is rounded to what the weight was before
    method = json.loads((path / "config.json").read_text())["quantization_config"]["quant_method"]
    return model.dequantize().float() if method == "bitsandbytes" else model


def saved(model, scratch, *what):
    """What is written is sound, and opens as the same model."""
    path = scratch.new()
    model.save_pretrained(path)
    found = halfbyte.verify(path)
    assert not found["problems"] and found["tensors_hashed"], (*what, found["problems"])
    again = opened(path)
    assert packed_in(again) == packed_in(model), (*what, packed_in(again), packed_in(model))
    with torch.inference_mode():
        assert torch.equal(again(IDS).logits, model(IDS).logits), (*what, "saved")
    return path


def check_family(source, scratch):
    worst = 0
    for name, options in SCHEMES.items():
        what = (source.name, name)
        path = scratch.new()
        halfbyte.quantize(source, path, **{**options, "halfbyte_only": source.name in EXPERTS or "halfbyte_only" in options})
        model = opened(path)
        assert packed_in(model) > 0, what
        worst = max(worst, same(model, plain_model(path, scratch), *what))
        if source.name not in EXPERTS:
            wanted = {key: value for key, value in options.items() if key != "halfbyte_only"}
            loaded = opened(source, HalfbyteConfig(**wanted))
            assert packed_in(loaded) == packed_in(model), (*what, packed_in(loaded), packed_in(model))
            with torch.inference_mode():
                assert torch.equal(loaded(IDS).logits, model(IDS).logits), (*what, "while loading")
            again = saved(loaded, scratch, *what, "loaded")
            same_codes(halfbyte.diff(path, again), *what)
        saved(model, scratch, *what)
    return worst


def same_codes(found, *what):
    """What is packed is the same; what is not has become float32, which the model was opened in."""
    assert not any(found["counts"][key] for key in ("other_values", "other_shape", "only_in_a", "only_in_b")), (*what, found)
    assert {one["b"]["stored"] for one in found["tensors"]} <= {"float32"}, (*what, found)


PEERS = ("ct-g64", "gptq-sym-g64", "gptq-asym-g64", "awq-g64", "bnb-nf4", "bnb-nf4-dq", "bnb-fp4")


def their_model(path, name):
    """transformers' own dequantised model of a foreign directory, where one of its quantizers can make it on a CPU."""
    if name.startswith("bnb"):
        return opened(path).dequantize().float()
    if name.startswith("ct"):
        return opened(path, transformers.CompressedTensorsConfig(dequantize=True))
    return None  # GPTQ and AWQ need packages of their own


def check_peer(path, scratch):
    name, model = path.name, opened(path, HalfbyteConfig())
    assert packed_in(model) > 0, name
    worst = same(model, plain_model(path, scratch), name, "dequantised")
    other = their_model(path, name)
    if other is not None:
        worst = max(worst, same(model, other, name, "theirs"))
    again = saved(model, scratch, name)
    same(opened_by_others(again, name), model, name, "saved, plain transformers", bound=3e-3 if name in ROUNDED else BOUND)
    return worst


SMALL = {"vocab_size": 320, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2,
         "pad_token_id": 0}
# Architectures that halfbyte does not run: (configuration's class, what it has beside SMALL). Not Falcon, whose Linears are a class of its own, which
# halfbyte.transformers leaves dense.
STRANGERS = {
    "opt": ("OPTConfig", {"ffn_dim": 256, "word_embed_proj_dim": 128, "tie_word_embeddings": True}),
    "gpt_neox": ("GPTNeoXConfig", {"intermediate_size": 256}),
    "phi": ("PhiConfig", {"intermediate_size": 256}),
    "stablelm": ("StableLmConfig", {"intermediate_size": 256, "num_key_value_heads": 2}),
    "bloom": ("BloomConfig", {"n_layer": 2, "n_head": 4, "tie_word_embeddings": True}),
    "mpt": ("MptConfig", {"d_model": 128, "n_heads": 4, "n_layers": 2, "max_seq_len": 128, "tie_word_embeddings": True}),
}


def make_stranger(name, path):
    """Random weights; greedy tokens are far enough from each other that rounding does not choose."""
    kind, more = STRANGERS[name]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**SMALL, **more), dtype=torch.float32)
    for one in model.parameters():
        if one.dim() > 1:
            torch.nn.init.normal_(one, std=0.1)
    assert bool(model.config.tie_word_embeddings) == ("tie_word_embeddings" in more), name
    model.save_pretrained(path)


def check_stranger(name, scratch):
    source = scratch.new()
    make_stranger(name, source)
    worst = check_family(source, scratch)
    for scheme in ("sym_int4", "nf4"):  # plain transformers opens what was quantised while it loaded, and saved
        model = opened(source, HalfbyteConfig(scheme=scheme, group_size=32))
        path = saved(model, scratch, name, scheme)
        same(opened_by_others(path, scheme), model, name, scheme, "plain transformers")
    return worst


def check_others_open(families, scratch):
    """Directories that say what others read are opened by plain transformers, before and after they were saved."""
    for family in ("llama2", "qwen3"):
        for name in ("sym_int4", "sym_int8", "nf4", "asym_int4"):
            path = scratch.new()
            halfbyte.quantize(families / family, path, **SCHEMES[name])
            model = opened(path)
            again = saved(model, scratch, family, name)
            for one in (path, again):
                same(opened_by_others(one, name), model, family, name, "plain transformers", bound=3e-3 if name in ROUNDED else BOUND)


def check_program(program, families, scratch):
    """The program's directory is the package's, and what transformers generates from it is what the program does."""
    path = scratch.new()
    subprocess.run([program, "quantize", families / "llama2", path, "-q"], check=True)
    words = [program, "generate", path, "--prompt-tokens", ",".join(map(str, IDS[0].tolist())), "--dtype", "float32", "--temperature", "0", "--max-gen-len",
             str(NEW_TOKENS), "--ignore-eos", "--json", "-q"]
    wanted = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["generations"][0]["tokens"]
    options = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False, "pad_token_id": 0, "suppress_tokens": None}
    found = opened(path).generate(IDS, **options)[0, IDS.shape[1]:].tolist()
    assert found == wanted, (found, wanted)


class Counted(TorchDispatchMode):
    """How often each operator is called meanwhile."""

    def __init__(self):
        super().__init__()
        self.calls = collections.Counter()

    def __torch_dispatch__(self, function, types, words=(), named=None):
        self.calls[function.name()] += 1
        return function(*words, **(named or {}))


def generated(model, ids, new_tokens, **options):
    """Tokens, and how often attention of a decoded token, norms, and what is between an MLP's products were halfbyte's."""
    with Counted() as counted:
        tokens = model.generate(ids, max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False, pad_token_id=0, **options)
    return tokens, tuple(counted.calls[f"halfbyte::{name}"] for name in ("decode_attention", "rms_norm", "gated_product"))


def same_tokens(model, new_tokens, steps, what):
    """With so many steps through layers, and as transformers' own forward gives them."""
    tokens, calls = generated(model, IDS, new_tokens)
    assert calls[2] == steps, (what, calls)
    marked = [one for one in model.modules() if one.__dict__.pop(MARK, False)]
    plain, none = generated(model, IDS, new_tokens)
    assert none == (0, 0, 0) and torch.equal(tokens, plain), (what, tokens.tolist(), plain.tolist(), none)
    for one in marked:
        setattr(one, MARK, True)


def changes_of(model, layer, seen):
    """What somebody may do to a layer, and how many of all layers are stepped through then: one with an MLP of its own has none of a step's."""
    layers, kind, hooks = model.config.num_hidden_layers, type(layer.self_attn), []
    own_forward, down, copied = kind.forward, layer.mlp.down_proj, copy.deepcopy(layer.mlp)
    other = halfbyte.quantize_tensor(down.weight.dequantize(torch.float32) * 2, "sym_int4", 32)

    @functools.wraps(own_forward)
    def twice(self, *words, **named):
        out, weights = own_forward(self, *words, **named)
        return out * 2, weights

    def hook():
        hooks.append(down.register_forward_hook(lambda *_: seen.append(1)))
    def hook_anew():
        down._forward_hooks = collections.OrderedDict()
        hook()

    return {
        "nothing": (lambda: None, layers),
        "a hook": (hook, layers - 1),
        "no hook": (lambda: hooks[0].remove(), layers),
        "other hooks": (hook_anew, layers - 1),
        "none of them": (lambda: hooks[1].remove(), layers),
        "captured outputs": (lambda: model(IDS, output_hidden_states=True, output_attentions=False), layers),
        "a norm in float16": (lambda: layer.input_layernorm.half(), layers - 1),
        "a norm in float32": (lambda: layer.input_layernorm.float(), layers),
        "a weight": (lambda: down.set_weight(other), layers),
        "a module": (lambda: setattr(layer.mlp, "act_fn", torch.nn.Tanh()), layers - 1),
        "another dictionary of modules": (lambda: setattr(layer, "_modules", {**layer._modules, "mlp": copied}), layers),
        "a class": (lambda: setattr(kind, "forward", twice), 0),
        "its own class": (lambda: setattr(kind, "forward", own_forward), layers),
        "a forward": (lambda: setattr(layer.self_attn, "forward", functools.partial(twice, layer.self_attn)), layers - 1),
    }


def check_changed_layers(families, scratch):
    """What somebody changes in a layer after tokens have gone through it: each time tokens are those of transformers' own forward. It is freed as any."""
    path = scratch.new()
    halfbyte.quantize(families / "qwen3", path, **SCHEMES["sym_int4"])
    model, seen, new_tokens = opened(path), [], 5
    for what, (change, stepped) in changes_of(model, model.model.layers[1], seen).items():
        change()
        same_tokens(model, new_tokens, stepped * (new_tokens - 1), what)
    assert len(seen) == 4 * new_tokens, len(seen)
    model.model.layers[1].self_attn.register_forward_hook(lambda *_, whole=model: None)  # which holds the model
    there = weakref.ref(model)
    generated(model, IDS, new_tokens)
    del model, change
    gc.collect()
    assert there() is None


def check_checkpointing(families, scratch):
    """Layers whose class has a step are computed a second time in the backward pass, and give the same gradients."""
    path = scratch.new()
    halfbyte.quantize(families / "llama2", path, **SCHEMES["sym_int4"])
    model = opened(path)
    seen = []
    model.model.layers[0].mlp.gate_proj.register_forward_hook(lambda *_: seen.append(1))
    found = {}
    for checkpoints in (False, True):
        model.train()
        if checkpoints:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        seen.clear()
        model(IDS, labels=IDS, use_cache=False).loss.backward()
        found[checkpoints] = model.get_input_embeddings().weight.grad.clone(), len(seen)
        model.zero_grad()
    assert (found[False][1], found[True][1]) == (1, 2), found
    assert torch.equal(found[False][0], found[True][0])


def check_other_masks(families, scratch):
    """flex_attention's masks are no tensors; a sequence that sees no token gives numbers, as transformers' own."""
    path = scratch.new()
    halfbyte.quantize(families / "llama2", path, **SCHEMES["sym_int4"])
    model, plain = opened(path), plain_model(path, scratch)
    several = torch.cat([IDS, IDS])
    with torch.no_grad():
        caches = [one(several, use_cache=True).past_key_values for one in (model, plain)]
        mask = torch.ones(2, 1, 1, IDS.shape[1] + 1, dtype=torch.bool)
        mask[1] = False
        found, wanted = (one(several[:, :1], past_key_values=cache, attention_mask=mask).logits for one, cache in zip((model, plain), caches))
    assert found.isfinite().all() and (found - wanted).abs().max() <= BOUND * wanted.abs().max(), (found - wanted).abs().max()
    try:
        flexible = opened(path, attn_implementation="flex_attention")
        tokens = flexible.generate(IDS, max_new_tokens=3, min_new_tokens=3, do_sample=False, pad_token_id=0)
    except (ImportError, RuntimeError, torch._inductor.exc.InductorError) as error:
        print(f"flex_attention does not run here: {str(error).splitlines()[0]}")
        return
    assert torch.equal(tokens, model.generate(IDS, max_new_tokens=3, min_new_tokens=3, do_sample=False, pad_token_id=0))


def check_operators(families, scratch):
    """Decoded tokens take halfbyte's operators whatever is masked, and give plain transformers' tokens in any case; other models do not."""
    path = scratch.new()
    halfbyte.quantize(families / "llama2", path, **SCHEMES["sym_int4"])
    model, plain = opened(path), plain_model(path, scratch)
    layers, new_tokens = model.config.num_hidden_layers, 6
    norms = (2 * layers + 1) * new_tokens
    several = torch.cat([IDS, IDS.flip(1)])
    masked = torch.ones_like(several)
    masked[0, :4] = 0
    every = layers * (new_tokens - 1)
    gaps = masked.clone()
    gaps[1, 2] = 0
    static = {"cache_implementation": "static", "disable_compile": True}
    for ids, options, attention in ((IDS, {}, every), (several, {}, every), (several, {"attention_mask": masked}, every), (several, {"attention_mask": gaps}, every),
                                    (IDS, static, every), (several, {"attention_mask": masked, **static}, every), (IDS, {"num_beams": 3}, every)):
        tokens, calls = generated(model, ids, new_tokens, **options)
        wanted, none = generated(plain, ids, new_tokens, **options)
        assert torch.equal(tokens, wanted), (options, tokens.tolist(), wanted.tolist())
        assert calls == (attention, norms, attention) and none == (0, 0, 0), (options, calls, none)
    copied = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert torch.equal(generated(copied, IDS, new_tokens)[0], generated(model, IDS, new_tokens)[0])
    check_caches(model, IDS)
    model(IDS, labels=IDS).loss.backward()  # through transformers' own
    assert model.get_input_embeddings().weight.grad.abs().sum() > 0
    assert generated(model.dequantize(), IDS, new_tokens)[1] == (0, 0, 0)
    # Whoever's: a norm whose weight is computed, in a class that has met a marked one.
    norm = type(model.model.norm)(16)
    torch.nn.utils.parametrize.register_parametrization(norm, "weight", torch.nn.Identity())
    with torch.no_grad():
        assert norm(torch.ones(2, 16)).shape == (2, 16)


def main(program, families, peers=None):
    families = pathlib.Path(families).absolute()
    if not (families / FAMILIES[0] / "model.safetensors").is_file():
        packages.skip(f"{families} has no weights of {FAMILIES[0]}")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Scratch(pathlib.Path(folder))
        checks = {name: functools.partial(check_family, families / name, scratch) for name in FAMILIES}
        checks |= {name: functools.partial(check_stranger, name, scratch) for name in STRANGERS}
        foreign = [name for name in PEERS if peers and pathlib.Path(peers, name, "config.json").is_file()]
        checks |= {name: functools.partial(check_peer, pathlib.Path(peers, name).absolute(), scratch) for name in foreign}
        said = run({**checks, "others_open": functools.partial(check_others_open, families, scratch), "operators": functools.partial(check_operators, families, scratch),
                    "changed layers": functools.partial(check_changed_layers, families, scratch),
                    "checkpointing": functools.partial(check_checkpointing, families, scratch), "other masks": functools.partial(check_other_masks, families, scratch),
                    "program": functools.partial(check_program, program, families, scratch)})
    print(f"{len(FAMILIES)} families, {len(STRANGERS)} architectures of transformers alone, {len(foreign)} foreign directories: "
          f"logits within {max(said[name] for name in checks):.1e}, tokens equal, saved and opened again: pass")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
