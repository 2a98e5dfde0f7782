# What quickstart.sh and test.sh share: installs what is missing, configures, builds. Sourced, not run.
#
# It asks for Debian packages (Debian 12, Ubuntu 24.04 and newer) and for LibTorch's CPU build. LibTorch is taken, in
# this order, from CMAKE_PREFIX_PATH, from .venv, or by pip into .venv: from what pip is configured with, else from
# PyTorch's own index of CPU wheels. HALFBYTE_TORCH_PIP_ARGS replaces what pip is told ("torch==2.13.0 --index-url ...").

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
torch_version=2.13.0
build_time="6 to 15 minutes on two cores"  # test.sh says another
torch_index=https://download.pytorch.org/whl/cpu
# Debian 12 has a newer Boost beside its default.
boost=$(grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release && printf libboost1.81-dev || printf libboost-dev)
packages=(g++ cmake ninja-build ccache python3 python3-venv catch2 "$boost" libbenchmark-dev libcli11-dev libdnnl-dev
          libedit-dev libgloo-dev libpcre2-dev libspdlog-dev libssl-dev libutf8proc-dev libxxhash-dev nlohmann-json3-dev
          ocl-icd-opencl-dev pkg-config)

llvm=19  # the newest that Debian 12 has
clang_packages=("clang-$llvm" "libclang-rt-$llvm-dev" "libomp-$llvm-dev" "lld-$llvm" "llvm-$llvm")  # test.sh and fuzz.sh

say() { printf '%s\n' "$*"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }

# logged LOG WORDS...: runs WORDS with their output in LOG, whose end is shown when they fail.
logged() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  if ! "$@" >>"$log" 2>&1 </dev/null; then
    tail -n 40 "$log" >&2
    fail "failed: $* (all of its output: $log)"
  fi
}

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || say "$package"
  done
}

# A LibTorch that CMake will find without our doing: its folder is printed.
torch_at_hand() {
  local prefix
  local -a prefixes
  IFS=: read -r -a prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}" "$root"/.venv/lib/python3*/site-packages/torch; do
    if [[ -n $prefix && -e $prefix/share/cmake/Torch/TorchConfig.cmake ]]; then
      say "$prefix"
      return
    fi
  done
}

install_packages() {
  local log=$root/build/quickstart.log
  local -a as_root=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || fail "these Debian packages are missing, and there is no sudo to install them with: $*"
    as_root=(sudo)
    sudo -v || fail "sudo refused; install by hand: apt-get install $*"
  fi
  # A source of packages that cannot be reached need not matter; installing will tell.
  "${as_root[@]}" apt-get update >>"$log" 2>&1 || say "  apt-get update had complaints (see $log); going on"
  logged "$log" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

# C++ needs the wheel's headers and libraries alone, hence --no-deps.
pip_install() { "$root/.venv/bin/python" -m pip install --no-deps --disable-pip-version-check "$@" >>"$root/build/quickstart.log" 2>&1; }

# The second way is for a CPU wheel that lies in a folder pip knows and carries no "+cpu"; the index of the same name
# would answer with gigabytes of CUDA, hence --no-index.
install_torch() {
  [[ -x $root/.venv/bin/python ]] || logged "$root/build/quickstart.log" python3 -m venv "$root/.venv"
  if [[ -n ${HALFBYTE_TORCH_PIP_ARGS:-} ]]; then
    # shellcheck disable=SC2086  # words, as the user wrote them
    pip_install $HALFBYTE_TORCH_PIP_ARGS || fail "pip could not install '$HALFBYTE_TORCH_PIP_ARGS': see $root/build/quickstart.log"
    return
  fi
  pip_install "torch==$torch_version+cpu" ||
    pip_install --no-index "torch==$torch_version" ||
    pip_install --index-url "$torch_index" "torch==$torch_version+cpu" ||
    fail "pip found no torch==$torch_version+cpu (see $root/build/quickstart.log); set HALFBYTE_TORCH_PIP_ARGS or CMAKE_PREFIX_PATH"
}

# One line of what is about to happen, and only when something is.
announce() {
  local steps=()
  [[ $1 == 0 ]] || steps+=("install $1 Debian packages (up to 3 minutes: $2)")
  [[ -n $3 ]] || steps+=("install LibTorch $torch_version for CPUs into .venv (0.2 GB to download, 0.9 GB on disk, 2 minutes)")
  [[ -e $root/build/release/.ninja_log ]] || steps+=("build halfbyte ($build_time)")
  local step
  for step in "${steps[@]}"; do say "will $step"; done
}

set_up_packages() {
  cd "$root"
  mkdir -p build
  : >build/quickstart.log
  local -a missing
  mapfile -t missing < <(missing_packages)
  announce "${#missing[@]}" "${missing[*]}" "$(torch_at_hand)"
  [[ ${#missing[@]} == 0 ]] || install_packages "${missing[@]}"
}

set_up_torch() { [[ -n $(torch_at_hand) ]] || install_torch; }

set_up() {
  set_up_packages
  set_up_torch
}

# A compiler that reads LibTorch's headers takes up to 2 GB.
job_count() {
  local by_memory
  by_memory=$(($(awk '/^MemAvailable/ {print $2}' /proc/meminfo) / 2000000))
  local count
  count=$(nproc)
  ((count < by_memory)) || count=$by_memory
  ((count > 0)) || count=1
  say "$count"
}

# What the package for Python is built and tested with: a Python in .venv that imports torch, and its headers. Without
# them the package is left out.
python_options=()
set_up_python() {
  local python=$root/.venv/bin/python log=$root/build/quickstart.log
  [[ -x $python ]] || return 0
  "$python" -c "import torch" 2>/dev/null ||
    "$python" -m pip install --disable-pip-version-check "torch==$torch_version" numpy >>"$log" 2>&1 || true
  local has_headers="import os, sysconfig; assert os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h'))"
  "$python" -c "$has_headers" 2>/dev/null || (install_packages python3-dev) || true
  if "$python" -W ignore -c "import torch; $has_headers" 2>/dev/null; then
    python_options=(-DHALFBYTE_PYTHON=ON "-DPython_EXECUTABLE=$python")
  else
    say "the package for Python is left out: $python has no torch that can be imported, or no headers (see $log)"
  fi
}

# build PRESET TARGET...: by folders, also where the preset compiles each source alone, which is for who edits some.
build() {
  local preset=$1
  shift
  local -a options=(-DHALFBYTE_BY_FOLDER=ON)
  if command -v ccache >/dev/null; then
    options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    export CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1  # a precompiled header is not preprocessed again
  fi
  [[ $preset != release ]] || options+=("${python_options[@]}")
  [[ -e build/$preset/build.ninja && ${#python_options[@]} == 0 ]] || logged build/quickstart.log cmake --preset "$preset" "${options[@]}"
  logged build/quickstart.log cmake --build --preset "$preset" --parallel "$(job_count)" --target "$@"
}
