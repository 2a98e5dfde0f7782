"""LLM checkpoints in 4 bits: made, checked and run on the CPU with halfbyte's own kernels."""

from halfbyte_program.torch_libraries import library_folder as _library_folder

_library_folder()  # another torch would fail with a symbol's name

import torch as _torch  # noqa: E402, F401  brings the libraries that the next line needs

from ._halfbyte import DtypePolicy, Error, Tokenizer, dequantize, export, perplexity, quantize, synth, verify  # noqa: E402
from ._halfbyte import __version__ as __version__  # noqa: E402
from . import _operators as _operators, nn  # noqa: E402
from ._memory import quantize_state_dict  # noqa: E402
from ._model import CausalLM, load_low_bit  # noqa: E402
from ._modules import assert_trainable, restore_for_training, restore_into, training_problems  # noqa: E402
from ._program import diff, doctor, inspect, plan  # noqa: E402
from ._tensors import LoadReport, LowBitTensor, State, load_state, quantize_tensor  # noqa: E402
from ._training import finetune, merge  # noqa: E402
from .nn import quantize_module  # noqa: E402

__all__ = [
    "CausalLM", "DtypePolicy", "Error", "LoadReport", "LowBitTensor", "State", "Tokenizer", "assert_trainable",
    "dequantize", "diff", "doctor", "export", "finetune", "inspect", "load_low_bit", "load_state", "merge",
    "nn", "perplexity", "plan",
    "quantize", "quantize_module", "quantize_state_dict", "quantize_tensor", "restore_for_training", "restore_into",
    "synth", "training_problems", "verify",
]
