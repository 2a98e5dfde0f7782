"""Runs halfbyte as a user does, and writes checkpoints, sound and broken, without any library of ours."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["HALFBYTE_PROGRAM"]
TINY_LLAMA = pathlib.Path(os.environ["HALFBYTE_TEST_DATA"], "tiny-llama")
MODEL_PROGRAM = pathlib.Path(PROGRAM).parent.parent / "libexec/halfbyte/halfbyte-model"


LONGEST = 300  # seconds, for one command; what takes longer hangs


def run(*words, **options):
    """A finished `halfbyte WORDS`, with returncode, stdout and stderr (text)."""
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, encoding="utf-8", errors="replace", check=False,
                          **{"timeout": LONGEST, **options})


def wait_until(condition, process, between=os.sched_yield):
    """Returns when the condition holds, or the process has ended; one that hangs is killed."""
    deadline = time.monotonic() + LONGEST
    while process.poll() is None and not condition():
        if time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"{process.args} waits for ever")
        between()


def messages_of(process):
    """What it wrote to stderr, once it has ended; one that hangs is killed."""
    try:
        return process.communicate(timeout=LONGEST)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        raise


class CommandLineTest(unittest.TestCase):
    """A scratch folder for each test, and what is true of every command."""

    maxDiff = None

    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="halfbyte-test-"))
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)

    def succeeds(self, *words, **options):
        result = run(*words, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def json_of(self, *words):
        return json.loads(self.succeeds(*words, "--json"))

    def fails(self, status, wanted, *words, **options):
        """Ends with `status` and exactly one line on stderr, in which every one of the `wanted` parts stands."""
        result = run(*words, **options)
        lines = result.stderr.splitlines()
        self.assertEqual((result.returncode, len(lines)), (status, 1), f"{words}: {result.stderr}")
        self.assertTrue(lines[0].startswith("halfbyte: "), lines)
        self.assertTrue(lines[0].isprintable(), lines)
        for part in [wanted] if isinstance(wanted, str) else wanted:
            self.assertIn(part, lines[0])
        return result


def header_of(tensors):
    """A safetensors header (bytes) for {name: (dtype, shape, data)}, and the data that follow it."""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    return json.dumps(header).encode(), data


def file_of(header, data, length=None):
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def write_safetensors(path, tensors):
    path.write_bytes(file_of(*header_of(tensors)))


def bf16_rows(rows, columns, value=0x3F80):
    """A bfloat16 matrix filled with `value` (1.0), as a tensor for header_of()."""
    return ("BF16", [rows, columns], struct.pack("<H", value) * (rows * columns))


def copy_of_tiny_llama(path):
    shutil.copytree(TINY_LLAMA, path)
    return path
