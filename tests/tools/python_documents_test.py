"""The blocks of docs/python.md run, in their order; those that need packages which are not here are left out, with a word."""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/python.md"
# A conversation, for a model that was made without a template.
TEMPLATE = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}"


def blocks():
    return re.findall(r"(?ms)^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"))


def missing(block):
    needs = re.match(r"# needs (.+)", block)
    return [name for name in needs[1].split() if importlib.util.find_spec(name) is None] if needs else []


class Page(unittest.TestCase):
    def test_every_block_runs(self):
        data = pathlib.Path(os.environ["HALFBYTE_TEST_DATA"])
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(data / "tiny-llama", pathlib.Path(folder, "llama"), copy_function=shutil.copy)
            pathlib.Path(folder, "llama/tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}), encoding="utf-8")
            os.chdir(folder)
            try:
                self.run_all()
            finally:
                os.chdir(before)

    def run_all(self):
        names, ran = {}, 0
        for block in blocks():
            if lacking := missing(block):
                print(f"left out, without {', '.join(lacking)}: {block.splitlines()[1]}", file=sys.stderr)
                continue
            exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102
            ran += 1
        self.assertGreaterEqual(ran, 5)


if __name__ == "__main__":
    unittest.main()
