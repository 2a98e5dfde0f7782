"""Mixtures of experts of transformers' own shape, with each expert's matrices packed."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from ._tensors import LowBitTensor
from .nn import LowBitLinear

_INDEX = re.compile(r"\.experts\.(\d+)\.")
_GATE, _UP, _DOWN = "gate", "up", "down"


class LowBitExperts(torch.nn.Module):
    """In the place of a module with stacks gate_up_proj (experts, 2 * intermediate, hidden) and down_proj.

    Shapes: hidden_states (tokens, hidden), top_k_index and top_k_weights (tokens, k) -> (tokens, hidden). Each expert
    that was chosen multiplies the tokens that chose it, once.
    """

    def __init__(self, experts: Any, weights: dict[str, dict[int, LowBitTensor]], **options: Any) -> None:
        super().__init__()
        self.num_experts = len(weights[_DOWN])
        self.act_fn = experts.act_fn
        self._dense_class = type(experts)
        for part, one in weights.items():
            self.add_module(part, torch.nn.ModuleList(LowBitLinear(one[i], **options) for i in range(self.num_experts)))

    def _gated(self, gate: Tensor, up: Tensor) -> Tensor:
        own = self._dense_class._apply_gate
        if own.__name__ == "_default_apply_gate":
            out: Tensor = self.act_fn(gate) * up
            return out
        gated: Tensor = own(self, torch.cat((gate, up), dim=-1))
        return gated

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        modules: Any = self._modules
        gates, ups, downs = modules[_GATE], modules[_UP], modules[_DOWN]
        out = torch.zeros_like(hidden_states)
        for expert in sorted(set(top_k_index.flatten().tolist())):
            if expert >= self.num_experts:  # nobody's
                continue
            tokens, position = torch.where(top_k_index == expert)
            given = hidden_states[tokens]
            made = downs[expert](self._gated(gates[expert](given), ups[expert](given)))
            made = made * top_k_weights[tokens, position, None]
            out.index_add_(0, tokens, made.to(out.dtype))
        return out


def has_usual_shape(module: torch.nn.Module) -> bool:
    """Whether a module's stacks are those that LowBitExperts stands for."""
    flags = {"has_gate": True, "has_bias": False, "has_post_expert_norm": False, "is_transposed": False,
             "is_concatenated": True}
    return (
        all(getattr(module, name, None) is value for name, value in flags.items())
        and set(module._parameters) == {"gate_up_proj", "down_proj"}
        and hasattr(module, "act_fn")
    )


class ExpertParts:
    """The matrices that a checkpoint has of its experts one by one, as they come; then the modules of them."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._parts: dict[str, dict[str, dict[int, tuple[str, LowBitTensor]]]] = {}

    def takes(self, key: str, pattern: str | None) -> bool:
        """Whether `key`, a name of the model, is a stack that experts of their own can stand for."""
        path, _, leaf = key.rpartition(".")
        if pattern is None or leaf not in ("gate_up_proj", "down_proj"):
            return False
        try:
            return has_usual_shape(self._model.get_submodule(path))
        except AttributeError:
            return False

    def add(self, key: str, patterns: list[str], pattern: str, name: str, weight: LowBitTensor) -> bool:
        """`patterns`: of the stack's sources, in their order. False: it is no expert's matrix."""
        found = _INDEX.search(name)
        path, _, leaf = key.rpartition(".")
        if found is None or len(patterns) != (2 if leaf == "gate_up_proj" else 1):
            return False
        part = _DOWN if leaf == "down_proj" else (_GATE, _UP)[patterns.index(pattern)]
        self._parts.setdefault(path, {}).setdefault(part, {})[int(found[1])] = (name, weight)
        return True

    def rest(self) -> dict[str, LowBitTensor]:
        """Those of modules that are not packed as a whole, by their names in the checkpoint: they are stacked dense."""
        out = {}
        for path in [path for path in self._parts if not self._is_whole(path)]:
            for one in self._parts.pop(path).values():
                out.update(dict(one.values()))
        return out

    def _is_whole(self, path: str) -> bool:
        parts = self._parts[path]
        count = self._model.get_submodule(path).num_experts
        return set(parts) == {_GATE, _UP, _DOWN} and all(sorted(one) == list(range(count)) for one in parts.values())

    def make(self, **options: Any) -> dict[str, LowBitExperts]:
        """By path. Each LowBitLinear knows its name in the checkpoint."""
        out = {}
        for path, parts in self._parts.items():
            weights = {part: {i: weight for i, (_, weight) in one.items()} for part, one in parts.items()}
            made = LowBitExperts(self._model.get_submodule(path), weights, **options)
            for part, one in parts.items():
                for i, (name, _) in one.items():
                    linear: Any = made.get_submodule(f"{part}.{i}")
                    linear.checkpoint_name = name
            out[path] = made
        return out
