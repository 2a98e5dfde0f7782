"""torch.ops.halfbyte as PyTorch has operators checked: for python_modules_check.py."""
import contextlib
import dataclasses
import itertools

from python_helpers import SCHEMES, assert_near, difference, halfbyte, taken, torch

DTYPES = (torch.float32, torch.bfloat16)
ROWS, IN, OUT = 3, 64, 12
# Of gradients against differences in float64: float32 sums, and one rounding of everything to bfloat16. Measured: 3.4e-7, 4.9e-3.
GRADIENT_BOUND = {torch.float32: 2e-6, torch.bfloat16: 1e-2}


def packed(scheme, seed=0):
    torch.manual_seed(seed)
    return halfbyte.quantize_tensor(torch.randn(OUT, IN), scheme, 16 if scheme == "hb4_fine" else 32)


def product(x, weight, bias=None, scales=None, out_dtype=None):
    return torch.ops.halfbyte.low_bit_linear(*product_words(x, weight, bias, scales, out_dtype))


def product_words(x, weight, bias=None, scales=None, out_dtype=None, arithmetic="float"):
    return (x, weight.codes, weight.scales if scales is None else scales, weight.zero_points, bias, weight.scheme, weight.group_size, out_dtype,
            arithmetic, weight.offsets, weight.row_scales)


def dequantize_words(weight, dtype, scales=None):
    return (weight.codes, weight.scales if scales is None else scales, weight.zero_points, weight.scheme, weight.in_features, weight.group_size, dtype,
            weight.offsets, weight.row_scales)


def several_words(x, weights, biases, scales=None, out_dtype=None, arithmetic="float"):
    parts = ([getattr(one, name) for one in weights] for name in ("codes", "scales", "zero_points", "offsets", "row_scales"))
    codes, own_scales, zero_points, offsets, row_scales = parts
    return (x, codes, own_scales if scales is None else scales, zero_points, biases, weights[0].scheme, weights[0].group_size, offsets, row_scales,
            out_dtype, arithmetic)


def rotary_words(dtype, wants_gradients=False):
    """Heads that lie as a product's rows have them; of the second table half of a head is turned, for all of the batch."""
    heads = (torch.randn(2, 3, count, 8).to(dtype).transpose(1, 2).requires_grad_(wants_gradients) for count in (4, 2))
    return (*heads, *(torch.randn(2, 3, 8).to(dtype) for _ in range(2))) if wants_gradients else (*heads, *(torch.randn(1, 3, 4).to(dtype) for _ in range(2)))


def transposed_words(x, weight, scales=None):
    return (x, weight.codes, weight.scales if scales is None else scales, weight.zero_points, weight.scheme, weight.in_features, weight.group_size, None,
            weight.offsets, weight.row_scales)


def attention_words(dtype, wants_gradients=False):
    shapes = (2, 4, 1, 8), (2, 2, 70, 8), (2, 2, 70, 8)
    return (*(torch.randn(shape).to(dtype).requires_grad_(wants_gradients) for shape in shapes), 0.3)


def wants(tensor):
    return tensor.detach().clone().requires_grad_()


def trainable_scales(weight):
    """Scales that take gradients; None where they are integers."""
    return wants(weight.scales) if weight.scales.is_floating_point() else None


def with_float32_scales(weight):
    if not weight.scales.is_floating_point():
        return weight
    return dataclasses.replace(weight, scales=weight.scales.float(), offsets=None if weight.offsets is None else weight.offsets.float())


def biases(dtype):
    return None, torch.randn(OUT).to(dtype).requires_grad_()


def check_opcheck():
    count = 0
    for scheme, dtype in itertools.product(SCHEMES, DTYPES):
        weight = packed(scheme)
        scales = trainable_scales(weight)
        for bias in biases(dtype):
            torch.library.opcheck(torch.ops.halfbyte.low_bit_linear, product_words(torch.randn(ROWS, IN).to(dtype).requires_grad_(), weight, bias, scales))
            count += 1
        torch.library.opcheck(torch.ops.halfbyte.low_bit_linear, product_words(torch.randn(2, ROWS, IN).to(dtype), weight))
        several = [packed(scheme, seed) for seed in (0, 1, 2)]
        torch.library.opcheck(torch.ops.halfbyte.low_bit_linears, several_words(torch.randn(ROWS, IN).to(dtype), several, [], out_dtype=torch.float32))
        torch.library.opcheck(torch.ops.halfbyte.low_bit_linears,
                              several_words(torch.randn(ROWS, IN).to(dtype).requires_grad_(), several, [*biases(dtype), None]))
        torch.library.opcheck(torch.ops.halfbyte.low_bit_linear_transposed, transposed_words(torch.randn(ROWS, OUT).to(dtype).requires_grad_(), weight, scales))
        torch.library.opcheck(torch.ops.halfbyte.dequantize, dequantize_words(weight, dtype, scales))
        count += 5
    for dtype in DTYPES:
        for bias in biases(dtype):
            x, weight = (torch.randn(size, IN).to(dtype).requires_grad_() for size in (ROWS, OUT))
            torch.library.opcheck(torch.ops.halfbyte.dense_linear, (x, weight, bias))
            count += 1
        torch.library.opcheck(torch.ops.halfbyte.decode_attention, attention_words(dtype))
        torch.library.opcheck(torch.ops.halfbyte.decode_attention, attention_words(dtype, wants_gradients=True))
        mask = torch.arange(70).view(1, 1, 1, 70) > torch.tensor([3, 65]).view(2, 1, 1, 1)
        torch.library.opcheck(torch.ops.halfbyte.decode_attention, (*attention_words(dtype), mask))
        torch.library.opcheck(torch.ops.halfbyte.decode_attention, (*attention_words(dtype, wants_gradients=True), mask))
        for wants_gradients in (False, True):
            torch.library.opcheck(torch.ops.halfbyte.rotary_embedding, rotary_words(dtype, wants_gradients))
            gate_up = [torch.randn(2, ROWS, IN).to(dtype).requires_grad_(wants_gradients) for _ in range(2)]
            for activation in ("silu", "gelu", "gelu_tanh"):
                torch.library.opcheck(torch.ops.halfbyte.gated_product, (*gate_up, activation, torch.float32))
            norm = (torch.randn(2, ROWS, IN).to(dtype), torch.randn(IN).to(dtype))
            torch.library.opcheck(torch.ops.halfbyte.rms_norm, (*(one.requires_grad_(wants_gradients) for one in norm), 1e-5))
            torch.library.opcheck(torch.ops.halfbyte.rms_norm, (norm[0].detach().transpose(0, 1).requires_grad_(wants_gradients), norm[1], 1e-5))
        count += 16
    return count


def check_fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    for scheme, dtype, out_dtype in itertools.product(SCHEMES, DTYPES, (None, *DTYPES)):
        weight = packed(scheme)
        for shape in ((IN,), (ROWS, IN), (2, ROWS, IN), (0, IN)):
            real = product(torch.randn(shape).to(dtype), weight, out_dtype=out_dtype)
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                fake = product(mode.from_tensor(torch.randn(shape).to(dtype)), weight, out_dtype=out_dtype)
                dense = torch.ops.halfbyte.dense_linear(mode.from_tensor(torch.randn(shape).to(dtype)), torch.empty(OUT, IN), None, out_dtype)
                back = torch.ops.halfbyte.dequantize(*dequantize_words(weight, dtype))
            assert (fake.shape, fake.dtype, fake.stride(), fake.device) == (real.shape, real.dtype, real.stride(), real.device), (scheme, shape)
            assert (dense.shape, dense.dtype) == (real.shape, real.dtype)
            assert (back.shape, back.dtype) == (weight.shape, dtype)
    for dtype in DTYPES:
        query, keys, values, scale = attention_words(dtype)
        real = torch.ops.halfbyte.decode_attention(query, keys, values, scale)
        with FakeTensorMode() as mode:
            fake = torch.ops.halfbyte.decode_attention(*map(mode.from_tensor, (query, keys, values)), scale)
        assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())
        words = rotary_words(dtype)
        real = torch.ops.halfbyte.rotary_embedding(*words)
        with FakeTensorMode() as mode:
            fakes = torch.ops.halfbyte.rotary_embedding(*map(mode.from_tensor, words))
        assert [(one.shape, one.dtype, one.stride()) for one in fakes] == [(one.shape, one.dtype, one.stride()) for one in real]


@contextlib.contextmanager
def one_thread():
    """For thousands of small products: threads of OpenMP wait for each other, long where others work too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def central_differences(function, at, step):
    """The gradient of a function of one float64 tensor, by twice as many calls as it has elements."""
    out = torch.empty_like(at)
    for i in range(at.numel()):
        moved = [at.clone(), at.clone()]
        moved[0].view(-1)[i] += step
        moved[1].view(-1)[i] -= step
        out.view(-1)[i] = (function(moved[0]) - function(moved[1])) / (2 * step)
    return out


def check_gradients_of(scheme, dtype):
    """Of the product's input, bias and scales; everything is linear, so that a wide step is exact but for rounding."""
    weight = with_float32_scales(packed(scheme))
    x, bias, seed = wants(torch.randn(ROWS, IN).to(dtype)), wants(torch.randn(OUT).to(dtype)), torch.randn(ROWS, OUT).to(dtype)
    scales = trainable_scales(weight)
    product(x, weight, bias, scales).backward(seed)
    dense, x64, bias64, seed64 = weight.dequantize(torch.float32).double(), x.detach().double(), bias.detach().double(), seed.double()

    def loss(x=x64, bias=bias64, dense=dense):
        return ((x @ dense.t() + bias) * seed64).sum()

    def of_scales(moved):
        return loss(dense=torch.ops.halfbyte.dequantize(*dequantize_words(weight, torch.float32, moved.float())).double())

    bound, worst = GRADIENT_BOUND[dtype], {}
    wanted = {"input": (x, central_differences(loss, x64, 0.5)), "bias": (bias, central_differences(lambda bias: loss(bias=bias), bias64, 0.5))}
    if scales is not None:
        wanted["scales"] = (scales, central_differences(of_scales, scales.detach().double(), 2.0**-4))
    for name, (own, other) in wanted.items():
        assert own.grad.dtype == own.dtype
        assert_near(own.grad, other, bound, scheme, dtype, name)
        worst[name] = difference(own.grad, other)
    return max(worst.values())


def check_gradients():
    with one_thread():
        return check_all_gradients()


def check_all_gradients():
    worst = {dtype: max(check_gradients_of(scheme, dtype) for scheme in SCHEMES) for dtype in DTYPES}
    for scheme in SCHEMES:
        weight = packed(scheme)
        scales = trainable_scales(weight)
        if scales is None:
            continue
        seed = torch.randn(weight.shape)
        torch.ops.halfbyte.dequantize(*dequantize_words(weight, torch.float32, scales)).backward(seed)
        no_offsets = None if weight.offsets is None else torch.zeros_like(weight.offsets)
        values = dataclasses.replace(weight, scales=torch.ones_like(weight.scales), offsets=no_offsets).dequantize(torch.float32).double() * seed.double()
        assert_near(scales.grad, values.view(OUT, -1, weight.group_size).sum(-1), 1e-3, scheme, "of dequantize")  # float16 scales: 2^-11
    return worst


def check_dense_gradients():
    for dtype in DTYPES:
        x, weight, bias = (torch.randn(shape).to(dtype).requires_grad_() for shape in ((ROWS, IN), (OUT, IN), (OUT,)))
        seed = torch.randn(ROWS, OUT).to(dtype)
        torch.ops.halfbyte.dense_linear(x, weight, bias).backward(seed)
        wanted = [one.detach().double().requires_grad_() for one in (x, weight, bias)]
        torch.nn.functional.linear(*wanted).backward(seed.double())
        for own, other in zip((x, weight, bias), wanted, strict=True):
            assert_near(own.grad, other.grad, GRADIENT_BOUND[dtype], "dense_linear", dtype)


def check_vmap():
    weight, dense, x = packed("sym_int4"), torch.randn(OUT, IN), torch.randn(5, ROWS, IN)
    query, keys, values, scale = attention_words(torch.float32)
    calls = {"low_bit_linear": lambda one: product(one, weight), "dense_linear": lambda one: torch.ops.halfbyte.dense_linear(one, dense, None),
             "rms_norm": lambda one: torch.ops.halfbyte.rms_norm(one, dense[0], 1e-5),
             "decode_attention": lambda one: torch.ops.halfbyte.decode_attention(query * one.mean(), keys, values, scale)}
    for name, call in calls.items():
        assert f"halfbyte::{name}" in str(taken(NotImplementedError, torch.vmap(call), x)), name
    scales = torch.stack([weight.scales] * 2)
    refusal = taken(NotImplementedError, torch.vmap(lambda one: torch.ops.halfbyte.dequantize(*dequantize_words(weight, torch.float32, one))), scales)
    assert "halfbyte::dequantize" in str(refusal)


def check_refusals():
    """What does not fit is named in one line, and the process goes on."""
    weight, x = packed("sym_int4"), torch.randn(ROWS, IN)
    words = [((x.double(), weight), {}, "float64", "contract"), ((x[:, :32], weight), {}, "64", "invalid_argument"),
             ((x, weight), {"bias": torch.ones(OUT + 1)}, "bias", "invalid_argument"), ((x, weight), {"scales": weight.scales[:, :1]}, "scales", "invalid_argument"),
             ((x, dataclasses.replace(weight, scheme="int3")), {}, "int3", "unsupported")]
    for given, named, word, code in words:
        error = taken(halfbyte.Error, product, *given, **named)
        assert word in str(error) and "\n" not in str(error) and error.code == code, (word, error.code, str(error))


def check_traced_refusals():
    """Where only shapes are traced, as torch.nn.functional.linear refuses these too."""
    weight, x = packed("sym_int4"), torch.randn(ROWS, IN)
    taken(RuntimeError, product, x.to("meta"), weight)
    taken(RuntimeError, product, x[:, :32].to("meta"), weight.to("meta"))
    taken(RuntimeError, torch.ops.halfbyte.dense_linear, x[:, :32].to("meta"), torch.empty(OUT, IN, device="meta"), None)


def check_inference_weights():
    """Tensors made in inference mode cannot be saved for a backward pass; those who want none may use them."""
    with torch.inference_mode():
        weight = packed("sym_int4")
        assert_near(product(torch.ones(1, IN), weight), torch.ones(1, IN) @ weight.dequantize(torch.float32).t(), 1e-6)
    assert product(torch.ones(1, IN), weight).shape == (1, OUT)
    error = taken(halfbyte.Error, product, torch.ones(1, IN, requires_grad=True), weight)
    assert error.code == "contract" and "InferenceMode" in str(error)
