#!/usr/bin/env python3
"""Kills a conversion of some seconds at random moments, as kill -9 does, and wants --resume to finish it to the same bytes.

    kill_test.py HALFBYTE SCRATCH [--moments 20] [--seed 1] [--like llama-1.1b] [--parts N] [--memory-limit SIZE] [-- OPTIONS OF QUANTIZE]

--parts: that many runs share the work at the same time; one is killed, the others end by themselves, and that part alone is run again.

Needs room for the model, two results and what is begun: 6 GB for llama-1.1b. Prints a line a moment and the counts, with the largest
peak of memory of all processes; exit status 1 when one result differs. tests/tools/crash_test.py is the small brother that tries every single call and needs no clock.
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
    command = [arguments.halfbyte, "quantize", arguments.scratch / "source", destination, "-q", "--memory-limit", arguments.memory_limit,
               *arguments.options, *words]
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


def peak(process):
    """Waits for it. Its exit status and its largest resident set, in bytes."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss * 1024


def try_parts(arguments, wanted, moment, number):
    """Kills one of the parts at `moment` (seconds), and runs that one again."""
    result = arguments.scratch / "result"
    count = arguments.parts
    victim = number % count + 1
    commands = [quantize(arguments, result, "--threads", "1", "--part", f"{i}/{count}", "--json") for i in range(1, count + 1)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") for command in commands]
    time.sleep(moment)
    was_running = runs[victim - 1].poll() is None
    runs[victim - 1].kill()
    peaks = [0 if run.returncode is not None else peak(run) for run in runs]
    others = [run for i, run in enumerate(runs, 1) if i != victim]
    for run in others:
        if run.returncode:
            return False, f"another part ended with {run.returncode}: {run.stderr.read().strip()}"
    if was_running and result.exists():
        return False, "the result was there though a part was killed"
    began = time.monotonic()
    with subprocess.Popen(commands[victim - 1], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as again:
        out, errors = again.stdout.read(), again.stderr.read()
        peaks.append(peak(again))
    if again.returncode:
        return False, f"part {victim} ended with {again.returncode}: {errors.strip()}"
    summary = json.loads(out)
    is_right = are_equal(result, wanted) and not result.with_name("result.partial").exists() and summary["is_whole"]
    shutil.rmtree(result)
    return is_right, (f"{'killed' if was_running else 'had ended'}, part {victim} of {count} again in {time.monotonic() - began:.1f} s; "
                      f"at most {max(peaks) / 2**20:.0f} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("halfbyte", type=pathlib.Path)
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--like", default="llama-1.1b")
    parser.add_argument("--parts", type=int, default=0)
    parser.add_argument("--memory-limit", default="512MiB")
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
    attempt = try_parts if arguments.parts else try_moment
    moments = random.Random(arguments.seed)
    ends = collections.Counter()
    for number in range(arguments.moments):
        moment = moments.uniform(0, duration)
        is_right, what = attempt(arguments, wanted, moment, number)
        print(f"{number + 1:3d}: killed at {moment:5.2f} s: {what}; {'equal' if is_right else 'DIFFERENT'}", flush=True)
        ends[is_right] += 1
    is_untouched = fingerprint(source) == before
    print(f"{ends[True]} of {arguments.moments} equal to the undisturbed run; source {'untouched' if is_untouched else 'CHANGED'}")
    shutil.rmtree(source)
    shutil.rmtree(wanted)
    sys.exit(0 if ends[True] == arguments.moments and is_untouched else 1)


if __name__ == "__main__":
    main()
