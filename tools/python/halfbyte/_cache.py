"""Keys and values of decoded tokens in transformers' caches, which grow where they lie."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from . import _halfbyte
from ._known import CACHE_UPDATE, DYNAMIC_UPDATE, digest_of

_GROWN = "_halfbyte_growing"
# transformers' own, where their code is known: what is grown otherwise is what they give.
_CACHE_UPDATE = Cache.update if digest_of(Cache.update) == CACHE_UPDATE else None
_LAYER_UPDATE = DynamicLayer.update if digest_of(DynamicLayer.update) == DYNAMIC_UPDATE else None


class _Growing:
    """In a layer of a cache; deep copies and pickled ones have none."""

    __slots__ = ("pair",)

    def __init__(self) -> None:
        self.pair = _halfbyte.Growing()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def _growing_layer(cache: Any, index: int) -> Any:
    """None: one that has to be updated as it is."""
    if type(cache).update is not _CACHE_UPDATE or "update" in cache.__dict__ or cache.offloading or index >= len(cache.layers):
        return None
    layer = cache.layers[index]
    is_known = type(layer) is DynamicLayer and DynamicLayer.update is _LAYER_UPDATE and "update" not in layer.__dict__
    return layer if is_known and layer.is_initialized else None


def with_token(cache: Any, index: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """As cache.update, of one token. What a token left is grown by the next one; other tensors are copied, as ever."""
    layer = _growing_layer(cache, index)
    if layer is None:
        updated: tuple[Tensor, Tensor] = cache.update(key, value, index)
        return updated
    growing: _Growing | None = layer.__dict__.get(_GROWN)
    if growing is not None:
        grown = growing.pair.append(layer.keys, layer.values, key, value)
        if grown is not None:
            layer.keys, layer.values = grown
            return grown
    keys, values = cache.update(key, value, index)
    growing = layer.__dict__[_GROWN] = _Growing()
    growing.pair.leave(keys, values)
    return keys, values
