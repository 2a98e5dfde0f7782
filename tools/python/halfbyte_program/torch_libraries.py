"""The torch that this package was built for, found without importing it."""

import importlib.metadata
import importlib.util
import pathlib

WANTED = "2.13"


def library_folder() -> pathlib.Path:
    """Where torch's libraries lie. ImportError, in one line, without torch or with another version."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ImportError(f"halfbyte needs torch {WANTED}, and there is none: pip install 'torch>={WANTED},<2.14'")
    version = importlib.metadata.version("torch")
    if not version.startswith(WANTED + "."):
        raise ImportError(f"halfbyte needs torch {WANTED}; torch {version} is installed: pip install 'torch>={WANTED},<2.14'")
    return pathlib.Path(spec.origin).parent / "lib"
