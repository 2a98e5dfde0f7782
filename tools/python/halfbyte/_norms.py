"""RMSNorm in models of transformers whose products are halfbyte's: one operator where there are eight."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from ._attention import MARK, is_on_cpu

_Forward = Callable[[Any, Tensor], Tensor]


def _what_it_does(code: CodeType) -> tuple[object, ...]:
    return code.co_code, code.co_consts, code.co_names, code.co_varnames


@functools.cache
def _known() -> tuple[object, ...]:
    """Of the RMSNorm that most families have word for word."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    forward = LlamaRMSNorm.forward
    return _what_it_does(getattr(forward, "__wrapped__", forward).__code__)


def _faster(forward: _Forward) -> _Forward:
    """The class's own, but where nobody wants a gradient, in a module that carries MARK, on a CPU."""

    @functools.wraps(forward)
    def norm(self: Any, hidden_states: Tensor) -> Tensor:
        weight = self._parameters["weight"]
        is_ours = MARK in self.__dict__ and not torch.is_grad_enabled() and is_on_cpu(hidden_states)
        if not is_ours or not is_on_cpu(weight) or torch.compiler.is_compiling():
            return forward(self, hidden_states)
        result: Tensor = torch.ops.halfbyte.rms_norm(hidden_states, weight, self.variance_epsilon)
        return result

    return norm


def mark_norms(model: torch.nn.Module) -> None:
    """Those whose code is known. A class of them looks for the mark from then on; modules without it are as they were."""
    for module in model.modules():
        kind: Any = type(module)
        if not kind.__name__.endswith("RMSNorm") or "forward" not in kind.__dict__:
            continue
        forward = kind.__dict__["forward"]
        if not hasattr(forward, "__wrapped__") and hasattr(forward, "__code__") and _what_it_does(forward.__code__) == _known():
            kind.forward = _faster(forward)
            kind.forward._is_halfbytes = True
        if hasattr(kind.forward, "_is_halfbytes"):
            setattr(module, MARK, True)
