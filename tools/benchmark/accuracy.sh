#!/bin/bash
# Measures what halfbyte, llama.cpp, bitsandbytes and AutoRound lose of a model, with one evaluator. `accuracy.sh --help` says more.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/accuracy.py" "$@"
