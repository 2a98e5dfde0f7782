"""Checkpoints by their names on the hub."""

from __future__ import annotations

import os
import re

from ._halfbyte import error_of

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
# What a checkpoint consists of for halfbyte: never code, never the same weights in another framework's format.
_WANTED = ["*.safetensors", "*.gguf", "*.json", "*.model", "*.jinja", "*.txt", "*.md", "LICENSE*"]


def local(path: str | os.PathLike[str]) -> str:
    """The folder of an "org/model" that is no path here, downloaded by huggingface_hub where that is installed, into its
    cache, with its progress, tokens and HF_ENDPOINT. Anything else stays as it is."""
    text = os.fspath(path)
    if not isinstance(path, str) or os.path.lexists(text) or not _NAME.fullmatch(text):
        return text
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        return text  # for halfbyte to say that it is not there
    try:
        return snapshot_download(text, allow_patterns=_WANTED)
    except Exception as problem:
        kind = type(problem).__name__
        reason = " ".join(str(problem).split())
        code = "not_found" if kind in ("RepositoryNotFoundError", "RevisionNotFoundError") else "io"
        raise error_of(code, f"{text}: huggingface_hub could not download it: {kind}: {reason}") from problem
