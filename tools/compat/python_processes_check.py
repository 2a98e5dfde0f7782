#!/usr/bin/env python3
"""The package beside others that have OpenMP: numpy, scipy and scikit-learn in one process, forked children, DataLoader's workers, threads.

    python_processes_check.py TINY_LLAMA     run by the Python that has the wheel (tools/wheel.sh); 77: it, or one of those, is not there

Each part is a process of its own with a limit: right results, and an end. One OpenMP runtime serves halfbyte, torch and, where it is loaded,
oneDNN; which others are in the process is printed (scikit-learn's wheel brings its own).
"""
import concurrent.futures
import ctypes
import faulthandler
import importlib.util
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import packages

for _name in ("torch", "halfbyte", "numpy", "scipy", "sklearn"):
    if importlib.util.find_spec(_name) is None:
        packages.skip(f"No module named '{_name}'")

LIMIT_S = 120
CHILD_LIMIT_S = 20
ROUNDS = 6
PROMPT = [1, 265, 350, 816]


class Ours:
    """What halfbyte computes over and over, and what it gave the first time."""

    def __init__(self, folder):
        import torch

        import halfbyte
        from halfbyte.nn import LowBitLinear

        self.torch, self.model = torch, halfbyte.load_low_bit(folder)
        state = halfbyte.load_state(folder)
        weights = [one for one in state.values() if isinstance(one, halfbyte.LowBitTensor)]
        self.layers = [LowBitLinear(weight) for weight in weights[:7]]
        torch.manual_seed(0)
        self.inputs = [torch.randn(rows, weight.in_features) for rows in (1, 64) for weight in weights[:7]]
        self.dense = [weight.dequantize(torch.float32) for weight in weights[:7]]
        self.products = self.multiply()
        for found, x, dense in zip(self.products, self.inputs, self.dense * 2, strict=True):
            assert ((found - x @ dense.t()).abs().max() / found.abs().max()).item() < 1e-5
        self.tokens = self.generate()
        assert len(self.tokens[0]) == 24

    def multiply(self):
        with self.torch.no_grad():
            return [layer(x) for layer, x in zip(self.layers * 2, self.inputs, strict=True)]

    def generate(self):
        return self.model.generate([PROMPT, PROMPT[:2]], max_gen_len=24, temperature=0, ignore_eos=True)

    def check(self):
        """The same again, bit for bit."""
        for found, wanted in zip(self.multiply(), self.products, strict=True):
            assert self.torch.equal(found, wanted), "other bits"
        assert self.generate() == self.tokens, "other tokens"

    def check_as_worker(self):
        """In a child of a fork, with one thread as DataLoader's workers have it: OpenMP's are not forked."""
        self.torch.set_num_threads(1)
        self.check()


class Theirs:
    """BLAS of numpy and scipy, and OpenMP of scikit-learn."""

    def __init__(self):
        import numpy
        import scipy.linalg
        from sklearn.cluster import KMeans
        from sklearn.ensemble import HistGradientBoostingRegressor

        self.numpy, self.scipy = numpy, scipy
        random = numpy.random.default_rng(0)
        self.matrix = random.standard_normal((300, 300))
        self.points = random.standard_normal((3000, 8))
        self.points[:1500] += 20
        self.make_clusters = lambda: KMeans(2, n_init=1, random_state=0)
        self.make_regressor = lambda: HistGradientBoostingRegressor(max_iter=5, random_state=0)
        self.forecast = self.regress()

    def regress(self):
        return self.make_regressor().fit(self.points, self.points[:, 0]).predict(self.points)

    def check(self):
        product = self.matrix @ self.numpy.linalg.inv(self.matrix)
        assert abs(product - self.numpy.eye(300)).max() < 1e-6
        left, values, right = self.scipy.linalg.svd(self.matrix)
        assert abs(left * values @ right - self.matrix).max() < 1e-9
        labels = self.make_clusters().fit_predict(self.points)
        assert (labels[:1500] == labels[0]).all() and (labels[1500:] == 1 - labels[0]).all()
        assert abs(self.regress() - self.forecast).max() < 1e-9


def theirs_first(folder):
    theirs = Theirs()
    theirs.check()
    ours = Ours(folder)
    for _ in range(ROUNDS):
        ours.check()
        theirs.check()
    return runtimes()


def ours_first(folder):
    ours = Ours(folder)
    ours.check()
    theirs = Theirs()
    for _ in range(ROUNDS):
        theirs.check()
        ours.check()
    return runtimes()


def ours_alone(folder):
    Ours(folder).check()
    found = runtimes()
    assert len(found) == 1, found
    return found


def mapped():
    return {line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text(encoding="utf-8").splitlines() if "/" in line}


class Place(ctypes.Structure):
    """Dl_info of dladdr: where an address is."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def runtime_of(library):
    """The file that this library's parallel regions run in."""
    place = Place()
    address = ctypes.cast(ctypes.CDLL(library).GOMP_parallel, ctypes.c_void_p)
    assert ctypes.CDLL(None).dladdr(address, ctypes.byref(place))
    return os.path.realpath(place.file.decode())


def runtimes():
    """OpenMP runtimes in this process, as PACKAGE/FILE; that of halfbyte and torch is one."""
    ours = {path for path in mapped() if re.match(r"_halfbyte\.|libtorch_cpu\.|libdnnl\.|libhalfbyte_onednn", path.rsplit("/", 1)[-1])}
    shared = {runtime_of(path) for path in ours}
    assert len(ours) >= 2 and len(shared) == 1, (ours, shared)
    found = {path for path in mapped() if re.match(r"lib(gomp|iomp|omp)\d*[-.]", path.rsplit("/", 1)[-1])}
    assert shared <= {os.path.realpath(path) for path in found}, (shared, found)
    return sorted("/".join(pathlib.Path(path).parts[-3:]) for path in found)


def wait_for(child):
    """The child's status; a child that does not end is ended."""
    until = time.monotonic() + CHILD_LIMIT_S
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "did not end"


def forked(work):
    """The status of a forked child that does this."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return wait_for(child)


def fork(folder):
    """A child that takes no heed of threads, which plain torch lets wait for ever after OpenMP has run (2.13, libgomp)."""
    ours = Ours(folder)
    for _ in range(2):
        assert (status := forked(ours.check)) == 0, status
        ours.check()
    return []


def fork_with_one_thread(folder):
    ours = Ours(folder)
    for _ in range(3):
        assert (status := forked(ours.check_as_worker)) == 0, status
        ours.check()
    return []


def fork_of_threads(folder):
    """Children made by a thread while others compute."""
    ours = Ours(folder)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        busy = [pool.submit(lambda: [ours.check() for _ in range(ROUNDS)]) for _ in range(2)]
        statuses = [pool.submit(forked, ours.check_as_worker).result() for _ in range(4)]
        assert statuses == [0] * 4, statuses
        for one in busy:
            one.result()
    return []


def fork_of_loading(folder):
    """A child that opens, quantises and converts for itself."""
    import halfbyte

    ours = Ours(folder)

    def work():
        ours.torch.set_num_threads(1)
        halfbyte.quantize_tensor(ours.torch.randn(64, 64), "nf4")
        halfbyte.dequantize(folder, f"{folder}-{os.getpid()}")
        other = Ours(folder)
        other.check()
        assert other.tokens == ours.tokens

    assert (status := forked(work)) == 0, status
    return []


def fork_beside_theirs(folder):
    ours, theirs = Ours(folder), Theirs()
    theirs.check()
    ours.check()
    assert (status := forked(ours.check_as_worker)) == 0, status
    theirs.check()
    return []


def check_pool(folder, method):
    ours = Ours(folder)
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        assert list(pool.map(tokens_in_a_process, [folder] * 4, timeout=LIMIT_S / 2)) == [ours.tokens] * 4
        ours.check()
    return []


def pool_of_spawned(folder):
    return check_pool(folder, "spawn")


def pool_of_a_server(folder):
    return check_pool(folder, "forkserver")


_HELD = {}


def tokens_in_a_process(folder):
    if folder not in _HELD:
        _HELD[folder] = Ours(folder)
    _HELD[folder].check()
    return _HELD[folder].tokens


class Generations:
    """A data set whose rows workers generate."""

    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return tokens_in_a_process(self.folder)[0]


def loaders(folder):
    ours = Ours(folder)
    _HELD[folder] = ours  # what forked workers inherit
    for method in ("fork", "spawn"):
        loader = ours.torch.utils.data.DataLoader(Generations(folder), batch_size=None, num_workers=2, multiprocessing_context=method, timeout=LIMIT_S / 2)
        assert [list(one) for one in loader] == [ours.tokens[0]] * 8, method
    return []


def threads(folder):
    ours, theirs = Ours(folder), Theirs()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for one in [pool.submit(work) for _ in range(ROUNDS) for work in (ours.check, theirs.check, ours.check)]:
            one.result()
    return []


def thread_counts(folder):
    """Those of torch do not change what a product is."""
    ours = Ours(folder)
    for count in (1, 2, 5, 1, 3):
        ours.torch.set_num_threads(count)
        ours.check()
    return []


PARTS = (ours_alone, ours_first, theirs_first, threads, thread_counts, fork, fork_with_one_thread, fork_of_threads, fork_of_loading, fork_beside_theirs,
         pool_of_spawned, pool_of_a_server, loaders)


def run_part(name, folder):
    """The last line that the part printed, or None."""
    words = [sys.executable, "-W", "ignore", "-X", "faulthandler", __file__, "--part", name, folder]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            out, error = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            print(f"{name}: did not end in {LIMIT_S} s\n{process.communicate()[1]}", flush=True)
            return None
    if process.returncode:
        print(f"{name}: status {process.returncode}\n{error}", flush=True)
        return None
    return out.splitlines()[-1]


def main(tiny):
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(pathlib.Path(scratch, "a"))
        words = [sys.executable, "-c", "import sys, halfbyte; halfbyte.quantize(sys.argv[1], sys.argv[2])", os.path.abspath(tiny), folder]
        subprocess.run(words, check=True, timeout=LIMIT_S)
        for part in PARTS:
            began = time.monotonic()
            said = run_part(part.__name__, folder)
            failed += [] if said else [part.__name__]
            print(f"{part.__name__}: {said or 'FAILED'} ({time.monotonic() - began:.1f} s)", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}")
        return 1
    print(f"{len(PARTS)} parts with numpy, scipy, scikit-learn, forks, workers and threads: pass; one OpenMP runtime for halfbyte and torch")
    return 0


def main_of_part(name, folder):
    faulthandler.dump_traceback_later(LIMIT_S - 10, exit=False)
    print(", ".join(["pass", *globals()[name](folder)]))
    return 0


if __name__ == "__main__":
    sys.exit(main_of_part(*sys.argv[2:]) if sys.argv[1] == "--part" else main(*sys.argv[1:]))
