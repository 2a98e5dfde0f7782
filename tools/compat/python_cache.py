"""Caches of transformers whose keys and values grow where they lie: for python_transformers_check.py."""
import copy
import io
import pickle

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class Copied(DynamicCache):
    """What is somebody's own is updated as it says."""

    updates = 0

    def update(self, *words, **named):
        self.updates += 1
        return super().update(*words, **named)


def of_layers(cache, change):
    cache.layers = [change(one) for one in cache.layers]
    return cache


def shallow(cache):
    """Of layers of its own, whose tensors are the other's."""
    return of_layers(copy.copy(cache), copy.copy)


def restored(cache, tensors):
    for layer, (layer.keys, layer.values) in zip(cache.layers, tensors):
        pass
    return cache


def replaced(cache, seen):
    """An instance's own update."""
    for layer in cache.layers:
        def update(*words, own=layer.update, **named):
            seen.append(1)
            return own(*words, **named)
        layer.update = update
    return cache


def edited(cache, change):
    """What transformers gives for a token shares nothing with what it gave for the one before."""
    with torch.no_grad():
        for layer in cache.layers:
            change(layer)
    return cache


def moved(layer):
    layer.keys.data = layer.keys.data.clone()


def shortened(layer):
    for one in (layer.keys, layer.values):
        one.data = one.data[:, :, :-2]


def turned(layer):
    """The same values, of which those of a token lie together."""
    tokens = layer.keys.shape[2]
    for one in (layer.keys, layer.values):
        room = torch.zeros(one.shape[0], tokens + 30, one.shape[1], one.shape[3], dtype=one.dtype).transpose(1, 2)
        one.data = room[:, :, :tokens].copy_(one)


def into(buffers):
    """The user's own, which has room behind it that is the user's."""
    def change(layer):
        for one in (layer.keys, layer.values):
            buffers.append(torch.full((*one.shape[:2], one.shape[2] + 30, one.shape[3]), 7.0, dtype=one.dtype))
            one.data = buffers[-1][:, :, :one.shape[2]].copy_(one)
    return change


def check_edits(model, caches):
    """Keys and values that somebody changes, or keeps, between two tokens."""
    buffers = []
    for change in (moved, shortened, turned, into(buffers), lambda layer: layer.keys.mul_(2)):
        caches = [edited(cache, change) for cache in caches]
        found, wanted = (stepped(model, cache, 1) for cache in caches)
        assert all(map(torch.equal, found, wanted)), change
    assert buffers and all((one[:, :, -30:] == 7).all() for one in buffers)
    for others in ([[(layer.keys, layer.values) for layer in cache.layers] for cache in caches], [shallow(cache) for cache in caches]):
        for cache in caches:
            stepped(model, cache, 1, 1)
            edited(cache, lambda layer: layer.keys[:, :, :3].zero_())
        results = [stepped(model, restored(cache, kept) if isinstance(kept, list) else kept, 1) for cache, kept in zip(caches, others)]
        assert all(map(torch.equal, *results))
    with Seen():
        places = places_of(caches[0])
        stepped(model, caches[0], 1, 1)
        assert not set(places) & set(places_of(caches[0]))  # each operator is seen
    stored = io.BytesIO()
    torch.save(caches[0], stored)
    with torch.serialization.safe_globals([DynamicCache, DynamicLayer]):
        read = torch.load(io.BytesIO(stored.getvalue()), weights_only=True)
    assert all(torch.equal(one.keys, other.keys) for one, other in zip(read.layers, caches[0].layers))
    stepped(model, caches[1], 1, 1)  # as the first under the mode
    found, wanted = (stepped(model, cache, 1) for cache in (Passed(caches[0]), caches[1]))
    assert all(map(torch.equal, found, wanted))


class Seen(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, words=(), named=None):
        return function(*words, **(named or {}))


class Passed:
    """No cache of transformers', but does what one does."""

    def __init__(self, cache):
        self._cache = cache

    def __getattr__(self, name):
        return getattr(self._cache, name)


def changes_of(tensors, seen):
    """What somebody may do to a cache between two tokens; whether it has two sequences then."""
    return {
        "nothing": (lambda cache: cache, 1),
        "cropped": (lambda cache: cache.crop(-2) or cache, 1),
        "deep copy": (copy.deepcopy, 1),
        "pickled": (lambda cache: pickle.loads(pickle.dumps(cache)), 1),
        "older tensors": (lambda cache: restored(cache, tensors[type(cache)]), 1),
        "repeated": (lambda cache: cache.batch_repeat_interleave(2) or cache, 2),
        "reordered": (lambda cache: cache.reorder_cache(torch.tensor([1, 0])) or cache, 2),
        "selected": (lambda cache: cache.batch_select_indices(torch.tensor([1])) or cache, 1),
        "its own update": (lambda cache: replaced(cache, seen), 1),
    }


def stepped(model, cache, batch, tokens=3):
    out = [model(torch.full((batch, 1), 5 + token), past_key_values=cache).logits for token in range(tokens)]
    return out + [one for layer in cache.layers for one in (layer.keys, layer.values)]


def places_of(cache):
    return [layer.keys.data_ptr() for layer in cache.layers]


def check_caches(model, ids):
    """Bits are those of a cache that is copied for every token, whatever is done to it, and of two that share tensors both go on."""
    seen, tensors, caches = [], {}, [DynamicCache(config=model.config), Copied(config=model.config)]
    with torch.no_grad():
        for cache in caches:
            model(ids, past_key_values=cache)
            stepped(model, cache, 1)
        places = places_of(caches[0])
        for cache in caches:
            stepped(model, cache, 1)
        assert places_of(caches[0]) == places  # in the middle of their room
        for cache in caches:
            tensors[type(cache)] = [(layer.keys, layer.values) for layer in cache.layers]
            stepped(model, cache, 1)
        for what, (change, batch) in changes_of(tensors, seen).items():
            caches = [change(cache) for cache in caches]
            found, wanted = (stepped(model, cache, batch) for cache in caches)
            assert all(map(torch.equal, found, wanted)), what
        assert len(seen) == 6 * len(caches[0].layers), len(seen)
        caches = [DynamicCache(config=model.config), Copied(config=model.config)]
        for cache in caches:
            model(ids, past_key_values=cache)
            stepped(model, cache, 1)
        forks = [shallow(cache) for cache in caches]
        for pair in (caches, forks, caches, forks):
            found, wanted = (stepped(model, cache, 1, 1) for cache in pair)
            assert all(map(torch.equal, found, wanted))
        check_edits(model, caches)
        own, calls = DynamicLayer.update, []
        DynamicLayer.update = lambda self, *words, **named: calls.append(1) or own(self, *words, **named)
        found, wanted = (stepped(model, cache, 1) for cache in caches)
        DynamicLayer.update = own
        assert all(map(torch.equal, found, wanted)) and len(calls) == 6 * len(caches[0].layers)
    assert type(caches[1]).update is not DynamicCache.update and caches[1].updates > 0
