"""What peers.py needs before it measures: peers, built or installed in a scratch folder, and one model for all of them.

Everything that is there already is taken as it is. A step that fails raises Absent with the reason, and that peer is not run.
"""
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LLAMA_TARGETS = ["llama-bench", "llama-quantize", "llama-completion"]
# PyTorch's CPU build, from what pip is configured with, else from its own index.
TORCH = [["torch==2.13.0+cpu"], ["--index-url", "https://download.pytorch.org/whl/cpu", "torch==2.13.0"]]


class Absent(Exception):
    """Why a peer is not run."""


def step(log, *words, **options):
    """Runs a command with its output in `log`."""
    print("  " + " ".join(map(str, words))[:150], file=sys.stderr, flush=True)
    with open(log, "ab") as file:
        try:
            done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False, **options)
        except OSError as error:
            raise Absent(str(error)) from error
    if done.returncode:
        raise Absent(f"{pathlib.Path(words[0]).name} failed; its output is in {log}")


def made(path, make):
    """`path`, which make(temporary path) makes if it is not there: a step that was cut off leaves nothing behind that looks whole."""
    if not path.exists():
        temporary = path.with_name(path.name + ".part")
        make(temporary)
        temporary.rename(path)
    return path


class Scratch:
    def __init__(self, folder, program, options):
        """`options`: with llama_cpp, llama_source, python and perhaps ik, each None where nothing was given."""
        self.folder = pathlib.Path(folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.program, self.log = program, self.folder / "setup.log"
        self.llama_cpp, self.llama_source, self.given_python = options.llama_cpp, options.llama_source, options.python
        self.ik_source = getattr(options, "ik", None)

    def step(self, *words, **options):
        step(self.log, *words, **options)

    def model(self):
        """Random bfloat16 weights of 1.1 G parameters, for contexts of any length."""
        def make(path):
            self.step(self.program, "synth", path, "--like", "llama-1.1b")
            config = path / "config.json"
            config.write_text(json.dumps(json.loads(config.read_text(encoding="utf-8")) | {"max_position_embeddings": 65536}), encoding="utf-8")
        return made(self.folder / "model", make)

    def experts(self):
        """A mixture of experts with random bfloat16 weights."""
        return made(self.folder / "experts", lambda path: self.step(self.program, "synth", path, "--like", "qwen3-30b-a3b", "--layers", 2))

    def quantized(self, name, words, experts=False):
        source = self.experts() if experts else self.model()
        return made(self.folder / (name + "-experts" * experts), lambda path: self.step(self.program, "quantize", source, path, *words))

    def python(self):
        """A Python with openvino, optimum-intel, torch and what llama.cpp's converter imports."""
        return self.environment("venv", "openvino", "nncf", "optimum-intel", "sentencepiece", "protobuf")

    def environment(self, name, *packages):
        """A Python with PyTorch's CPU build and these packages, unless one was given."""
        if self.given_python:
            return pathlib.Path(self.given_python).absolute()
        venv = self.folder / name
        if not (venv / "ready").exists():
            self.step(sys.executable, "-m", "venv", venv)
            pip = [venv / "bin/pip", "install", "-q"]
            try:
                self.step(*pip, *TORCH[0])
            except Absent:
                self.step(*pip, *TORCH[1])
            self.step(*pip, *packages)
            # Comes along for another torch than this one, and transformers stumbles over it.
            self.step(venv / "bin/pip", "uninstall", "-q", "-y", "torchvision")
            (venv / "ready").touch()
        return venv / "bin/python"

    def source_of_llama_cpp(self):
        if self.llama_source:
            return pathlib.Path(self.llama_source)
        source = self.folder / "llama-cpp-python"
        if not source.exists():
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-python"]
            self.step(*pip, "-d", self.folder, "llama-cpp-python")
            archives = sorted(self.folder.glob("llama_cpp_python-*.tar.gz"))
            if not archives:
                raise Absent("pip downloaded no llama_cpp_python-*.tar.gz")
            made(source, lambda path: (path.mkdir(), self.step("tar", "-xf", archives[-1], "-C", path, "--strip-components", "1")))
        return source / "vendor/llama.cpp"

    def llama(self, programs=tuple(LLAMA_TARGETS)):
        """The folder with these of llama.cpp's programs."""
        if self.llama_cpp:
            folder = pathlib.Path(self.llama_cpp)
            missing = [name for name in programs if not (folder / name).exists()]
            if missing:
                raise Absent(f"{folder} has no {missing[0]}")
            return folder
        build = self.folder / "llama.cpp"
        if not all((build / "bin" / name).exists() for name in programs):
            self.step("cmake", "-S", self.source_of_llama_cpp(), "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
                      "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF")
            self.step("cmake", "--build", build, "-j", os.cpu_count(), "--target", *programs)
        return build / "bin"

    def ik(self):
        """The folder with ik_llama.cpp's llama-bench and llama-quantize, and with llama-cli where the source has it."""
        build = self.folder / "ik_llama.cpp"
        targets = ["llama-bench", "llama-quantize"] + ["llama-cli"] * (pathlib.Path(self.ik_source) / "examples/main").exists()
        if not all((build / "bin" / name).exists() for name in targets):
            self.step("cmake", "-S", self.ik_source, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF",
                      "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_BUILD_TESTS=OFF")
            self.step("cmake", "--build", build, "-j", os.cpu_count(), "--target", *targets)
        return build / "bin"

    def experts_gguf(self):
        """halfbyte's own writer makes it: no tokenizer is needed that anybody trained."""
        def convert(path):
            tokenizer = self.experts() / "tokenizer.model"
            if not tokenizer.exists():
                self.step(self.python(), HERE / "peers_tokenizer.py", tokenizer, json.loads((self.experts() / "config.json").read_text(encoding="utf-8"))["vocab_size"])
            self.step(self.program, "export", self.experts(), path.with_suffix(".gguf"), "--to", "gguf")
            path.with_suffix(".gguf").rename(path)
        return made(self.folder / "experts-bf16.gguf", convert)

    def gguf(self):
        def convert(path):
            with_tokenizer = self.folder / "model-with-tokenizer"
            with_tokenizer.mkdir(exist_ok=True)
            for file in self.model().iterdir():
                link = with_tokenizer / file.name
                if not link.exists():
                    link.symlink_to(file)
            self.step(self.python(), HERE / "peers_tokenizer.py", with_tokenizer / "tokenizer.model")
            self.convert_to_gguf(self.python(), with_tokenizer, path)
        return made(self.folder / "model-bf16.gguf", convert)

    def convert_to_gguf(self, python, model, path):
        source = self.source_of_llama_cpp()
        self.step(python, source / "convert_hf_to_gguf.py", model, "--outfile", path, "--outtype", "bf16",
                  env=os.environ | {"PYTHONPATH": str(source / "gguf-py")})

    def quantized_gguf(self, kind, experts=False, programs=None):
        """`programs`: whose llama-quantize; llama.cpp's unless another is given. Of experts the head has 8 bits, as ours."""
        words = ["--output-tensor-type", "q8_0"] if experts else []
        return made(self.folder / f"{'experts' if experts else 'model'}-{kind.lower()}.gguf",
                    lambda path: self.step((programs or self.llama()) / "llama-quantize", *words, self.experts_gguf() if experts else self.gguf(), path, kind))

    def openvino(self):
        return made(self.folder / "openvino-int4",
                    lambda path: self.step(self.python(), HERE / "openvino_peer.py", "export", self.model(), path))
