"""Attention of decoded tokens in models of transformers whose products are halfbyte's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ._known import OURS

# On the modules that hold packed weights themselves, and on those whose code is known (_faster.py).
MARK = "_runs_on_halfbyte"
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Arguments with which attention is left to transformers: what changes scores or keys, or is refused or warned of there.
_OTHER_ATTENTION = ("softcap", "position_bias", "cache", "s_aux", "output_attentions")


def is_plain(dropout: float, named: dict[str, Any]) -> bool:
    """Whether every key that is seen weighs what its score says."""
    others = [value for name in _OTHER_ATTENTION if (value := named.get(name)) is not None and value is not False]
    return not dropout and not others


def suits_kernels(tensor: Tensor) -> bool:
    """On a CPU, in a dtype that halfbyte computes with."""
    return tensor.device.type == "cpu" and tensor.dtype in _DTYPES


def takes_mask(mask: Any) -> bool:
    """Whether halfbyte.decode_attention may take it: None, or which keys one token of each sequence sees."""
    if mask is None or not isinstance(mask, Tensor):
        return mask is None
    return mask.dtype == torch.bool and mask.dim() == 4 and mask.shape[1] == mask.shape[2] == 1 and mask.is_cpu


def takes_decoded(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether halfbyte.decode_attention takes them: one token, and keys."""
    if query.dim() != 4 or key.dim() != 4 or key.numel() == 0:
        return False
    if mask is not None and (mask.shape[3] != key.shape[2] or mask.shape[0] not in (1, key.shape[0])):
        return False
    shares = query.shape[2] == 1 and key.shape == value.shape and query.shape[1] % key.shape[1] == 0
    alike = query.shape[0] == key.shape[0] and query.shape[3] == key.shape[3] and query.dtype == key.dtype == value.dtype
    return shares and alike and suits_kernels(query) and suits_kernels(key)


def one_token_faster(attention: Callable[..., tuple[Tensor, Tensor | None]]) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """transformers' own, but for one token, where nobody wants a gradient, in a module that carries MARK, on a CPU."""

    @functools.wraps(attention)
    def forward(
        module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
        dropout: float = 0.0, scaling: float | None = None, **named: Any,
    ) -> tuple[Tensor, Tensor | None]:
        is_ours = MARK in module.__dict__ and is_plain(dropout, named) and takes_mask(attention_mask)
        is_theirs = torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling()
        if not is_ours or is_theirs or not takes_decoded(query, key, value, attention_mask):
            return attention(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **named)
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        return torch.ops.halfbyte.decode_attention.default(query, key, value, scale, attention_mask), None

    OURS.add(forward)
    return forward


def attend_otherwise(
    module: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, named: dict[str, Any]
) -> Tensor:
    """transformers' own. Result: (batch, tokens, heads, head_dim)."""
    sdpa: Any = ALL_ATTENTION_FUNCTIONS["sdpa"]
    out: Tensor = sdpa(module, query, keys, values, mask, dropout=0.0, scaling=module.scaling, **named)[0]
    return out
