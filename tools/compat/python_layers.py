"""_halfbyte.LayerStep against the same layer made of torch's operators, Watch and Growing: for python_modules_check.py."""
import collections
import copy
import dataclasses
import gc
import itertools
import weakref

from python_helpers import SCHEMES, assert_near, halfbyte, taken, torch

from halfbyte import _halfbyte

BATCH, SIZE, HEADS, KV_HEADS, HEAD, WIDE, TOKENS, EPSILON = 3, 64, 4, 2, 32, 96, 7, 1e-5
BOUND = {torch.float32: 2e-5, torch.bfloat16: 3e-2}


def quantized(weight, scheme):
    return halfbyte.quantize_tensor(weight, scheme, 16 if scheme == "hb4_fine" else 32)


class Weights:
    """Of one layer; `mixed`: values in another scheme than queries and keys, with a bias each."""

    def __init__(self, scheme, dtype, mixed):
        shapes = {"q": (HEADS * HEAD, SIZE), "k": (KV_HEADS * HEAD, SIZE), "v": (KV_HEADS * HEAD, SIZE), "o": (SIZE, HEADS * HEAD),
                  "gate": (WIDE, SIZE), "up": (WIDE, SIZE), "down": (SIZE, WIDE)}
        self.packed = {name: quantized(torch.randn(shape) * shape[1] ** -0.5, "sym_int8" if mixed and name == "v" else scheme)
                       for name, shape in shapes.items()}
        self.biases = {name: torch.randn(shape[0]).to(dtype) if mixed else None for name, shape in shapes.items()}
        self.norms = [torch.rand(size).to(dtype) + 0.5 for size in (SIZE, HEAD, HEAD, SIZE)]
        self.has_head_norms = mixed

    def step(self, dtype, has_mlp=True):
        def of(*names):
            return [({one.name: getattr(self.packed[name], one.name) for one in dataclasses.fields(self.packed[name])}, self.biases[name], "float") for name in names]

        norms = [(weight, EPSILON) for weight in self.norms]
        heads = norms[1:3] if self.has_head_norms else (None, None)
        attention = {"norm": norms[0], "query_norm": heads[0], "key_norm": heads[1], "projections": of("q", "k", "v"), "output": of("o"), "head_dim": HEAD,
                     "scale": 0.2}
        mlp = {"norm": norms[3], "gate_up": of("gate", "up"), "down": of("down"), "activation": "silu"}
        return _halfbyte.LayerStep(dtype, attention, mlp if has_mlp else None)

    def linear(self, name, x):
        bias = self.biases[name]
        return torch.nn.functional.linear(x, self.packed[name].dequantize(torch.float32), None if bias is None else bias.float())

    def norm(self, index, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * self.norms[index].float()

    def heads(self, hidden, cosine, sine):
        x = self.norm(0, hidden.float())
        query, key, value = (self.linear(name, x).view(BATCH, 1, -1, HEAD) for name in ("q", "k", "v"))
        if self.has_head_norms:
            query, key = self.norm(1, query), self.norm(2, key)

        def turned(heads):
            crossed = torch.cat((-heads[..., HEAD // 2:], heads[..., :HEAD // 2]), -1)
            return (heads * cosine.float().unsqueeze(1) + crossed * sine.float().unsqueeze(1)).transpose(1, 2)

        return turned(query), turned(key), value.transpose(1, 2)

    def fed(self, hidden):
        x = self.norm(3, hidden.float())
        return hidden.float() + self.linear("down", torch.nn.functional.silu(self.linear("gate", x)) * self.linear("up", x))


def check_layer_step():
    for scheme, dtype, mixed in itertools.product(SCHEMES, BOUND, (False, True)):
        weights = Weights(scheme, dtype, mixed)
        step = weights.step(dtype)
        hidden, keys, values = (torch.randn(shape).to(dtype) for shape in ((BATCH, 1, SIZE), *2 * ((BATCH, KV_HEADS, TOKENS, HEAD),)))
        cosine, sine = torch.randn(BATCH, 1, HEAD).to(dtype), torch.randn(BATCH, 1, HEAD).to(dtype)
        assert step.has_mlp and step.fits(hidden, cosine, sine)
        with torch.no_grad():
            found, wanted = step.heads(hidden, cosine, sine), weights.heads(hidden, cosine, sine)
            for one, other in zip(found, wanted):
                assert one.dtype == dtype
                assert_near(one, other, BOUND[dtype], scheme, dtype, mixed)
            attended = torch.nn.functional.scaled_dot_product_attention(found[0].float(), keys.float(), values.float(), scale=0.2, enable_gqa=True)
            attended = attended.transpose(1, 2)
            both = step.attended(hidden, found[0], keys, values, None), step.added(hidden, attended.to(dtype))
            for one in both:
                assert_near(one, hidden.float() + weights.linear("o", attended.flatten(2)), BOUND[dtype], scheme, dtype)
            assert_near(step.fed(hidden), weights.fed(hidden), BOUND[dtype], scheme, dtype)
        assert not weights.step(dtype, has_mlp=False).has_mlp
        other = torch.float16
        for wrong in ((hidden.to(other), cosine, sine), (hidden, cosine.to(other), sine), (hidden, cosine[:2], sine[:2]), (hidden, cosine[..., :8], sine[..., :8]),
                      (hidden.repeat(1, 2, 1), cosine, sine), (hidden[0], cosine, sine), (hidden, cosine, sine[:1])):
            assert not step.fits(*wrong), [one.shape for one in wrong]


def check_watch():
    holder, hooks, value = {"a": object()}, collections.OrderedDict(), object()
    holder["b"] = value
    own, other = (type(name, (), {"forward": value}) for name in ("Own", "Other"))
    one = own()
    watch = _halfbyte.Watch([(holder, "b", value), (holder, "c", None)], [(one, own)], [(own, "forward", value), (own, "backward", None)], [{}, hooks])
    assert watch.is_same() and watch.is_empty()

    def changes(change, undo):
        change()
        found = watch.is_same()
        undo()
        assert not found and watch.is_same()

    changes(lambda: holder.update(b=object()), lambda: holder.update(b=value))
    changes(lambda: holder.pop("b"), lambda: holder.update(b=value))
    changes(lambda: holder.update(c=1), lambda: holder.pop("c"))
    changes(lambda: setattr(one, "__class__", other), lambda: setattr(one, "__class__", own))
    changes(lambda: setattr(own, "forward", 1), lambda: setattr(own, "forward", value))
    changes(lambda: setattr(own, "backward", 1), lambda: delattr(own, "backward"))
    many = [{f"key {i}": value for i in range(i)} for i in range(40)]
    several = _halfbyte.Watch([(of, key, value) for of in many for key in of], [], [], [])
    assert several.is_same() and _halfbyte.Watch([], [], [], []).is_same()
    many[39]["key 38"] = None
    assert not several.is_same()
    hooks["one"] = 1
    assert watch.is_same() and not watch.is_empty()
    for wrong in (([(1, "b", value)], [], [], []), ([()], [], [], []), ([], [(own,)], [], []), ([], [], [(own, "forward")], []), ([1], [], [], []), ([], [], [], [1])):
        taken((TypeError, RuntimeError, ValueError), _halfbyte.Watch, *wrong)
    taken(TypeError, _halfbyte.Watch([({}, [], None)], [], [], []).is_same)  # what cannot be a key
    for place in ("entries", "classes", "attributes"):  # what is watched may hold the watch
        held = own()
        rows = {"entries": [], "classes": [], "attributes": [], place: [{"entries": (held.__dict__, "x", None), "classes": (held, own), "attributes": (held, "x", None)}[place]]}
        held.watch = _halfbyte.Watch(*rows.values(), [held.__dict__])
        there = weakref.ref(held)
        del held, rows
        gc.collect()
        assert there() is None, place


class Owner:
    """Of keys and values, as a layer of a cache is; what it is worth is told by torch.cat."""

    def __init__(self, heads, tokens, size, dtype=torch.float32, batch=2):
        self.keys, self.values = (torch.randn(batch, heads, tokens, size).to(dtype) for _ in range(2))
        self.growing = _halfbyte.Growing()
        self.growing.leave(self.keys, self.values)

    def token(self):
        return tuple(torch.randn(one.shape[0], 1, one.shape[1], one.shape[3]).to(one.dtype).transpose(1, 2) for one in (self.keys, self.values))

    def append(self):
        token = self.token()
        wanted = [torch.cat(both, 2) for both in zip((self.keys, self.values), token)]
        grown = self.growing.append(self.keys, self.values, *token)
        if grown is None:
            return False
        assert all(torch.equal(one, other) and one.dtype == other.dtype for one, other in zip(grown, wanted))
        self.keys, self.values = grown
        return True


def check_room():
    with torch.no_grad():
        for heads, tokens, size, dtype, batch in ((4, 1, 8, torch.float32, 2), (1, 300, 64, torch.bfloat16, 1), (2, 65, 20, torch.float16, 3)):
            owner, places = Owner(heads, tokens, size, dtype, batch), []
            for _ in range(200):
                assert owner.append()
                places.append(owner.keys.data_ptr())
            assert sum(one != other for one, other in zip(places, places[1:])) <= 10, places  # copied as often as room runs out
            assert owner.growing.is_alone(owner.keys, owner.values) and owner.keys.untyped_storage().nbytes() <= 1.25 * owner.keys.nbytes


def check_growing():
    with torch.no_grad():
        owner = Owner(2, 5, 8)
        assert owner.append() and owner.append() and owner.growing.is_alone(owner.keys, owner.values)
        older = owner.keys, owner.values
        kept = [one.clone() for one in older]
        assert owner.append() and not owner.growing.is_alone(owner.keys, owner.values)
        # Of two that share what grows, one goes on; so does none with what came before, or is cut, or another tensor.
        fork = copy.copy(owner)
        assert owner.append() and not fork.append()
        now = owner.keys, owner.values
        for keys, values in (older, (now[0], older[1]), (now[0][:, :, :-1], now[1][:, :, :-1]), (now[0].clone(), now[1]), (now[0][:1], now[1][:1])):
            owner.keys, owner.values = keys, values
            assert not owner.append()
        owner.keys, owner.values = now
        key, value = owner.token()
        for wrong in ((key.half(), value), (key, value[:, :1]), (key[:1], value[:1]), (key[..., :4], value[..., :4]), (key.repeat(1, 1, 2, 1), value), (key[0], value),
                      (key.to("meta"), value), (key, torch.nn.Parameter(value)), (key.to_sparse(), value)):
            assert owner.growing.append(*now, *wrong) is None, [one.shape for one in wrong]
        assert owner.append() and all(map(torch.equal, older, kept))
        flat = _halfbyte.Growing()
        flat.leave(key[0], value[0])
        assert flat.append(key[0], value[0], key[0], value[0]) is None
        assert _halfbyte.Growing().append(*now, key, value) is None
        there = weakref.ref(owner.keys)
        owner.keys = owner.values = None
        assert there() is None  # what is left holds nothing
    with torch.inference_mode():
        owner.keys, owner.values = now
        owner.growing.leave(*now)
        assert not owner.append()
        inner = Owner(2, 5, 8)
        assert inner.append() and inner.append() and inner.keys.is_inference()
    assert not inner.append()
    with torch.no_grad():
        assert not inner.append()
