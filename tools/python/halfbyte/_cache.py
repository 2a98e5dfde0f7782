"""Keys and values of decoded tokens in transformers' caches, which grow where they lie."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from ._halfbyte import Growing
from ._known import CACHE_UPDATE, DYNAMIC_UPDATE, digest_of

# transformers' own, where its code is the one that is known; else caches are updated by transformers alone.
_IS_KNOWN = digest_of(Cache.update) == CACHE_UPDATE and digest_of(DynamicLayer.update) == DYNAMIC_UPDATE
_CACHE_UPDATE, _LAYER_UPDATE = Cache.update, DynamicLayer.update
# By layer of a cache. Not in the layers, so that copies of them, and what is saved, have none.
_GROWING: weakref.WeakKeyDictionary[Any, Growing] = weakref.WeakKeyDictionary()


def _growing_layer(cache: Any, index: int) -> Any:
    """None where transformers' own update has to run."""
    kind = type(cache)
    if not _IS_KNOWN or not isinstance(cache, Cache) or kind.update is not _CACHE_UPDATE or "update" in cache.__dict__:
        return None
    if cache.offloading or index >= len(cache.layers):
        return None
    layer: Any = cache.layers[index]
    is_known = type(layer) is DynamicLayer and DynamicLayer.update is _LAYER_UPDATE and "update" not in layer.__dict__
    return layer if is_known and layer.is_initialized else None


def with_token(cache: Any, index: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """As cache.update, of one token. What the last token left is grown by this one; other tensors are copied, as ever."""
    layer = _growing_layer(cache, index)
    if layer is None:
        updated: tuple[Tensor, Tensor] = cache.update(key, value, index)
        return updated
    growing = _GROWING.get(layer)
    if growing is not None:
        grown = growing.append(layer.keys, layer.values, key, value)
        if grown is not None:
            layer.keys, layer.values = grown
            if growing.is_alone(*grown):
                return grown
            # Somebody still has the tensors of the last token: as from transformers, they share nothing with these.
            keys, values = layer.keys, layer.values = [one.clone(memory_format=torch.contiguous_format) for one in grown]
            growing.leave(keys, values)
            return keys, values
    keys, values = cache.update(key, value, index)
    if growing is None:
        growing = _GROWING[layer] = Growing()
    growing.leave(keys, values)
    return keys, values
