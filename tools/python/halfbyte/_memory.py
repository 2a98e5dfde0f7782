"""Tensors in memory to a checkpoint on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from . import _halfbyte
from ._options import ConversionOptions
from ._progress import Progress
from ._tensors import LowBitTensor


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu").contiguous()


def fields_of(tensor: LowBitTensor) -> dict[str, Any]:
    parts = {name: _plain(part) for name, part in tensor.parts.items()}
    if "column_order" in parts:
        parts["column_order"] = parts["column_order"].to(torch.int32)
    return {
        **parts, "scheme": tensor.scheme, "in_features": tensor.in_features, "group_size": tensor.group_size,
        "dtype": tensor.dtype,
    }


def quantize_state_dict(
    tensors: Mapping[str, Tensor | LowBitTensor],
    destination: str | os.PathLike[str],
    *,
    config: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
    progress: Progress | None = None,
    **options: Unpack[ConversionOptions],
) -> dict[str, Any]:
    """A checkpoint of tensors in memory, as ``quantize`` makes it of a directory: no original is written.

    ``config``: what config.json will say; without it the family of the model is not known. ``files``: what is to lie
    beside it (a tokenizer), by name. LowBitTensors keep their codes; where there are some, the rest stays as it is, but
    with ``keep_packed``. ``options``: those of ``quantize``, but for calibration and ``resume``. Error: as ``quantize``.
    """
    given = {name: fields_of(one) if isinstance(one, LowBitTensor) else _plain(one) for name, one in tensors.items()}
    text = json.dumps(config) if config is not None else ""
    made: dict[str, Any] = _halfbyte.quantize_state_dict(
        given, destination, config=text, files=dict(files or {}), progress=progress, **options
    )
    return made
