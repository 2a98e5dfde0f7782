#!/usr/bin/env python3
"""What ranks cost: one process, ranks that share memory, ranks that go by the network, and by a network that takes its time.

    ranks_cost.py HALFBYTE CHECKPOINT [--rounds 3] [--tokens 32] [--prompt 512] [--links 1 0.5 2@1 ...] [--only TEXT] [--reduce-dtype bfloat16]

Runs in turn, each rank with one thread: one process of as many threads as there are cores, 2 ranks by memory, 2 by Gloo over loopback.
--links (root): also 4 ranks on two machines, which are namespaces, tensor=4 and tensor=2,pipeline=2, for each cable between them: the milliseconds that
it takes, and "@" its Gb/s. --only: the rows whose names have that text.
Prints medians, and the share of sums in a decode step (waiting for others included); last as JSON, which ranks_model.py reads.
"""
import argparse
import contextlib
import functools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

PORT = 29600


def bench(words, *more):
    return ["bench", str(words.checkpoint), "--prompt-tokens", str(words.prompt), "--gen-tokens", str(words.tokens), "--runs", "3", "--profile", "--json", "-q", *more]


def finished(*commands, environment):
    """The first one's result; all run at the same time."""
    processes = [subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", env=environment) for command in commands]
    results = [(*process.communicate(timeout=900), process.returncode) for process in processes]
    for _, messages, status in results:
        if status:
            sys.exit(f"{commands}: {messages}")
    return json.loads(results[0][0])


class Kinds:
    """Name: how it is run. Each gives a step's and a prefill's seconds, and the share of sums in the step."""

    def __init__(self, words):
        self.words, self.cores = words, len(os.sched_getaffinity(0))

    def run(self, *commands, threads=1):
        found = finished(*commands, environment={**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"})
        share = sum(one["share"] for one in found["profile"]["decode"]["work"] if one["kind"] == "rank_sums")
        return {"step_ms": 1e3 / found["decode_tokens_per_s"], "prefill": found["prefill_tokens_per_s"], "sums_share": share, "rss_mb": found["peak_rss_bytes"] / 1e6}

    def alone(self):
        return self.run([self.words.halfbyte, *bench(self.words)], threads=self.cores)

    def memory(self, ranks=2, parallel=()):
        return self.run([self.words.halfbyte, "launch", "-n", ranks, *parallel, "--", *bench(self.words)], threads=ranks)

    def gloo(self):
        return self.run([self.words.halfbyte, "launch", "-n", 2, "--master-addr", "127.0.0.1", "--master-port", PORT, "--", *bench(self.words)], threads=2)

    def machines(self, *parallel):
        command = lambda node: ["ip", "netns", "exec", f"slow-{node}", self.words.halfbyte, "launch", "-n", 2, "--nnodes", 2, "--node-rank", node, "--master-addr", "10.78.0.1",
                                "--master-port", PORT, "--interface", "slow0", *parallel, "--reduce-dtype", self.words.reduce_dtype, "--", *bench(self.words)]
        return self.run(command(0), command(1), threads=2)

    def by_cable(self, cable, *parallel):
        with slow_link(*cable.split("@")):
            return self.machines(*parallel)


@contextlib.contextmanager
def slow_link(delay, rate=None):
    script = pathlib.Path(__file__).with_name("delayed_link.py")
    with subprocess.Popen([sys.executable, "-B", script, "slow-0", "slow-1", "--delay-ms", delay, *(["--gbit-s", rate] if rate else [])], stdout=subprocess.PIPE, encoding="ascii") as link:
        if link.stdout.readline() != "ready\n":
            sys.exit("no namespaces, or no TUN devices")
        try:
            yield
        finally:
            link.send_signal(signal.SIGTERM)
            time.sleep(0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("halfbyte")
    parser.add_argument("checkpoint")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--links", nargs="*", default=[])
    parser.add_argument("--only", default="")
    parser.add_argument("--reduce-dtype", default="float32")
    words = parser.parse_args()
    kinds = Kinds(words)
    rows = {"one process": kinds.alone, "2 ranks, memory": kinds.memory, "2 ranks, Gloo": kinds.gloo, "4 ranks, memory": lambda: kinds.memory(4),
            "4 ranks, tensor=2,pipeline=2, memory": lambda: kinds.memory(4, ("--parallel", "tensor=2,pipeline=2"))}
    for cable in words.links:
        for parallel in ("tensor=4", "tensor=2,pipeline=2"):
            rows[f"4 ranks, {parallel}, 2 machines, {cable} ms"] = functools.partial(kinds.by_cable, cable, "--parallel", parallel)
    rows = {name: row for name, row in rows.items() if words.only in name}
    found = {name: [] for name in rows}
    for _ in range(words.rounds):
        for name, row in rows.items():
            found[name].append(row())
    medians = {name: {key: statistics.median(one[key] for one in all_of_them) for key in all_of_them[0]} for name, all_of_them in found.items()}
    for name, one in medians.items():
        print(f"{name}: step {one['step_ms']:.2f} ms, prefill {one['prefill']:.0f} tokens/s, sums {100 * one['sums_share']:.1f} % of a step, {one['rss_mb']:.0f} MB", flush=True)
    print(json.dumps(medians))


if __name__ == "__main__":
    sys.exit(main())
