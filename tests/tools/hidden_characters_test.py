"""Names with control and format characters: none reaches a message, a table or JSON text as it is, and JSON says the same names."""
import json
import os
import pty
import shutil
import subprocess
import unicodedata
import unittest

from command_line import LONGEST, PROGRAM, TINY_LLAMA, CommandLineTest, run, write_safetensors

# C0, C1, DEL; direction marks, embeddings, overrides and isolates; zero widths, tags; separators of lines and paragraphs.
HIDDEN = [chr(code) for code in range(1, 0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp")]
NAMES = ["name" + "".join(HIDDEN[i:i + 8]) for i in range(0, len(HIDDEN), 8)]
# In the name of a file, where a checkpoint may have none.
IN_A_PATH = "a\x1b[2Jb\u009b\u202ec\u2066\u200f\u2028d\U000e0041"


class HiddenCharacters(CommandLineTest):
    def shows_none(self, *words):
        result = run(*words)
        for text in (result.stdout, result.stderr):
            found = {hex(ord(c)) for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")}
            self.assertEqual(found, set(), words)
        return result

    def test_all_of_them_are_tried(self):
        self.assertGreater(len(HIDDEN), 65 + 160)
        for c in "\x1b\x7f\u009b\u202e\u2066\u200b\ufeff\u2028\U000e0001":
            self.assertIn(c, HIDDEN)

    def test_names_of_tensors(self):
        model = self.scratch / IN_A_PATH
        model.mkdir()
        write_safetensors(model / "model.safetensors", {name: ("F32", [2], b"\0" * 8) for name in NAMES})
        for verb in (["inspect", model, "--tensors"], ["verify", model], ["quantize", model, self.scratch / "q", "--dry-run"]):
            self.assertEqual(self.shows_none(*verb).returncode, 0)
            self.assertEqual(self.shows_none(*verb, "--json").returncode, 0)
        listed = self.json_of("inspect", model, "--tensors")["tensors"]
        self.assertEqual(sorted(tensor["name"] for tensor in listed), sorted(NAMES))
        self.assertIn("\\u009b", run("inspect", model, "--tensors", "--json").stdout)

    def test_messages(self):
        for i, name in enumerate(NAMES):
            broken = self.scratch / f"{i}"
            broken.mkdir()
            (broken / "tokenizer.json").write_text(json.dumps({"model": {"type": name, "vocab": {}}}))
            self.assertEqual(self.shows_none("tokenize", broken, "--text", "a").returncode, 3)
        self.assertEqual(self.shows_none("inspect", self.scratch / IN_A_PATH).returncode, 1)
        self.assertEqual(self.shows_none("tokenize", TINY_LLAMA, "--file", self.scratch / IN_A_PATH).returncode, 1)
        self.assertEqual(self.shows_none("quantize", TINY_LLAMA, "q", "--scheme", IN_A_PATH).returncode, 2)
        self.assertEqual(self.shows_none(IN_A_PATH).returncode, 2)

    def test_pieces_of_a_vocabulary(self):
        vocab = {name: i for i, name in enumerate(NAMES)}
        (self.scratch / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordLevel", "unk_token": NAMES[0], "vocab": vocab}}))
        (self.scratch / "text").write_text("\0".join(NAMES))
        words = ["tokenize", self.scratch, "--file", self.scratch / "text", "--lines", "-0"]
        self.assertEqual(self.shows_none(*words, "--pieces").returncode, 0)
        pieces = [json.loads(line)["pieces"] for line in self.shows_none(*words, "--json").stdout.splitlines()]
        self.assertEqual(pieces, [[name] for name in NAMES])

    def test_a_models_text_cannot_steer_a_terminal(self):
        text = "a\x1b[2J\u009b31m\r\u200f\tb"
        ids = " ".join(map(str, self.json_of("tokenize", TINY_LLAMA, "--text", text)["ids"]))
        words = ["tokenize", TINY_LLAMA, "--decode", "--text", ids]
        self.assertEqual(run(*words).stdout, text.replace("\r", "\n") + "\n")  # what is read as text has other line ends
        ours, theirs = pty.openpty()
        try:
            subprocess.run([PROGRAM, *words], stdout=theirs, check=True, timeout=LONGEST)
            shown = os.read(ours, 1000).decode()
        finally:
            os.close(ours)
            os.close(theirs)
        self.assertEqual(shown.replace("\r\n", "\n").expandtabs(8), "a\\x1b[2J\\u009b31m\\x0d\u200f\tb\n".expandtabs(8))

    def test_long_names_are_cut(self):
        name = "N" * 70_000
        files = {
            "tokenizer.json": [{"model": {"type": "WordLevel", "vocab": {}}, part: {"type": name}}
                               for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder")] +
                              [{"model": {"type": name}}, {"model": {"type": "BPE", "vocab": {}, "merges": [name[:9000] + " " + name[:9000]]}},
                               {"model": {"type": "WordLevel", "vocab": {name: 0}}}, {"model": {"type": "WordLevel", "vocab": {name: -1}}},
                               {"model": {"type": "WordLevel", "vocab": {}}, "added_tokens": [{"id": 0, "content": name}]}],
            "tokenizer_config.json": [{"added_tokens_decoder": {name: {}}}],
            "config.json": [{"model_type": "llama", "hidden_act": name}, {"model_type": name, "architectures": [name]},
                            {"model_type": "llama", name: name, "rope_scaling": {"type": name}}],
        }
        for file, contents in files.items():
            for i, content in enumerate(contents):
                model = self.scratch / f"{file}{i}"
                shutil.copytree(TINY_LLAMA, model)
                path = model / file
                path.write_text(json.dumps({**json.loads(path.read_text()), **content} if path.exists() else content))
                for words in (["tokenize", model, "--text", "a"], ["quantize", model, self.scratch / "q", "--dry-run"]):
                    result = run(*words)
                    self.assertLess(max(map(len, result.stderr.splitlines()), default=0), 1500, (file, i))


if __name__ == "__main__":
    unittest.main()
