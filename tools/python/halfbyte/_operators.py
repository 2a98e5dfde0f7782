"""torch.ops.halfbyte for those who trace: shapes without values, and what vmap is told."""

import torch
from torch import Tensor


def _check_same_device(input: Tensor, weight: Tensor) -> None:
    torch._check(  # type: ignore[no-untyped-call]
        input.device == weight.device,
        lambda: f"the input is on {input.device}, the weight on {weight.device}; move one of them with .to()",
    )


def _check_columns(input: Tensor, columns: int) -> None:
    torch._check(  # type: ignore[no-untyped-call]
        input.dim() > 0 and input.shape[-1] == columns,
        lambda: f"the input has shape {tuple(input.shape)}, the weight {columns} columns",
    )


@torch.library.register_fake("halfbyte::low_bit_linear")  # type: ignore[untyped-decorator]
def _low_bit_linear(
    input: Tensor, codes: Tensor, scales: Tensor, zero_points: Tensor | None, bias: Tensor | None, scheme: str,
    group_size: int, out_dtype: torch.dtype | None = None, arithmetic: str = "float", offsets: Tensor | None = None,
    row_scales: Tensor | None = None,
) -> Tensor:
    _check_same_device(input, codes)
    _check_columns(input, scales.shape[1] * group_size)
    return input.new_empty((*input.shape[:-1], codes.shape[0]), dtype=out_dtype or input.dtype)


@torch.library.register_fake("halfbyte::low_bit_linears")  # type: ignore[untyped-decorator]
def _low_bit_linears(
    input: Tensor, codes: list[Tensor], scales: list[Tensor], zero_points: list[Tensor | None],
    biases: list[Tensor | None], scheme: str, group_size: int, offsets: list[Tensor | None],
    row_scales: list[Tensor | None], out_dtype: torch.dtype | None = None, arithmetic: str = "float",
) -> list[Tensor]:
    for one, scale in zip(codes, scales):
        _check_same_device(input, one)
        _check_columns(input, scale.shape[1] * group_size)
    return [input.new_empty((*input.shape[:-1], one.shape[0]), dtype=out_dtype or input.dtype) for one in codes]


@torch.library.register_fake("halfbyte::rotary_embedding")  # type: ignore[untyped-decorator]
def _rotary_embedding(query: Tensor, key: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor]:
    _check_same_device(query, cosine)

    def rows(heads: Tensor) -> Tensor:
        return heads.new_empty((heads.shape[0], heads.shape[2], heads.shape[1], heads.shape[3])).transpose(1, 2)

    return rows(query), rows(key)


@torch.library.register_fake("halfbyte::gated_product")  # type: ignore[untyped-decorator]
def _gated_product(gate: Tensor, up: Tensor, activation: str, out_dtype: torch.dtype | None = None) -> Tensor:
    _check_same_device(gate, up)
    return gate.new_empty(gate.shape, dtype=out_dtype or gate.dtype)


@torch.library.register_fake("halfbyte::low_bit_linear_transposed")  # type: ignore[untyped-decorator]
def _low_bit_linear_transposed(
    input: Tensor, codes: Tensor, scales: Tensor, zero_points: Tensor | None, scheme: str, in_features: int,
    group_size: int, out_dtype: torch.dtype | None = None, offsets: Tensor | None = None,
    row_scales: Tensor | None = None,
) -> Tensor:
    _check_same_device(input, codes)
    _check_columns(input, codes.shape[0])
    return input.new_empty((*input.shape[:-1], in_features), dtype=out_dtype or input.dtype)


@torch.library.register_fake("halfbyte::dense_linear")  # type: ignore[untyped-decorator]
def _dense_linear(input: Tensor, weight: Tensor, bias: Tensor | None, out_dtype: torch.dtype | None = None) -> Tensor:
    _check_same_device(input, weight)
    _check_columns(input, weight.shape[1])
    return input.new_empty((*input.shape[:-1], weight.shape[0]), dtype=out_dtype or input.dtype)


@torch.library.register_fake("halfbyte::dequantize")  # type: ignore[untyped-decorator]
def _dequantize(
    codes: Tensor, scales: Tensor, zero_points: Tensor | None, scheme: str, in_features: int, group_size: int,
    dtype: torch.dtype, offsets: Tensor | None = None, row_scales: Tensor | None = None,
) -> Tensor:
    return scales.new_empty((codes.shape[0], in_features), dtype=dtype)


@torch.library.register_fake("halfbyte::decode_attention")  # type: ignore[untyped-decorator]
def _decode_attention(query: Tensor, keys: Tensor, values: Tensor, scale: float, mask: Tensor | None = None) -> Tensor:
    _check_same_device(query, keys)
    return query.new_empty((query.shape[0], 1, query.shape[1], query.shape[3]))


@torch.library.register_fake("halfbyte::rms_norm")  # type: ignore[untyped-decorator]
def _rms_norm(input: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    _check_same_device(input, weight)
    _check_columns(input, weight.shape[0])
    return input.new_empty(input.shape, dtype=torch.promote_types(input.dtype, weight.dtype))


def _refusal(name: str) -> object:
    def refuse(*words: object, **named: object) -> object:
        raise NotImplementedError(
            f"halfbyte::{name} has no vmap; its inputs take any number of leading dimensions: give it the batch as one"
        )

    return refuse


# Kept: what a Library registered goes with it.
_VMAP = torch.library.Library("halfbyte", "IMPL")  # type: ignore[no-untyped-call]
_NAMES = (
    "low_bit_linear", "low_bit_linears", "low_bit_linear_transposed", "dense_linear", "dequantize", "decode_attention",
    "rms_norm", "rotary_embedding", "gated_product",
)
for _name in _NAMES:
    _VMAP.impl(_name, _refusal(_name), "FuncTorchBatched")  # type: ignore[no-untyped-call]
