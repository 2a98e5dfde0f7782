"""`halfbyte launch`: one command by several processes, and what becomes of them when one fails."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import unittest

from command_line import LONGEST, MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest, messages_of, run, wait_until
from held_out import HELDOUT

GENERATE = ["generate", "-q", TINY_LLAMA, "--prompt", "Once upon a time", "--max-gen-len", 24, "--temperature", 0, "--dtype", "float32"]


def children(process):
    """Ranks that have become the command, in their order."""
    try:
        all_of_them = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        return [int(one) for one in all_of_them if b"launch" not in pathlib.Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def is_there(process):
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # one that nobody has asked about yet


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Launch(CommandLineTest):
    def test_same_text_as_one_process(self):
        alone = json.loads(self.succeeds(*GENERATE, "--json"))
        for ranks in (2, 4):
            together = json.loads(self.succeeds("launch", "-n", ranks, "--", *GENERATE, "--json"))
            self.assertEqual(together["generations"], alone["generations"])

    def test_stages_of_layers(self):
        alone = json.loads(self.succeeds(*GENERATE, "--json"))
        for ranks, parallel in ((2, "pipeline=2"), (4, "tensor=2,pipeline=2"), (4, "tensor=2"), (2, "tensor=2")):
            together = json.loads(self.succeeds("launch", "-n", ranks, "--parallel", parallel, "--", *GENERATE, "--json"))
            self.assertEqual(together["generations"], alone["generations"], parallel)
        said = run("launch", "--parallel", "pipeline=2", "--", "generate", TINY_LLAMA, "-v", "--prompt", "x", "--max-gen-len", 1).stderr
        self.assertRegex(said, r"rank 0 of 2, stage 1 of 2, has layers 0 to \d+ of \d+: ")

    def test_stages_bench_and_perplexity(self):
        words = ["bench", TINY_LLAMA, "--prompt-tokens", 200, "--gen-tokens", 2, "--json"]
        self.assertGreater(json.loads(self.succeeds("launch", "--parallel", "pipeline=2", "--", *words))["decode_tokens_per_s"], 0)
        text = self.scratch / "text"
        text.write_text("Once upon a time there was a model that many computers ran together. " * 40, encoding="utf-8")
        words = ["perplexity", TINY_LLAMA, "--text", text, "--ctx", 200, "--dtype", "float32", "--json"]
        alone, together = json.loads(self.succeeds(*words)), json.loads(self.succeeds("launch", "--parallel", "pipeline=2", "--", *words))
        self.assertAlmostEqual(together["perplexity"], alone["perplexity"], delta=1e-4 * alone["perplexity"])

    def test_perplexity(self):
        text = self.scratch / "text"
        text.write_text("Once upon a time there was a model that many computers ran together. " * 40, encoding="utf-8")
        words = ["perplexity", TINY_LLAMA, "--text", text, "--ctx", 128, "--dtype", "float32", "--json"]
        alone, together = json.loads(self.succeeds(*words)), json.loads(self.succeeds("launch", "--", *words))
        self.assertAlmostEqual(together["perplexity"], alone["perplexity"], delta=1e-4 * alone["perplexity"])

    def test_threads_are_divided(self):
        environment = {**os.environ, "OMP_NUM_THREADS": "4"}
        words = [PROGRAM, "launch", "-n", "2", "--", "bench", str(TINY_LLAMA), "--prompt-tokens", "8", "--gen-tokens", "2", "--json"]
        done = subprocess.run(words, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=LONGEST)
        self.assertEqual(json.loads(done.stdout)["threads"], 2, done.stderr)

    def test_policies_are_refused(self):
        text = self.scratch / "text"
        text.write_text("Once upon a time. " * 40, encoding="utf-8")
        self.assertIn("--policies is not for ranks", self.fails(2, "--", "perplexity", TINY_LLAMA, "--text", text, "--policies", "float32"))

    def test_parts_by_a_launchers_variables(self):
        self.succeeds("quantize", TINY_LLAMA, self.scratch / "wanted", "-q")
        words = [PROGRAM, "quantize", str(TINY_LLAMA), str(self.scratch / "result"), "-q"]
        runs = [subprocess.Popen(words, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "3"}) for rank in range(3)]
        self.assertEqual([run.wait(LONGEST) for run in runs], [0, 0, 0])
        names = sorted(os.listdir(self.scratch / "wanted"))
        self.assertEqual(sorted(os.listdir(self.scratch)), ["result", "wanted"])
        self.assertEqual(sorted(os.listdir(self.scratch / "result")), names)
        for name in names:
            self.assertEqual((self.scratch / "result" / name).read_bytes(), (self.scratch / "wanted" / name).read_bytes(), name)

    def calibrated(self, destination, *words, launch=(), **environment):
        """`halfbyte launch` or one process, on one thread each."""
        words = ["quantize", TINY_LLAMA, self.scratch / destination, "--calibrate", HELDOUT, "--calibration-ctx", 64, "--calibration-tokens", 3072, *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        done = subprocess.run([PROGRAM, *map(str, [*launch, *words])], env=environment, capture_output=True, encoding="utf-8", check=False, timeout=LONGEST)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_a_calibrated_conversion(self):
        self.calibrated("wanted", "-q")
        environment = {"OMP_NUM_THREADS": "2"}
        done = json.loads(self.calibrated("result", "--json", launch=("launch", "-n", "2", "--"), **environment))
        self.assertEqual((done["is_whole"], done["parts_left"]), (True, []))
        self.assertIn("; gptaq on 3072 tokens", self.calibrated("again", launch=("launch", "-n", "2", "--"), **environment))
        for result in ("result", "again"):
            for name in sorted(os.listdir(self.scratch / "wanted")):
                self.assertEqual((self.scratch / result / name).read_bytes(), (self.scratch / "wanted" / name).read_bytes(), name)
        self.assertEqual(sorted(os.listdir(self.scratch)), ["again", "result", "wanted"])

    def test_a_calibrated_conversion_keeps_to_a_limit(self):
        words = ["quantize", TINY_LLAMA, self.scratch / "result", "--calibrate", HELDOUT, "--calibration-tokens", 3072, "-q"]
        least = int(re.search(r"give --memory-limit (\d+)MB", self.fails(4, "--", *words, "--memory-limit", "16MB"))[1])
        self.succeeds("launch", "--", *words, "--memory-limit", f"{least + 8}MB")

    def test_parts_of_a_calibrated_conversion_that_have_other_limits(self):
        """One has room for the sums of half of a layer's products, the other for all."""
        shape = self.scratch / "shape"
        shape.mkdir()
        config = json.loads((TINY_LLAMA / "config.json").read_text(encoding="utf-8"))
        config.update(hidden_size=1024, num_hidden_layers=1, num_attention_heads=16, num_key_value_heads=16, head_dim=64, intermediate_size=2048)
        (shape / "config.json").write_text(json.dumps(config), encoding="utf-8")
        for name in ("tokenizer.model", "tokenizer_config.json"):
            shutil.copy(TINY_LLAMA / name, shape)
        self.succeeds("synth", self.scratch / "model", "--config", shape, "-q")
        words = ["--calibrate", HELDOUT, "--calibration-tokens", 3072, "--calibration-ctx", 64, "--method", "gptq", "--threads", 1, "-q"]
        refused = run("quantize", self.scratch / "model", self.scratch / "x", *words, "--memory-limit", "16MB")
        least = int(re.search(r"give --memory-limit (\d+)MB", refused.stderr)[1])
        self.succeeds("quantize", self.scratch / "model", self.scratch / "wanted", *words)
        parts = ["quantize", self.scratch / "model", self.scratch / "result", *words, "--part"]
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            for done in pool.map(lambda more: run(*parts, *more), (("1/2",), ("2/2", "--memory-limit", f"{least + 4}MB"))):
                self.assertEqual((done.returncode, done.stderr), (0, ""))
        for name in sorted(os.listdir(self.scratch / "wanted")):
            self.assertEqual((self.scratch / "result" / name).read_bytes(), (self.scratch / "wanted" / name).read_bytes(), name)

    def test_a_target_is_refused(self):
        said = self.fails(2, "--", "quantize", TINY_LLAMA, self.scratch / "x", "--target-bpw", 5, "--calibrate", HELDOUT)
        self.assertIn("--part: not with a target", said)

    def fails(self, status, *words):
        result = run("launch", *words)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        return result.stderr

    def test_errors_are_one_line(self):
        self.assertIn("'evaluate' is not run by several processes", self.fails(2, "--", "evaluate", TINY_LLAMA))
        self.assertIn("'export' is not run by several processes", self.fails(2, "--", "export", TINY_LLAMA, self.scratch / "x"))
        self.assertIn("one process is not several; see --ranks", self.fails(2, "-n", 1, "--", "generate", TINY_LLAMA))
        self.assertIn("no common input", self.fails(2, "--", "generate", TINY_LLAMA, "--prompt", "-"))
        self.assertIn("there is no such file", self.fails(1, "--", "generate", self.scratch / "nowhere", "--prompt", "x"))
        self.assertIn("speculation is not for a model that several ranks run", self.fails(3, "--", *GENERATE, "--speculate", "lookup"))

    def test_wrong_stages_are_one_line(self):
        for parallel, said in (("tensor=2", "is not for 3 ranks"), ("pipeline=4", "is not for 3 ranks"), ("tensor=4", "is not for 3 ranks"), ("tensor=2147483647,pipeline=2147483647", "is not for 3 ranks"), ("tensor=3,pipeline=2", "is not for 3 ranks"),
                               ("layers=3", "is not of the form tensor=A,pipeline=B"), ("pipeline=3,", "is not of the form"), ("pipeline=3,pipeline=3", "is not of the form"),
                               ("pipeline=x", "has no whole number from 1 on for pipeline"), ("tensor=0", "has no whole number from 1 on for tensor")):
            self.assertIn(said, self.fails(2, "-n", 3, "--parallel", parallel, "--", *GENERATE), parallel)

    def start_with_one_stopped(self, *options):
        """Both wait for their prompt, and the second one will not come on."""
        os.mkfifo(self.scratch / "prompt")
        words = ["launch", *options, "--", "generate", TINY_LLAMA, "-q", "--prompt-file", self.scratch / "prompt"]
        process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        ranks = []
        while len(ranks) < 2:
            wait_until(lambda: len(children(process)) == 2, process)
            ranks = children(process)
            self.assertIsNone(process.poll())
        os.kill(ranks[1], signal.SIGSTOP)
        return process, ranks

    def ended(self, process, ranks):
        """Its exit status and messages; no rank is left."""
        messages = messages_of(process)
        for rank in ranks:
            self.assertFalse(is_there(rank), messages)
        return process.returncode, messages

    def test_a_rank_that_is_killed(self):
        process, ranks = self.start_with_one_stopped()
        os.kill(ranks[1], signal.SIGKILL)
        status, messages = self.ended(process, ranks)
        self.assertEqual((status, messages), (137, "halfbyte: rank 1 was ended by signal 9\n"))

    def test_a_rank_that_gives_no_sign(self):
        process, ranks = self.start_with_one_stopped("--timeout", 1)
        (self.scratch / "prompt").write_text("Once upon a time", encoding="utf-8")
        status, messages = self.ended(process, ranks)
        self.assertEqual(status, 1, messages)
        self.assertRegex(messages, r"rank 1 of 2 .*has not (joined|come on) for 1 s\n$")

    def test_a_launcher_that_is_killed_takes_its_ranks_with_it(self):
        process, ranks = self.start_with_one_stopped()
        process.kill()
        process.wait(LONGEST)
        with subprocess.Popen(["sleep", str(LONGEST)]) as limit:
            wait_until(lambda: not any(map(is_there, ranks)), limit)
            self.assertIsNone(limit.poll(), "a rank outlived the launcher")
            limit.kill()

    def test_a_signal_reaches_all(self):
        process, ranks = self.start_with_one_stopped()
        process.terminate()
        status, messages = self.ended(process, ranks)
        self.assertIn(status, (130, 137, 143), messages)  # 137: it could not end by itself


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Network(CommandLineTest):
    """Ranks that go by the loopback network, as those of several machines do."""

    def setUp(self):
        super().setUp()
        self.port = free_port()
        if "built without ranks of several machines" in run("launch", "-n", 1, "--nnodes", 2, "--timeout", 1, "--master-addr", "127.0.0.1", "--master-port", self.port, "--", "generate", TINY_LLAMA, "--prompt", "x").stderr:
            self.skipTest("built without ranks of several machines")

    def node(self, node, *words, command=GENERATE, nodes=2, ranks=1, options=()):
        start = ["launch", "-n", ranks, "--nnodes", nodes, "--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", self.port, "--timeout", 60, *options]
        process = subprocess.Popen([PROGRAM, *map(str, [*start, "--", *command, *words])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def ends(self, *processes):
        return [(*process.communicate(timeout=LONGEST), process.returncode) for process in processes]

    def test_same_text_as_one_process(self):
        alone = json.loads(self.succeeds(*GENERATE, "--json"))
        for ranks in (1, 2):
            first, second = self.ends(*(self.node(node, "--json", ranks=ranks) for node in (0, 1)))
            self.assertEqual((first[1:], second), (("", 0), ("", "", 0)))  # the first rank's alone
            self.assertEqual(json.loads(first[0])["generations"], alone["generations"])
        together = json.loads(self.succeeds("launch", "-n", 3, "--master-addr", "127.0.0.1", "--master-port", free_port(), "--", *GENERATE, "--json"))
        self.assertEqual(together["generations"], alone["generations"])

    def test_trains_over_the_network(self):
        """Each machine with files of its own: what is gone on from is the first one's."""
        words = ["finetune", "-q", TINY_LLAMA, "--text", TINY_LLAMA.parent / "heldout.txt", "--ctx", 16, "--batch", 2, "--rank", 2, "--threads", 1, "--steps", 6]
        alone = self.json_of(*words[:3], self.scratch / "alone", *words[3:])
        for ranks in (1, 2):
            outs = [self.scratch / f"{name}{ranks}" for name in ("first", "second")]
            results = self.ends(*(self.node(node, "--json", command=[*words[:3], outs[node], *words[3:]], ranks=ranks) for node in (0, 1)))
            self.assertEqual((results[0][1:], results[1]), (("", 0), ("", "", 0)))
            for found, wanted in zip(json.loads(results[0][0])["losses"], alone["losses"], strict=True):
                self.assertAlmostEqual(found, wanted, delta=1e-3 * wanted)
            self.assertEqual([out.exists() for out in outs], [True, False])

    def refused(self, *processes):
        """What all of them say, each in one line."""
        results = self.ends(*processes)
        for out, messages, status in results:
            self.assertEqual((out, messages.count("\n")), ("", 1), messages)
            self.assertTrue(messages.startswith("halfbyte: rank "), messages)
            self.assertGreater(status, 0)
        return [messages for _, messages, _ in results]

    def test_another_secret(self):
        for name in ("one", "two"):
            (self.scratch / name).write_text(f"{name}\n", encoding="utf-8")
        for messages in self.refused(*(self.node(node, options=("--secret-file", self.scratch / name)) for node, name in enumerate(["one", "two"]))):
            self.assertIn("has another secret than rank", messages)

    def test_another_checkpoint(self):
        self.succeeds("quantize", TINY_LLAMA, self.scratch / "other", "-q")
        other = ["generate", "-q", self.scratch / "other", *GENERATE[3:]]
        for messages in self.refused(self.node(0), self.node(1, command=other)):
            self.assertIn("rank 1 runs another thing than rank 0", messages)

    def test_a_rank_twice(self):
        first, second = self.node(1, nodes=3), self.node(1, nodes=3)
        third = self.node(0, nodes=3)
        with subprocess.Popen(["sleep", str(LONGEST)]) as limit:
            wait_until(lambda: first.poll() is not None or second.poll() is not None, limit)
            limit.kill()
        for process in (first, second, third):
            process.terminate()
        said = "".join(messages for _, messages, _ in self.ends(first, second, third))
        self.assertIn("rank 1 of 3 is there already: two processes were given the same rank", said)

    def test_one_that_does_not_come(self):
        (messages,) = self.refused(self.node(0, options=("--timeout", 1)))
        self.assertEqual(messages, "halfbyte: rank 1 of 2 has not joined for 1 s\n")

    def test_one_that_is_killed(self):
        """While both are writing a long text."""
        model = self.scratch / "model"
        shutil.copytree(TINY_LLAMA, model)
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}), encoding="utf-8")
        command = ["generate", model, "-q", "--prompt", "Once upon a time", "--ignore-eos", "--max-gen-len", 8000]
        for nodes, killed in ((2, 1), (4, 2)):
            self.port = free_port()
            processes = [self.node(node, command=command, nodes=nodes) for node in range(nodes)]
            self.assertTrue(processes[0].stdout.read(1))
            processes[killed].kill()
            results = self.ends(*processes)
            del results[killed]
            for _, messages, status in results:
                self.assertRegex(messages, rf"^halfbyte: rank {killed} of {nodes} \([^()]+, process \d+\) has gone; rank \d waited for it in [^\n]+\n$")
                self.assertEqual(status, 1)

    def test_other_numbers_of_ranks(self):
        for messages in self.refused(self.node(0, nodes=2), self.node(1, nodes=3)):
            self.assertRegex(messages, r"rank [01] is one of [23] ranks, and rank [01] one of [23]")

    def test_errors_are_one_line(self):
        self.fails(2, "--nnodes wants --master-addr too", "launch", "--nnodes", 2, "--", *GENERATE)
        self.fails(2, "--node-rank 2 is none of 2 machines", "launch", "--nnodes", 2, "--node-rank", 2, "--master-addr", "127.0.0.1", "--", *GENERATE)
        self.fails(2, "one process is not several", "launch", "-n", 1, "--", *GENERATE)
        self.fails(2, "are for ranks of several machines", "launch", "--interface", "lo", "--", *GENERATE)
        self.fails(2, "has no interface 'nowhere'", "launch", "--master-addr", "127.0.0.1", "--interface", "nowhere", "--", *GENERATE)
        self.fails(2, "(--interface, or GLOO_SOCKET_IFNAME)", "launch", "--master-addr", "192.0.2.1", "--", *GENERATE)
        self.fails(1, "the ranks' secret cannot be read there", "launch", "--master-addr", "127.0.0.1", "--secret-file", self.scratch / "none", "--", *GENERATE)

    def test_verbs_that_are_not_for_ranks(self):
        environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port)}
        self.fails(2, "evaluate: is not run by several processes, and RANK and WORLD_SIZE say that this is one of 2", "evaluate", TINY_LLAMA, "--text", self.scratch / "text", env=environment)


@unittest.skipUnless(shutil.which("torchrun") and MODEL_PROGRAM.exists(), "torchrun is not installed")
class Torchrun(CommandLineTest):
    def started(self, *words):
        command = ["torchrun", "--no-python", "--standalone", "--nproc-per-node", "2", PROGRAM, *map(str, words)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=LONGEST)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_runs_a_model(self):
        self.assertEqual(json.loads(self.started(*GENERATE, "--json"))["generations"], self.json_of(*GENERATE)["generations"])

    def test_trains_a_model(self):
        words = ["finetune", TINY_LLAMA, self.scratch / "out", "--text", TINY_LLAMA.parent / "heldout.txt", "--ctx", 16, "--batch", 2, "--rank", 2, "--threads", 1, "--steps", 4, "-q", "--json"]
        together = json.loads(self.started(*words))
        shutil.rmtree(self.scratch / "out")
        self.assertEqual(json.loads(self.succeeds("launch", "--", *words))["losses"], together["losses"])

    def test_shares_a_conversion_out(self):
        self.succeeds("quantize", TINY_LLAMA, self.scratch / "wanted", "-q")
        self.started("quantize", TINY_LLAMA, self.scratch / "result", "-q")
        for path in (self.scratch / "wanted").iterdir():
            self.assertEqual((self.scratch / "result" / path.name).read_bytes(), path.read_bytes(), path.name)


if __name__ == "__main__":
    unittest.main()
