#!/usr/bin/env python3
"""Ranks of two machines, each a network namespace of this one, and what becomes of them when something fails: all end in time, with a line, and nothing is left.

    ranks_check.py HALFBYTE TINY_LLAMA [--failures 60] [--seed 1] [--timeout 4] [--scratch DIR]

Wants root, for namespaces (`ip netns`). First the same text as one process's, then failures of each kind in turn:

killed        a rank, at a random moment            version      one machine's halfbyte says another version
stopped       a rank (SIGSTOP), likewise             checkpoint   one machine has another checkpoint
disconnected  one machine's link goes down           secret       one machine has another secret
disk          a conversion in parts, on a disk that is full; with room, the same command completes it
Prints a line a kind; exit status 1 when a run hangs, says nothing, or leaves something behind.
"""
import argparse
import collections
import contextlib
import filecmp
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from packages import skip

HOSTS = ("halfbyte-a", "halfbyte-b")
SLACK = 8  # seconds beyond --timeout: two for ranks to find who is missing, and a busy machine
RANKS = 2  # a machine


def sh(*words):
    subprocess.run(list(map(str, words)), check=True, capture_output=True)


@contextlib.contextmanager
def two_hosts():
    """10.77.0.1 and 10.77.0.2, with a cable between them."""
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", host], capture_output=True, check=False)
        sh("ip", "netns", "add", host)
    try:
        sh("ip", "link", "add", "cable0", "netns", HOSTS[0], "type", "veth", "peer", "name", "cable0", "netns", HOSTS[1])
        for number, host in enumerate(HOSTS, 1):
            sh("ip", "-n", host, "addr", "add", f"10.77.0.{number}/24", "dev", "cable0")
            for link in ("lo", "cable0"):
                sh("ip", "-n", host, "link", "set", link, "up")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], capture_output=True, check=False)


class Machine:
    """One of the two: `halfbyte launch` there, and its ranks."""

    def __init__(self, check, number, program=None, checkpoint=None, secret=None, words=()):
        self.number = number
        command = ["ip", "netns", "exec", HOSTS[number], program or check.halfbyte, "launch", "-n", RANKS, "--nnodes", 2, "--node-rank", number,
                   "--master-addr", "10.77.0.1", "--interface", "cable0", "--secret-file", secret or check.secret, "--timeout", check.timeout,
                   "--", "generate", checkpoint or check.model, "--prompt", "Once upon a time", "--temperature", 0, "--dtype", "float32", "-q", *words]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                                        env={**os.environ, "OMP_NUM_THREADS": str(RANKS), "OMP_WAIT_POLICY": "passive"})

    def ranks(self):
        try:
            return [int(one) for one in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii").split()]
        except OSError:
            return []

    def end(self, longest):
        """(status, stdout, stderr); status None: it had to be killed."""
        try:
            out, messages = self.process.communicate(timeout=longest)
            return self.process.returncode, out, messages
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            return None, "", "hangs"


class Check:
    LONG = ("--ignore-eos", "--max-gen-len", 8000)

    def __init__(self, arguments, scratch):
        self.halfbyte, self.model, self.timeout = arguments.halfbyte, scratch / "model", arguments.timeout
        self.scratch, self.random = scratch, random.Random(arguments.seed)
        shutil.copytree(arguments.tiny, self.model)
        config = json.loads((self.model / "config.json").read_text(encoding="utf-8"))
        self.written("model/config.json", json.dumps(config | {"max_position_embeddings": 8192}))  # so that a text is long enough
        self.secret = self.written("secret", "a secret of the ranks\n")
        self.reported = set()

    def written(self, name, text):
        (self.scratch / name).write_text(text, encoding="utf-8")
        return self.scratch / name

    def moment(self):
        return self.random.choice([0.0, 0.1, 0.3, 0.6, 1.0, 1.5]) + 0.2 * self.random.random()

    def ended(self, kind, machines, wanted=(), at_fault=None):
        """Both end in time, each with a line that names no rank but those of the machine at fault; one of them says what is wanted."""
        results = [machine.end(self.timeout + SLACK) for machine in machines]
        for status, _, messages in results:
            if status is None:
                return f"a launcher hangs ({results})"
            if status == 0:
                return f"ended as if nothing had been ({results})"
            if not messages.startswith("halfbyte: ") or messages.count("\n") > 1:
                return f"says {messages!r}"
        text = " ".join(messages for _, _, messages in results)
        named = {int(one) // RANKS for one in re.findall(r"rank (\d+)(?: of 4(?: \([^)]*\))?)? (?:has|was) ", text)}
        if "does not reach rank 0" in text:
            named.add(0)
        if at_fault is not None and named - {at_fault}:
            return f"names a rank of the other machine ({at_fault} is at fault): {text!r}"
        if wanted and not any(one in text for one in wanted):
            return f"says {text!r}"
        if kind not in self.reported:
            self.reported.add(kind)
            print(f"{kind}: for example: " + " / ".join(messages.strip() for _, _, messages in results), flush=True)
        return self.left()

    @staticmethod
    def left():
        """What still runs in the namespaces."""
        for _ in range(20):
            alive = " ".join(subprocess.run(["ip", "netns", "pids", host], capture_output=True, encoding="ascii", check=True).stdout for host in HOSTS).split()
            if not alive:
                return ""
            time.sleep(0.1)
        return f"processes are left: {alive}"

    def a_rank(self, machines):
        """One that is there, of either machine."""
        machine = self.random.choice(machines)
        deadline = time.monotonic() + 20
        while len(machine.ranks()) < RANKS and machine.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return machine, self.random.choice(machine.ranks() or [0])

    def signalled(self, kind, which):
        machines = [Machine(self, number, words=self.LONG) for number in (0, 1)]
        machine, rank = self.a_rank(machines)
        if not rank:
            return f"no rank began: {[one.end(1) for one in machines]}"
        time.sleep(self.moment())
        os.kill(rank, which)
        return self.ended(kind, machines, ("rank ",), at_fault=machine.number)

    def killed(self):
        return self.signalled("killed", signal.SIGKILL)

    def stopped(self):
        return self.signalled("stopped", signal.SIGSTOP)

    def disconnected(self):
        machines = [Machine(self, number, words=self.LONG) for number in (0, 1)]
        self.a_rank(machines)
        time.sleep(self.moment())
        host = self.random.choice(HOSTS)
        sh("ip", "-n", host, "link", "set", "cable0", "down")
        found = self.ended("disconnected", machines, ("rank ",))  # each machine has lost the other
        sh("ip", "-n", host, "link", "set", "cable0", "up")
        return found

    def differing(self, kind, wanted, **other):
        number = self.random.randrange(2)
        return self.ended(kind, [Machine(self, each, **(other if each == number else {})) for each in (0, 1)], wanted)

    def version(self):
        """The program says which version it is in one place: a copy that says another."""
        prefix = self.scratch / "other"
        if not prefix.exists():
            for name in ("bin/halfbyte", "libexec/halfbyte/halfbyte-model"):
                (prefix / name).parent.mkdir(parents=True)
                shutil.copy2(pathlib.Path(self.halfbyte).resolve().parent.parent / name, prefix / name)
            data = (prefix / "libexec/halfbyte/halfbyte-model").read_bytes()
            assert b"halfbyte 0.1.0, checkpoint" in data, "what ranks say of themselves is worded otherwise now"
            (prefix / "libexec/halfbyte/halfbyte-model").write_bytes(data.replace(b"halfbyte 0.1.0, checkpoint", b"halfbyte 0.0.9, checkpoint"))
        return self.differing("version", ("another thing than rank 0",), program=prefix / "bin/halfbyte")

    def checkpoint(self):
        other = self.scratch / "other-model"
        if not other.exists():
            subprocess.run([self.halfbyte, "quantize", self.model, other, "-q"], check=True, capture_output=True)
        return self.differing("checkpoint", ("another thing than rank 0",), checkpoint=other)

    def wrong_secret(self):
        return self.differing("secret", ("has another secret",), secret=self.written("wrong", "a guess\n"))

    def disk(self):
        """Three parts at once where there is room for none of them, then the same again with room."""
        disk, wanted = self.scratch / "disk", self.scratch / "wanted"
        disk.mkdir(exist_ok=True)
        if not wanted.exists():
            subprocess.run([self.halfbyte, "quantize", self.model, wanted, "-q"], check=True, capture_output=True)
        sh("mount", "-t", "tmpfs", "-o", "size=" + self.random.choice(["16k", "64k", "128k"]), "tmpfs", disk)
        try:
            runs = [self.part(disk, part) for part in (1, 2, 3)]
            ends = [(run.communicate(timeout=120)[1], run.returncode) for run in runs]
            if all(status == 0 for _, status in ends) or any(status != 0 and text.count("\n") != 1 for text, status in ends):
                return f"parts on a full disk: {ends}"
            if "disk" not in self.reported:
                self.reported.add("disk")
                print("disk: for example: " + next(text for text, status in ends if status).strip(), flush=True)
            sh("mount", "-o", "remount,size=64m", disk)
            for part, (_, status) in enumerate(ends, 1):
                if status and self.part(disk, part).wait(120):
                    return f"part {part} fails with room too"
            names = sorted(os.listdir(wanted))
            same = names == sorted(os.listdir(disk / "result")) and filecmp.cmpfiles(wanted, disk / "result", names, shallow=False)[0] == names
            return "" if same else "other bytes"
        finally:
            sh("umount", disk)

    def part(self, disk, part):
        words = [self.halfbyte, "quantize", self.model, disk / "result", "-q", "--part", f"{part}/3"]
        return subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")

    def same_text(self):
        words = ("--max-gen-len", 24, "--json")
        machines = [Machine(self, number, words=words) for number in (0, 1)]
        results = [machine.end(60) for machine in machines]
        alone = subprocess.run(list(map(str, [self.halfbyte, "generate", self.model, "--prompt", "Once upon a time", "--temperature", 0, "--dtype", "float32", "-q", *words])),
                               check=True, capture_output=True, encoding="utf-8").stdout
        together = json.loads(results[0][1])["generations"] if results[0][0] == 0 else results
        return "" if together == json.loads(alone)["generations"] and results[1][1] == "" else f"{results}, alone {alone}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("halfbyte")
    parser.add_argument("tiny")
    parser.add_argument("--failures", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=4)
    parser.add_argument("--scratch")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("ip"):
        skip("wants root, and ip (Debian: iproute2), for network namespaces")
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch, two_hosts():
        check = Check(arguments, pathlib.Path(scratch))
        kinds = {"killed": check.killed, "stopped": check.stopped, "disconnected": check.disconnected, "version": check.version,
                 "checkpoint": check.checkpoint, "secret": check.wrong_secret, "disk": check.disk}
        wrong = check.same_text()
        print("two machines, two ranks each: " + (wrong or "the same text as one process"), flush=True)
        failed, counts = int(bool(wrong)), collections.Counter()
        for number in range(arguments.failures):
            kind = list(kinds)[number % len(kinds)]
            wrong = kinds[kind]()
            counts[kind] += 1
            if wrong:
                failed += 1
                print(f"{kind}: {wrong}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()) + f": {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
