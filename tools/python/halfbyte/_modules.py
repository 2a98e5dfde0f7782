"""A host's own torch.nn.Module filled from a checkpoint, and what keeps it from being trained."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _halfbyte
from ._halfbyte import DtypePolicy
from ._memory import fields_of
from ._tensors import LowBitTensor
from .nn import LowBitLinear

_Named = list[tuple[str, Tensor]]


def _branches(module: torch.nn.Module) -> list[tuple[str, _Named, _Named, dict[str, Any] | None]]:
    out: list[tuple[str, _Named, _Named, dict[str, Any] | None]] = []
    for path, one in module.named_modules(remove_duplicate=False):
        parameters = [(name, part) for name, part in one._parameters.items() if part is not None]
        if isinstance(one, LowBitLinear):
            out.append((path, parameters, [], fields_of(one.weight)))
        else:
            buffers = [(name, part) for name, part in one._buffers.items() if part is not None]
            out.append((path, parameters, buffers, None))
    return out


def _computed(module: torch.nn.Module) -> list[str]:
    """Names of the buffers that no state dict holds."""
    return [
        f"{path}.{name}" if path else name
        for path, one in module.named_modules()
        for name in one._non_persistent_buffers_set
    ]


def _restore(call: Callable[..., Any], module: torch.nn.Module, path: Any, options: dict[str, Any]) -> dict[str, Any]:
    dtype = options["dtype"]
    report: dict[str, Any]
    report, changed = call(
        _branches(module), path, **{
            **options, "dtype": None if dtype is None else str(dtype),
            "non_persistent": [*_computed(module), *options["non_persistent"]],
            "keep_float32": list(options["keep_float32"]), "frozen": list(options["frozen"]),
        },
    )
    for name, fields in changed:
        linear = module.get_submodule(name)
        assert isinstance(linear, LowBitLinear)
        linear.set_weight(LowBitTensor(**fields))
    return report


def restore_into(
    module: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    dtype: str | DtypePolicy | None = None,
    keep_float32: Sequence[str] = (),
    rename: Callable[[str], str | None] | None = None,
    non_persistent: Sequence[str] = (),
    strict: bool = True,
    device: str = "cpu",
    verify: bool = False,
) -> dict[str, Any]:
    """Copies every tensor of a checkpoint into the parameter or buffer of its name, dequantised and cast.

    Parameters keep their identity, so that optimizers see the new values; those on Meta are made on ``device``; a
    LowBitLinear takes a packed weight as it lies in the file. ``dtype`` None: the module keeps its dtypes; a policy: every
    floating tensor takes the one that it gives. ``rename``: the checkpoint's name to the module's; None leaves a tensor
    out. ``non_persistent``: patterns of buffers that the module computes, besides those that it marks itself.
    ``strict`` False: what does not fit is reported instead of being an error. Returns what became of each. Error, before
    anything was changed: ``invalid_argument`` naming what is missing, unused or mismatched; as ``load_low_bit``.
    """
    return _restore(_halfbyte.restore_into, module, path, {
        "dtype": dtype, "keep_float32": keep_float32, "rename": rename, "non_persistent": non_persistent,
        "strict": strict, "device": device, "verify": verify, "frozen": (),
    })


def restore_for_training(
    module: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    frozen: Sequence[str] = (),
    rename: Callable[[str], str | None] | None = None,
    non_persistent: Sequence[str] = (),
    strict: bool = True,
    device: str = "cpu",
    verify: bool = False,
) -> dict[str, Any]:
    """The same for training: every floating tensor becomes float32, every parameter that no pattern of ``frozen`` names
    wants gradients, and the module is in train mode. Products under ``torch.autocast`` are then the narrow part."""
    report = _restore(_halfbyte.restore_for_training, module, path, {
        "dtype": None, "keep_float32": (), "rename": rename, "non_persistent": non_persistent, "strict": strict,
        "device": device, "verify": verify, "frozen": frozen,
    })
    module.train()
    return report


def _groups(optimizer: torch.optim.Optimizer) -> list[list[Tensor]]:
    return [list(group["params"]) for group in optimizer.param_groups]


def training_problems(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """What keeps this module from being trained by this optimizer, one line each, named; empty: nothing."""
    return _halfbyte.training_problems(_branches(module), _groups(optimizer))


def assert_trainable(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Call it once, before the first step. Error: ``contract`` naming the first few problems and what to do."""
    _halfbyte.assert_trainable(_branches(module), _groups(optimizer))
