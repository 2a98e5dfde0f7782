#!/usr/bin/env python3
"""Starts two exports to one GGUF name at once, then kills one of two at random moments: the file is always one of the two.

    race_test.py HALFBYTE SOURCE SCRATCH [--races 24] [--kills 24] [--seed 1]

SOURCE is an original checkpoint; one of some hundred MB gives the moments room. Prints a line each and the counts; exit status 1
when anything is wrong. tests/tools/race_test.py is the small brother that tries every single call and needs no clock.
"""
import argparse
import collections
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

KINDS = ("F16", "Q8_0")


class Trial:
    """Two exports to one name in a folder of their own."""

    def __init__(self, arguments, wanted):
        self.arguments, self.wanted = arguments, wanted
        self.folder = arguments.scratch / "trial"
        self.folder.mkdir()
        self.result = self.folder / "m.gguf"

    def start(self, kind, *words):
        command = [self.arguments.halfbyte, "export", self.arguments.source, self.result, "--to", "gguf", "--type", kind, "-q", *words]
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")

    def shown(self):
        """Which result stands under the name: a kind, None, or "WRONG"."""
        if not self.result.exists():
            return None
        content = self.result.read_bytes()
        return next((kind for kind in KINDS if content == self.wanted[kind]), "WRONG")

    def refusal_is_clear(self, said, other):
        # Without a pid where the other one had ended before it could be named.
        is_held = f"(pid {other.pid}) is writing here" in said or "another process is writing here" in said
        return said.count("\n") == 1 and (is_held or "exists already" in said or "writing here just now" in said)

    def end(self):
        shutil.rmtree(self.folder)


def race(arguments, wanted):
    """Returns (is all right, what happened)."""
    trial = Trial(arguments, wanted)
    both = [trial.start(kind) for kind in KINDS]
    said = [process.communicate()[1] for process in both]
    statuses = [process.returncode for process in both]
    winner = statuses.index(0) if 0 in statuses else None
    is_right = sorted(statuses) == [0, 1] and trial.shown() == KINDS[winner] and os.listdir(trial.folder) == ["m.gguf"]
    if is_right:
        is_right = trial.refusal_is_clear(said[1 - winner], both[winner])
    trial.end()
    loser = next((text for text in said if text), "").strip().rsplit(": ", 1)[-1]
    return is_right, f"exit {statuses[0]} and {statuses[1]}; {loser}"


def kill(arguments, wanted, moment, number):
    trial = Trial(arguments, wanted)
    both = [trial.start(kind) for kind in KINDS]
    time.sleep(moment)
    both[number % 2].send_signal(signal.SIGKILL)
    for process in both:
        process.communicate()
    statuses = [process.returncode for process in both]
    shown = trial.shown()
    is_right = shown != "WRONG" and (statuses[1 - number % 2] != 0 or shown == KINDS[1 - number % 2] or statuses[number % 2] == 0)
    again = trial.start("F16", "--overwrite")
    again.communicate()
    is_right = is_right and again.returncode == 0 and trial.shown() == "F16" and os.listdir(trial.folder) == ["m.gguf"]
    trial.end()
    return is_right, f"exit {statuses[0]} and {statuses[1]}, {shown or 'nothing'} shown, then a third finished"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("halfbyte", type=pathlib.Path)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("--races", type=int, default=24)
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.scratch.mkdir(exist_ok=True)
    wanted, duration = {}, 0.0
    for kind in KINDS:
        trial = Trial(arguments, {})
        begin = time.monotonic()
        if trial.start(kind).wait() != 0:
            sys.exit(f"the source cannot be exported as {kind}")
        duration = max(duration, time.monotonic() - begin)
        wanted[kind] = trial.result.read_bytes()
        trial.end()
    counts = collections.Counter()
    for number in range(arguments.races):
        is_right, what = race(arguments, wanted)
        counts["race", is_right] += 1
        print(f"race {number + 1:2d}: {what}; {'right' if is_right else 'WRONG'}", flush=True)
    moments = random.Random(arguments.seed)
    for number in range(arguments.kills):
        moment = moments.uniform(0, 1.2 * duration)
        is_right, what = kill(arguments, wanted, moment, number)
        counts["kill", is_right] += 1
        print(f"kill {number + 1:2d} at {moment:5.2f} s: {what}; {'right' if is_right else 'WRONG'}", flush=True)
    print(f"{counts['race', True]} of {arguments.races} races and {counts['kill', True]} of {arguments.kills} kills are right")
    sys.exit(0 if counts["race", False] + counts["kill", False] == 0 else 1)


if __name__ == "__main__":
    main()
