"""Cuts the power at any moment of everything that writes a checkpoint: what stands under the final name is whole, and going on gives the same bytes.

What was synced is on the disk then; of the rest, calls are lost, torn or kept, in no order. HALFBYTE_POWER_LOSSES sets how many
drawn losses follow those at every moment (0 of every moment and 40 drawn; tools/compat/thorough.py asks for more), HALFBYTE_SEED which.
"""
import collections
import concurrent.futures
import os
import random
import shutil
import signal
import subprocess
import unittest

from command_line import LONGEST, PROGRAM, CommandLineTest, write_tiny_model
from disk import Record, fingerprint, folder_of, write_folder

PRELOAD = os.environ["HALFBYTE_CRASH_AT_LIBRARY"]
LOSSES = int(os.environ.get("HALFBYTE_POWER_LOSSES", "0"))
QUICK = 14  # a command
SEED = int(os.environ.get("HALFBYTE_SEED", "1"))

# What survives of what was not synced, by name.
FATES = {
    "nothing": lambda change: False,
    "names without data": lambda change: not change.is_data,
    "sizes without data": lambda change: change.what != "write",
    "data without names": lambda change: change.is_data,
    "everything": lambda change: True,
}

# Words, and what goes before: "old" stands under the name, "killed" runs were killed on the way.
COMMANDS = {
    "quantize": (["quantize", "source", "--threads", "1"], ""),
    "quantize --resume": (["quantize", "source", "--threads", "1", "--resume"], "killed"),
    "quantize --overwrite": (["quantize", "source", "--threads", "1", "--overwrite"], "old"),
    "dequantize": (["dequantize", "int4", "--threads", "1"], ""),
    "dequantize --overwrite": (["dequantize", "int4", "--threads", "1", "--overwrite"], "old"),
    "export gguf": (["export", "int4", "--to", "gguf"], ""),
    "export gptq": (["export", "int4", "--to", "gptq"], ""),
    "export awq --overwrite": (["export", "int4", "--to", "awq", "--overwrite"], "old"),
}


class PowerLoss(CommandLineTest):
    def setUp(self):
        super().setUp()
        write_tiny_model(self.scratch / "source")
        self.succeeds("quantize", self.scratch / "source", self.scratch / "int4", "-q")
        self.succeeds("quantize", self.scratch / "source", self.scratch / "other", "-q", "--scheme", "sym_int8")

    def run_command(self, words, folder, *more, **environment):
        verb, source, *options = words
        command = [PROGRAM, verb, self.scratch / source, folder / "result", "-q", *options, *more]
        return subprocess.run([str(word) for word in command], capture_output=True, encoding="utf-8", check=False, timeout=LONGEST,
                              env={**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": PRELOAD, **environment})

    def record(self, command):
        """What the command changed, and what it made."""
        words, before = COMMANDS[command]
        folder, log = self.scratch / "recorded", self.scratch / "record"
        folder.mkdir()
        log.unlink(missing_ok=True)
        if before == "old":
            shutil.copytree(self.scratch / "other", folder / "result")
        if before == "killed":
            killed = self.run_command(words, folder, HALFBYTE_CRASH_AT="25", HALFBYTE_CRASH_WHEN="after")
            self.assertEqual(killed.returncode, -signal.SIGKILL)
        start = folder_of(folder)
        done = self.run_command(words, folder, HALFBYTE_RECORD=str(log))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        record = Record(log.read_text(encoding="utf-8").splitlines(), folder, start)
        made = fingerprint(folder_of(folder))
        self.assertEqual(fingerprint(record.replay(len(record.changes), lambda change: True)), made, "the record is the whole of it")
        shutil.rmtree(folder)
        return record, made

    def states(self, command, record):
        """(where, disk) of each loss to try, each disk once."""
        numbers = random.Random(f"{SEED} {command}")

        def drawn(change):
            return numbers.choice([True, False, "torn"] if change.what == "write" else [True, False])

        moments = range(len(record.changes) + 1)
        losses = [(end, name, fate) for end in moments for name, fate in FATES.items()]
        losses += [(numbers.choice(moments), f"drawn {number}", drawn) for number in range(LOSSES or QUICK)]
        if not LOSSES:
            losses = numbers.sample(losses, QUICK) + losses[-QUICK // 2:]
        seen = set()
        for end, name, fate in losses:
            disk = record.replay(end, fate)
            if (print_ := fingerprint(disk)) not in seen:
                seen.add(print_)
                yield f"after {end} of {len(record.changes)} changes, {name}", disk

    def problem_of(self, command, number, disk, made, old):
        """What is wrong with what a disk holds, or with going on from it; None when nothing is. And what happened."""
        words, before = COMMANDS[command]
        shown = fingerprint({"result": disk["result"]}) if "result" in disk else None
        if shown not in (made, None, old if before == "old" else None):
            return "something else under the final name", None
        folder = self.scratch / f"{command}-{number}"
        write_folder(disk, folder)
        more = "--resume" if words[0] == "quantize" else "--overwrite"
        done = self.run_command(words, folder, *[more][more in words:])
        left = fingerprint(folder_of(folder))
        shutil.rmtree(folder)
        if (done.returncode, done.stderr) != (0, ""):
            return f"going on ended with {done.returncode}: {done.stderr.strip()}", None
        if left != made:
            return "going on gave something else", None
        return None, "complete already" if "complete already" in done.stdout else "went on"

    def lose_power(self, command):
        record, made = self.record(command)
        old = fingerprint({"result": folder_of(self.scratch / "other")})
        states = list(self.states(command, record))
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            ends = list(pool.map(lambda item: self.problem_of(command, item[0], item[1][1], made, old), enumerate(states)))
        problems = [f"{command}, {where}: {problem}" for (where, _), (problem, _) in zip(states, ends) if problem]
        counts = collections.Counter(what for problem, what in ends if not problem)
        print(f"{command}: {len(record.changes)} changes and syncs, {len(states)} different disks: "
              f"{', '.join(f'{count} {what}' for what, count in sorted(counts.items()))}; {len(problems)} wrong", flush=True)
        for problem in problems:
            print(f"  {problem}", flush=True)
        return problems

    def test_every_command(self):
        self.assertEqual([problem for command in COMMANDS for problem in self.lose_power(command)], [])


if __name__ == "__main__":
    unittest.main()
