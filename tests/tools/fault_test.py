"""Lets single calls on files fail, or move half the bytes, in everything that writes a checkpoint; looks at what is left each time.

Every call in turn with every error that it can have: HALFBYTE_FAULTS=all (tools/compat/thorough.py). Else of every (call, file) of each
command one call, with one of its errors.
"""
import collections
import concurrent.futures
import errno
import os
import shutil
import subprocess
import unittest

from command_line import LONGEST, PROGRAM, CommandLineTest, write_tiny_model

PRELOAD = os.environ["HALFBYTE_CRASH_AT_LIBRARY"]
IS_ALL = os.environ.get("HALFBYTE_FAULTS") == "all"

# What may go wrong at each call; "short": half the bytes.
LOOKS = ("EIO", "EACCES")
CHANGES = ("EIO", "ENOSPC", "EDQUOT", "EACCES")
FAULTS = {
    "open": ("EIO", "EMFILE", "EACCES", "EINTR", "ENOSPC"), "openat": ("EIO", "EMFILE", "EACCES"),
    "fopen": ("EMFILE", "EACCES"), "fopen64": ("EMFILE", "EACCES"),
    "read": ("EIO", "EINTR", "short"), "pread": ("EIO", "EINTR", "short"),
    "write": ("EIO", "ENOSPC", "EDQUOT", "EINTR", "short"), "pwrite": ("EIO", "ENOSPC", "EDQUOT", "EINTR", "short"),
    "fsync": ("EIO", "ENOSPC", "EDQUOT", "EINTR"), "fdatasync": ("EIO", "ENOSPC", "EDQUOT", "EINTR"),
    "ftruncate": ("EIO", "ENOSPC", "EDQUOT", "EINTR"), "fallocate": ("EIO", "ENOSPC", "EDQUOT", "EINTR", "EOPNOTSUPP"),
    "rename": CHANGES, "renameat2": CHANGES, "syscall(renameat2)": CHANGES, "mkdir": CHANGES, "mkdtemp": CHANGES, "link": CHANGES,
    "unlink": LOOKS, "unlinkat": LOOKS, "remove": LOOKS, "rmdir": LOOKS,
    "opendir": ("EIO", "EMFILE", "EACCES"), "fdopendir": ("ENOMEM",), "readdir": ("EIO",),
    "stat": LOOKS, "lstat": LOOKS, "fstat": ("EIO",), "fstatat": LOOKS, "statvfs": ("EIO",),
    "realpath": LOOKS, "readlink": LOOKS, "access": LOOKS, "mmap": ("ENOMEM", "EACCES"), "flock": ("EIO", "EINTR", "ENOLCK"),
}
HARMLESS = {"EINTR", "short", "EOPNOTSUPP"}  # nothing of it may be seen
STATUS = {"ENOSPC": {4}, "EDQUOT": {4}, "ENOMEM": {4}, "EMFILE": {1, 4}}  # else 1

COMMANDS = {
    "quantize": ["quantize", "source", "--threads", "1"],
    "quantize --resume": ["quantize", "source", "--threads", "1", "--resume"],
    "quantize --overwrite": ["quantize", "source", "--threads", "1", "--overwrite"],
    "dequantize": ["dequantize", "int4", "--threads", "1"],
    "export gguf": ["export", "int4", "--to", "gguf"],
    "export gptq": ["export", "int4", "--to", "gptq"],
    "export awq": ["export", "int4", "--to", "awq"],
    "export compressed-tensors": ["export", "int4", "--to", "compressed-tensors"],
    "export bitsandbytes": ["export", "nf4", "--to", "bitsandbytes"],
    "export safetensors": ["export", "int4", "--to", "safetensors"],
}


def contents(path):
    """Of a folder or a file; None when nothing is there."""
    if path.is_dir():
        return {file.name: file.read_bytes() for file in path.iterdir()}
    return path.read_bytes() if path.exists() else None


class Faults(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.notes = set()
        write_tiny_model(self.scratch / "source")
        for name, words in (("int4", []), ("nf4", ["--scheme", "nf4"]), ("other", ["--scheme", "sym_int8"])):
            self.succeeds("quantize", self.scratch / "source", self.scratch / name, "-q", *words)
        self.sources = {name: contents(self.scratch / name) for name in ("source", "int4", "nf4")}

    def run_command(self, command, destination, *words, **environment):
        verb, source, *options = COMMANDS[command]
        words = [verb, self.scratch / source, destination, *options, *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": PRELOAD, **environment}
        done = subprocess.run([PROGRAM, *map(str, words)], env=environment, capture_output=True, encoding="utf-8", check=False,
                              timeout=LONGEST)
        done.stderr = "".join(f"{line}\n" for line in done.stderr.splitlines() if line not in self.notes)
        return done

    def prepare(self, command, name):
        """An empty folder for the result, or one in which it already stands."""
        folder = self.scratch / name
        folder.mkdir()
        if "--overwrite" in COMMANDS[command]:
            shutil.copytree(self.scratch / "other", folder / "result")
        return folder / "result"

    def calls(self, command):
        """(call, path) of each call of an undisturbed run, and what that makes."""
        destination, log = self.prepare(command, "undisturbed"), self.scratch / "calls"
        log.unlink(missing_ok=True)
        self.notes = set()
        done = self.run_command(command, destination, HALFBYTE_FAULT_COUNT=str(log))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.notes = set(done.stderr.splitlines())  # what it has to say without any fault
        wanted = contents(destination)
        shutil.rmtree(destination.parent)
        lines = [line.split("\t") for line in log.read_text(encoding="utf-8").splitlines()[1:]]
        return [(line[0], line[-1]) for line in lines], wanted

    def problem_of_result(self, command, destination, done, fault, wanted):
        """What is wrong with what the command that met a fault said and left, or None."""
        before = contents(self.scratch / "other") if "--overwrite" in COMMANDS[command] else None
        shown = contents(destination)
        beside = sorted(set(os.listdir(destination.parent)) - {destination.name})
        lines = done.stderr.splitlines()
        if done.returncode == 0:
            if shown != wanted:
                return "exit status 0 and a wrong result"
            if beside and ".partial" not in done.stderr:
                return f"{beside} is left without a word"
            return None if fault not in HARMLESS or not done.stderr else "a word too much"
        if fault in HARMLESS or done.returncode not in STATUS.get(fault, {1}):
            return f"exit status {done.returncode}"
        if len(lines) != 1 or not lines[0].startswith("halfbyte: ") or not lines[0].isprintable():
            return "not one line"
        if "filesystem error" in lines[0] or "internal error" in lines[0] or str(self.scratch) not in lines[0]:
            return "a line that names no file"
        if shown == wanted:
            return None if "complete" in lines[0] else "a complete result that is not spoken of"
        if shown != before:
            return "an incomplete result under its final name" if shown is not None else "what stood there is gone"
        return f"{beside} is left without a word" if beside and ".partial" not in lines[0] else None

    def problem_afterwards(self, command, destination, wanted):
        """What is wrong when the command runs again, undisturbed, or None."""
        words = ["--resume"] if command.startswith("quantize") else ["--overwrite"]
        done = self.run_command(command, destination, *[word for word in words if word not in COMMANDS[command]])
        if (done.returncode, done.stderr) != (0, ""):
            return f"the next run ended with {done.returncode}"
        if contents(destination) != wanted or os.listdir(destination.parent) != [destination.name]:
            return "the next run left something else"
        return None

    def try_fault(self, command, wanted, number, call, fault):
        destination = self.prepare(command, f"{command}-{number}-{fault}")
        value = fault if fault == "short" else str(getattr(errno, fault))
        done = self.run_command(command, destination, HALFBYTE_FAULT_AT=str(number), HALFBYTE_FAULT=value)
        problem = self.problem_of_result(command, destination, done, fault, wanted)
        if done.returncode != 0 and not problem:
            problem = self.problem_afterwards(command, destination, wanted)
        shutil.rmtree(destination.parent)
        what = f"{command}, call {number}, {call[0]} of {call[1]}: {fault}"
        return f"{what}: {problem}: {done.stderr.strip()}" if problem else None, done.returncode

    def cases(self, calls, turn):
        """(number, call, fault) of the faults to try: every one, or one for each kind of call on each file."""
        by_kind = collections.defaultdict(list)
        for number, call in enumerate(calls, 1):
            by_kind[call].append(number)
        for call, numbers in by_kind.items():
            faults = FAULTS[call[0]]
            if IS_ALL:
                yield from ((number, call, fault) for number in numbers for fault in faults)
            else:
                turn += 1
                yield numbers[turn % len(numbers)], call, faults[turn % len(faults)]

    def sweep(self, turn, command):
        calls, wanted = self.calls(command)
        cases = list(self.cases(calls, turn))
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            ends = list(pool.map(lambda case: self.try_fault(command, wanted, *case), cases))
        problems = [problem for problem, _ in ends if problem]
        counts = collections.Counter(status for _, status in ends)
        print(f"{command}: {len(calls)} calls, {len(cases)} faults: exit status "
              f"{', '.join(f'{status}: {count}' for status, count in sorted(counts.items()))}; {len(problems)} wrong", flush=True)
        for problem in problems:
            print(f"  {problem}", flush=True)
        short = self.prepare(command, f"{command}-short")
        done = self.run_command(command, short, HALFBYTE_FAULT_AT="0", HALFBYTE_FAULT="short")
        self.assertEqual((done.returncode, done.stderr, contents(short) == wanted), (0, "", True), "every read and write is short")
        self.assertEqual({name: contents(self.scratch / name) for name in self.sources}, self.sources)
        return problems

    def test_every_command(self):
        problems = [problem for turn, command in enumerate(COMMANDS) for problem in self.sweep(turn, command)]
        self.assertEqual(problems, [])


if __name__ == "__main__":
    unittest.main()
