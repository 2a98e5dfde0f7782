#!/usr/bin/env python3
"""What ranks of several machines cost: a model, what it says of runs that were measured, and of machines that are not there.

    ranks_model.py MEASURED.json CHECKPOINT [--prompt 512] [--fit "1 ms"]
    ranks_model.py --predict

MEASURED.json is the last line of ranks_cost.py's. The model: a step, or a prompt, by a network takes what the same division takes by memory, and

    messages * (delay + OVERHEAD) + bytes / rate

for what has to come from another machine before work goes on. Fitted are OVERHEAD and the relay's own rate, to the rows of the cable --fit alone; all other rows
are predicted. --predict: 8 machines with 10 and 100 Gb/s.
"""
import argparse
import json
import math
import pathlib
import re
import sys

PASS = 512  # tokens of a prompt that are read at once,
LONGEST = 8  # in stages as many times as there are stages, and this many at most
PART = 128  # tokens of a prompt that stages hand on at once
PLACE = 512 << 10  # bytes from which on more than two machines add in a ring


class Shape:
    def __init__(self, layers, hidden, vocabulary, gigabytes=0.0, parameters=0.0):
        self.layers, self.hidden, self.vocabulary, self.gigabytes, self.parameters = layers, hidden, vocabulary, gigabytes, parameters

    @staticmethod
    def of(checkpoint):
        config = json.loads((pathlib.Path(checkpoint) / "config.json").read_text(encoding="utf-8"))
        return Shape(config["num_hidden_layers"], config["hidden_size"], config["vocab_size"])


class Way:
    """From one machine to another. Units: seconds, bytes a second."""

    def __init__(self, delay, rate, overhead):
        self.delay, self.rate, self.overhead = delay, rate, overhead

    def message(self, size):
        """Places were asked for ahead, for pieces of a long one too."""
        return self.delay + self.overhead + size / self.rate

    @staticmethod
    def relayed(delay, rate, overhead, own):
        """By a relay that takes its own time for each byte beside the way's."""
        return Way(delay, 1 / (1 / own + (1 / rate if rate else 0)), overhead)

    def sum(self, size, machines):
        """Pairs of pairs; a ring where there are many bytes and more than two machines."""
        pairs = math.ceil(math.log2(machines))
        if machines == 2 or size <= PLACE:
            return pairs * self.message(size)
        return 2 * (machines - 1) * (2 * self.delay + self.overhead + size / machines / self.rate)


def of_tensor(shape, way, machines, tokens):
    """What every layer divided among all machines adds to a pass: a word of all, two sums a layer, the head's."""
    layer = way.sum(4 * shape.hidden * tokens, machines)
    return way.sum(64, machines) + 2 * shape.layers * layer + way.sum(4 * shape.vocabulary, machines)


def of_stages(shape, way, machines, tokens):
    """What one stage a machine adds: a word of all, the last part's way through the stages and back, the head's sum."""
    part = 4 * shape.hidden * min(tokens, PART)
    return way.sum(64, machines) + (machines - 1) * way.message(part) + way.message(4 * shape.hidden) + way.sum(4 * shape.vocabulary, machines)


LAYOUTS = {"tensor=4": (of_tensor, "4 ranks, memory"), "tensor=2,pipeline=2": (of_stages, "4 ranks, tensor=2,pipeline=2, memory")}


def seconds(row, prompt):
    return {"step": row["step_ms"] / 1e3, "prompt": prompt / row["prefill"]}


class Measured:
    def __init__(self, path, shape, prompt):
        self.rows, self.shape, self.prompt = json.loads(pathlib.Path(path).read_text(encoding="utf-8").splitlines()[-1]), shape, prompt

    def cables(self):
        """(layout, cable, delay, rate or None, what was measured) of each row by a cable."""
        for name, row in self.rows.items():
            found = re.match(r"4 ranks, (.*), 2 machines, (([\d.]+)(?:@([\d.]+))?) ms$", name)
            if found:
                yield found[1], found[2], float(found[3]) / 1e3, float(found[4]) * 1e9 / 8 if found[4] else None, seconds(row, self.prompt)

    def said(self, layout, way):
        added, base = LAYOUTS[layout]
        alone = seconds(self.rows[base], self.prompt)
        return {"step": alone["step"] + added(self.shape, way, 2, 1), "prompt": alone["prompt"] + added(self.shape, way, 2, self.prompt)}

    def fitted(self, cable):
        """(overhead, rate) that bring the rows of that cable nearest."""
        rows = [row for row in self.cables() if row[1] == cable]

        def error(overhead, own):
            total = 0.0
            for layout, _, delay, rate, measured in rows:
                said = self.said(layout, Way.relayed(delay, rate, overhead, own))
                total += sum(math.log(said[what] / measured[what]) ** 2 for what in said)
            return total

        grid = [(overhead / 1e6, own * 1e6) for overhead in range(0, 3000, 20) for own in range(20, 3000, 20)]
        return min(grid, key=lambda one: error(*one))


def compare(words):
    measured = Measured(words.measured, Shape.of(words.checkpoint), words.prompt)
    overhead, own = measured.fitted(words.fit.removesuffix(" ms"))
    print(f"fitted to the cable of {words.fit}: {overhead * 1e3:.2f} ms a message, {own / 1e6:.0f} MB/s of the relay")
    worst = 0.0
    for layout, cable, delay, rate, found in measured.cables():
        said = measured.said(layout, Way.relayed(delay, rate, overhead, own))
        errors = {what: said[what] / found[what] - 1 for what in said}
        is_fitted = cable == words.fit.removesuffix(" ms")
        worst = max([worst, *map(abs, errors.values())]) if not is_fitted else worst
        print(f"{layout}, {cable} ms{' (fitted)' if is_fitted else ''}: " + ", ".join(
            f"{what} {1e3 * found[what]:.1f} ms, said {1e3 * said[what]:.1f} ({100 * errors[what]:+.0f} %)" for what in said))
    print(f"worst of those not fitted: {100 * worst:.0f} %")
    return 0 if worst <= 0.2 else 1


# Of a host with 8 channels of DDR5: what decoding reads, and what products of prompts do. Units: bytes and operations a second.
HOST_BYTES, HOST_OPERATIONS, LOCAL_SUM = 200e9, 5e12, 60e-6
NETWORKS = {"10 Gb/s": Way(30e-6, 10e9 / 8, 100e-6), "100 Gb/s": Way(10e-6, 100e9 / 8, 100e-6)}
MODELS = {"70 B (80 layers of 8192)": Shape(80, 8192, 128256, 39e9, 70e9), "400 B (126 layers of 16384)": Shape(126, 16384, 128256, 228e9, 405e9)}


def predict(machines, prompt):
    for model, shape in MODELS.items():
        local = (2 * shape.layers + 1) * 2 * LOCAL_SUM
        for network, way in NETWORKS.items():
            for name, added, divides in (("tensor", of_tensor, machines), ("stages", of_stages, 1)):
                step = shape.gigabytes / HOST_BYTES / divides + local + added(shape, way, machines, 1)
                work = 2 * shape.parameters * prompt / HOST_OPERATIONS
                tokens = PASS if divides > 1 else PASS * min(machines, LONGEST)
                parts = min(prompt, tokens) // PART  # of each pass, between which stages wait for each other
                busy = machines if divides > 1 else machines * parts / (parts + machines - 1)
                whole = work / busy + math.ceil(prompt / tokens) * added(shape, way, machines, tokens)
                print(f"{model}, {machines} machines, {network}, {name}: a step {1e3 * step:.0f} ms ({1 / step:.1f} tokens/s), a prompt of {prompt} {prompt / whole:.0f} tokens/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", nargs="?")
    parser.add_argument("checkpoint", nargs="?")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--fit", default="1 ms")
    parser.add_argument("--predict", action="store_true")
    words = parser.parse_args()
    if words.predict:
        predict(8, 2048)
        return 0
    if not words.checkpoint:
        parser.error("wants MEASURED.json and CHECKPOINT, or --predict")
    return compare(words)


if __name__ == "__main__":
    sys.exit(main())
