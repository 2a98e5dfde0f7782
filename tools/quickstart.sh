#!/usr/bin/env bash
# From a clone to a 4-bit model that generates text: installs what is missing, builds, and shows the round trip on the
# small model in tests/data. Run it from anywhere; a second run takes seconds.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

set_up
build release halfbyte halfbyte-model
halfbyte=$root/build/release/bin/halfbyte
original=$root/tests/data/tiny-llama
result=$root/build/quickstart/tiny-llama-4bit
mkdir -p "$(dirname "$result")"

say "halfbyte quantize tests/data/tiny-llama build/quickstart/tiny-llama-4bit"
"$halfbyte" quantize "$original" "$result" --overwrite
"$halfbyte" inspect "$result" | sed "s#$root/##"
say ""
python3 "$root/tools/quickstart_report.py" "$halfbyte" "$original" "$result" "$root/tests/data/heldout.txt"
say ""
say "The program is build/release/bin/halfbyte; 'halfbyte --help' lists what it does."
