#!/usr/bin/env bash
# Runs the suite under the sanitizers that take too long for every change.
#
#   tools/sanitize.sh [thread] [address]       (both unless named)
#
# thread   ThreadSanitizer on the core, with Clang and its OpenMP: GCC's does not tell the sanitizer where its threads meet, Clang's
#          does (libarcher; Debian: libomp-dev). Build folder: build/tsan
# address  AddressSanitizer and UBSan on everything, LibTorch's part included; the asan preset leaves that out. Without the tests that
#          measure whether the process grows, since the sanitizer keeps what is freed. Build folder: build/asan-torch
#
# Both without oneDNN, whose library is opened with RTLD_DEEPBIND, which sanitizers refuse.
#
# tools/sanitize/*.txt name what is not reported, and why. Exit status 1 when a test failed or a sanitizer found something.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
jobs=${HALFBYTE_JOBS:-$(nproc)}
supp=$root/tools/sanitize

clang=
for name in clang++ clang++-{22,21,20,19,18,17,16,15,14}; do
  if [[ ! $clang ]] && command -v "$name" >/dev/null; then clang=$name; fi
done

# test_in FOLDER WORDS...: what of ctest's tests WORDS choose.
test_in() {
  local folder=$1
  shift
  OMP_WAIT_POLICY=passive ctest --test-dir "$folder" --parallel "$jobs" --output-on-failure --no-tests=error "$@"
}

thread() {
  [[ $clang ]] || fail "ThreadSanitizer needs Clang (Debian: clang libomp-dev)"
  local archer
  archer=$(find "$(dirname "$("$clang" -print-file-name=libomp.so)")" -name 'libarcher.so' 2>/dev/null | head -n 1)
  [[ $archer ]] || fail "$clang has no libarcher.so, without which every OpenMP loop looks like a race (Debian: libomp-dev)"
  cmake --preset tsan -DCMAKE_CXX_COMPILER="$clang"
  cmake --build --preset tsan --parallel "$jobs"
  # libarcher leaves the sanitizer switched off after one test's last loop, and so at the end of what runs all tests in one process
  # (core_tests.*): an error at exit that no option turns off. The tests run one by one here.
  OMP_TOOL_LIBRARIES=$archer ARCHER_OPTIONS=verbose=0 TSAN_OPTIONS="ignore_noninstrumented_modules=1 suppressions=$supp/races.txt" \
    test_in "$root/build/tsan" -L core -E '^core_tests|^GPTQ: symmetric where the zero points bear it out$'
}

address() {
  # The container-overflow check needs every std::vector's owner to be instrumented, and LibTorch is not.
  cmake --preset asan -B "$root/build/asan-torch" -DHALFBYTE_WITH_TORCH=ON -DCMAKE_DISABLE_FIND_PACKAGE_dnnl=ON
  cmake --build "$root/build/asan-torch" --parallel "$jobs"
  # Some tests ask for more memory than there is, and want the answer that a program without sanitizers has.
  ASAN_OPTIONS=detect_container_overflow=0:allocator_may_return_null=1 LSAN_OPTIONS="suppressions=$supp/leaks.txt" \
    test_in "$root/build/asan-torch" -LE '^(consumer|scripts)$' \
    -E '^tools\.(docs|doctor|device|lesser_cpu|migration|resume|versions)$|^onednn|(go leave nothing behind|do not make the process grow|again holds on to nothing)$'
}

(($#)) || set -- thread address
cd "$root"
for what; do
  case $what in
    thread | address) "$what" ;;
    *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done
