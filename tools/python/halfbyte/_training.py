"""Training and merging, which the program does: its object is the result."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._model import Adapter, weighted
from ._options import FinetuneOptions
from ._program import Path, run

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NEGATED = ("packing", "recompute")  # the program has flags against them


def finetune(
    checkpoint: Path | None, destination: Path, text: Path, **options: Unpack[FinetuneOptions]
) -> dict[str, Any]:
    """Trains low-rank adapters beside a checkpoint's weights, or all of these: what ``halfbyte finetune --json`` prints.

    ``text``: a file to learn, plain or JSON lines. ``options``: the program's, by name; ``packing=False`` and
    ``recompute=False`` for what it has ``--no-`` before. With ``init`` there is no checkpoint (None). Ctrl-C leaves what
    ``resume=True`` goes on from, and so does ``save_every``. What each step came to is in the file ``log``.
    """
    unknown = sorted(options.keys() - FinetuneOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"finetune() got an unexpected keyword argument '{unknown[0]}'")
    given: dict[str, object] = dict(options)
    is_json_lines = given.pop("jsonl", False)
    for name in _NEGATED:
        if not given.pop(name, True):
            given[f"no_{name}"] = True
    given["jsonl" if is_json_lines else "text"] = text
    paths = [os.path.abspath(destination)] if checkpoint is None else [checkpoint, os.path.abspath(destination)]
    return run("finetune", *paths, **given)


def merge(
    checkpoint: Path,
    adapter: Adapter | Sequence[Adapter],
    destination: Path,
    *,
    dequantize: bool = False,
    assume_original: str | None = None,
    shard_size: int | str | None = None,
    memory_limit: int | str | None = None,
    threads: int = 0,
    resume: bool = False,
    restart: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Makes adapters, alone or as (directory, weight), part of a checkpoint's weights: what ``halfbyte merge --json``
    prints. ``dequantize``: the result is plain, every tensor in the dtype it had; else it is quantised as it was."""
    words = [f"{os.path.abspath(directory)}:{float(weight)!r}" for directory, weight in weighted(adapter)]
    if not words:
        raise ValueError("merge() needs an adapter")
    return run(
        "merge", checkpoint, words[0], os.path.abspath(destination), adapter=words[1:], dequantize=dequantize,
        assume_original=assume_original, shard_size=shard_size, memory_limit=memory_limit, threads=threads,
        resume=resume, restart=restart, overwrite=overwrite,
    )
