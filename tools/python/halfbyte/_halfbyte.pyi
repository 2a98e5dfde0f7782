import os
from collections.abc import Callable, Sequence
from typing import TypedDict

Progress = Callable[[int, int], object]

class Error(RuntimeError):
    """What halfbyte refuses or cannot do: one line that names the file or tensor, and what to do.

    code: invalid_argument, not_found, already_exists, corrupt, unsupported, contract, io, no_resources, interrupted.
    """

    code: str

class Quantized(TypedDict):
    source_bytes: int
    result_bytes: int
    quantized_tensors: int
    kept_tensors: int
    rel_rmse: float
    seconds: float
    notes: list[str]
    warnings: list[str]

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
    scheme: str | None = ...,
    group_size: int | None = ...,
    keep: Sequence[str] = ...,
    scheme_for: dict[str, str] = ...,
    embedding: str | None = ...,
    head: str | None = ...,
    halfbyte_only: bool = ...,
    nested_scales: bool = ...,
    threads: int = ...,
    memory_limit: int = ...,
    shard_size: int = ...,
    requantize: bool = ...,
    overwrite: bool = ...,
    resume: bool = ...,
    restart: bool = ...,
    progress: Progress | None = ...,
) -> Quantized:
    """Streams a checkpoint into a quantised one, which appears when it is complete.

    Names and defaults are those of `halfbyte quantize`. progress(done, total): bytes of the source. Ctrl-C, and what
    progress raises, leave nothing behind unless `resume`. Errors: Error.
    """

def dequantize(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    dtype: str | None = ...,
    threads: int = ...,
    overwrite: bool = ...,
    progress: Progress | None = ...,
) -> Dequantized:
    """Writes the plain checkpoint that a quantised one was, in the dtypes on record or in `dtype`."""

def verify(path: str | os.PathLike[str], *, expect: str = ..., progress: Progress | None = ...) -> Verified:
    """Reads every byte of a checkpoint and compares it with the hashes on record."""

class Message(TypedDict):
    role: str
    content: str

class Tokenizer:
    """A checkpoint's tokenizer and chat template. Threads: any number may use it at once."""

    def __init__(self, checkpoint: str | os.PathLike[str]) -> None: ...
    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """With what the checkpoint puts around a whole text. special=False: "</s>" in it is text."""

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str: ...
    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """A conversation as the checkpoint's template has it, up to where the answer begins."""

    @property
    def chat_stop_tokens(self) -> list[int]: ...
    @property
    def vocab_size(self) -> int: ...

class CausalLM:
    """A loaded model. Threads: any number may generate at once."""

    @property
    def policy(self) -> str: ...
    @property
    def compute(self) -> str: ...
    @property
    def tensors(self) -> list[LoadedTensor]: ...
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_gen_len: int = 64,
        temperature: float = 0.6,
        top_p: float = 0.9,
        top_k: int = 0,
        seed: int = 0,
        ignore_eos: bool = False,
        stop_tokens: Sequence[int] = ...,
        on_token: Callable[[int, int], object] | None = None,
    ) -> list[list[int]]:
        """What follows each prompt of token ids. temperature 0: the most likely token, always.

        on_token(prompt's index, token) as tokens come; False ends that prompt's text.
        """

def load_low_bit(
    path: str | os.PathLike[str],
    dtype: str = "amp:bfloat16",
    *,
    device: str = "cpu",
    keep_float32: Sequence[str] = ...,
    verify: bool = False,
) -> CausalLM:
    """A quantised checkpoint, or an original one, as a model whose every tensor has a dtype its operators accept.

    On the CPU weights are mapped, not copied, unless `dtype` asks for another.
    """
