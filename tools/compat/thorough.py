#!/usr/bin/env python3
"""Runs the tests that try a part at full length: faults at every call, losses of power, flipped bits, absurd configurations, a soak.

    thorough.py BUILD [--only NAME]...

BUILD is a build folder with the tests in it. Prints each one's report; exit status 1 when one failed. About half an hour on two cores.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# name: what runs it (a script of tests/tools, or a test of torch_tests), and what asks for all of it.
RUNS = {
    "faults": ("fault_test.py", {"HALFBYTE_FAULTS": "all"}),
    "power": ("power_test.py", {"HALFBYTE_POWER_LOSSES": "150"}),
    "configs": ("absurd_config_test.py", {"HALFBYTE_CONFIGS": "500"}),
    "flips": ("a bit flipped anywhere*", {"HALFBYTE_BIT_FLIPS": "2500"}),  # of each of four layouts
    # One thread: with so little to do, the others would only be waited for.
    "soak": ("a process that loads and unloads*", {"HALFBYTE_CYCLES": "10000", "OMP_NUM_THREADS": "1"}),
}


def command_of(what, build):
    if what.endswith(".py"):
        return [sys.executable, "-B", ROOT / "tests/tools" / what]
    return [build / "bin/torch_tests", what]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", action="append", choices=RUNS)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    places = {"HALFBYTE_PROGRAM": build / "bin/halfbyte", "HALFBYTE_TEST_DATA": ROOT / "tests/data",
              "HALFBYTE_CRASH_AT_LIBRARY": build / "lib/libcrash_at.so"}
    failed = []
    for name in arguments.only or RUNS:
        what, words = RUNS[name]
        begin = time.monotonic()
        done = subprocess.run(list(map(str, command_of(what, build))), env={**os.environ, **{key: str(value) for key, value in places.items()}, **words},
                              check=False)
        print(f"{name}: {'passed' if done.returncode == 0 else 'FAILED'} ({time.monotonic() - begin:.0f} s)", flush=True)
        if done.returncode != 0:
            failed.append(name)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
