#!/bin/bash
# Measures halfbyte beside llama.cpp, OpenVINO and, with --ik, ik_llama.cpp on this machine and prints the README's table. `peers.sh --help` says more.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/peers.py" "$@"
