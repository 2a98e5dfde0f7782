"""`halfbyte serve` as clients and an operator meet it: answers are those of `generate`, it starts, drains and refuses."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from command_line import LONGEST, MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest, run

TEXT = (TINY_LLAMA.parent / "heldout.txt").read_text(encoding="utf-8")
PROMPTS = [TEXT[start:start + length] for start, length in [(0, 5), (40, 300), (0, 500), (700, 64), (0, 120), (900, 210), (333, 17), (40, 310), (60, 1), (1000, 450)]]


class Serving:
    """A server that says on stdout where it is."""

    def __init__(self, *words, **options):
        self.process = subprocess.Popen([PROGRAM, "serve", *map(str, words), "--port", "0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, **options)
        line = self.process.stdout.readline()
        self.said = json.loads(line) if line else None
        self.port = self.said["port"] if line else None

    def request(self, method, path, body=None, headers=()):
        data = json.dumps(body) if body is not None else None
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONGEST)) as connection:
            connection.request(method, path, data, {"Content-Type": "application/json", **dict(headers)})
            response = connection.getresponse()
            text = response.read().decode()
        return response.status, json.loads(text) if text.startswith("{") else text

    def complete(self, prompt, tokens=20, **fields):
        status, answer = self.request("POST", "/v1/completions", {"prompt": prompt, "max_tokens": tokens, "temperature": 0, **fields})
        assert status == 200, answer
        return answer

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.finish()

    def finish(self):
        try:
            return self.process.communicate(timeout=LONGEST)
        finally:
            self.process.kill()


@contextlib.contextmanager
def serving(*words, **options):
    server = Serving(*words, **options)
    try:
        yield server
    finally:
        server.process.kill()
        server.finish()


@unittest.skipUnless(MODEL_PROGRAM.exists(), "this build has no LibTorch")
class Serve(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory(prefix="halfbyte-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.model = pathlib.Path(folder.name, "tiny4")
        result = run("quantize", TINY_LLAMA, cls.model, "-q")
        assert result.returncode == 0, result.stderr

    def generated(self, prompt, tokens):
        """The text behind the prompt, without blanks in front: what of them belongs to it depends on who decodes."""
        words = ["generate", self.model, "--prompt", prompt, "--max-gen-len", tokens, "--temperature", 0, "--json", "-q"]
        return json.loads(self.succeeds(*words))["generations"][0]["text"].lstrip(" ")

    def test_answers_are_those_of_generate_alone_and_beside_others(self):
        with serving(self.model, "-q") as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(server.complete, PROMPTS))
            for prompt, answer in zip(PROMPTS, together):
                wanted = self.generated(prompt, 20)
                self.assertEqual(answer["choices"][0]["text"].lstrip(" "), wanted, prompt)
                self.assertEqual(server.complete(prompt)["choices"][0]["text"].lstrip(" "), wanted, prompt)
            self.assertEqual(server.end(), ("", ""))
            self.assertEqual(server.process.returncode, 0)

    def test_same_seed_same_answer(self):
        with serving(self.model, "-q") as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
            one = server.complete("Once", temperature=1, seed=7)["choices"][0]["text"]
            again = list(pool.map(lambda seed: server.complete("Once", temperature=1, seed=seed)["choices"][0]["text"], [7, 8, 9, 7, 10, 11, 12, 7]))
            self.assertEqual([again[i] for i in (0, 3, 7)], [one] * 3)
            self.assertGreater(len(set(again)), 3)

    def test_a_beginning_is_read_once(self):
        with serving(self.model, "-q") as server:
            system = TEXT[:400]
            first = server.complete(system + "one")["usage"]
            second = server.complete(system + "two")["usage"]
            self.assertEqual(first["prompt_tokens_details"]["cached_tokens"], 0)
            self.assertGreater(second["prompt_tokens_details"]["cached_tokens"], 0.8 * second["prompt_tokens"])

    def test_a_chat_and_its_stream_say_the_same(self):
        with serving(self.model, "--chat-template", "chatml", "--name", "me", "-q") as server:
            self.assertEqual((server.said["name"], server.said["has_chat"]), ("me", True))
            body = {"model": "me", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12, "temperature": 0}
            status, whole = server.request("POST", "/v1/chat/completions", body)
            self.assertEqual(status, 200)
            _, stream = server.request("POST", "/v1/chat/completions", {**body, "stream": True})
            events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
            self.assertEqual("".join(event["choices"][0]["delta"].get("content", "") for event in events), whole["choices"][0]["message"]["content"])
            self.assertEqual(server.request("POST", "/v1/chat/completions", {**body, "model": "you"})[0], 404)

    def test_without_a_template_there_are_completions_alone(self):
        server = Serving(self.model)
        self.assertFalse(server.said["has_chat"])
        status, answer = server.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})
        self.assertEqual((status, answer["error"]["param"]), (400, "messages"))
        messages = server.end()[1]
        self.assertIn("no chat template", messages)
        self.assertIn("127.0.0.1 POST /v1/chat/completions 400", messages)
        self.assertNotIn('"content"', messages)

    def test_several_models_are_told_apart_by_name(self):
        with serving(self.model, TINY_LLAMA, self.model, "--name", "tiny4", "--name", TINY_LLAMA.name, "--name", "again", "-q") as server:
            second, third = [json.loads(server.process.stdout.readline()) for _ in range(2)]
            self.assertEqual(third["name"], "again")
            self.assertEqual([server.said["name"], second["name"], second["port"]], ["tiny4", TINY_LLAMA.name, server.port])
            names = [model["id"] for model in server.request("GET", "/v1/models")[1]["data"]]
            self.assertEqual(names, ["tiny4", TINY_LLAMA.name, "again"])
            texts = [server.complete(PROMPTS[1], 120, **fields)["choices"][0]["text"] for fields in [{}, {"model": "tiny4"}, {"model": TINY_LLAMA.name}]]
            self.assertEqual(texts[0], texts[1])
            self.assertNotEqual(texts[1], texts[2])
            self.assertEqual(server.request("POST", "/v1/completions", {"model": "third", "prompt": "a"})[0], 404)
            reports = [server.request("GET", f"/v1/halfbyte/report/{name}")[1]["checkpoint"] for name in names]
            self.assertNotEqual(reports[0], reports[1])
            server.end()
        self.fails(2, ["tiny4", "--name"], "serve", self.model, self.model, "--port", "0")
        self.fails(2, ["--name", "2 checkpoints", "1 name"], "serve", self.model, TINY_LLAMA, "--name", "one", "--port", "0")

    def test_what_it_is_asked_to_finish_it_finishes_and_a_second_signal_ends_it(self):
        for signals, status in [([signal.SIGTERM], 0), ([signal.SIGINT], 0), ([signal.SIGINT, signal.SIGINT], -signal.SIGINT)]:
            with serving(self.model, "-q") as server:
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LONGEST)
                body = {"prompt": "a", "max_tokens": 240, "stream": True, "temperature": 1, "ignore_eos": True}
                connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
                response = connection.getresponse()
                response.readline()
                for number in signals:
                    server.process.send_signal(number)
                    time.sleep(0.02)
                text = response.read().decode(errors="replace") if status == 0 else ""
                if status == 0:
                    self.assertIn("[DONE]", text)
                server.finish()
                response.close()
                connection.close()
                self.assertIn(server.process.returncode, [status, 0])

    def test_keys_come_from_a_file_or_the_environment_and_are_told_to_nobody(self):
        keys = self.scratch / "keys"
        keys.write_text("# ours\nalpha-secret\n\nbeta-secret\n", encoding="utf-8")
        server = Serving(self.model, "--api-key-file", keys, "-v", env={**os.environ, "HALFBYTE_API_KEY": "gamma-secret"})
        self.assertTrue(server.said["needs_key"])
        for key, status in [("alpha-secret", 200), ("beta-secret", 200), ("gamma-secret", 200), ("alpha", 401), ("", 401)]:
            self.assertEqual(server.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})[0], status, key)
        out, messages = server.end()
        self.assertNotIn("secret", out + messages)

    def test_what_makes_no_sense_is_refused_in_one_line(self):
        self.fails(2, ["0.0.0.0", "--api-key-file", "--insecure"], "serve", self.model, "--host", "0.0.0.0", "--port", "0")
        self.fails(2, "no.where", "serve", self.model, "--host", "no.where", "--port", "0")
        self.fails(1, "keys.txt", "serve", self.model, "--api-key-file", "keys.txt", "--port", "0")
        (self.scratch / "none").write_text("#\n", encoding="utf-8")
        self.fails(2, "no key", "serve", self.model, "--api-key-file", self.scratch / "none", "--port", "0")
        self.fails(2, "--port", "serve", self.model, "--port", "65536")
        self.fails(2, "context", "serve", self.model, "--ctx-size", "1000000", "--port", "0")
        self.fails(2, ["keys and values", "there are 3"], "serve", self.model, "--kv-memory", "3", "--port", "0")
        self.fails(1, "nowhere does not exist", "serve", "nowhere", "--port", "0")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.fails(1, ["cannot listen", str(taken.getsockname()[1])], "serve", self.model, "--port", taken.getsockname()[1])
        bare = self.scratch / "bare"
        bare.mkdir()
        for name in self.model.iterdir():
            if not name.name.startswith("token"):
                shutil.copy(name, bare)
        self.fails(1, "tokenizer", "serve", bare, "--port", "0")


if __name__ == "__main__":
    unittest.main()
