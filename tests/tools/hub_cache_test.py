"""Models by their name on Hugging Face's hub: found where its cache has them whole, refused by name where it has not."""
import json
import os
import pathlib
import shutil
import unittest

from command_line import TINY_LLAMA, CommandLineTest, run

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubCache(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.cache = self.scratch / "cache"
        self.repository = self.cache / "models--tiny-org--tiny-llama"
        self.snapshot = self.repository / "snapshots" / COMMIT
        self.snapshot.mkdir(parents=True)
        (self.repository / "blobs").mkdir()
        (self.repository / "refs").mkdir()
        (self.repository / "refs/main").write_text(COMMIT)
        for number, file in enumerate(sorted(TINY_LLAMA.iterdir())):  # links to blobs, as the hub's programs write them
            shutil.copy(file, self.repository / "blobs" / str(number))
            (self.snapshot / file.name).symlink_to(pathlib.Path("../../blobs", str(number)))
        self.environment = {"HF_HUB_CACHE": str(self.cache)}

    def run_verb(self, *words, environment=None, **options):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE_", "XDG_"))}
        return run(*words, env=kept | (self.environment if environment is None else environment), cwd=self.scratch, **options)

    def refused(self, status, wanted, *words, **options):
        done = self.run_verb(*words, **options)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (status, 1), done.stderr)
        for part in wanted:
            self.assertIn(part, done.stderr)

    def tokens(self, name, **options):
        done = self.run_verb("tokenize", name, "--text", "The ship", **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), name)
        return done.stdout

    def test_every_verb_that_reads_a_checkpoint_takes_the_name(self):
        name = "tiny-org/tiny-llama"
        for words in (["inspect", name], ["verify", name, "--against", name], ["diff", name, TINY_LLAMA], ["tokenize", name, "--text", "x"],
                      ["quantize", name, "4bit"], ["dequantize", name, "again"], ["export", "4bit", "out", "--to", "safetensors"],
                      ["quantize", f"{name}@{COMMIT}", "x", "--dry-run"]):
            done = self.run_verb(*words, "-q")
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        self.assertEqual(self.run_verb("diff", name, TINY_LLAMA, "--exit-code", "-q").returncode, 0)

    def test_the_cache_is_where_the_environment_says(self):
        wanted = self.tokens(TINY_LLAMA)
        self.assertEqual(self.tokens("tiny-org/tiny-llama"), wanted)
        home = self.scratch / "home"
        (home / ".cache/huggingface").mkdir(parents=True)
        self.cache.rename(home / ".cache/huggingface/hub")
        for environment in ({"HF_HOME": str(home / ".cache/huggingface")}, {"HOME": str(home)}, {"HOME": str(home), "HF_HOME": "~/.cache/huggingface"},
                            {"XDG_CACHE_HOME": str(home / ".cache")}, {"HUGGINGFACE_HUB_CACHE": str(home / ".cache/huggingface/hub")}):
            self.assertEqual(self.tokens("tiny-org/tiny-llama", environment=environment), wanted)

    def test_revisions_are_branches_tags_and_commits(self):
        (self.repository / "refs/v1").write_text(COMMIT + "\n")
        for revision in ("main", "v1", COMMIT):
            self.tokens(f"tiny-org/tiny-llama@{revision}")
        self.refused(1, ["no revision v2", "hf download tiny-org/tiny-llama --revision v2"], "inspect", "tiny-org/tiny-llama@v2")

    def test_a_path_that_exists_wins(self):
        shutil.copytree(TINY_LLAMA, self.scratch / "tiny-org/tiny-llama")
        (self.snapshot / "tokenizer.json").unlink(missing_ok=True)
        shutil.rmtree(self.repository)
        self.assertIn("tiny-org/tiny-llama", self.run_verb("inspect", "tiny-org/tiny-llama").stdout)

    def test_what_is_missing_is_named_with_the_command_that_fetches_it(self):
        self.refused(1, ["no path here", str(self.cache), "hf download other/model"], "inspect", "other/model")
        (self.repository / "blobs").rename(self.repository / "gone")
        self.refused(1, ["lacks", "hf download tiny-org/tiny-llama"], "verify", "tiny-org/tiny-llama")
        (self.repository / "gone").rename(self.repository / "blobs")
        weights = next(file for file in self.snapshot.iterdir() if file.name.endswith(".safetensors"))
        weights.unlink()
        self.refused(1, ["lacks the weights", "hf download"], "inspect", "tiny-org/tiny-llama")
        self.tokens("tiny-org/tiny-llama")  # needs none
        (self.snapshot / "model-00001-of-00002.safetensors").write_bytes(b"")
        index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
        (self.snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
        self.refused(1, ["lacks model-00002-of-00002.safetensors"], "inspect", "tiny-org/tiny-llama")

    def test_no_name_leads_out_of_the_cache(self):
        for name in ("../tiny-llama", "tiny-org/..", "tiny-org/tiny-llama@../main", "a/b/c", "/tiny-org/tiny-llama", "tiny-org/tiny-llama@/etc"):
            done = self.run_verb("inspect", name)
            self.assertNotEqual(done.returncode, 0, name)
            self.assertNotIn("hf download", done.stderr, name)


if __name__ == "__main__":
    unittest.main()
