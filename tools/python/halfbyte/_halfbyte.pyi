import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor
from typing_extensions import NotRequired, Unpack

from ._options import ConversionOptions
from ._progress import Progress

__version__: str

class Error(RuntimeError):
    """What halfbyte refuses or cannot do: one line that names the file or tensor, and what to do.

    code: invalid_argument, not_found, already_exists, corrupt, unsupported, contract, io, no_resources, interrupted; of what
    runs the program also internal. tensor, file: the first tensor and the path that the line names, as far as they can be
    told from it; "" where it names none.
    """

    code: str
    tensor: str
    file: str

def error_of(code: str, message: str) -> Error: ...

class Quantized(TypedDict):
    source: str
    destination: str
    source_bytes: int
    result_bytes: int
    quantized_tensors: int
    kept_tensors: int
    resumed_bytes: int
    was_complete: bool
    is_whole: bool
    parts_left: list[int]
    rel_rmse: float | None
    seconds: float
    calibration: dict[str, Any] | None
    advice: str | None
    notes: list[str]
    warnings: list[str]
    budget: NotRequired[dict[str, Any]]

class Dequantized(TypedDict):
    source_bytes: int
    result_bytes: int
    dequantized_tensors: int
    cast_tensors: int
    copied_tensors: int
    seconds: float
    notes: list[str]
    warnings: list[str]

class Verified(TypedDict):
    hash: str
    tensors_hashed: int
    tensors_unhashed: int
    problems: list[str]

class LoadedTensor(TypedDict):
    name: str
    loaded: str
    bytes: int
    placement: str
    note: str

def quantize(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    resume: bool = False,
    restart: bool = False,
    part: str | None = None,
    finish: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConversionOptions],
) -> Quantized:
    """Streams a checkpoint into a quantised one, which appears when it is complete: the bytes that the program writes.

    Names and defaults are those of `halfbyte quantize`. progress(done, total): one step after another, of tokens where
    it calibrates or measures for a target, then of bytes. Ctrl-C, and what progress raises, leave nothing behind unless
    `resume`. Errors: Error.
    """

def dequantize(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    dtype: str | None = ...,
    assume_original: str | None = ...,
    threads: int = ...,
    overwrite: bool = ...,
    progress: Progress | None = ...,
) -> Dequantized:
    """Writes the plain checkpoint that a quantised one was, in the dtypes on record or in `dtype`."""

def verify(path: str | os.PathLike[str], *, expect: str = ..., progress: Progress | None = ...) -> Verified:
    """Reads every byte of a checkpoint and compares it with the hashes on record."""

def export(
    checkpoint: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    to: str,
    *,
    type: str | None = None,
    requantize: bool = False,
    overwrite: bool = False,
    assume_original: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Writes a checkpoint in another program's format, and returns what `halfbyte export --json` prints.

    to: gguf, safetensors, compressed-tensors, bitsandbytes, gptq, awq. type: of a GGUF file's matrices. requantize:
    other numbers are allowed where the format cannot say the same.
    """

def synth(
    destination: str | os.PathLike[str],
    like: str = "llama-1.1b",
    *,
    config: str | os.PathLike[str] | None = None,
    layers: int = 0,
    experts: str = "usual",
    dtype: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Writes random weights of a published model's shape, the same bytes for the same seed on every machine.

    config: whose shape instead, a config.json or a directory with one, whose tokenizer is copied. dtype: None: as the
    config has it, or bfloat16.
    """

def perplexity(
    checkpoint: str | os.PathLike[str],
    text: str | os.PathLike[str],
    *,
    dtype: str = "amp:bfloat16",
    ctx: int = 0,
    chunks: int = 0,
    windows: str = "prefixed",
    against: str | os.PathLike[str] | None = None,
    against_dtype: str = "float32",
    keep_float32: Sequence[str] = ...,
    special_tokens: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """How well a checkpoint predicts a text, and how far it is from `against`: what `halfbyte perplexity --json` prints.

    text: a str is the text itself, a path (pathlib.Path) a file of it. ctx: tokens a window; 0: 512, or what the models
    have room for. chunks: most windows; 0: all of the text. progress(done, total): in tokens.
    """

class Tokenizer:
    """A checkpoint's tokenizer and chat template. Threads: any number may use it at once."""

    def __init__(self, checkpoint: str | os.PathLike[str]) -> None: ...
    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """With what the checkpoint puts around a whole text. special=False: "</s>" in it is text."""

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str: ...
    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """A conversation as the checkpoint's template has it, up to where the answer begins."""

    @property
    def chat_stop_tokens(self) -> list[int]: ...
    @property
    def vocab_size(self) -> int: ...

class CausalLM:
    """What halfbyte.CausalLM is made on."""

    @property
    def report(self) -> dict[str, Any]: ...
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_gen_len: int,
        temperature: float,
        top_p: float,
        top_k: int,
        min_p: float,
        repetition_penalty: float,
        seed: int,
        ignore_eos: bool,
        stop_tokens: Sequence[int],
        on_token: Callable[[int, int], object] | None,
    ) -> list[list[int]]: ...
    def logits(self, tokens: Tensor) -> Tensor: ...

def load_low_bit(
    path: str | os.PathLike[str],
    dtype: str,
    *,
    device: str,
    keep_float32: Sequence[str],
    dtype_for: dict[str, str],
    compute: str,
    key_values: str,
    verify: bool,
    adapters: Sequence[tuple[str | os.PathLike[str], float]],
) -> CausalLM: ...
def load_state(
    path: str | os.PathLike[str],
    *,
    dtype: str,
    keep_float32: Sequence[str],
    dequantize: bool,
    device: str,
    verify: bool,
) -> tuple[dict[str, tuple[Any, bool, str | None, str]], dict[str, Any]]: ...
def quantize_tensor(
    weight: Tensor, *, scheme: str, group_size: int | None, search: str | None
) -> dict[str, Any]: ...
def quantize_state_dict(
    tensors: dict[str, Any],
    destination: str | os.PathLike[str],
    *,
    config: str,
    files: dict[str, bytes],
    progress: Progress | None,
    **options: Unpack[ConversionOptions],
) -> dict[str, Any]: ...
def is_int8_fast() -> bool: ...

class Watch:
    """entries: (dict, key, value), value None where there is no such key. classes: (object, class). attributes: (object,
    name, value). containers: dicts. Errors: TypeError, ValueError."""

    def __init__(
        self,
        entries: list[tuple[dict[str, Any], str, Any]],
        classes: list[tuple[Any, type]],
        attributes: list[tuple[Any, str, Any]],
        containers: list[Any],
    ) -> None: ...
    def is_same(self) -> bool:
        """Whether names still mean these objects."""

    def is_empty(self) -> bool:
        """Whether there is nothing in any container."""

class Growing:
    """Keys and values of a cache, (batch, heads, tokens, head_dim), that a token at a time grows where they lie.

    append: nothing where they are not what append or leave left, where it was, or the token, (batch, heads, 1, head_dim),
    is of another kind. What it gives may have the memory of what it was given; is_alone: whether no other tensor has it.
    """

    def __init__(self) -> None: ...
    def leave(self, keys: Tensor, values: Tensor) -> None: ...
    @staticmethod
    def is_alone(keys: Tensor, values: Tensor) -> bool: ...
    def append(self, keys: Tensor, values: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor] | None: ...

class LayerStep:
    """One token of each sequence through a decoder layer. Shapes: hidden (batch, 1, size), cosine and sine (batch or 1, 1,
    head_dim), heads (batch, heads, 1, head_dim).

    attention: norm, query_norm, key_norm: (weight, epsilon) or None; projections, output: lists of (fields of a
    LowBitTensor, bias, arithmetic); head_dim; scale. mlp, None for one that is run otherwise: norm, gate_up, down,
    activation.
    """

    def __init__(self, dtype: torch.dtype, attention: dict[str, Any], mlp: dict[str, Any] | None) -> None: ...
    @property
    def has_mlp(self) -> bool: ...
    def fits(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> bool: ...
    def heads(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor]: ...
    def attended(
        self, hidden: Tensor, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
    ) -> Tensor: ...
    def added(self, hidden: Tensor, heads: Tensor) -> Tensor: ...
    def fed(self, hidden: Tensor) -> Tensor: ...

def matches_pattern(pattern: str, name: str) -> bool: ...

class DtypePolicy:
    """Which dtype every floating parameter and buffer has after loading, and in which products are computed.

    text: "amp", "amp:bfloat16", "amp:float16", "half", "float16", "bfloat16", "float32", "original". Error:
    invalid_argument.
    """

    def __init__(self, text: str) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def is_amp(self) -> bool: ...
    @property
    def is_original(self) -> bool: ...
    @property
    def operand(self) -> torch.dtype | None:
        """Of the operands of linear and attention products; None: as recorded, promoted where two meet."""

    @property
    def stream(self) -> torch.dtype | None:
        """Of the residual stream and of what lies between products."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...

def restore_into(modules: list[Any], path: str | os.PathLike[str], **options: Any) -> tuple[dict[str, Any], list[Any]]: ...
def restore_for_training(
    modules: list[Any], path: str | os.PathLike[str], **options: Any
) -> tuple[dict[str, Any], list[Any]]: ...
def training_problems(modules: list[Any], groups: list[list[Tensor]]) -> list[str]: ...
def assert_trainable(modules: list[Any], groups: list[list[Tensor]]) -> None: ...
