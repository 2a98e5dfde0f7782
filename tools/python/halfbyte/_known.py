"""Code of transformers whose arithmetic is known: told by a digest of its text, without decorators and docstrings."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

RMS_NORM = "7f6be55b177fa1d7"  # LlamaRMSNorm's, as of most families
GATED_MLP = "7d2027d4464e3e71"  # LlamaMLP's
DECODER_LAYER = "d06e2eef7bb91426"  # LlamaDecoderLayer's
ROTARY = "4a8f8b85ee37bd3f"  # Llama's apply_rotary_pos_emb
ROTATE_HALF = "7b6c9b425ca04287"
# Attention of queries, keys and values of their own, all turned; by whether queries and keys are normalised.
ATTENTIONS = {
    "2e8f16ba887cb01f": False,  # Llama's
    "2ae8c5a78173031f": False,  # Mistral's
    "7dc2418d1fb9138c": False,  # Qwen2's
    "5d9f28275f6b215f": True,  # Qwen3's
}


@functools.lru_cache(maxsize=None)
def digest_of(function: Callable[..., Any]) -> str:
    """Empty where there is no text."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
        (definition,) = ast.parse(text).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return ""
    if not isinstance(definition, ast.FunctionDef):
        return ""
    definition.decorator_list = []
    if ast.get_docstring(definition) is not None:
        del definition.body[0]
    return hashlib.sha256(ast.unparse(definition).encode()).hexdigest()[:16]
