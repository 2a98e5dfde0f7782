"""Runs halfbyte as a user does, and writes checkpoints, sound and broken, without any library of ours."""
import json
import math
import os
import pathlib
import random
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


def write_tiny_model(path):
    """A llama of one layer with pseudo-random weights and tiny-llama's tokenizer: few calls on few small files."""
    path.mkdir()
    config = json.loads((TINY_LLAMA / "config.json").read_text(encoding="utf-8"))
    hidden, inner, vocab = 64, 128, config["vocab_size"]
    config |= {"hidden_size": hidden, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
               "intermediate_size": inner, "tie_word_embeddings": True}
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,),
              layer + "input_layernorm.weight": (hidden,), layer + "post_attention_layernorm.weight": (hidden,),
              layer + "self_attn.q_proj.weight": (hidden, hidden), layer + "self_attn.k_proj.weight": (hidden // 2, hidden),
              layer + "self_attn.v_proj.weight": (hidden // 2, hidden), layer + "self_attn.o_proj.weight": (hidden, hidden),
              layer + "mlp.gate_proj.weight": (inner, hidden), layer + "mlp.up_proj.weight": (inner, hidden),
              layer + "mlp.down_proj.weight": (hidden, inner)}
    numbers = random.Random(1)
    tensors = {}
    for name, shape in shapes.items():
        count = math.prod(shape)
        values = [numbers.randrange(0x3C00, 0x3D80) | numbers.randrange(2) << 15 for _ in range(count)]  # 0.008 to 0.06
        tensors[name] = ("BF16", list(shape), struct.pack(f"<{count}H", *values))
    write_safetensors(path / "model.safetensors", tensors)
    for name in ("tokenizer.model", "tokenizer_config.json"):
        shutil.copy(TINY_LLAMA / name, path / name)
