"""The console script: the program of the C++ build, with the LibTorch of this environment.

A package of its own, since importing halfbyte imports torch, which takes a second.
"""

import os
import pathlib
import sys

from .torch_libraries import library_folder


def main() -> None:
    try:
        libraries = str(library_folder())
    except ImportError as error:
        sys.exit(f"halfbyte: {error}")
    others = os.environ.get("LD_LIBRARY_PATH")
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries + (os.pathsep + others if others else "")}
    program = pathlib.Path(__file__).parent.parent / "halfbyte" / "bin" / "halfbyte"
    os.execve(program, ["halfbyte", *sys.argv[1:]], environment)
