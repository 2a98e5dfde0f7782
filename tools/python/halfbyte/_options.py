"""The options of quantize and plan, by name and type."""

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class ConversionOptions(TypedDict, total=False):
    """Those of ``halfbyte quantize``, with its defaults; None is what is not given. Sizes: bytes, or "512MiB"."""

    scheme: str | None
    group_size: int | Literal["channel"] | None
    search: str | None
    nested_scales: bool
    target_bpw: float | None
    target_size: int | str | None
    calibrate: str | os.PathLike[str] | None
    calibration_tokens: int | None
    calibration_ctx: int | None
    method: str | None
    keep: Sequence[str]
    scheme_for: Mapping[str, str]
    embedding: str | None
    head: str | None
    assume_original: str | None
    halfbyte_only: bool
    keep_packed: bool
    threads: int
    memory_limit: int | str | None
    shard_size: int | str | None
    requantize: bool
