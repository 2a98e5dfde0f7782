"""Code of transformers whose arithmetic is known: told by a digest of its text, without decorators and docstrings."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from types import CodeType
from typing import Any

from transformers.modeling_layers import GradientCheckpointingLayer

RMS_NORM = "7f6be55b177fa1d7"  # LlamaRMSNorm's, as of most families
GATED_MLP = "7d2027d4464e3e71"  # LlamaMLP's
DECODER_LAYER = "d06e2eef7bb91426"  # LlamaDecoderLayer's
ROTARY = "4a8f8b85ee37bd3f"  # Llama's apply_rotary_pos_emb
ROTATE_HALF = "7b6c9b425ca04287"
CACHE_UPDATE = "be5c7be0c2fa1d55"  # Cache's
DYNAMIC_UPDATE = "186c4f3a84f326c3"  # DynamicLayer's
# Attention of queries, keys and values of their own, all turned; by whether queries and keys are normalised.
ATTENTIONS = {
    "2e8f16ba887cb01f": False,  # Llama's
    "2ae8c5a78173031f": False,  # Mistral's
    "7dc2418d1fb9138c": False,  # Qwen2's
    "5d9f28275f6b215f": True,  # Qwen3's
}

# The functions that stand for one of transformers', which they wrap.
OURS: set[Callable[..., Any]] = set()


def code_within(function: Any, name: str) -> CodeType | None:
    """Of a function that another one makes."""
    constants = getattr(function, "__code__", None)
    found = [one for one in getattr(constants, "co_consts", ()) if isinstance(one, CodeType) and one.co_name == name]
    return found[0] if found else None


_CHECKPOINTING = code_within(GradientCheckpointingLayer.__dict__["__init_subclass__"].__func__, "forward_with_checkpointing")


def without_checkpointing(forward: Any) -> Any:
    """What transformers' gradient checkpointing wraps."""
    while _CHECKPOINTING is not None and getattr(forward, "__code__", None) is _CHECKPOINTING:
        forward = forward.__wrapped__
    return forward


def digest_of(function: Any) -> str:
    """Of transformers' own, if need be within ours; empty where there is no text, or somebody else wrapped it."""
    function = without_checkpointing(function)
    while function in OURS:
        function = without_checkpointing(function.__wrapped__)
    code = getattr(function, "__code__", None)
    return "" if code is None or hasattr(function, "__wrapped__") else _digest_of_code(code)


@functools.lru_cache(maxsize=None)
def _digest_of_code(code: CodeType) -> str:
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(code))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return ""
    if not isinstance(definition, ast.FunctionDef):
        return ""
    definition.decorator_list = []
    if ast.get_docstring(definition) is not None:
        del definition.body[0]
    return hashlib.sha256(ast.unparse(definition).encode()).hexdigest()[:16]
