#!/usr/bin/env bash
# Installs what is missing, builds everything, and runs the whole suite: first the core that needs no LibTorch under
# AddressSanitizer and UBSan (Clang's, the fuzzers' build), then all of it. Before that, the parsers are fuzzed for two
# minutes. Prints what was found, failed or skipped, and ctest's count last.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# Lines of ctest that say nothing new.
without_passed() { grep -vE '^ *Start +[0-9]+:|Passed +[0-9.]+ sec$|^Test project'; }

test_preset() {
  say "tests of the $1 preset"
  ctest --preset "$1" --parallel "$(nproc)" --no-label-summary | without_passed
}

build_time="20 to 65 minutes on two cores, tests included"
packages+=("${clang_packages[@]}")
set_up_packages
say "building (log: build/quickstart.log)"
set_up_torch &  # the sanitizers' build needs none
torch=$!
trap 'kill "$torch" 2>/dev/null || true' EXIT
build fuzz all
wait "$torch"
set_up_python
build release all
"$root/tools/fuzz.sh" --seconds 120
test_preset fuzz
test_preset release
