"""What the program answers in JSON: it is run, and its object is the result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from halfbyte_program import PROGRAM, environment

from ._halfbyte import Error, error_of
from ._hub import local
from ._options import ConversionOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

Path = str | os.PathLike[str]

_PATIENCE_S = 10  # that a program which was asked to end may take to undo what it has begun


def _values(value: object) -> Iterator[str | None]:
    """Of one option: None for a flag alone. What is off or not given has none."""
    if value is None or value is False:
        return
    if value is True:
        yield None
    elif isinstance(value, Mapping):
        yield from (f"{key}={value[key]}" for key in value)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from map(str, value)
    else:
        yield os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _words(options: Mapping[str, object]) -> Iterator[str]:
    for name, given in options.items():
        flag = "--" + name.replace("_", "-")
        # One word an option, so that no value is taken for an option.
        yield from (flag if value is None else f"{flag}={value}" for value in _values(given))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()


def _output(words: Sequence[str]) -> tuple[int, bytes, bytes]:
    # A session of its own: a terminal's Ctrl-C would reach the program as well, which takes the second for "at once".
    with subprocess.Popen(
        words, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            output, messages = process.communicate()
        except BaseException:
            _end(process)
            raise
    return process.returncode, output, messages


def _ended(status: int, messages: bytes) -> Error:
    """Of a program that left no object: a signal's name, or its last line."""
    lines = messages.decode(errors="replace").strip().splitlines()
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    return error_of("internal", f"the program ended with {how}" + (f": {lines[-1]}" if lines else ""))


def run(verb: str, *paths: Path, **options: object) -> dict[str, Any]:
    words = [str(PROGRAM), verb, "--json", "-q", *_words(options), "--", *(local(path) for path in paths)]
    status, output, messages = _output(words)
    try:
        found: dict[str, Any] = json.loads(output)
    except ValueError:
        raise _ended(status, messages) from None
    failure = found.get("error")
    if status != 0 and failure and "exit_status" in failure:  # `inspect` has errors of weights under that name
        raise error_of(failure["code"], failure["message"])
    return found


def inspect(
    path: Path,
    *,
    tensors: bool = False,
    policy: str | None = None,
    keep_float32: Sequence[str] = (),
    dtype_for: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What a checkpoint holds, of its headers alone: what ``halfbyte inspect --json`` prints.

    ``tensors``: each of them too. ``policy``: instead, what loading under it costs; ``keep_float32``, ``dtype_for``
    (pattern to policy): the same with those.
    """
    return run("inspect", path, tensors=tensors, policy=policy, keep_float32=keep_float32, dtype_for=dtype_for)


def plan(source: Path, **options: Unpack[ConversionOptions]) -> dict[str, Any]:
    """What ``quantize`` with these options would do with each tensor, without writing anything."""
    unknown = sorted(options.keys() - ConversionOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"plan() got an unexpected keyword argument '{unknown[0]}'")
    given: dict[str, object] = dict(options)
    if given.pop("requantize", False) and given.get("scheme") is None:
        given["scheme"] = "sym_int4"  # the program quantises again what it is told a scheme for
    return run("quantize", source, "nothing-is-written", dry_run=True, **given)


def diff(a: Path, b: Path, *, tensors: bool = False) -> dict[str, Any]:
    """Which tensors of two checkpoints differ, and by how much. ``tensors``: equal ones too."""
    return run("diff", a, b, tensors=tensors)


def doctor() -> dict[str, Any]:
    """What this machine is, what of it is used, and what is broken: ``well`` is false then."""
    return run("doctor")
