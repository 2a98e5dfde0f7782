"""LLM checkpoints in 4 bits: made, checked and run on the CPU with halfbyte's own kernels."""

from halfbyte_program.torch_libraries import library_folder as _library_folder

_library_folder()  # another torch would fail with a symbol's name

import torch as _torch  # noqa: E402, F401  brings the libraries that the next line needs

from ._halfbyte import CausalLM, Error, Tokenizer, dequantize, load_low_bit, quantize, verify  # noqa: E402

__all__ = ["CausalLM", "Error", "Tokenizer", "dequantize", "load_low_bit", "quantize", "verify"]
