"""torch.nn modules whose weights stay packed, on halfbyte's kernels on a CPU and on torch's operators elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _halfbyte
from ._halfbyte import Error
from ._tensors import LowBitTensor, quantize_tensor

__all__ = ["LowBitLinear", "quantize_module"]

_PARTS = ("codes", "scales", "zero_points", "offsets", "row_scales", "column_order")
_ARITHMETICS = ("auto", "float", "int8", "mixed")


def _format_of(weight: LowBitTensor, rounds_values: bool) -> Tensor:
    """What the parts' shapes do not say, as bytes that any state dict holds."""
    dtype = str(weight.dtype).removeprefix("torch.")
    text = f"{weight.scheme} {weight.in_features} {weight.group_size} {dtype} {int(rounds_values)}"
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float16, torch.bfloat16)}


def _words_of(format: Tensor) -> tuple[str, int, int, torch.dtype, bool]:
    """ValueError for what was not made by _format_of."""
    scheme, in_features, group_size, dtype, rounds_values = bytes(format.tolist()).decode().split(" ")
    if dtype not in _DTYPES:
        raise ValueError(f"'{dtype}' is no dtype of a weight")
    return scheme, int(in_features), int(group_size), _DTYPES[dtype], rounds_values == "1"


class LowBitLinear(torch.nn.Module):
    """y = x W^T + b with a packed W, as ``torch.nn.Linear`` otherwise.

    Shape: (..., in_features) -> (..., out_features), in the input's dtype: float32, float16 or bfloat16; autocast's under
    autocast. Gradients flow to the input and the bias; the weight has none. The parts of the weight are buffers that no
    ``to(dtype)`` casts. ``arithmetic``: of products with 4-bit codes on a CPU; "auto" rounds activations of 16 bits to 8,
    group by group, where this CPU is faster so and no gradient is wanted, and else takes "float". ``rounds_values``:
    the program that packed the weight (bitsandbytes) rounds its values to what it was before, which products with
    float32 then heed, at the cost of unpacking all of it. Error: ``invalid_argument``, ``contract`` naming the operand.
    """

    codes: Tensor
    scales: Tensor
    zero_points: Tensor | None
    offsets: Tensor | None
    row_scales: Tensor | None
    column_order: Tensor | None
    format: Tensor
    bias: torch.nn.Parameter | None

    def __init__(
        self, weight: LowBitTensor, bias: Tensor | None = None, *, arithmetic: str = "auto", rounds_values: bool = False
    ) -> None:
        super().__init__()
        if arithmetic not in _ARITHMETICS:
            raise ValueError(f"arithmetic '{arithmetic}' is not one of {', '.join(_ARITHMETICS)}")
        if bias is not None and bias.shape != (weight.out_features,):
            raise ValueError(f"a bias of shape {tuple(bias.shape)} for a weight of {tuple(weight.shape)}")
        self.arithmetic = arithmetic
        self.rounds_values = rounds_values and weight.dtype != torch.float32
        self.scheme, self.in_features, self.group_size = weight.scheme, weight.in_features, weight.group_size
        self.out_features = weight.out_features
        self.weight_dtype = weight.dtype
        self._is_int8_fast = _halfbyte.is_int8_fast()
        for name in _PARTS:
            self.register_buffer(name, getattr(weight, name))
        self.register_buffer("format", _format_of(weight, self.rounds_values))
        if bias is not None and not isinstance(bias, torch.nn.Parameter):
            bias = torch.nn.Parameter(bias, requires_grad=bias.requires_grad)
        self.register_parameter("bias", bias)

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        scheme: str = "sym_int4",
        group_size: int | None = None,
        *,
        search: str | None = None,
        arithmetic: str = "auto",
    ) -> LowBitLinear:
        """Of a dense one, whose bias it takes over. Error: as ``quantize_tensor``."""
        return cls(quantize_tensor(linear.weight, scheme, group_size, search=search), linear.bias, arithmetic=arithmetic)

    @property
    def weight(self) -> LowBitTensor:
        """The packed weight; ``.dequantize()`` is the matrix."""
        parts = {name: self._buffers[name] for name in _PARTS}
        return LowBitTensor(
            **parts,  # type: ignore[arg-type]
            scheme=self.scheme, in_features=self.in_features, group_size=self.group_size, dtype=self.weight_dtype,
        )

    def set_weight(self, weight: LowBitTensor) -> None:
        """Another weight of the same shape, in any scheme, on the device that this one is on."""
        parts = {**weight.to(self.codes.device).parts, "format": _format_of(weight, self.rounds_values)}
        if problem := self._take(parts):
            raise ValueError(problem)
        for name, part in parts.items():
            self._buffers[name] = part

    def _arithmetic_for(self, input: Tensor) -> str:
        if self.arithmetic != "auto":
            return self.arithmetic
        is_exact = not self._is_int8_fast or input.dtype == torch.float32
        return "float" if is_exact or (torch.is_grad_enabled() and input.requires_grad) else "mixed"

    def forward(self, input: Tensor) -> Tensor:
        if self.rounds_values and input.dtype == torch.float32 and not torch.is_autocast_enabled(input.device.type):
            weight = self.weight.dequantize(self.weight_dtype).to(torch.float32)
            return torch.nn.functional.linear(input, weight, self.bias)
        buffers = self._buffers
        order = buffers["column_order"]
        result: Tensor = torch.ops.halfbyte.low_bit_linear.default(
            input if order is None else input.index_select(-1, order),
            buffers["codes"], buffers["scales"], buffers["zero_points"], self._parameters["bias"], self.scheme,
            self.group_size, None, self._arithmetic_for(input), buffers["offsets"], buffers["row_scales"],
        )
        return result

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LowBitLinear:
        packed = {id(part) for name in _PARTS if (part := self._buffers[name]) is not None}

        def moved(tensor: Tensor) -> Tensor:
            out = fn(tensor)
            return tensor.to(out.device) if id(tensor) in packed and out.dtype != tensor.dtype else out

        super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:
        """Takes a packed weight of the same shape in any scheme: its parts replace the module's."""
        given = {name: state_dict[prefix + name] for name in (*_PARTS, "format") if prefix + name in state_dict}
        if {"codes", "scales", "format"} <= given.keys():
            problem = self._take(given)
            if problem:
                error_msgs.append(f"{prefix}: {problem}")
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def _take(self, given: Mapping[str, Tensor]) -> str:
        """Makes room for these parts, of their dtypes and shapes; or the reason why they do not fit."""
        try:
            scheme, in_features, group_size, dtype, rounds_values = _words_of(given["format"])
        except (ValueError, TypeError) as error:
            return f"'format' is none of a packed weight: {error}"
        rows = given["codes"].shape[0]
        if (rows, in_features) != (self.out_features, self.in_features):
            return f"a weight of shape ({rows}, {in_features}) does not fit {tuple(self.weight.shape)}"
        device = self.codes.device
        for name in (*_PARTS, "format"):
            own, new = self._buffers[name], given.get(name)
            if new is None:
                self._buffers[name] = None
            elif own is None or own.shape != new.shape or own.dtype != new.dtype:
                self._buffers[name] = torch.empty_like(new, device=device)
        self.scheme, self.group_size, self.weight_dtype = scheme, group_size, dtype
        self.rounds_values = rounds_values
        return ""

    def extra_repr(self) -> str:
        groups = "per channel" if self.group_size == self.in_features else f"g{self.group_size}"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, {self.scheme} {groups} of "
            f"{self.weight_dtype}, bias={self.bias is not None}"
        )


def _scheme_for(name: str, scheme: str, keep: Sequence[str], scheme_for: Mapping[str, str]) -> str:
    """``keep``, or a scheme: as the converter's options have it, the last pattern that matches wins, and keep over all."""
    if any(_halfbyte.matches_pattern(pattern, name) for pattern in keep):
        return "keep"
    for pattern, other in scheme_for.items():
        if _halfbyte.matches_pattern(pattern, name):
            scheme = other
    return scheme


def _check_patterns(patterns: Sequence[str], names: Sequence[str]) -> None:
    for pattern in patterns:
        if not any(_halfbyte.matches_pattern(pattern, name) for name in names):
            raise ValueError(f"'{pattern}' matches no Linear's weight of the module")


def _uses_of_parameters(modules: Mapping[str, torch.nn.Module]) -> dict[int, int]:
    """In how many modules each parameter is, by its id."""
    uses: dict[int, int] = {}
    for module in {id(one): one for one in modules.values()}.values():
        for own in module._parameters.values():
            uses[id(own)] = uses.get(id(own), 0) + 1
    return uses


def quantize_module(
    module: torch.nn.Module,
    scheme: str = "sym_int4",
    group_size: int | None = None,
    *,
    keep: Sequence[str] = (),
    scheme_for: Mapping[str, str] | None = None,
    search: str | None = None,
    arithmetic: str = "auto",
) -> dict[str, str]:
    """Replaces the ``torch.nn.Linear``s inside a module, in place, and tells of each what it became, or why it stayed.

    Patterns are ``quantize``'s, of weights' names ("layers.0.fc.weight"). What is tied, what no group size divides and
    subclasses of Linear stay. Error: as ``quantize_tensor``; ValueError for a pattern that matches nothing.
    """
    scheme_for = scheme_for or {}
    modules = dict(module.named_modules(remove_duplicate=False))
    linears = {name: one for name, one in modules.items() if type(one) is torch.nn.Linear and name}
    _check_patterns([*keep, *scheme_for], [f"{name}.weight" for name in linears])
    uses = _uses_of_parameters(modules)
    out: dict[str, str] = {}
    made: dict[int, LowBitLinear | str] = {}
    for name, linear in linears.items():
        wanted = _scheme_for(f"{name}.weight", scheme, keep, scheme_for)
        if wanted == "keep":
            out[name] = "kept: asked for"
        elif uses[id(linear.weight)] > 1:
            out[name] = "kept: its weight is another parameter too"
        else:
            if id(linear) not in made:
                made[id(linear)] = _low_bit(linear, wanted, group_size, search, arithmetic)
            out[name] = _put(modules, name, made[id(linear)])
    return out


def _low_bit(
    linear: torch.nn.Linear, scheme: str, group_size: int | None, search: str | None, arithmetic: str
) -> LowBitLinear | str:
    """The module in its place, or why there is none."""
    try:
        made = LowBitLinear.from_linear(linear, scheme, group_size, search=search, arithmetic=arithmetic)
    except Error as error:
        if error.code != "unsupported":
            raise
        return f"kept: {error}"
    return made.train(linear.training)


def _put(modules: Mapping[str, torch.nn.Module], name: str, made: LowBitLinear | str) -> str:
    if isinstance(made, str):
        return made
    parent, _, child = name.rpartition(".")
    modules[parent]._modules[child] = made
    return f"{made.scheme} of groups of {made.group_size}"
