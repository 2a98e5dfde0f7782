#!/bin/sh
# with_transformers.sh VENV_PYTHON SCRIPT WORDS...: runs SCRIPT with the first Python that has transformers; 77 when none has.
venv_python=$1
shift
for python in "$HALFBYTE_PYTHON" "$venv_python" python3; do
  if [ -n "$python" ] && "$python" -c 'import importlib.util as u, sys; sys.exit(not (u.find_spec("transformers") and u.find_spec("compressed_tensors")))' 2>/dev/null; then
    exec "$python" -B "$@"
  fi
done
echo "skipped: no Python here has transformers and compressed-tensors (HALFBYTE_PYTHON names one)"
exit 77
