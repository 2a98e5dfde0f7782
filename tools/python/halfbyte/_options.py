"""The options of quantize, plan and finetune, by name and type."""

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


class FinetuneOptions(TypedDict, total=False):
    """Those of ``halfbyte finetune``, with its defaults; None is what is not given. ``jsonl``: the text is JSON lines
    whatever it is called."""

    jsonl: bool
    eval: str | os.PathLike[str] | None
    eval_every: int
    ctx: int
    packing: bool
    method: Literal["lora", "dora", "full"] | None
    adapter: str | os.PathLike[str] | None
    rank: int
    alpha: float
    rslora: bool
    dropout: float
    targets: Sequence[str]
    init: str | os.PathLike[str] | None
    masters: Literal["float32", "bfloat16"]
    fake_quantize: str | None
    fake_group_size: int | None
    steps: int | None
    epochs: float | None
    batch: int
    accumulate: int
    lr: float
    schedule: Literal["cosine", "linear", "constant"]
    warmup: int
    optimizer: Literal["adamw", "adamw8bit", "sgd", "adafactor"]
    weight_decay: float
    clip: float
    seed: int
    dtype: str
    device: str
    recompute: bool
    save_every: int
    keep: int
    resume: bool
    restart: bool
    threads: int
    log: str | os.PathLike[str] | None
    report: str | os.PathLike[str] | None
    overwrite: bool
