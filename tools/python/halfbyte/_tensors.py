"""Packed weights, the tensors of a checkpoint, and what loading did with each."""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _halfbyte
from ._halfbyte import DtypePolicy

_DIRECT = (torch.float32, torch.float16, torch.bfloat16)


@dataclasses.dataclass(frozen=True, eq=False)
class LowBitTensor:
    """A weight matrix in 4 or 8 bits, as it lies in a checkpoint. Copies share memory.

    Shapes: ``codes`` int32 (out_features, words), ``scales`` (out_features, groups); of schemes that have them,
    ``zero_points`` int32 (out_features / 8 rounded up, groups), ``offsets`` like the scales, ``row_scales`` bfloat16
    (out_features). ``column_order`` int64 (in_features): column j of the codes is column ``column_order[j]`` of the
    matrix. ``dtype``: what the weight was before.
    """

    codes: Tensor
    scales: Tensor
    scheme: str
    in_features: int
    group_size: int
    dtype: torch.dtype
    zero_points: Tensor | None = None
    offsets: Tensor | None = None
    row_scales: Tensor | None = None
    column_order: Tensor | None = None

    @property
    def out_features(self) -> int:
        return self.codes.shape[0]

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.out_features, self.in_features))

    @property
    def device(self) -> torch.device:
        return self.codes.device

    @property
    def parts(self) -> dict[str, Tensor]:
        """Its tensors by name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts.values())

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:
        """The matrix, (out_features, in_features), each value rounded once. ``dtype``: any floating one; its own."""
        wanted = dtype or self.dtype
        values: Tensor = torch.ops.halfbyte.dequantize(
            self.codes, self.scales, self.zero_points, self.scheme, self.in_features, self.group_size,
            wanted if wanted in _DIRECT else torch.float32, self.offsets, self.row_scales,
        )
        if self.column_order is not None:
            values = torch.empty_like(values).index_copy_(1, self.column_order, values)
        return values.to(wanted)

    def to(self, device: torch.device | str) -> LowBitTensor:
        """On another device; no dtype changes."""
        moved: dict[str, Any] = {name: part.to(device) for name, part in self.parts.items()}
        return dataclasses.replace(self, **moved)

    def __repr__(self) -> str:
        groups = "per channel" if self.group_size == self.in_features else f"g{self.group_size}"
        shape = "x".join(map(str, self.shape))
        return f"LowBitTensor({shape}, {self.scheme} {groups} of {self.dtype}, {self.nbytes} bytes)"


def quantize_tensor(
    weight: Tensor, scheme: str = "sym_int4", group_size: int | None = None, *, search: str | None = None
) -> LowBitTensor:
    """The codes and scales that ``quantize`` would write for a matrix in memory.

    ``weight``: (out_features, in_features) in float32, float16 or bfloat16 on the CPU. ``group_size``: of the scheme's,
    0 for one scale a row; None: the scheme's default. Where it does not divide in_features, the largest that does.
    Error: ``invalid_argument``, ``unsupported`` (no group divides), ``corrupt`` (NaN or infinity, with its place).
    """
    return LowBitTensor(**_halfbyte.quantize_tensor(weight, scheme=scheme, group_size=group_size, search=search))


def own_group_size(group_size: int) -> int:
    """What to ask for to have groups of so many again: 0, one scale a row, where no scheme knows the number."""
    return group_size if group_size in (16, 32, 64, 128) else 0


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What loading did with every tensor: a row each of name, recorded, loaded, bytes, placement, operand and note."""

    tensors: list[dict[str, Any]]
    notes: list[str]
    policy: str
    operand_dtype: str
    stream_dtype: str
    compute: str
    key_values: str
    device: str
    device_reason: str
    versions: dict[str, str]
    is_manifest_derived: bool
    verified_tensors: int
    unhashed_tensors: int

    def bytes_with(self, placement: str) -> int:
        """Of the tensors that are ``mapped``, ``cast``, ``copied``, ``derived`` or ``moved``."""
        return sum(row["bytes"] for row in self.tensors if row["placement"] == placement)

    def _summary(self) -> str:
        placements = sorted({row["placement"] for row in self.tensors})
        sizes = ", ".join(f"{self.bytes_with(one) / 1e6:.1f} MB {one}" for one in placements)
        return f"{len(self.tensors)} tensors under {self.policy} on {self.device}: {sizes}"

    def __repr__(self) -> str:
        return f"LoadReport({self._summary()})"

    def _repr_html_(self) -> str:
        columns = ("name", "recorded", "loaded", "operand", "bytes", "placement", "note")
        head = "".join(f"<th>{column}</th>" for column in columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(row[column] or ''))}</td>" for column in columns) + "</tr>"
            for row in self.tensors
        )
        return f"<p>{html.escape(self._summary())}</p><table><tr>{head}</tr>{rows}</table>"


class State(Mapping[str, "Tensor | LowBitTensor"]):
    """A checkpoint's tensors by name. Dense ones are mapped where their dtype is left alone: they may be written to,
    and the file stays as it is, which lives as long as its tensors do."""

    def __init__(self, rows: dict[str, tuple[Any, bool, str | None, str]], report: LoadReport) -> None:
        self._tensors = {
            name: LowBitTensor(**value) if isinstance(value, dict) else value for name, (value, *_) in rows.items()
        }
        self.buffers = frozenset(name for name, (_, is_buffer, _, _) in rows.items() if is_buffer)
        #: dtypes before quantisation, as their names; None: no file says it
        self.recorded = {name: recorded for name, (_, _, recorded, _) in rows.items()}
        #: names whose memory is another's
        self.ties = {name: owner for name, (_, _, _, owner) in rows.items() if owner}
        self.report = report

    def __getitem__(self, name: str) -> Tensor | LowBitTensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        packed = sum(isinstance(value, LowBitTensor) for value in self.values())
        return f"State({len(self)} tensors, {packed} packed)"


def load_state(
    path: str | os.PathLike[str],
    dtype: str | DtypePolicy = "original",
    *,
    keep_float32: Sequence[str] = (),
    dequantize: bool = False,
    device: str = "cpu",
    verify: bool = False,
) -> State:
    """The tensors of a checkpoint in any format that is read, of any architecture, known or not.

    ``dtype``: a policy, as ``load_low_bit``'s. ``dequantize``: packed tensors become dense ones in its dtype. Error:
    ``not_found``, ``corrupt``, ``unsupported``, ``no_resources``.
    """
    rows, report = _halfbyte.load_state(
        path, dtype=str(dtype), keep_float32=list(keep_float32), dequantize=dequantize, device=device, verify=verify
    )
    return State(rows, LoadReport(**report))
