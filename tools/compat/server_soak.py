#!/usr/bin/env python3
"""Thousands of requests to `halfbyte serve`, a third of them broken off at random moments, bad bodies among them: no slot stays taken, no memory is
left behind, and every other answer is right.

    server_soak.py HALFBYTE TINY_LLAMA [REQUESTS]
"""
import concurrent.futures
import http.client
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time

TEXTS = ["Once upon a time", "The", "My fellow citizens of the United States", "a b c d e f g h i j k l m n o p", "war and peace " * 9]
BAD = [b"{", b"[]", b'{"prompt": 5}', b'{"prompt": "a", "n": 99}', b'{"prompt": "a", "max_tokens": -1}', b"\xff\xfe", b'{"prompt": "a", "x": 1}']


class Server:
    def __init__(self, program, model):
        self.process = subprocess.Popen([program, "serve", model, "--port", "0", "--json", "-q", "--parallel", "8", "--queue", "1000"], stdout=subprocess.PIPE, text=True)
        self.port = json.loads(self.process.stdout.readline())["port"]

    def post(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def break_off(self, body, own):
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        with socket.create_connection(("127.0.0.1", self.port)) as one:
            one.sendall((head + body)[:own.randrange(1, len(head + body) + 200)])
            if own.random() < 0.7:
                one.settimeout(own.random() * 0.05 + 0.001)
                try:
                    one.recv(own.randrange(1, 2000))
                except OSError:
                    pass

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return float(next(line.split()[1] for line in text.splitlines() if line.startswith(name + " ")))

    def resident(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1000


def body_of(text, tokens, stream=False):
    return json.dumps({"prompt": text, "max_tokens": tokens, "temperature": 0, "stream": stream}).encode()


def text_in(answer):
    return json.loads(answer)["choices"][0]["text"]


def one_request(server, wanted, seed):
    own = random.Random(seed)
    text = own.choice(TEXTS)
    if seed % 3 == 0:
        return server.break_off(body_of(text, own.randrange(1, 150), own.random() < 0.5), own)
    if seed % 7 == 0:
        status, answer = server.post(own.choice(BAD))
        assert status == 400 and json.loads(answer)["error"]["message"], (status, answer)
        return None
    status, answer = server.post(body_of(text, 20))
    assert (status, text_in(answer)) == (200, wanted[text]), (status, answer)
    return None


def idle(server):
    deadline = time.monotonic() + 30
    while server.metric("halfbyte_sequences_active") + server.metric("halfbyte_sequences_waiting") > 0:
        assert time.monotonic() < deadline, "a slot stays taken"
        time.sleep(0.05)


def main(program, tiny_llama, requests="2000"):
    with tempfile.TemporaryDirectory() as scratch:
        model = pathlib.Path(scratch, "tiny")
        subprocess.run([program, "quantize", tiny_llama, model, "-q"], check=True, stdout=subprocess.DEVNULL)
        server = Server(program, model)
        try:
            wanted = {text: text_in(server.post(body_of(text, 20))[1]) for text in TEXTS}
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda seed: one_request(server, wanted, seed), range(int(requests))))
                idle(server)
                before = server.resident()
                list(pool.map(lambda seed: one_request(server, wanted, seed), range(10000, 10000 + int(requests))))
            idle(server)
            after = server.resident()
        finally:
            server.process.terminate()
            status = server.process.wait(60)
    print(f"{requests} requests after as many to warm up: memory {before:.1f} -> {after:.1f} MB, exit status {status}")
    assert after - before < 2 and status == 0
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
