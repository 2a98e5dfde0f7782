"""What stands at a name in a model of transformers."""

from __future__ import annotations

from typing import Any

import torch


def linear_at(model: Any, key: str) -> torch.nn.Linear | None:
    module_name, _, leaf = key.rpartition(".")
    if leaf != "weight":
        return None
    try:
        module = model.get_submodule(module_name)
    except AttributeError:
        return None
    return module if _is_linear(module) else None


def _is_linear(module: torch.nn.Module) -> bool:
    """Also of a kind of its own, where it computes what torch.nn.Linear does: FalconLinear rounds in between."""
    is_known = type(module).__name__ == "FalconLinear" or type(module).forward is torch.nn.Linear.forward
    return isinstance(module, torch.nn.Linear) and is_known


def stack_at(model: Any, key: str | None) -> tuple[int, bool]:
    """Of a name in the model: how many matrices are stacked there, and whether each stores its columns."""
    path, _, leaf = (key or "").rpartition(".")
    try:
        module = model.get_submodule(path)
    except AttributeError:
        return 0, False
    wanted = module._parameters.get(leaf)
    is_stack = wanted is not None and wanted.dim() == 3
    return (wanted.shape[0] if is_stack else 0), _stores_columns(module)


def _stores_columns(experts: torch.nn.Module) -> bool:
    """Of stacks: gate and up are twice as many outputs as down has inputs, which tells one from the other."""
    gate_up, down = (experts._parameters.get(name) for name in ("gate_up_proj", "down_proj"))
    if gate_up is not None and down is not None and gate_up.dim() == down.dim() == 3:
        return gate_up.shape[2] == 2 * down.shape[1]
    return bool(getattr(experts, "is_transposed", False))
