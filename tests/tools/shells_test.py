"""Help, tables, completion and the manual page: made from the options, and as wide as the terminal."""
import functools
import os
import re
import shutil
import subprocess
import unittest

from command_line import LONGEST, MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, run

VERBS = ["quantize", "inspect", "verify", "dequantize", "merge", "diff", "export", "doctor", "tokenize", "synth", "completion", "man"]
MODEL_VERBS = ["generate", "chat", "perplexity", "evaluate", "bench", "serve"] if MODEL_PROGRAM.exists() else []


def at(columns):
    return {**os.environ, "COLUMNS": str(columns)}


@functools.cache
def made(*words):
    return run(*words).stdout


def wrapped(name):
    """The name, or the name with the rest of its row and a new line anywhere inside."""
    return r"(?:(?: [^\n]*)?\n *)?".join(re.escape(character) for character in name)


class Width(CommandLineTest):
    def fits(self, columns, *words):
        text = self.succeeds(*words, env=at(columns))
        wide = [line for line in text.splitlines() if len(line) > columns]
        self.assertEqual(wide, [], f"{words} at {columns}")
        return text

    def test_help_fits(self):
        for columns in [60, 80]:
            self.fits(columns, "--help")
            for verb in VERBS:
                self.fits(columns, verb, "--help")
        usual = self.succeeds("quantize", "--help", env={name: value for name, value in os.environ.items() if name != "COLUMNS"})
        self.assertEqual(usual, self.fits(80, "quantize", "--help"))

    def test_tables_fit_and_lose_nothing(self):
        quantised = self.scratch / "q"
        self.succeeds("quantize", TINY_LLAMA, quantised)
        for words in [["inspect", TINY_LLAMA], ["inspect", quantised], ["inspect", quantised, "--tensors"], ["inspect", quantised, "--policy", "half"],
                      ["quantize", TINY_LLAMA, "x", "--dry-run"], ["diff", TINY_LLAMA, quantised, "--tensors"]]:
            wide = self.succeeds(*words, env=at(100000))
            for columns in [60, 80]:
                text = self.succeeds(*words, env=at(columns))
                table = [line for line in text.splitlines() if len(line) > columns and "/" not in line and "->" not in line and ";" not in line]
                self.assertEqual(table, [], f"{words} at {columns}")
                for name in re.findall(r"\bmodel\.\S+", wide):
                    self.assertRegex(text, wrapped(name), f"{words} at {columns}")

    def test_a_pipe_gets_whole_lines(self):
        text = self.succeeds("inspect", TINY_LLAMA, "--tensors", env={name: value for name, value in os.environ.items() if name != "COLUMNS"})
        self.assertRegex(text, r"(?m)^  model\.layers\.0\.mlp\.down_proj\.weight .* bfloat16 ")


class Completion(CommandLineTest):
    def bash(self, line):
        """What bash offers at the end of a line."""
        program = f"source {self.scratch}/halfbyte.bash; COMP_LINE={line!r}; COMP_POINT=${{#COMP_LINE}}; _halfbyte; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        result = subprocess.run(["bash", "--norc", "-u", "-c", program], capture_output=True, text=True, check=False, cwd=self.scratch, timeout=LONGEST)
        self.assertEqual((result.returncode, result.stderr), (0, ""), line)
        return set(result.stdout.split())

    @unittest.skipUnless(shutil.which("bash"), "skipped: there is no bash")
    def test_bash_completes_verbs_options_values_and_files(self):
        (self.scratch / "halfbyte.bash").write_text(made("completion", "bash"))
        (self.scratch / "model-dir").mkdir()
        self.assertEqual(self.bash("halfbyte quan"), {"quantize"})
        self.assertLessEqual({*VERBS, *MODEL_VERBS, "--version"}, self.bash("halfbyte "))
        self.assertEqual(self.bash("halfbyte quantize model-dir x --sch"), {"--scheme", "--scheme-for"})
        self.assertEqual(self.bash("halfbyte quantize model-dir x --scheme sym"), {"sym_int4", "sym_int8"})
        self.assertEqual(self.bash("halfbyte quantize model-dir x --scheme=nf"), {"nf4"})
        self.assertEqual(self.bash("halfbyte quantize mod"), {"model-dir"})
        self.assertEqual(self.bash("halfbyte quantize --keep "), set())
        self.assertEqual(self.bash("halfbyte completion "), {"bash", "zsh", "fish"})
        self.assertIn("--against", self.bash("halfbyte verify model-dir --"))
        if MODEL_VERBS:
            self.assertEqual(self.bash("halfbyte generate model-dir --dtype amp:"), {"bfloat16", "float16"})
            self.assertIn("halfbyte.bash", self.bash("halfbyte perplexity model-dir --text half"))

    def test_every_option_is_in_every_script(self):
        scripts = {shell: made("completion", shell) for shell in ["bash", "zsh", "fish"]}
        page = made("man").replace("\\-", "-")
        for verb in VERBS + MODEL_VERBS[:1]:
            for option in self.json_of(verb, "--help")["options"]:
                for name in option["names"]:
                    self.assertIn(name, page)
                    if not option["positional"]:
                        self.assertIn(name, scripts["bash"])
                        self.assertIn(name, scripts["zsh"])
                        self.assertIn("-l " + name[2:] if name.startswith("--") else "-s " + name[1:], scripts["fish"])

    def test_shells_take_the_scripts(self):
        for shell in ["bash", "zsh", "fish"]:
            path = self.scratch / shell
            path.write_text(made("completion", shell))
            if shutil.which(shell):
                checked = subprocess.run([shell, "-n", path], capture_output=True, text=True, check=False, timeout=LONGEST)
                self.assertEqual((checked.returncode, checked.stderr), (0, ""), shell)


class Manual(CommandLineTest):
    def test_the_page_has_its_sections(self):
        page = made("man")
        self.assertEqual(re.findall(r"(?m)^\.SH (.+)$", page), ["NAME", "SYNOPSIS", "DESCRIPTION", "VERBS", "EXIT STATUS", "ENVIRONMENT"])
        self.assertEqual(re.findall(r"(?m)^\.SS (.+)$", page).count("quantize"), 1)
        self.assertRegex(page, r"(?m)^\.TH HALFBYTE 1 ")
        requests = set(re.findall(r"(?m)^\.(\w+)", page))
        self.assertLessEqual(requests, {"TH", "SH", "SS", "TP", "PP", "br", "nf", "fi", "ad"})

    @unittest.skipUnless(shutil.which("groff"), "skipped: there is no groff")
    def test_groff_has_nothing_to_warn_of(self):
        page = subprocess.run(["groff", "-man", "-ww", "-Tutf8"], input=made("man"), capture_output=True, text=True, check=False, timeout=LONGEST)
        self.assertEqual((page.returncode, page.stderr), (0, ""))
        self.assertIn("EXIT STATUS", re.sub(".\b", "", page.stdout))  # bold is struck twice


if __name__ == "__main__":
    unittest.main()
