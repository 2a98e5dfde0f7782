"""The console script: the program of the C++ build, with the LibTorch of this environment.

A package of its own, since importing halfbyte imports torch, which takes a second.
"""

import os
import pathlib
import sys

from .torch_libraries import library_folder

PROGRAM = pathlib.Path(__file__).parent.parent / "halfbyte" / "bin" / "halfbyte"


def environment() -> dict[str, str]:
    """What the program is run with. ImportError, in one line, without the torch that it needs."""
    libraries, others = str(library_folder()), os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": libraries + (os.pathsep + others if others else "")}


def main() -> None:
    try:
        surroundings = environment()
    except ImportError as error:
        sys.exit(f"halfbyte: {error}")
    os.execve(PROGRAM, ["halfbyte", *sys.argv[1:]], surroundings)
