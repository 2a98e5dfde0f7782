#!/usr/bin/env python3
"""Kills a conversion of some seconds at random moments, as kill -9 does, and wants --resume to finish it to the same bytes.

    kill_test.py HALFBYTE SCRATCH [--moments 20] [--seed 1] [--like llama-1.1b] [-- OPTIONS OF QUANTIZE]

Needs room for the model, two results and what is begun: 6 GB for llama-1.1b. Prints a line a moment and the counts; exit status 1
when one result differs. tests/tools/crash_test.py is the small brother that tries every single call and needs no clock.
"""
import argparse
import collections
import filecmp
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

SHORTEST = 3.0  # seconds


def quantize(arguments, destination, *words):
    command = [arguments.halfbyte, "quantize", arguments.scratch / "source", destination, "-q", *arguments.options, *words]
    return [str(word) for word in command]


def fingerprint(folder):
    """Of the source: names, sizes, times and hashes."""
    out = {}
    for path in sorted(folder.iterdir()):
        with open(path, "rb") as file:
            out[path.name] = (path.stat().st_mtime_ns, hashlib.file_digest(file, "blake2b").hexdigest())
    return out


def are_equal(one, two):
    names = sorted(os.listdir(one))
    return names == sorted(os.listdir(two)) and filecmp.cmpfiles(one, two, names, shallow=False)[0] == names


def try_moment(arguments, wanted, moment, number):
    """Kills at `moment` (seconds) and resumes. Returns (is the result right, what happened)."""
    result = arguments.scratch / "result"
    threads = 1 + number % 2
    with subprocess.Popen(quantize(arguments, result, "--threads", str(threads)), stdout=subprocess.DEVNULL) as process:
        time.sleep(moment)
        was_running = process.poll() is None
        process.send_signal(signal.SIGKILL)
    was_shown = result.exists()
    done = subprocess.run(quantize(arguments, result, "--threads", str(3 - threads), "--resume", "--json"), check=False,
                          capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        return False, f"--resume ended with {done.returncode}: {done.stderr.strip()}"
    summary = json.loads(done.stdout)
    is_right = are_equal(result, wanted) and not result.with_name("result.partial").exists()
    shutil.rmtree(result)
    share = summary["resumed_bytes"] / summary["source_bytes"]
    if summary["was_complete"]:
        return is_right, "was complete" if was_shown else "complete, but not shown"
    return is_right, ("killed, " if was_running else "had ended, ") + f"{share:4.0%} was done before"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("halfbyte", type=pathlib.Path)
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--like", default="llama-1.1b")
    parser.add_argument("options", nargs="*", help="of quantize, after --")
    arguments = parser.parse_args()
    arguments.scratch.mkdir(exist_ok=True)
    source, wanted = arguments.scratch / "source", arguments.scratch / "wanted"
    subprocess.run([arguments.halfbyte, "synth", source, "--like", arguments.like, "-q", "--overwrite"], check=True, stdout=subprocess.DEVNULL)
    before = fingerprint(source)
    start = time.monotonic()
    subprocess.run(quantize(arguments, wanted, "--overwrite", "--threads", "1"), check=True, stdout=subprocess.DEVNULL)
    duration = time.monotonic() - start
    print(f"undisturbed: {duration:.1f} s")
    if duration < SHORTEST:
        sys.exit(f"that is less than {SHORTEST} s: give a larger model, or -- --scheme sym_int8")
    moments = random.Random(arguments.seed)
    ends = collections.Counter()
    for number in range(arguments.moments):
        moment = moments.uniform(0, duration)
        is_right, what = try_moment(arguments, wanted, moment, number)
        print(f"{number + 1:3d}: killed at {moment:5.2f} s: {what}; {'equal' if is_right else 'DIFFERENT'}", flush=True)
        ends[is_right] += 1
    is_untouched = fingerprint(source) == before
    print(f"{ends[True]} of {arguments.moments} equal to the undisturbed run; source {'untouched' if is_untouched else 'CHANGED'}")
    shutil.rmtree(source)
    shutil.rmtree(wanted)
    sys.exit(0 if ends[True] == arguments.moments and is_untouched else 1)


if __name__ == "__main__":
    main()
