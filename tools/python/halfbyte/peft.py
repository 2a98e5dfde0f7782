"""peft's LoRA on LowBitLinear: importing this makes peft take such layers. (halfbyte.transformers imports it where peft is.)

An adapter trains in float32 beside the packed weight, whose gradient flows through to the layers below. ``merge`` adds it
to the weight and quantises that again, in the same scheme; ``unmerge`` brings back the codes that were there.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from peft.tuners import tuners_utils as _tuners
from peft.tuners.lora import model as _lora_model
from peft.tuners.lora.layer import Linear

from ._tensors import LowBitTensor, own_group_size, quantize_tensor
from .nn import LowBitLinear

__all__ = ["LoraLowBitLinear"]


class LoraLowBitLinear(Linear):
    """LoRA in parallel to a LowBitLinear."""

    @property
    def lora_variants(self) -> dict[tuple[str, ...], Any]:
        """Plain LoRA alone: the others take the dense weight apart."""
        return {(): None}

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Adds adapters to the weight. ``safe_merge`` is always so: what is not finite is refused, and nothing changed."""
        base: Any = self.get_base_layer()
        before = self.__dict__.setdefault("_before_merging", {})
        for name in _tuners.check_adapters_to_merge(self, adapter_names) or []:
            if name not in self.lora_A:
                continue
            if self.lora_bias[name]:
                raise ValueError("lora_bias is not merged into a LowBitLinear")
            warnings.warn("merging quantises the weight again, which rounds what the adapter adds", stacklevel=2)
            merged = _requantised(base.weight, self.get_delta_weight(name))
            before[name] = base.weight
            base.set_weight(merged)
            self.merged_adapters.append(name)

    def unmerge(self) -> None:
        before = self.__dict__.setdefault("_before_merging", {})
        while self.merged_adapters:
            name = self.merged_adapters.pop()
            if name in before:
                base: Any = self.get_base_layer()
                base.set_weight(before.pop(name))

    def get_delta_weight(self, adapter: str) -> torch.Tensor:
        down: Any = self.lora_A[adapter].weight
        up: Any = self.lora_B[adapter].weight
        delta: torch.Tensor = (up.float() @ down.float()) * self.scaling[adapter]
        return delta

    def __repr__(self) -> str:
        return "lora." + torch.nn.Module.__repr__(self)


def _requantised(weight: LowBitTensor, delta: torch.Tensor) -> LowBitTensor:
    with torch.no_grad():
        dense = weight.dequantize(torch.float32) + delta.to(weight.device, torch.float32)
    return quantize_tensor(dense.to(weight.dtype), weight.scheme, own_group_size(weight.group_size))


_create_new_module = _lora_model.LoraModel._create_new_module
_include_all_linear = _tuners._maybe_include_all_linear_layers


@functools.wraps(_create_new_module)
def _create(lora_config: Any, adapter_name: str, target: Any, **named: Any) -> Any:
    base = target.get_base_layer() if isinstance(target, _tuners.BaseTunerLayer) else target
    if isinstance(base, LowBitLinear):
        return LoraLowBitLinear(target, adapter_name, config=lora_config, **named)
    return _create_new_module(lora_config, adapter_name, target, **named)  # type: ignore[no-untyped-call]


@functools.wraps(_include_all_linear)
def _all_linear(peft_config: Any, model: torch.nn.Module) -> Any:
    """peft's own, for which a LowBitLinear is no linear layer."""
    wanted = getattr(peft_config, "target_modules", None)
    out: Any = _include_all_linear(peft_config, model)
    if isinstance(wanted, str) and wanted.lower() == "all-linear":
        of_head: Any = getattr(model, "get_output_embeddings", lambda: None)
        head = of_head()
        out.target_modules = set(out.target_modules) | {
            name for name, one in model.named_modules() if isinstance(one, LowBitLinear) and one is not head
            and not name.endswith(".base_layer")
        }
    return out


_lora_model.LoraModel._create_new_module = staticmethod(_create)  # type: ignore[method-assign]
_tuners._maybe_include_all_linear_layers = _all_linear
