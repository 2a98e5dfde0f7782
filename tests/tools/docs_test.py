"""What the documents name is there: tests, options of the program, names of the library, files."""
import pathlib
import re
import unittest

from command_line import MODEL_PROGRAM, CommandLineTest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")])
MIGRATION = REPOSITORY / "docs/migrating-from-ipex-llm.md"
MODEL_VERBS = {"generate", "chat", "perplexity", "evaluate", "bench", "serve", "finetune"}


def text_of(pattern):
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(REPOSITORY.glob(pattern)))


def names_of_tests():
    """Every test's name: Catch2's test cases, unittest's methods, and tests that CMake adds."""
    titles = re.findall(r'TEST_CASE\(\s*"((?:[^"\\]|\\.)*)"', text_of("tests/**/*.cpp"))
    methods = re.findall(r"(?m)^    def (test_\w+)\(", text_of("tests/**/*.py"))
    return {*titles, *methods, *re.findall(r"add_test\(NAME ([\w.]+)", text_of("tests/**/CMakeLists.txt"))}


def tests_in(text):
    """(names after each "Test:", points of the list that have none)."""
    names, without = [], []
    points = re.split(r"(?m)^(?=\* )", text[text.index("## What went wrong"):])[1:]
    for point in points:
        point = re.split(r"(?m)^#", point)[0]
        found = re.findall(r"`([^`]+)`", point.partition("Test:")[2].replace("\n", " "))
        names += [" ".join(name.split()) for name in found]
        if not found:
            without.append(point.splitlines()[0])
    return names, without


class Documents(CommandLineTest):
    def test_every_pain_has_a_test_and_every_test_that_is_named_exists(self):
        names, without = tests_in(MIGRATION.read_text(encoding="utf-8"))
        self.assertEqual(without, [])
        self.assertGreater(len(names), 40)
        self.assertEqual([name for name in names if name not in names_of_tests()], [])

    def test_a_name_that_is_no_test_would_be_found(self):
        names, without = tests_in("## What went wrong\n* *a*: b. Test: `no such\n  test`; `test_mistakes`.\n* *c*: d.\n### More\n")
        self.assertEqual((names, without), (["no such test", "test_mistakes"], ["* *c*: d."]))
        self.assertEqual([name in names_of_tests() for name in names], [False, True])

    def test_every_command_that_is_shown_has_its_options(self):
        shown = 0
        for document in DOCUMENTS:
            for command in re.findall(r"halfbyte ((?:quantize|inspect|verify|dequantize|merge|diff|export|tokenize|generate|chat|perplexity|bench|serve|finetune|synth|doctor)\b[^`\n|]*)", document.read_text(encoding="utf-8")):
                verb, *words = command.partition("#")[0].split()
                if verb in MODEL_VERBS and not MODEL_PROGRAM.exists():
                    continue
                known = set(re.findall(r"--[a-z][\w-]*", self.help_of(verb)))
                for word in words:
                    option = re.match(r"--[a-z][\w-]*", word)
                    if option:
                        shown += 1
                        self.assertIn(option.group(), known, f"{document.name}: halfbyte {command}")
        self.assertGreater(shown, 10)

    def help_of(self, verb):
        self.helps = getattr(self, "helps", {})
        if verb not in self.helps:
            self.helps[verb] = self.succeeds(verb, "--help")
        return self.helps[verb]

    def test_every_name_of_the_library_is_in_a_public_header(self):
        headers = text_of("*/include/halfbyte/*.h") + text_of("*/*/include/halfbyte/*.h")
        for document in DOCUMENTS:
            for name in set(re.findall(r"\bhalfbyte::([A-Za-z_]\w*)", document.read_text(encoding="utf-8"))) - {"loader", "convert", "quant", "models"}:
                self.assertRegex(headers, rf"\b{name}\b", f"{document.name}: halfbyte::{name}")

    def test_every_link_to_a_file_leads_to_one(self):
        for document in DOCUMENTS:
            for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
                self.assertTrue((document.parent / target).exists(), f"{document.name}: {target}")


if __name__ == "__main__":
    unittest.main()
