#!/usr/bin/env bash
# Runs every script of this folder that compares halfbyte with other people's packages, in a Python environment of its own.
#
#   tools/compat/all.sh [--list] [--only NAME]... [--build DIR] [--venv DIR] [--scratch DIR] [--templates DIR] [--large]
#
# --build      has bin/halfbyte and what belongs to it (build/release)
# --venv       made when it is not there; 3 GB with everything in it (build/compat/venv)
# --scratch    logs, and what the scripts write (build/compat)
# --templates  chat templates as the models' authors publish them: FAMILY.jinja
# --large      also what needs 6 GB of disk, half an hour, or llama.cpp compiled
#
# Prints a line a script: passed, failed, or skipped and why; then the counts. Exit status 1 when one failed.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../setup.sh"

build=$root/build/release
scratch=$root/build/compat
venv=
templates=
large=
list=
only=()
while (($#)); do
  case $1 in
    --list | --large) printf -v "${1#--}" yes ;;
    --only) only+=("${2:?--only needs a name}"); shift ;;
    --build | --venv | --scratch | --templates) printf -v "${1#--}" %s "$(realpath -m "${2:?$1 needs a folder}")"; shift ;;
    *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
  shift
done
venv=${venv:-$scratch/venv}
halfbyte=$build/bin/halfbyte
tiny=$root/tests/data/tiny-llama

# name | packages | words after the script's name; "torch" is the version that halfbyte is built with, for the CPU.
# What a script can do without, gptqmodel and hqq, is used where somebody has installed it, and the script says so.
scripts="
bitsandbytes_accuracy | torch numpy safetensors bitsandbytes | $halfbyte $tiny $root/tests/data/heldout.txt
chat_check | torch transformers tokenizers jinja2 | $halfbyte $tiny $templates
device_check | | $halfbyte $root/tests/data
evaluate_check | torch transformers sentencepiece | $halfbyte $tiny $root/tests/data/heldout.txt
export_check | torch numpy safetensors transformers compressed-tensors bitsandbytes accelerate | $halfbyte $tiny $scratch
families_check | torch safetensors transformers | $halfbyte 2
gguf_check | numpy safetensors gguf | $halfbyte
gguf_models_check | torch numpy safetensors transformers llama-cpp-python | $halfbyte $root/tests/data/families
gguf_drawn_check | torch numpy safetensors transformers llama-cpp-python | $halfbyte 4
gptq_check | torch numpy safetensors compressed-tensors | $halfbyte
interrupt_test | | $halfbyte $tiny $tiny $tiny
jinja_check | torch transformers tokenizers jinja2 | $halfbyte $tiny $templates
kill_test | | $halfbyte $scratch/kill
low_bit_check | torch numpy safetensors bitsandbytes compressed-tensors | $halfbyte
python_check | torch | $halfbyte $tiny
python_hostile_check | torch | $tiny 10000 $root/../shared/fixtures/peers
python_modules_check | torch | $tiny
python_peft_check | torch numpy transformers peft bitsandbytes accelerate | $tiny
python_processes_check | torch numpy scipy scikit-learn | $tiny
python_transformers_check | torch numpy safetensors transformers compressed-tensors bitsandbytes accelerate | $halfbyte $root/tests/data/families $root/../shared/fixtures/peers
python_hub_check | torch huggingface_hub | $tiny
pickle_check | torch numpy safetensors | $halfbyte $tiny
published_check | torch safetensors transformers | $halfbyte $root/tests/data/families
race_test | | $halfbyte $tiny $scratch/race
ranks_check | | $halfbyte $tiny
report_check | | $halfbyte $tiny $root/tests/data/heldout.txt $scratch/report
page_check | selenium | $halfbyte $tiny
server_alike | | $halfbyte $tiny
server_soak | | $halfbyte $tiny
schemas_check | jsonschema | $halfbyte $tiny 1000
server_check | openai langchain-openai | $halfbyte $tiny
thorough | | $build
tokenizer_fixtures | tokenizers sentencepiece tiktoken | --check $root/tests/data/tokenizers
tokenizers_check | tokenizers sentencepiece | $halfbyte --megabytes 0.1
training_check | torch transformers peft bitsandbytes accelerate safetensors | $halfbyte $tiny $root/tests/data/heldout.txt
transformers_check | torch numpy safetensors transformers compressed-tensors bitsandbytes accelerate | $halfbyte $tiny $root/tests/data/families
"

trimmed() { sed 's/^ *//; s/ *$//' <<<"$1"; }

is_wanted() {
  local name
  ((${#only[@]})) || return 0
  for name in "${only[@]}"; do [[ $name == "$1" || $name == "$1.py" ]] && return 0; done
  return 1
}

# Why this script cannot run here; nothing when it can.
missing_for() {
  case $1 in
    gguf_models_check | gguf_drawn_check) [[ $large ]] || say "compiles llama.cpp where pip has no wheel of it: --large runs it" ;;
    interrupt_test) [[ $large ]] || say "needs a machine that does nothing else, and minutes: --large runs it" ;;
    kill_test) [[ $large ]] || say "needs 6 GB of disk and minutes: --large runs it" ;;
    training_check) [[ $large ]] || say "needs a quarter of an hour: --large runs it" ;;
    thorough) [[ $large ]] || say "needs half an hour: --large runs it" ;;
    chat_check | jinja_check) [[ $templates ]] || say "needs the published chat templates, which are not ours to keep: --templates DIR" ;;
  esac
}

pip() { "$venv/bin/python" -m pip install --disable-pip-version-check "$@" >>"$scratch/pip.log" 2>&1; }

# As tools/setup.sh looks for it, but with what it depends on: Python code needs that.
install_torch_for_python() {
  "$venv/bin/python" -c 'import torch, sys; sys.exit(torch.__version__.split("+")[0] != sys.argv[1])' "$torch_version" 2>>"$scratch/pip.log" && return
  pip "torch==$torch_version+cpu" || pip --no-index "torch==$torch_version" || pip "torch==$torch_version+cpu" --extra-index-url "$torch_index" ||
    pip "torch==$torch_version"
}

# Installs a script's packages, and says which one could not be.
install_all() {
  local package
  for package; do
    if [[ $package == torch ]]; then install_torch_for_python; else pip "$package"; fi || {
      say "pip could not install $package ($scratch/pip.log)"
      return
    }
  done
}

run() {
  local name=$1 packages=$2 words=$3 why log=$scratch/$1.log begin=$SECONDS status
  why=$(missing_for "$name")
  # shellcheck disable=SC2086  # words of the table
  [[ $why ]] || why=$(install_all $packages)
  if [[ $why ]]; then
    say "$name: skipped: $why"
    return 77
  fi
  # shellcheck disable=SC2086  # words of the table
  PYTHONPATH=$build/python "$venv/bin/python" -B "$here/$name.py" $words >"$log" 2>&1 </dev/null
  status=$?
  case $status in
    0) say "$name: passed ($((SECONDS - begin)) s)" ;;
    77) say "$name: skipped: $(tail -n 1 "$log" | sed 's/^skipped: //')" ;;
    *) say "$name: failed with status $status after $((SECONDS - begin)) s: $log" ;;
  esac
  return $status
}

if [[ ! $list ]]; then
  [[ -x $halfbyte ]] || fail "$halfbyte is not here: build it (tools/quickstart.sh), or name another --build"
  mkdir -p "$scratch"
  : >"$scratch/pip.log"
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv" || fail "python3 could not make $venv (Debian: python3-venv)"
fi

names=()
passed=0 failed=0 skipped=0
while IFS='|' read -r name packages words; do
  name=$(trimmed "$name")
  [[ $name ]] || continue
  names+=("$name")
  is_wanted "$name" || continue
  if [[ $list ]]; then
    say "$name: $(sed -n '1,3s/^"""//p' "$here/$name.py")"
    continue
  fi
  run "$name" "$packages" "$words"
  case $? in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
  esac
done <<<"$scripts"

for name in "${only[@]}"; do
  [[ " ${names[*]} " == *" ${name%.py} "* ]] || fail "$name: no such script; --list names them"
done
[[ $list ]] || say "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
