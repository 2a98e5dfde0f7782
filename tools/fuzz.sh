#!/usr/bin/env bash
# Fuzzes every parser of what strangers send, and whole conversions of small checkpoints.
#
#   tools/fuzz.sh [--seconds N | --runs N] [--seed N] [TARGET...]
#                                                        N seconds in all, or N inputs a target (120 seconds); seed 1
#   tools/fuzz.sh --list                                 the targets
#   tools/fuzz.sh --coverage [TARGET...]                 line coverage of the parsers by all inputs that are kept
#
# Installs Clang when it is missing, builds the preset "fuzz", makes the corpora that are missing (tests/fuzz/make_corpus.py;
# what fuzzing finds worth keeping stays in build/fuzz/corpus), runs one target after another, two at a time, and prints
# a table. Status 1: something was found; its input is named.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

packages+=("${clang_packages[@]}")
seconds=120
runs=
seed=1
mode=run
jobs=2
chosen=()

usage() { sed -n '4,7s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

whole_number() { [[ $1 =~ ^[1-9][0-9]*$ ]] || usage; say "$1"; }

parse_words() {
  while [[ $# -gt 0 ]]; do
    case $1 in
      --seconds) seconds=$(whole_number "${2:-}"); shift ;;
      --runs) runs=$(whole_number "${2:-}"); shift ;;
      --seed) seed=$(whole_number "${2:-}"); shift ;;
      --coverage) mode=coverage ;;
      --list) mode=list ;;
      -*) usage ;;
      *) chosen+=("$1") ;;
    esac
    shift
  done
}

set_up_fuzzing() {
  cd "$root"
  mkdir -p build
  local -a missing
  mapfile -t missing < <(missing_packages)
  [[ ${#missing[@]} == 0 ]] || install_packages "${missing[@]}"
  command -v "clang++-$llvm" >/dev/null || fail "clang++-$llvm is not there, and nothing is fuzzed without it"
}

choose_targets() {
  local -a known
  mapfile -t known < <("$program")
  local name
  for name in "${chosen[@]}"; do
    printf '%s\n' "${known[@]}" | grep -qx -- "$name" || fail "no target is called '$name'; known are ${known[*]}"
  done
  [[ ${#chosen[@]} -gt 0 ]] || chosen=("${known[@]}")
}

# What one input may take: 10 seconds, 64 MB and twenty times its size (counted in tests/fuzz/memory.cpp).
limits=(-timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=80 -max_len=65536 -reload=0 -print_final_stats=1)

# fuzz TARGET: prints its row; 1 when something was found.
fuzz() {
  local target=$1 work=$out/$1
  local -a how=("-max_total_time=$share")
  [[ -z $runs ]] || how=("-runs=$runs")
  [[ ! -s $seeds/$target.dict ]] || how+=("-dict=$seeds/$target.dict")  # an empty one is refused
  mkdir -p "$work" "$corpus/$target" "$findings"
  local status=0
  HALFBYTE_FUZZ_TARGET=$target "$program" "${limits[@]}" "${how[@]}" -seed="$seed" -artifact_prefix="$findings/$target-" \
    "$corpus/$target" "$seeds/$target" >"$work/log" 2>&1 </dev/null || status=$?
  local executions edges found
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")
  edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$work/log" | tail -n 1)
  found=$(sed -n 's/.*Test unit written to //p' "$work/log" | tail -n 1)
  printf '%-20s %12s %8s  %s\n' "$target" "${executions:--}" "${edges:--}" "${found:-${status/#0/}}"
  [[ $status == 0 ]] || { grep -v '^#' "$work/log" | tail -n 60 >&2; return 1; }
}

fuzz_all() {
  local target failures=0
  share=$((jobs * seconds / ${#chosen[@]}))
  ((share > 0)) || share=1
  printf '%-20s %12s %8s  %s\n' target executions edges finding
  for target in "${chosen[@]}"; do
    (($(jobs -rp | wc -l) < jobs)) || wait -n || failures=$((failures + 1))
    fuzz "$target" &
  done
  while [[ -n $(jobs -p) ]]; do wait -n || failures=$((failures + 1)); done
  ((failures == 0)) || fail "$failures of ${#chosen[@]} targets found something; the inputs are in $findings"
}

# The files whose job is to read what strangers send.
parsers=(loader/files models/json models/architectures models/tokenizers models/chat convert/output/journal.cpp tools/cli/parse.cpp)

# Every kept input once, by a build that counts lines.
print_coverage() {
  local target
  rm -rf "$out/profiles"
  for target in "${chosen[@]}"; do
    mkdir -p "$corpus/$target"
    HALFBYTE_FUZZ_TARGET=$target LLVM_PROFILE_FILE="$out/profiles/$target.profraw" \
      "$program" "${limits[@]}" -runs=0 "$corpus/$target" "$seeds/$target" >"$out/coverage.log" 2>&1 </dev/null ||
      say "$target: ended early; see $out/coverage.log" >&2
  done
  "llvm-profdata-$llvm" merge -o "$out/all.profdata" "$out"/profiles/*.profraw
  "llvm-cov-$llvm" report "$program" -instr-profile="$out/all.profdata" -show-region-summary=false \
    -show-branch-summary=false "${parsers[@]/#/$root/}" | grep -v '\.h  '
}

parse_words "$@"
set_up_fuzzing
preset=fuzz
[[ $mode != coverage ]] || preset=fuzz-coverage
say "building (log: build/quickstart.log)"
build "$preset" halfbyte_fuzz
program=$root/build/$preset/bin/halfbyte_fuzz
choose_targets
[[ $mode != list ]] || { printf '%s\n' "${chosen[@]}"; exit; }
corpus=$root/build/fuzz/corpus seeds=$root/build/fuzz/seeds out=$root/build/fuzz/run findings=$root/build/fuzz/findings
mkdir -p "$out"
rm -rf "$seeds"
python3 "$root/tests/fuzz/make_corpus.py" "$seeds"
memory_disk=/dev/shm
[[ -w $memory_disk ]] || memory_disk=${TMPDIR:-/tmp}
scratch=$(mktemp -d "$memory_disk/halfbyte-fuzz-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export HALFBYTE_FUZZ_SCRATCH=$scratch TMPDIR=$scratch OMP_NUM_THREADS=1 ASAN_OPTIONS=quarantine_size_mb=8:detect_leaks=1:allocator_may_return_null=0
if [[ $mode == coverage ]]; then print_coverage; else fuzz_all; fi
