"""Flips single bits, anywhere in a checkpoint: verify finds each one, and nothing that opens it crashes.

HALFBYTE_BIT_FLIPS sets how many (200), HALFBYTE_BIT_FLIP_SEED which ones (1).
"""
import concurrent.futures
import os
import random
import shutil
import struct
import unittest

from command_line import TINY_LLAMA, CommandLineTest, run

FLIPS = int(os.environ.get("HALFBYTE_BIT_FLIPS", "200"))
SEED = int(os.environ.get("HALFBYTE_BIT_FLIP_SEED", 1))
WORKERS = 2


def regions_of(folder):
    """(file name, part, first byte, end) of everything that can go wrong in a way of its own."""
    for path in sorted(folder.iterdir()):
        size = path.stat().st_size
        if path.suffix != ".safetensors":
            yield path.name, "file", 0, size
            continue
        data = path.read_bytes()
        header_end = 8 + struct.unpack("<Q", data[:8])[0]
        text_end = len(data[:header_end].rstrip(b" "))
        yield path.name, "length", 0, 8
        yield path.name, "header", 8, text_end
        yield path.name, "padding", text_end, header_end
        yield path.name, "data", header_end, size


def problem_of(words, allowed):
    """What is wrong with how `halfbyte WORDS` ended, or None: no crash, and one line on stderr if it failed."""
    result = run(*words)
    if result.returncode not in allowed:
        return f"{words[0]} ended with {result.returncode}: {result.stderr}"
    if result.stderr.count("\n") != (0 if result.returncode == 0 else 1):
        return f"{words[0]} wrote {result.stderr!r}"
    return None


def flip_and_look(copy, flips):
    """Flips each (file, byte, bit) in turn and puts it back; returns what was not as it should be."""
    problems = []
    for name, byte, bit in flips:
        with open(copy / name, "r+b", buffering=0) as file:
            file.seek(byte)
            sound = file.read(1)
            file.seek(byte)
            file.write(bytes([sound[0] ^ (1 << bit)]))
            for words, allowed in [(("verify", copy), [3]), (("inspect", copy), [0, 3])]:
                if problem := problem_of(words, allowed):
                    problems.append(f"{name}, byte {byte}, bit {bit}: {problem}")
            file.seek(byte)
            file.write(sound)
    return problems


class BitFlips(CommandLineTest):
    # One checkpoint in each layout: their parts differ.
    KINDS = {"sym_int4": [], "asym_int4": ["--scheme", "asym_int4"], "nf4": ["--scheme", "nf4"]}

    def flips_in(self, sound, count, random_numbers):
        """`count` random (file, byte, bit), every region in turn: the small ones are where the thinking is."""
        regions = list(regions_of(sound))
        self.assertEqual({region[0] for region in regions}, set(os.listdir(sound)))
        self.assertTrue(all(begin < end for _, part, begin, end in regions if part != "padding"), regions)
        regions = [region for region in regions if region[2] < region[3]]
        for i in range(count):
            name, _, begin, end = regions[i % len(regions)]
            yield name, random_numbers.randrange(begin, end), random_numbers.randrange(8)

    def test_each_is_found(self):
        print(f"{FLIPS} flips, HALFBYTE_BIT_FLIP_SEED={SEED}", flush=True)
        random_numbers = random.Random(SEED)
        flipped_padding = False
        for kind, words in self.KINDS.items():
            sound = self.scratch / kind
            self.succeeds("quantize", TINY_LLAMA, sound, *words)
            self.assertIn("all good", self.succeeds("verify", sound))
            flipped_padding |= any(part == "padding" and begin < end for _, part, begin, end in regions_of(sound))
            flips = list(self.flips_in(sound, -(-FLIPS // len(self.KINDS)), random_numbers))
            copies = [self.scratch / f"{kind}-copy{worker}" for worker in range(WORKERS)]
            for copy in copies:
                shutil.copytree(sound, copy)
            with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
                problems = sum(pool.map(flip_and_look, copies, [flips[i::WORKERS] for i in range(WORKERS)]), [])
            self.assertEqual(problems, [], f"{kind}, HALFBYTE_BIT_FLIP_SEED={SEED}")
            for copy in copies:  # and every byte was put back
                self.assertIn("all good", self.succeeds("verify", copy))
            print(f"{kind}: {len(flips)} of {len(flips)} flips found, in {len(os.listdir(sound))} files", flush=True)
        self.assertTrue(flipped_padding)


if __name__ == "__main__":
    unittest.main()
