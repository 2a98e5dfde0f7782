#!/bin/bash
# Measures halfbyte beside llama.cpp and OpenVINO on this machine and prints the README's table. `peers.sh --help` says more.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/peers.py" "$@"
