"""halfbyte.CausalLM: a model on halfbyte's own modules, kernels and scheduler."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _halfbyte
from ._halfbyte import DtypePolicy, Tokenizer
from ._hub import local
from ._tensors import LoadReport

Prompt = str | Sequence[int]
Path = str | os.PathLike[str]
Adapter = Path | tuple[Path, float]  # with how much of it is wanted: what it adds is multiplied by that


class CausalLM:
    """A loaded model. Any number of threads may generate from one at once."""

    def __init__(self, model: Any, path: str | os.PathLike[str]) -> None:
        self._model = model
        self._path = path
        self._tokenizer: Tokenizer | None = None
        self.report = LoadReport(**model.report)

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's. Error: ``not_found`` where it has none."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self._path)
        return self._tokenizer

    def _ids(self, prompt: Prompt) -> list[int]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else [int(token) for token in prompt]

    def generate(
        self,
        prompts: Sequence[Prompt] | str,
        *,
        max_gen_len: int = 64,
        temperature: float = 0.6,
        top_p: float = 0.9,
        top_k: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        ignore_eos: bool = False,
        stop_tokens: Sequence[int] = (),
        on_token: Callable[[int, int], Any] | None = None,
    ) -> list[Any]:
        """Continues prompts of token ids, or texts, of which continuations are texts; one text alone is one prompt.

        ``on_token(prompt, token)`` is called as tokens come; False ends that prompt. Error: ``invalid_argument``.
        """
        listed: Sequence[Prompt] = [prompts] if isinstance(prompts, str) else prompts
        out = self._model.generate(
            [self._ids(prompt) for prompt in listed],
            max_gen_len=max_gen_len, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p,
            repetition_penalty=repetition_penalty, seed=seed, ignore_eos=ignore_eos, stop_tokens=list(stop_tokens),
            on_token=on_token,
        )
        return [
            self.tokenizer.decode(tokens) if isinstance(prompt, str) else tokens
            for prompt, tokens in zip(listed, out, strict=True)
        ]

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[Any]:
        """The same of one prompt, as it comes: tokens of ids, pieces of text of a text. To stop early, close it."""
        words = _Words(self.tokenizer) if isinstance(prompt, str) else None
        for token in self._tokens(self._ids(prompt), options):
            piece = words.add(token) if words else token
            if piece != "":
                yield piece
        if words and (rest := words.rest()):
            yield rest

    def _tokens(self, ids: list[int], options: dict[str, Any]) -> Iterator[int]:
        waiting: queue.SimpleQueue[int | BaseException | None] = queue.SimpleQueue()
        is_wanted = True

        def on_token(_: int, token: int) -> bool:
            waiting.put(token)
            return is_wanted

        def run() -> None:
            try:
                self.generate([ids], on_token=on_token, **options)
                waiting.put(None)
            except BaseException as error:  # raised where the tokens are taken
                waiting.put(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            while (item := waiting.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            is_wanted = False
            thread.join()

    def chat(self, messages: Sequence[Mapping[str, str]], *, stream: bool = False, max_gen_len: int = 512, **options: Any) -> Any:
        """The answer to a conversation of ``{"role", "content"}``, as a text, or in pieces. Error: ``unsupported``
        where the checkpoint has no chat template."""
        ids = self.tokenizer.encode_chat(messages)
        options = {"stop_tokens": self.tokenizer.chat_stop_tokens, "max_gen_len": max_gen_len, **options}
        pieces = self._pieces(ids, options)
        return pieces if stream else "".join(pieces)

    def _pieces(self, ids: list[int], options: dict[str, Any]) -> Iterator[str]:
        words = _Words(self.tokenizer)
        for token in self._tokens(ids, options):
            if piece := words.add(token):
                yield piece
        if rest := words.rest():
            yield rest

    def logits(self, ids: Tensor | Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        """Of every position, float32. Shape: (rows, tokens) or (tokens) -> the same and vocab_size."""
        tokens = torch.as_tensor(ids, dtype=torch.int64)
        out: Tensor = self._model.logits(tokens if tokens.dim() == 2 else tokens.unsqueeze(0))
        return out if tokens.dim() == 2 else out.squeeze(0)

    def __repr__(self) -> str:
        return f"CausalLM({os.fspath(self._path)!r}, {self.report.policy}, {len(self.report.tensors)} tensors)"


class _Words:
    """Texts of tokens that come one by one; what may be half a character waits for its other half."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._given = ""

    def add(self, token: int) -> str:
        self._tokens.append(token)
        text = self._tokenizer.decode(self._tokens)
        if text.endswith("\ufffd"):
            return ""
        return self._take(text)

    def rest(self) -> str:
        return self._take(self._tokenizer.decode(self._tokens)) if self._tokens else ""

    def _take(self, text: str) -> str:
        piece = text[len(self._given) :]
        self._given = text
        return piece


def weighted(adapter: Adapter | Sequence[Adapter] | None) -> list[tuple[Path, float]]:
    if adapter is None:
        return []
    is_one = isinstance(adapter, str | os.PathLike) or (
        isinstance(adapter, tuple) and len(adapter) == 2 and isinstance(adapter[1], int | float)
    )
    several: Sequence[Any] = [adapter] if is_one else adapter  # type: ignore[assignment]
    return [one if isinstance(one, tuple) else (one, 1.0) for one in several]


def load_low_bit(
    path: str | os.PathLike[str],
    dtype: str | DtypePolicy = "amp:bfloat16",
    *,
    device: str = "cpu",
    keep_float32: Sequence[str] = (),
    dtype_for: Mapping[str, str | DtypePolicy] | None = None,
    compute: str = "auto",
    key_values: str = "auto",
    verify: bool = False,
    adapter: Adapter | Sequence[Adapter] | None = None,
) -> CausalLM:
    """Opens a quantised checkpoint, or an original one, as a model whose every parameter and buffer has a dtype that its
    operators accept. ``dtype``: a policy ("amp:bfloat16", "half", "bfloat16", "float32", "original" ...); ``dtype_for``:
    another for what a pattern matches; ``adapter``: directories of LoRA or DoRA as peft and ``finetune``
    write them, alone or as (directory, weight). Error: ``not_found``, ``corrupt``, ``unsupported``, ``contract``."""
    path = local(path)
    model = _halfbyte.load_low_bit(
        path, str(dtype), device=device, keep_float32=list(keep_float32),
        dtype_for={pattern: str(policy) for pattern, policy in (dtype_for or {}).items()}, compute=compute,
        key_values=key_values, verify=verify, adapters=weighted(adapter),
    )
    return CausalLM(model, path)
