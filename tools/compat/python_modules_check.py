#!/usr/bin/env python3
"""The package's operators and modules, where PyTorch is all there is besides: opcheck, traces, gradients, torch.compile, state dicts, copies, workers.

    python_modules_check.py TINY_LLAMA     run by the Python that has the wheel (tools/wheel.sh); 77: it is not there

TINY_LLAMA is a small Llama checkpoint, of which one MLP is compiled and every weight multiplied with.
"""
import concurrent.futures
import copy
import functools
import io
import multiprocessing
import os
import pathlib
import pickle
import shutil
import sys
import tempfile

import python_layers as layers
import python_operators as operators
from python_helpers import SCHEMES, assert_equal, assert_near, halfbyte, run, taken, torch

import torch._dynamo.testing
from halfbyte.nn import LowBitLinear, quantize_module

IN, OUT = 64, 24
# inductor keeps float32 between what it fuses, where PyTorch rounds to bfloat16.
COMPILED_BOUND = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
PACKED_PARTS = ("codes", "scales", "zero_points", "offsets", "row_scales", "column_order", "format")


class Mlp(torch.nn.Module):
    """As Llama has it, of packed layers."""

    def __init__(self, layers):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = layers

    def forward(self, x):
        return self.down_proj(torch.nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Products(torch.utils.data.Dataset):
    """What workers compute: row i of the layer's products."""

    def __init__(self, layer, rows):
        self.layer, self.rows = layer, rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        with torch.no_grad():
            return self.layer(self.rows[i])


def layer_of(scheme, bias=True, seed=0, group_size=None):
    torch.manual_seed(seed)
    return LowBitLinear.from_linear(torch.nn.Linear(IN, OUT, bias=bias), scheme, group_size)


def inputs(*shape):
    torch.manual_seed(5)
    return torch.randn(*shape, IN)


def parts_of(layer):
    return {name: one for name, one in layer.named_buffers() if name in PACKED_PARTS}


def assert_same_parts(found, wanted):
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    for name, one in wanted.items():
        assert_equal(found[name], one, name)


def tiny_mlp(tiny, scratch):
    halfbyte.quantize(tiny, scratch / "tiny")
    state = halfbyte.load_state(scratch / "tiny")
    packed = [name for name, one in state.items() if isinstance(one, halfbyte.LowBitTensor)]
    for name in packed:
        weight = state[name]
        x = torch.randn(2, 3, weight.in_features)
        assert_near(LowBitLinear(weight)(x), x @ weight.dequantize(torch.float32).t(), 1e-5, name)
    assert packed, "nothing is packed"
    return Mlp([LowBitLinear(state[f"model.layers.0.mlp.{name}.weight"]) for name in ("gate_proj", "up_proj", "down_proj")])


def compiled_of(mlp, backend, dynamic):
    torch._dynamo.reset()
    counted = torch._dynamo.testing.CompileCounterWithBackend(backend)
    return torch.compile(mlp, fullgraph=True, dynamic=dynamic, backend=counted), counted


def check_training(mlp, backend, dynamic, dtype):
    """Forward and backward against the module as it is; what is dynamic is traced once."""
    compiled, counted = compiled_of(mlp, backend, dynamic)
    bound = COMPILED_BOUND[dtype]
    for count in (5, 9, 17) if dynamic else (5,):
        x = torch.randn(count, mlp.gate_proj.in_features).to(dtype)
        own, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, wanted = compiled(own), mlp(other)
        assert found.dtype == wanted.dtype == dtype
        assert_near(found, wanted, bound, backend, count, dtype)
        seed = torch.randn_like(wanted)
        found.backward(seed)
        wanted.backward(seed)
        assert_near(own.grad, other.grad, bound, "gradient", backend, count, dtype)
    assert counted.frame_count == 1, (backend, dynamic, counted.frame_count)


def check_inference(mlp, backend, dynamic):
    compiled, _ = compiled_of(mlp, backend, dynamic)
    for count in (5, 9, 1) if dynamic else (5,):
        x = torch.randn(2, count, mlp.gate_proj.in_features)
        with torch.inference_mode():
            assert_near(compiled(x), mlp(x), COMPILED_BOUND[torch.float32], backend, "inference_mode", count)
            assert_near(compiled(x.bfloat16()), mlp(x.bfloat16()), COMPILED_BOUND[torch.bfloat16], backend, "inference_mode of bfloat16", count)


def check_autocast(mlp, backend):
    compiled, _ = compiled_of(mlp, backend, False)
    x = torch.randn(4, mlp.gate_proj.in_features)
    gradients = []
    for module in (compiled, mlp):
        own = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            out = module(own)
        out.float().sum().backward()
        assert out.dtype == torch.bfloat16 and own.grad.dtype == torch.float32
        gradients.append((out, own.grad))
    for found, wanted in zip(*gradients, strict=True):
        assert_near(found, wanted, COMPILED_BOUND[torch.bfloat16], backend, "autocast")


def has_compiler():
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++"))


def check_compile(mlp):
    backends = ["aot_eager", "inductor"] if has_compiler() else ["aot_eager"]
    for backend in backends:
        for dynamic in (False, True):
            check_training(mlp, backend, dynamic, torch.float32)
            check_inference(mlp, backend, dynamic)
        check_training(mlp, backend, False, torch.bfloat16)
        check_autocast(mlp, backend)
    torch._dynamo.reset()
    return backends


def check_state_dicts():
    for scheme in SCHEMES:
        layer, x = layer_of(scheme), inputs(3)
        wanted = layer(x)
        stream = io.BytesIO()
        torch.save(layer.state_dict(), stream)
        stream.seek(0)
        state = torch.load(stream, weights_only=True)
        assert_same_parts(state, dict(layer.state_dict()))
        for other in SCHEMES:
            for assign in (False, True):
                into = layer_of(other, seed=1)
                assert not any(into.load_state_dict(state, assign=assign))
                assert_equal(into(x), wanted, scheme, "into", other, assign)
                assert into.scheme == scheme and into.group_size == layer.group_size
    sequence = torch.nn.Sequential(layer_of("hb4"), torch.nn.ReLU())
    state = sequence.state_dict()
    assert set(state) == {f"0.{name}" for name in layer_of("hb4").state_dict()}
    del state["0.codes"]
    assert "0.codes" in str(taken(RuntimeError, sequence.load_state_dict, state))
    narrow = LowBitLinear.from_linear(torch.nn.Linear(IN, 8))
    assert "fit" in str(taken(RuntimeError, narrow.load_state_dict, layer_of("sym_int4").state_dict()))
    assert "bias" in str(taken(RuntimeError, layer_of("sym_int4").load_state_dict, layer_of("sym_int4", bias=False).state_dict()))


def check_moves():
    x = inputs(3)
    for scheme in SCHEMES:
        layer = layer_of(scheme)
        wanted, state = layer(x), {name: one.clone() for name, one in layer.state_dict().items()}
        before = parts_of(copy.deepcopy(layer))
        for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.float32):
            layer.to(dtype)
            assert_same_parts(parts_of(layer), before)
            assert layer.bias.dtype == dtype
        for change in (torch.nn.Module.half, torch.nn.Module.bfloat16, torch.nn.Module.double, torch.nn.Module.float):
            assert_same_parts(parts_of(change(layer)), before)
        layer.load_state_dict(state)  # the bias has been float16
        assert_equal(layer(x), wanted, scheme)
        layer.to("meta")
        assert {one.device.type for one in layer.state_dict().values()} == {"meta"}
        assert layer(x.to("meta")).shape == wanted.shape
        assert {name: one.dtype for name, one in parts_of(layer).items()} == {name: one.dtype for name, one in before.items()}
        layer.to_empty(device="cpu")
        layer.load_state_dict(state)
        assert_equal(layer(x), wanted, scheme, "after meta")
        low = layer.to(torch.bfloat16)(x.bfloat16())
        assert low.dtype == torch.bfloat16
        assert_near(low, wanted, 2e-2, scheme)  # bfloat16, and activations rounded to 8 bits


def check_copies():
    x = inputs(3)
    for scheme in SCHEMES:
        layer = layer_of(scheme)
        wanted = layer(x)
        copied, pickled = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
        layer.codes.zero_()
        layer.bias.data.zero_()
        assert_equal(copied(x), wanted, scheme, "deepcopy")
        assert_equal(pickled(x), wanted, scheme, "pickle")
        weight = pickle.loads(pickle.dumps(copied.weight))
        assert_equal(weight.dequantize(), copied.weight.dequantize(), scheme)
        assert_equal(copy.deepcopy(copied.weight).dequantize(), weight.dequantize(), scheme)
    stream = io.BytesIO()
    torch.save(copied, stream)
    stream.seek(0)
    assert_equal(torch.load(stream, weights_only=False)(x), copied(x))


def _zero(layer):
    layer.codes.zero_()


def check_workers():
    rows = inputs(24)
    for scheme in ("sym_int4", "asym_int4", "hb4"):
        layer = layer_of(scheme)
        with torch.no_grad():
            wanted = torch.stack([layer(row) for row in rows])
        for method in ("fork", "spawn"):
            loader = torch.utils.data.DataLoader(Products(layer, rows), batch_size=4, num_workers=2, multiprocessing_context=method, timeout=120)
            assert_equal(torch.cat(list(loader)), wanted, scheme, method)
    shared = layer_of("sym_int4").share_memory()
    assert all(one.is_shared() for one in shared.state_dict().values())
    for method in ("fork", "spawn"):
        before = shared.codes.clone()
        process = torch.multiprocessing.get_context(method).Process(target=_zero, args=(shared,))
        process.start()
        process.join(120)
        assert process.exitcode == 0 and not shared.codes.any(), method
        shared.codes.copy_(before)
    assert multiprocessing.active_children() == []


class Block(torch.nn.Module):
    """Linears of every kind that quantize_module meets."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(IN, IN), torch.nn.Linear(IN, IN)) for _ in range(2)])
        self.embed, self.head = torch.nn.Embedding(OUT, IN), torch.nn.Linear(IN, OUT, bias=False)
        self.head.weight = self.embed.weight
        self.odd, self.same = torch.nn.Linear(IN + 1, 8), torch.nn.Linear(IN, IN)
        self.again = self.same
        self.attention = torch.nn.MultiheadAttention(IN, 2)


def check_quantize_module():
    torch.manual_seed(0)
    block, twin = Block(), Block()
    twin.load_state_dict(block.state_dict())
    said = quantize_module(block.eval(), "sym_int4", 32, keep=["layers.0.1"], scheme_for={"layers.1.*": "hb4", "layers.1.1.weight": "sym_int8"}, arithmetic="float")
    kinds = {name: one.scheme for name, one in block.named_modules() if isinstance(one, LowBitLinear)}
    assert kinds == {"layers.0.0": "sym_int4", "layers.1.0": "hb4", "layers.1.1": "sym_int8", "same": "sym_int4"}, kinds
    assert said["layers.0.1"].startswith("kept") and said["layers.0.0"] == "sym_int4 of groups of 32", said
    assert "another" in said["head"] and said["odd"].startswith("kept"), said
    assert block.head.weight is block.embed.weight and block.again is block.same
    assert type(block.attention.out_proj) is not LowBitLinear  # a subclass of Linear, whose weight is taken out of it
    assert not any(one.training for one in block.modules())
    x = inputs(4)
    for name in kinds:
        layer = block.get_submodule(name)
        made = halfbyte.quantize_tensor(twin.get_submodule(name).weight.detach(), layer.scheme, 32)
        assert_same_parts({key: one for key, one in parts_of(layer).items() if key != "format"}, made.parts)
        dense = torch.nn.functional.linear(x, made.dequantize(torch.float32), layer.bias)
        assert_near(layer(x), dense, 1e-5, name)
    for wrong in ({"keep": ["nothing.*"]}, {"scheme_for": {"nothing": "hb4"}}):
        assert "nothing" in str(taken(ValueError, quantize_module, Block(), **wrong))
    assert taken(halfbyte.Error, quantize_module, Block(), "int3").code == "invalid_argument"
    broken = torch.nn.Sequential(torch.nn.Linear(IN, IN))
    broken[0].weight.data[3, 7] = float("nan")
    assert taken(halfbyte.Error, quantize_module, broken).code == "corrupt" and type(broken[0]) is torch.nn.Linear


def check_threads(mlp):
    x = torch.randn(16, mlp.gate_proj.in_features)
    for dtype in (torch.float32, torch.bfloat16):
        with torch.no_grad():
            wanted = mlp(x.to(dtype))
        for _ in range(2):
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                found = list(pool.map(lambda _: products_with_gradient(mlp, x.to(dtype)), range(32)))
            for forward, gradient in found:
                assert_equal(gradient, found[0][1], dtype)
                assert_near(forward, wanted, 2e-2 if dtype == torch.bfloat16 else 1e-6, dtype)
                assert_equal(forward, found[0][0], dtype)


def products_with_gradient(mlp, x):
    x = x.clone().requires_grad_()
    out = mlp(x)
    out.sum().backward()
    return out.detach(), x.grad


def main(tiny):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        mlp = tiny_mlp(os.path.abspath(tiny), pathlib.Path(folder))
    checks = [operators.check_fake, operators.check_gradients, operators.check_dense_gradients, operators.check_vmap, operators.check_refusals, operators.check_traced_refusals,
              operators.check_inference_weights, operators.check_opcheck, layers.check_layer_step, layers.check_watch, layers.check_room, layers.check_growing,
              check_state_dicts, check_moves, check_copies, check_quantize_module, check_workers]
    named = {check.__name__.removeprefix("check_"): check for check in checks}
    said = run({**named, "threads": functools.partial(check_threads, mlp), "compile": functools.partial(check_compile, mlp)})
    compiled = " and ".join(said["compile"]) + ("" if has_compiler() else " (no C++ compiler for inductor)")
    print(f"{said['opcheck']} opchecks, gradients off by {max(said['gradients'].values()):.1e}, compiled with {compiled}, state dicts, moves, copies, "
          "workers and threads: pass")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
