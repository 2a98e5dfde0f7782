"""RMSNorm in models of transformers whose products are halfbyte's: one operator where there are eight."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from ._attention import MARK, suits_kernels

_Forward = Callable[[Any, Tensor], Tensor]


def _forward(self: Any, hidden_states: Tensor) -> Tensor:
    # What transformers' families have for RMSNorm, word for word: its code is compared with theirs.
    input_dtype = hidden_states.dtype
    hidden_states = hidden_states.to(torch.float32)
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
    return self.weight * hidden_states.to(input_dtype)  # type: ignore[no-any-return]


def _what_it_does(code: CodeType) -> tuple[object, ...]:
    return code.co_code, code.co_consts, code.co_names, code.co_varnames, code.co_argcount


def _faster(forward: _Forward) -> _Forward:
    """The class's own, but where nobody wants a gradient, in a module that carries MARK, on a CPU."""

    @functools.wraps(forward)
    def norm(self: Any, hidden_states: Tensor) -> Tensor:
        if MARK not in self.__dict__ or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return forward(self, hidden_states)
        weight = self.weight
        if not suits_kernels(hidden_states) or not suits_kernels(weight):
            return forward(self, hidden_states)
        result: Tensor = torch.ops.halfbyte.rms_norm(hidden_states, weight, self.variance_epsilon)
        return result

    norm._is_halfbytes = True  # type: ignore[attr-defined]
    return norm


def mark_norms(model: torch.nn.Module) -> None:
    """Those whose code is known. A class of them looks for the mark from then on; modules without it are as they were."""
    for module in model.modules():
        kind: Any = type(module)
        forward = kind.__dict__.get("forward")
        code = None if hasattr(forward, "_is_halfbytes") else getattr(forward, "__code__", None)
        if code is not None and _what_it_does(code) == _what_it_does(_forward.__code__):
            kind.forward = _faster(forward)
        if hasattr(kind.__dict__.get("forward"), "_is_halfbytes"):
            setattr(module, MARK, True)
