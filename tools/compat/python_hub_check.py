#!/usr/bin/env python3
"""`org/model` in Python is downloaded by huggingface_hub: against a hub of this machine's own, of one model.

    python_hub_check.py TINY_LLAMA     run by the Python that has the wheel and huggingface_hub; 77: one of them is not there
"""
import hashlib
import http.server
import json
import os
import pathlib
import sys
import tempfile
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "org/tiny"


class Hub(http.server.BaseHTTPRequestHandler):
    """What huggingface_hub asks for a snapshot: the list of files, and each of them."""

    protocol_version = "HTTP/1.1"
    folder = None
    tokens = set()

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, wants_body):
        Hub.tokens.add(self.headers.get("Authorization"))
        path = self.path.partition("?")[0]
        if path.startswith(f"/api/models/{NAME}/tree/"):
            files = [{"type": "file", "path": one.name, "size": one.stat().st_size, "oid": COMMIT} for one in Hub.folder.iterdir()]
            return self.send(json.dumps(files).encode(), wants_body, kind="application/json")
        if path.startswith(f"/api/models/{NAME}"):
            files = [{"rfilename": one.name} for one in Hub.folder.iterdir()]
            return self.send(json.dumps({"id": NAME, "sha": COMMIT, "siblings": files}).encode(), wants_body, kind="application/json")
        file = Hub.folder / path.rsplit("/", 1)[-1]
        if path.startswith(f"/{NAME}/resolve/") and file.is_file():
            return self.send(file.read_bytes(), wants_body)
        return self.send(b'{"error": "Repository not found"}', wants_body, status=404, error="RepoNotFound")

    def send(self, body, wants_body, status=200, kind="application/octet-stream", error=""):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        if error:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        if wants_body:
            self.wfile.write(body)


def check(halfbyte, tiny, scratch):
    halfbyte.quantize(NAME, scratch / "from-hub")
    halfbyte.quantize(tiny, scratch / "from-here")
    for one in (scratch / "from-here").iterdir():
        assert one.read_bytes() == (scratch / "from-hub" / one.name).read_bytes(), one.name
    assert halfbyte.plan(NAME)["tensors"] and halfbyte.load_state(NAME)
    model = halfbyte.load_low_bit(NAME)
    assert model.generate("Once", temperature=0, max_gen_len=4) == halfbyte.load_low_bit(tiny).generate("Once", temperature=0, max_gen_len=4)
    assert halfbyte.Tokenizer(NAME).encode("a") == halfbyte.Tokenizer(tiny).encode("a")
    assert not list(pathlib.Path(os.environ["HF_HOME"]).rglob("*.py")), "code was downloaded"
    try:
        halfbyte.load_state("org/nothing")
    except halfbyte.Error as error:
        assert error.code == "not_found" and "\n" not in str(error), error
    else:
        raise AssertionError("there is no such model")
    assert "Bearer hf_ours" in Hub.tokens, Hub.tokens


def main(tiny):
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        # Before huggingface_hub is imported.
        os.environ.update(HF_ENDPOINT=f"http://127.0.0.1:{server.server_port}", HF_HOME=str(scratch / "home"), HF_TOKEN="hf_ours", HF_HUB_DISABLE_XET="1")
        try:
            import huggingface_hub

            import halfbyte
        except ImportError as error:
            print(error)
            return 77
        Hub.folder = scratch / "served"
        Hub.folder.mkdir()
        for one in [*pathlib.Path(tiny).iterdir()]:
            (Hub.folder / one.name).write_bytes(one.read_bytes())
        (Hub.folder / "modeling_evil.py").write_text("raise SystemExit", encoding="utf-8")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.chdir(scratch)
        check(halfbyte, os.path.abspath(tiny), scratch)
        print(f"a model of the hub by its name, huggingface_hub {huggingface_hub.__version__}: pass")
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
