"""Decoder layers of transformers as _halfbyte.LayerStep takes them, where all of their code is known."""

from __future__ import annotations

import dataclasses
import sys
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import module as _hooks
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from . import _halfbyte
from ._attention import suits_kernels
from ._known import ATTENTIONS, GATED_MLP, RMS_NORM, ROTARY, ROTATE_HALF, digest_of
from .nn import LowBitLinear

# The activations of halfbyte.gated_product, by the classes that compute them.
_GATES = {"SiLUActivation": "silu", "SiLU": "silu", "GELUActivation": "gelu", "GELUTanh": "gelu_tanh"}
# A layer of which something is replaced more often than it is stepped through has no step any more.
_MOST_TIMES, _WORTH = 4, 4


class _Unknown(Exception):
    """Something that a step does not know."""


@dataclasses.dataclass
class _Made:
    """A step, or none, for as long as what was looked at is the same."""

    step: _halfbyte.LayerStep | None
    watch: _halfbyte.Watch
    times: int = 0  # that too little was gained by making it
    taken: int = 0


# Not in the layers: they are copied and pickled.
_MADE: weakref.WeakKeyDictionary[torch.nn.Module, _Made] = weakref.WeakKeyDictionary()


def step_of(layer: Any, hidden: Tensor, tables: Any) -> _halfbyte.LayerStep | None:
    """For one token of each sequence; None where transformers' own forward has to do it."""
    if hidden.dim() != 3 or hidden.shape[1] != 1 or not isinstance(tables, tuple) or len(tables) != 2:
        return None
    if torch.is_autocast_enabled("cpu") or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    made = _MADE.get(layer)
    if made is None or not made.watch.is_same():
        made = _MADE[layer] = _made_anew(layer, hidden, made)
    step = made.step
    if step is None or not made.watch.is_plain() or not step.fits(hidden, *tables):
        return None
    made.taken += 1
    return step


def _made_anew(layer: Any, hidden: Tensor, before: _Made | None) -> _Made:
    times = 0 if before is None or before.taken >= _WORTH else before.times + 1
    if times >= _MOST_TIMES:
        return _Made(None, _halfbyte.Watch([], [], []), times)
    looking = _Looking()
    step = None
    try:
        step = _halfbyte.LayerStep(hidden.dtype, _attention(looking, layer, hidden), _mlp(looking, layer, hidden))
    except _Unknown:
        pass
    return _Made(step, _halfbyte.Watch(looking.entries, looking.attributes, looking.empty), times)


class _Looking:
    """Reads modules, and remembers what it saw for a Watch."""

    def __init__(self) -> None:
        self.entries: list[tuple[dict[str, Any], str, Any]] = []
        self.attributes: list[tuple[Any, str, Any]] = []
        self.empty: list[Any] = [_hooks._global_forward_hooks, _hooks._global_forward_pre_hooks]

    def entry(self, holder: dict[str, Any], name: str) -> Any:
        value = holder.get(name)
        self.entries.append((holder, name, value))
        return value

    def module(self, module: Any) -> Any:
        """One whose forward is run by its class's code."""
        if self.entry(module.__dict__, "forward") is not None:
            raise _Unknown
        self.attributes.append((type(module), "forward", type(module).forward))
        self.empty += [module._forward_hooks, module._forward_pre_hooks]
        return module

    def child(self, parent: Any, name: str) -> Any:
        found = self.entry(parent._modules, name)
        if found is None:
            raise _Unknown
        return self.module(found)

    def own(self, module: Any, name: str) -> Any:
        return self.entry(module.__dict__, name)

    def norm(self, parent: Any, name: str) -> tuple[Tensor, float]:
        norm = self.child(parent, name)
        weight = self.entry(norm._parameters, "weight")
        if digest_of(_original(type(norm).forward)) != RMS_NORM or weight is None or not suits_kernels(weight):
            raise _Unknown
        return weight, float(self.own(norm, "variance_epsilon"))

    def linear(self, parent: Any, name: str, hidden: Tensor) -> tuple[dict[str, Any], Tensor | None, str]:
        linear = self.child(parent, name)
        if type(linear) is not LowBitLinear or not linear.codes.is_cpu:
            raise _Unknown
        for own in ("scheme", "group_size", "arithmetic", "rounds_values"):
            self.own(linear, own)
        weight = linear.weight
        fields = {field.name: getattr(weight, field.name) for field in dataclasses.fields(weight)}
        for part in linear._buffers:
            self.entry(linear._buffers, part)
        if linear.rounds_values and hidden.dtype == torch.float32:
            raise _Unknown
        return fields, self.entry(linear._parameters, "bias"), linear._arithmetic_for(hidden)


def _original(forward: Any) -> Any:
    return getattr(forward, "__wrapped__", forward)


def _attention(looking: _Looking, layer: Any, hidden: Tensor) -> dict[str, Any]:
    norm = looking.norm(layer, "input_layernorm")
    attention = looking.child(layer, "self_attn")
    digest = digest_of(type(attention).forward)
    file: Any = sys.modules[type(attention).__module__]
    rotary = [looking.entry(file.__dict__, one) for one in ("apply_rotary_pos_emb", "rotate_half")]
    is_turned = [digest_of(one) for one in rotary if one is not None] == [ROTARY, ROTATE_HALF]
    way = looking.own(attention.config, "_attn_implementation_internal")
    looking.own(ALL_ATTENTION_FUNCTIONS, "_local_mapping")
    if looking.entry(ALL_ATTENTION_FUNCTIONS._local_mapping, "sdpa") is not None:
        raise _Unknown
    sdpa = looking.entry(ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa")
    if digest not in ATTENTIONS or not is_turned or way != "sdpa" or not hasattr(sdpa, "_is_halfbytes"):
        raise _Unknown
    if looking.own(attention, "training"):
        raise _Unknown
    norms = [looking.norm(attention, one) if ATTENTIONS[digest] else None for one in ("q_norm", "k_norm")]
    return {
        "norm": norm, "query_norm": norms[0], "key_norm": norms[1],
        "projections": [looking.linear(attention, one, hidden) for one in ("q_proj", "k_proj", "v_proj")],
        "output": [looking.linear(attention, "o_proj", hidden)],
        "head_dim": looking.own(attention, "head_dim"), "scale": looking.own(attention, "scaling"),
    }


def _mlp(looking: _Looking, layer: Any, hidden: Tensor) -> dict[str, Any] | None:
    """None: one that is run as it is."""
    try:
        norm = looking.norm(layer, "post_attention_layernorm")
        mlp = looking.child(layer, "mlp")
        activation = _GATES.get(type(looking.child(mlp, "act_fn")).__name__) if _is_gated(mlp) else None
        if activation is None:
            return None
        gate_up = [looking.linear(mlp, one, hidden) for one in ("gate_proj", "up_proj")]
        down = [looking.linear(mlp, "down_proj", hidden)]
    except _Unknown:
        return None
    return {"norm": norm, "gate_up": gate_up, "down": down, "activation": activation}


def _is_gated(mlp: Any) -> bool:
    return digest_of(type(mlp).forward) == GATED_MLP
