"""What long calls tell as they go."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

#: Called with how much is done and of how much, in bytes or tokens; True: a bar on stderr.
Progress = Callable[[int, int], object] | bool


class Bar:
    """tqdm's where it is installed, else a line of its own; each step of a call begins anew."""

    def __init__(self) -> None:
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped, unused-ignore]
        except ImportError:
            tqdm = None
        self._tqdm: Any = tqdm
        self._bar: Any = None
        self._shown = -1

    def __call__(self, done: int, total: int) -> None:
        if self._tqdm is None:
            self._line(done, total)
            return
        if self._bar is None or self._bar.total != total:
            self._bar = self._tqdm(total=total, unit_scale=True)
        self._bar.update(done - self._bar.n)
        if done >= total:
            self._bar.close()
            self._bar = None

    def _line(self, done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        if percent != self._shown:
            sys.stderr.write(f"\r{percent:3} %" + ("\n" if percent == 100 else ""))
            sys.stderr.flush()
            self._shown = percent
