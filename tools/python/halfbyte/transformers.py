"""halfbyte's kernels and conversions inside transformers: importing this registers them.

``AutoModelForCausalLM.from_pretrained`` then runs halfbyte's own directories on halfbyte's kernels; others that are
quantised (GPTQ, AWQ, bitsandbytes, compressed-tensors ...) with ``quantization_config=HalfbyteConfig()``; and quantises
an original while it loads with ``HalfbyteConfig(scheme="sym_int4")``. Whatever the architecture, known to halfbyte or not:
what is packed is transformers' own Linears.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transformers
import transformers.modeling_utils as _modeling
from torch import Tensor

try:
    from transformers.core_model_loading import (
        WeightConverter,
        WeightRenaming,
        rename_source_key,
        revert_weight_conversion,
    )
except ImportError as _problem:
    raise ImportError(
        f"halfbyte.transformers is made for transformers 5.23, and {transformers.__version__} loads models another way: "
        "pip install 'transformers>=5.23,<6'"
    ) from _problem
from transformers.integrations.accelerate import get_device
from transformers.quantizers import auto as _auto
from transformers.quantizers.base import HfQuantizer
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.utils.hub import cached_file
from transformers.utils.quantization_config import QuantizationConfigMixin

import halfbyte
from ._attention import MARK, one_token_faster
from ._experts import ExpertParts
from ._faster import mark_known
from ._layers import forget_step
from ._memory import quantize_state_dict
from ._places import linear_at, stack_at
from ._tensors import LowBitTensor, State, load_state, own_group_size, quantize_tensor
from .nn import LowBitLinear

__all__ = ["HalfbyteConfig", "HalfbyteHfQuantizer"]

_METHOD = "halfbyte"
# In a config.json that save_pretrained wrote: LowBitLinear's rounds_values.
_ROUNDS = "halfbyte_rounds_values"
_SAFETENSORS_NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"}


@register_quantization_config(_METHOD)
class HalfbyteConfig(QuantizationConfigMixin):
    """How ``from_pretrained`` quantises an original, or reads what is quantised already.

    scheme ... head: as ``halfbyte.quantize``'s; of no account where the checkpoint is quantised already. kernels: False
    leaves a quantised checkpoint to transformers' own quantizer. arithmetic, rounds_values: as
    ``halfbyte.nn.LowBitLinear``'s; the second is set for what bitsandbytes wrote.
    """

    def __init__(
        self,
        scheme: str | None = None,
        group_size: int | str | None = None,
        *,
        search: str | None = None,
        keep: Sequence[str] = (),
        scheme_for: Mapping[str, str] | None = None,
        head: str | None = None,
        kernels: bool = True,
        arithmetic: str = "auto",
        rounds_values: bool = False,
        quant_method: str = _METHOD,
    ) -> None:
        if quant_method != _METHOD:
            raise ValueError(f"a HalfbyteConfig has quant_method '{_METHOD}', not '{quant_method}'")
        self.quant_method = _METHOD  # type: ignore[assignment]
        self.scheme, self.group_size, self.search, self.head = scheme, group_size, search, head
        self.keep, self.scheme_for = list(keep), dict(scheme_for or {})
        self.kernels, self.arithmetic, self.rounds_values = kernels, arithmetic, rounds_values

    def plan_options(self) -> dict[str, Any]:
        wanted = {"scheme": self.scheme, "group_size": self.group_size, "search": self.search, "head": self.head,
                  "keep": self.keep, "scheme_for": self.scheme_for}
        return {name: value for name, value in wanted.items() if value} | {"halfbyte_only": True}


class _Packed:
    """A packed weight where a dense one is wanted (an embedding, a stack of experts): dequantised when it is read."""

    def __init__(self, tensor: LowBitTensor, dtype: torch.dtype, stacked: int = 0, is_transposed: bool = False) -> None:
        self._tensor, self._dtype = tensor, dtype
        self._stacked, self._is_transposed = stacked, is_transposed

    def __getitem__(self, _: Any) -> Tensor:
        out = self._tensor.dequantize(self._dtype)
        if self._stacked:
            out = out.view(self._stacked, -1, out.shape[1])
        return out.transpose(1, 2).contiguous() if self._stacked and self._is_transposed else out

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        return _SAFETENSORS_NAMES[self._dtype]


@register_quantizer(_METHOD)
class HalfbyteHfQuantizer(HfQuantizer):
    """Gives transformers the tensors of a checkpoint as halfbyte reads them, and packed Linears their modules."""

    requires_calibration = False
    quantization_config: HalfbyteConfig

    def validate_environment(self, *words: Any, **named: Any) -> None:
        device_map = named.get("device_map")
        if isinstance(device_map, dict) and "disk" in device_map.values():
            raise ValueError("halfbyte's weights are mapped, and are not offloaded to a disk a second time")

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return True

    @property
    def is_compileable(self) -> bool:
        return True

    def get_new_dtype(self, converter: Any, param: Any, dtype: torch.dtype | None) -> torch.dtype | None:
        is_float = param.is_floating_point() if isinstance(param, Tensor) else True
        return dtype if is_float else None

    def tensors_for(self, model: Any, files: Sequence[str], load_config: Any) -> tuple[dict[str, Any], set[str]]:
        """What is loaded into the model by transformers, and the names of what stands in it already: Linears and experts
        whose weights are packed, or to be, are LowBitLinears from here on."""
        folder = pathlib.Path(files[0]).parent
        return _Loading(self, model, load_config, folder).run()

    def _dequantize(self, model: Any, dtype: torch.dtype | None = None) -> Any:
        for name, module in list(model.named_modules()):
            if isinstance(module, LowBitLinear):
                linear = torch.nn.Linear(module.in_features, module.out_features, module.bias is not None, device="meta")
                linear.weight = torch.nn.Parameter(module.weight.dequantize(dtype), requires_grad=False)
                linear.bias = module.bias  # type: ignore[assignment]
                parent, _, child = name.rpartition(".")
                model.get_submodule(parent)._modules[child] = linear.train(module.training)
        for module in model.modules():
            module.__dict__.pop(MARK, None)
            forget_step(module)
        return model

    def _planned(self, folder: pathlib.Path) -> dict[str, dict[str, Any]]:
        rows = halfbyte.plan(folder, **self.quantization_config.plan_options())["tensors"]
        search = self.quantization_config.search
        return {
            row["name"]: {"scheme": row["scheme"], "group_size": row["group_size"], "search": search}
            for row in rows
            if row["scheme"]
        }


class _Loading:
    """One checkpoint on its way into one model, which is on Meta."""

    def __init__(self, quantizer: HalfbyteHfQuantizer, model: Any, load_config: Any, folder: pathlib.Path) -> None:
        self.config = quantizer.quantization_config
        self.model, self.dtype = model, load_config.dtype
        self.device_map = load_config.device_map or {"": "cpu"}
        self.state = load_state(folder)
        self.schemes = {} if quantizer.pre_quantized else quantizer._planned(folder)
        mapping = load_config.weight_mapping or []
        self.renamings = [one for one in mapping if isinstance(one, WeightRenaming)]
        self.converters = [one for one in mapping if isinstance(one, WeightConverter)]
        self.sources = {one: converter.source_patterns for converter in self.converters for one in converter.source_patterns}
        self.wanted = model.state_dict()
        self.tied = set(getattr(model, "all_tied_weights_keys", {}) or {})
        self.experts = ExpertParts(model)
        self.dense: dict[str, Any] = {}
        self.made: set[str] = set()

    def run(self) -> tuple[dict[str, Any], set[str]]:
        for name in self.state:
            self._take(name)
        for name, weight in self.experts.rest().items():
            self._stay(name, None, weight if isinstance(self.state[name], LowBitTensor) else self.state[name])
        options = {"arithmetic": self.config.arithmetic, "rounds_values": self.config.rounds_values}
        for path, module in self.experts.make(**options).items():
            self._put(path, module)
        if self.made:
            mark_known(self.model)
        return self.dense, self.made

    def _take(self, name: str) -> None:
        key, pattern = rename_source_key(
            name, self.renamings, self.converters, self.model.base_model_prefix, self.wanted
        )
        if key in self.tied and name in self.state.ties:
            return
        if pattern is not None and self.experts.takes(key, pattern):
            packed = _packed(self.state, name, self.schemes)
            if packed is not None and self.experts.add(key, self.sources[pattern], pattern, name, packed):
                return
        linear = linear_at(self.model, key) if pattern is None and key not in self.tied else None
        packed = _packed(self.state, name, self.schemes) if linear is not None else None
        if linear is None or packed is None:
            self._stay(name, key, self.state[name])
            return
        module = LowBitLinear(
            packed, linear.bias, arithmetic=self.config.arithmetic, rounds_values=self.config.rounds_values
        )
        self._put(key.removesuffix(".weight"), module)

    def _stay(self, name: str, key: str | None, value: Any) -> None:
        """transformers loads it, dense."""
        if isinstance(value, LowBitTensor):
            value = _Packed(value, self.dtype or value.dtype, *stack_at(self.model, key))
        self.dense[name] = value

    def _put(self, path: str, module: torch.nn.Module) -> None:
        """In the place of a module on Meta; its buffers are in place by that."""
        before = self.model.get_submodule(path)
        parent, _, child = path.rpartition(".")
        holder = self.model.get_submodule(parent)
        holder._modules[child] = module.train(before.training).requires_grad_(False)
        setattr(holder, MARK, True)
        device = torch.device(get_device(self.device_map, path, valid_torch_device=True))
        for name, buffer in [*module.named_buffers()]:
            if device != buffer.device:
                owner, _, leaf = name.rpartition(".")
                module.get_submodule(owner)._buffers[leaf] = buffer = buffer.to(device)
            buffer._is_hf_initialized = True  # type: ignore[attr-defined]
            self.made.add(f"{path}.{name}")


def _packed(state: State, name: str, schemes: dict[str, dict[str, Any]]) -> LowBitTensor | None:
    value = state[name]
    if isinstance(value, LowBitTensor):
        return value
    if name not in schemes:
        return None
    options = schemes[name]
    return quantize_tensor(value, options["scheme"], own_group_size(options["group_size"]), search=options["search"])


def _has_manifest(config: Any) -> bool:
    """Whether the configuration is of a directory that halfbyte made."""
    path = getattr(config, "_name_or_path", "")
    if not path:
        return False
    if os.path.isdir(path):
        return os.path.isfile(os.path.join(path, "halfbyte.json"))
    found = cached_file(
        path, "halfbyte.json", _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False,
        _raise_exceptions_for_gated_repo=False,
    )
    return found is not None


def _is_ours(config: Any, wanted: Any) -> bool:
    stored = getattr(config, "quantization_config", None)
    if stored is None or (isinstance(stored, dict) and stored.get("quant_method") == _METHOD):
        return False  # an original, which `wanted` alone decides on; or registered anyway
    if isinstance(wanted, HalfbyteConfig):
        return wanted.kernels
    return wanted is None and _has_manifest(config)


_get_hf_quantizer = _auto.get_hf_quantizer


@functools.wraps(_get_hf_quantizer)
def _quantizer_for(config: Any, quantization_config: Any, *words: Any, **named: Any) -> Any:
    """transformers' own, but that what the directory is quantised with may be read by halfbyte."""
    if _is_ours(config, quantization_config):
        chosen = quantization_config or HalfbyteConfig()
        stored = config.quantization_config
        method = stored.get("quant_method") if isinstance(stored, dict) else getattr(stored, "quant_method", None)
        is_theirs = method == "bitsandbytes" and not _has_manifest(config)
        if is_theirs or getattr(config, _ROUNDS, False):
            chosen.rounds_values = True
        config.quantization_config = {**chosen.to_dict(), "quant_method": _METHOD}
        quantization_config = None
    elif isinstance(quantization_config, HalfbyteConfig) and not quantization_config.kernels:
        quantization_config = None
    return _get_hf_quantizer(config, quantization_config, *words, **named)  # type: ignore[no-untyped-call]


_load_pretrained_model = _modeling.PreTrainedModel._load_pretrained_model


@functools.wraps(_load_pretrained_model)
def _load(model: Any, state_dict: Any, checkpoint_files: Any, load_config: Any, *words: Any, **named: Any) -> Any:
    quantizer = load_config.hf_quantizer
    if not isinstance(quantizer, HalfbyteHfQuantizer) or state_dict is not None or not checkpoint_files:
        return _load_pretrained_model(model, state_dict, checkpoint_files, load_config, *words, **named)
    if "peft" in sys.modules:
        from . import peft as _  # noqa: F401
    tensors, made = quantizer.tensors_for(model, checkpoint_files, load_config)
    info, offloaded = _load_pretrained_model(model, tensors, checkpoint_files, load_config, *words, **named)
    info.missing_keys -= made
    return info, offloaded


def _state_to_save(model: Any) -> dict[str, Tensor | LowBitTensor]:
    """The model's tensors by the names that its checkpoint has; packed ones as they are."""
    packed = {name: module for name, module in model.named_modules() if isinstance(module, LowBitLinear)}
    own = {f"{name}.{part}" for name, module in packed.items() for part in module._buffers}
    dense = {name: one for name, one in model.state_dict().items() if name not in own}
    dense = _modeling.remove_tied_weights_from_state_dict(dense, model)
    stand_ins, weights, experts = {}, {}, {}
    for name, module in packed.items():
        if hasattr(module, "checkpoint_name"):
            experts[module.checkpoint_name] = module.weight
        else:
            stand_ins[f"{name}.weight"] = torch.empty(0, device="meta")
            weights[id(stand_ins[f"{name}.weight"])] = module.weight
    named = revert_weight_conversion(model, {**dense, **stand_ins})
    return {name: weights.get(id(one), one) for name, one in named.items()} | experts


_save_pretrained = _modeling.PreTrainedModel.save_pretrained


@functools.wraps(_save_pretrained)
def _save(self: Any, save_directory: Any, *words: Any, **named: Any) -> Any:
    """transformers' own, but that a model of halfbyte's is written as halfbyte writes one: packed, with its manifest."""
    is_adapter = getattr(self, "_hf_peft_config_loaded", False)
    if is_adapter or not isinstance(getattr(self, "hf_quantizer", None), HalfbyteHfQuantizer):
        return _save_pretrained(self, save_directory, *words, **named)
    if not named.get("is_main_process", True):
        return None
    if named.get("push_to_hub"):
        raise ValueError("save_pretrained(push_to_hub=True) cannot write halfbyte's files; save, then upload the folder")
    self.config.architectures = [type(self).__name__]
    target = pathlib.Path(save_directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        described = pathlib.Path(scratch, "config")
        self.config.save_pretrained(described)
        if self.can_generate():
            self.generation_config.save_pretrained(described)
        config = json.loads((described / "config.json").read_text())
        if self.hf_quantizer.quantization_config.rounds_values:
            config[_ROUNDS] = True
        files = {one.name: one.read_bytes() for one in described.iterdir() if one.name != "config.json"}
        made = pathlib.Path(scratch, "made")
        quantize_state_dict(
            _state_to_save(self), made, config=config, files=files, halfbyte_only=True,
            shard_size=named.get("max_shard_size", "50GB"),
        )
        target.mkdir(exist_ok=True)
        for stale in [*target.glob("model*.safetensors"), *target.glob("model*.index.json")]:
            stale.unlink()
        for one in made.iterdir():
            os.replace(one, target / one.name)
    return None


_ATTENTIONS = _modeling.ALL_ATTENTION_FUNCTIONS
_ATTENTIONS.register("sdpa", one_token_faster(_ATTENTIONS["sdpa"]))
_modeling.PreTrainedModel.save_pretrained = _save  # type: ignore[method-assign]
_auto.get_hf_quantizer = _quantizer_for
_modeling.get_hf_quantizer = _quantizer_for  # type: ignore[attr-defined]
_modeling.PreTrainedModel._load_pretrained_model = staticmethod(_load)  # type: ignore[method-assign]
