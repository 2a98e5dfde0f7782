"""Modules of transformers whose code is known, with halfbyte's operators where theirs are many."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from ._attention import MARK, attend_otherwise, is_plain, suits_kernels, takes_decoded, takes_mask
from ._cache import with_token
from ._known import DECODER_LAYER, OURS, RMS_NORM, digest_of, without_checkpointing
from ._layers import step_of

_Forward = Callable[..., Any]


def _is_traced() -> bool:
    return torch.is_grad_enabled() or torch.compiler.is_compiling()


def _norm(forward: _Forward) -> _Forward:
    @functools.wraps(forward)
    def norm(self: Any, hidden_states: Tensor) -> Any:
        if MARK not in self.__dict__ or _is_traced() or not suits_kernels(hidden_states) or not suits_kernels(self.weight):
            return forward(self, hidden_states)
        return torch.ops.halfbyte.rms_norm.default(hidden_states, self.weight, self.variance_epsilon)

    return norm


def _decoder_layer(forward: _Forward) -> _Forward:
    """One token of each sequence: the cache is transformers', all else one call before it and two after."""

    @functools.wraps(forward)
    def layer(
        self: Any, hidden_states: Tensor, attention_mask: Any = None, position_ids: Any = None, past_key_values: Any = None,
        use_cache: Any = False, position_embeddings: Any = None, **named: Any,
    ) -> Any:
        step = None
        is_ours = MARK in self.__dict__ and past_key_values is not None and not _is_traced()
        if is_ours and takes_mask(attention_mask) and is_plain(0.0, named):
            step = step_of(self, hidden_states, position_embeddings)
        if step is None:
            return forward(
                self, hidden_states, attention_mask=attention_mask, position_ids=position_ids,
                past_key_values=past_key_values, use_cache=use_cache, position_embeddings=position_embeddings, **named,
            )
        attention = self._modules["self_attn"]
        query, key, value = step.heads(hidden_states, *position_embeddings)
        keys, values = with_token(past_key_values, attention.layer_idx, key, value)
        if takes_decoded(query, keys, values, attention_mask):
            hidden_states = step.attended(hidden_states, query, keys, values, attention_mask)
        else:
            heads = attend_otherwise(attention, query, keys, values, attention_mask, named)
            hidden_states = step.added(hidden_states, heads)
        if step.has_mlp:
            return step.fed(hidden_states)
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))

    return layer


_FASTER = {RMS_NORM: _norm, DECODER_LAYER: _decoder_layer}


def _put(kind: Any, forward: _Forward, faster: _Forward) -> None:
    """In the class's place, within transformers' gradient checkpointing where that is."""
    OURS.add(faster)
    kind.forward = faster
    if without_checkpointing(forward) is not forward:
        GradientCheckpointingLayer.__init_subclass__.__func__(kind)  # type: ignore[attr-defined]


def mark_known(model: torch.nn.Module) -> None:
    """Those whose code is known. A class of them looks for the mark from then on, and takes halfbyte's operators where it
    is, on a CPU, where nobody wants a gradient; modules without it are as they were."""
    for module in model.modules():
        kind: Any = type(module)
        forward = kind.__dict__.get("forward")
        faster = _FASTER.get(digest_of(forward))
        if faster is None:
            continue
        if without_checkpointing(forward) not in OURS:
            _put(kind, forward, faster(without_checkpointing(forward)))
        setattr(module, MARK, True)
