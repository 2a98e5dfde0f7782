"""Decoder layers of transformers as _halfbyte.LayerStep takes them, where all of their code is known."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import module as _hooks
from transformers import activations
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

try:
    import transformers.utils.output_capturing as _outputs
except ImportError:  # another version: hooks are hooks
    _outputs = None  # type: ignore[assignment]

from . import _halfbyte
from ._attention import suits_kernels
from ._known import ATTENTIONS, GATED_MLP, OURS, RMS_NORM, ROTARY, ROTATE_HALF, code_within, digest_of
from .nn import LowBitLinear

# The activations of halfbyte.gated_product, by the classes that compute them.
_GATES = {torch.nn.SiLU: "silu"} | {
    getattr(activations, kind): name
    for kind, name in (("SiLUActivation", "silu"), ("GELUActivation", "gelu"), ("GELUTanh", "gelu_tanh"))
    if hasattr(activations, kind)
}
_STEP = "_halfbyte_step"
_CAPTURING = code_within(getattr(_outputs, "install_output_capuring_hook", None), "output_capturing_hook")
# A layer of which something is replaced more often than it is stepped through has no step any more.
_MOST_TIMES, _WORTH = 4, 4


class _Unknown(Exception):
    """Something that a step does not know."""


def _nothing() -> None:
    return None


@dataclasses.dataclass
class _Made:
    """A step, or none, for as long as what was looked at is the same. Kept in the layer; its deep copies, and what is pickled, have none."""

    step: _halfbyte.LayerStep | None
    kind: tuple[torch.dtype, torch.device]  # of the layer's input
    watch: _halfbyte.Watch
    hooks: list[Any]  # the containers that it watches
    times: int = 0  # that too little was gained by making it
    taken: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing, ()

    def is_for(self, hidden: Tensor) -> bool:
        return self.kind == (hidden.dtype, hidden.device) and self.watch.is_same()

    def is_plain(self) -> bool:
        """Whether there are no hooks now, but for those of transformers that capture outputs while nobody asks for any."""
        if self.watch.is_empty():
            return True
        hooks = [hook for one in self.hooks for hook in one.values()]
        if _CAPTURING is None or any(getattr(hook, "__code__", None) is not _CAPTURING for hook in hooks):
            return False
        return not _outputs._active_collector.get()  # type: ignore[no-untyped-call]


def step_of(layer: Any, hidden: Tensor, tables: Any) -> _halfbyte.LayerStep | None:
    """For one token of each sequence; None where transformers' own forward has to do it."""
    if hidden.dim() != 3 or hidden.shape[1] != 1 or not isinstance(tables, tuple) or len(tables) != 2:
        return None
    if torch.is_autocast_enabled("cpu") or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    made: _Made | None = layer.__dict__.get(_STEP)
    if made is None or not made.is_for(hidden):
        made = layer.__dict__[_STEP] = _made_anew(layer, hidden, made)
    step = made.step
    if step is None or not step.fits(hidden, *tables) or not made.is_plain():
        return None
    made.taken += 1
    return step


def forget_step(layer: torch.nn.Module) -> None:
    layer.__dict__.pop(_STEP, None)


def _made_anew(layer: Any, hidden: Tensor, before: _Made | None) -> _Made:
    times = 0 if before is None or before.taken >= _WORTH else before.times + 1
    looking, step = _Looking(), None
    if times < _MOST_TIMES:
        try:
            step = _halfbyte.LayerStep(hidden.dtype, _attention(looking, layer, hidden), _mlp(looking, layer, hidden))
        except (_Unknown, AttributeError):  # the second: modules of another version, or somebody's own
            pass
    return _Made(step, (hidden.dtype, hidden.device), looking.watch(), looking.hooks, times)


class _Looking:
    """Reads modules, and remembers what it saw: names in dictionaries, attributes, and hooks, of which there were none."""

    def __init__(self) -> None:
        self.entries: list[tuple[dict[str, Any], str, Any]] = []
        self.classes: list[tuple[Any, type]] = []
        self.attributes: dict[tuple[Any, str], Any] = {}
        self.hooks: list[Any] = [_hooks._global_forward_hooks, _hooks._global_forward_pre_hooks]

    def entry(self, holder: dict[str, Any], name: str) -> Any:
        if not isinstance(holder, dict):
            raise _Unknown
        value = holder.get(name)
        self.entries.append((holder, name, value))
        return value

    def watch(self) -> _halfbyte.Watch:
        return _halfbyte.Watch(self.entries, self.classes, [(*one, value) for one, value in self.attributes.items()], self.hooks)

    def module(self, module: Any) -> Any:
        """One whose forward is run by its class's code."""
        if self.entry(module.__dict__, "forward") is not None:
            raise _Unknown
        kind = type(module)
        self.classes.append((module, kind))
        self.attributes[kind, "forward"] = kind.forward
        hooks = [self.own(module, "_forward_hooks"), self.own(module, "_forward_pre_hooks")]
        if not all(isinstance(one, dict) for one in hooks):
            raise _Unknown
        self.hooks += hooks
        return module

    def child(self, parent: Any, name: str) -> Any:
        found = self.entry(self.own(parent, "_modules"), name)
        if found is None:
            raise _Unknown
        return self.module(found)

    def own(self, module: Any, name: str) -> Any:
        return self.entry(module.__dict__, name)

    def norm(self, parent: Any, name: str) -> tuple[Tensor, float]:
        norm = self.child(parent, name)
        weight = self.entry(self.own(norm, "_parameters"), "weight")
        if digest_of(type(norm).forward) != RMS_NORM or weight is None or not suits_kernels(weight):
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
        buffers = self.own(linear, "_buffers")
        for part in buffers:
            self.entry(buffers, part)
        if linear.rounds_values and hidden.dtype == torch.float32:
            raise _Unknown
        return fields, self.entry(self.own(linear, "_parameters"), "bias"), linear._arithmetic_for(hidden)


def _attention(looking: _Looking, layer: Any, hidden: Tensor) -> dict[str, Any]:
    norm = looking.norm(layer, "input_layernorm")
    attention = looking.child(layer, "self_attn")
    digest = digest_of(type(attention).forward)
    file = sys.modules.get(type(attention).__module__)
    config = looking.own(attention, "config")
    if digest not in ATTENTIONS or file is None or config is None:
        raise _Unknown
    rotary = [looking.entry(file.__dict__, one) for one in ("apply_rotary_pos_emb", "rotate_half")]
    is_turned = [digest_of(one) for one in rotary] == [ROTARY, ROTATE_HALF]
    if not is_turned or looking.own(config, "_attn_implementation_internal") != "sdpa" or not _is_ours(looking, file):
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


def _is_ours(looking: _Looking, file: Any) -> bool:
    """Whether attention of the file's classes is halfbyte's."""
    own = looking.own(ALL_ATTENTION_FUNCTIONS, "_local_mapping")
    is_own = looking.entry(own, "sdpa") is not None
    sdpa = looking.entry(ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa")
    return looking.entry(file.__dict__, "ALL_ATTENTION_FUNCTIONS") is ALL_ATTENTION_FUNCTIONS and not is_own and sdpa in OURS


def _mlp(looking: _Looking, layer: Any, hidden: Tensor) -> dict[str, Any] | None:
    """None: one that is run as it is."""
    try:
        norm = looking.norm(layer, "post_attention_layernorm")
        mlp = looking.child(layer, "mlp")
        activation = _GATES.get(type(looking.child(mlp, "act_fn"))) if _is_gated(mlp) else None
        if activation is None:
            return None
        gate_up = [looking.linear(mlp, one, hidden) for one in ("gate_proj", "up_proj")]
        down = [looking.linear(mlp, "down_proj", hidden)]
    except _Unknown:
        return None
    return {"norm": norm, "gate_up": gate_up, "down": down, "activation": activation}


def _is_gated(mlp: Any) -> bool:
    return digest_of(type(mlp).forward) == GATED_MLP
