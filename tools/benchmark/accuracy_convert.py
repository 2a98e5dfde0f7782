"""How each tool of accuracy.py makes its 4-bit copy, and how that comes before halfbyte's evaluator. A tool that is not there raises Absent.

A tool is given the workplace, then for each row a folder: make() fills it and is what is timed; bits() and size() read what was made;
checkpoint() is what the evaluator reads. The evaluator takes AutoRound's and bitsandbytes's codes where they lie; what a GGUF file holds it is
given as the float32 values, so that every type of every llama.cpp can be measured. The tokenizer is always the original's.
"""
import json
import pathlib
import shutil

import accuracy_bits
from peers_setup import HERE, Absent

TOKENIZER = ["tokenizer*", "special_tokens_map.json", "vocab.json", "merges.txt", "chat_template*"]
LLAMA_PROGRAMS = ("llama-quantize", "llama-imatrix")
SEQUENCE = 256
# What comes back of a GGUF file in bfloat16: less is rounding of sums.
NOTHING_LOST = 1e-7


def with_tokenizer_of(model, folder):
    for pattern in TOKENIZER:
        for file in folder.glob(pattern):
            file.unlink()
        for file in model.glob(pattern):
            shutil.copyfile(file, folder / file.name)
    return folder


class Tool:
    def __init__(self, place):
        self.place = place

    def bits(self, folder):
        return accuracy_bits.bits_of_safetensors(self.checkpoint(folder), self.place.model)

    def size(self, folder):
        return sum(file.stat().st_size for file in self.checkpoint(folder).glob("*.safetensors"))

    def checkpoint(self, folder):
        return with_tokenizer_of(self.place.model, next(folder.rglob("config.json")).parent)


class Halfbyte(Tool):
    def make(self, row, folder):
        place = self.place
        calibration = ["--calibrate", place.calibration, "--calibration-tokens", place.tokens] if row.is_calibrated else []
        return [place.timed(place.program, "quantize", place.model, folder / "checkpoint", "--keep", "*embed_tokens*", "--keep", "lm_head*",
                            "-q", *row.words, *calibration)]

    def checkpoint(self, folder):
        return folder / "checkpoint"


class LlamaCpp(Tool):
    """Its own programs, from one GGUF file in bfloat16; an importance matrix is counted into the time of each row that has one."""

    name = "llama.cpp"

    def __init__(self, place):
        super().__init__(place)
        self.programs = place.scratch.llama(LLAMA_PROGRAMS).resolve()
        self.original = place.made("original.gguf", lambda path: place.scratch.convert_to_gguf(place.python(), place.model, path))
        self.check()

    def check(self):
        """The values of the file that all others are made of are the original's: no permutation or rounding is counted as a loss."""
        lost = self.place.evaluate(self.values(self.original), windows=4)["kl_mean"]["value"]
        if lost > NOTHING_LOST:
            raise Absent(f"the original itself comes back from GGUF with a KL divergence of {lost}")

    def importance(self):
        place = self.place
        target = place.folder / f"importance-{self.name}.gguf"
        record = target.with_suffix(".json")
        if not record.exists():
            chunks = place.tokens // SEQUENCE
            spent = place.timed(self.programs / "llama-imatrix", "-m", self.original, "-f", place.calibration, "-o", target, "-c", SEQUENCE, "--chunks",
                                chunks, "--no-ppl", "-t", place.threads)
            record.write_text(json.dumps(spent), encoding="utf-8")
        return target, json.loads(record.read_text(encoding="utf-8"))

    def make(self, row, folder):
        matrix, spent = self.importance() if row.is_calibrated else (None, None)
        words = ["--imatrix", matrix] if matrix else []
        made = self.place.timed(self.programs / "llama-quantize", *words, "--output-tensor-type", "bf16", "--token-embedding-type", "bf16",
                                self.original, folder / "model.gguf", row.words[0], self.place.threads)
        return [made, spent] if spent else [made]

    def bits(self, folder):
        return accuracy_bits.bits_of_gguf(folder / "model.gguf")

    def size(self, folder):
        return (folder / "model.gguf").stat().st_size

    def checkpoint(self, folder):
        return self.values(folder / "model.gguf")

    def values(self, gguf):
        """A folder with the values of a file as float32; the next takes its place."""
        folder = self.place.folder / "values"
        self.place.step(self.place.program, "dequantize", gguf, folder, "--dtype", "float32", "--overwrite", "-q")
        return with_tokenizer_of(self.place.model, folder)


class IkLlamaCpp(LlamaCpp):
    """Another llama.cpp, whose types halfbyte does not read: it writes their values as float32 itself."""

    name = "ik_llama.cpp"

    def __init__(self, place):
        if not place.ik_llama_cpp:
            raise Absent("no folder of its programs was given")
        Tool.__init__(self, place)
        self.programs = pathlib.Path(place.ik_llama_cpp).resolve()
        missing = [name for name in LLAMA_PROGRAMS if not (self.programs / name).exists()]
        if missing:
            raise Absent(f"{self.programs} has no {missing[0]}")
        self.original = LlamaCpp(place).original

    def values(self, gguf):
        plain = self.place.folder / "values.gguf"
        self.place.step(self.programs / "llama-quantize", "--allow-requantize", gguf, plain, "F32", self.place.threads)
        return super().values(plain)


class BitsAndBytes(Tool):
    def __init__(self, place):
        super().__init__(place)
        self.python = place.python_with("bitsandbytes")

    def make(self, _, folder):
        return [self.place.timed(self.python, HERE / "accuracy_peer.py", "bitsandbytes", self.place.model, folder / "checkpoint")]


class AutoRound(Tool):
    def __init__(self, place):
        super().__init__(place)
        self.python = place.python_with("auto_round")

    def make(self, row, folder):
        place = self.place
        return [place.timed(self.python, HERE / "accuracy_peer.py", "autoround", place.model, folder / "checkpoint",
                            place.sequences(SEQUENCE), row.words[0], place.iterations)]


TOOLS = {"halfbyte": Halfbyte, "llama.cpp": LlamaCpp, "ik_llama.cpp": IkLlamaCpp, "bitsandbytes": BitsAndBytes, "AutoRound": AutoRound}
