"""tools/benchmark/accuracy.sh: its figures are those of the files, its table and plot are whole, and a peer that is not there is left out."""
import json
import os
import pathlib
import subprocess
import sys
import unittest
import xml.etree.ElementTree

from command_line import MODEL_PROGRAM, PROGRAM, TINY_LLAMA, CommandLineTest

BENCHMARK = pathlib.Path(__file__).resolve().parents[2] / "tools/benchmark"
sys.path.insert(0, str(BENCHMARK))

import accuracy_bits  # pylint: disable=wrong-import-position
import accuracy_plot  # pylint: disable=wrong-import-position


class Accuracy(CommandLineTest):
    def test_bits_are_those_of_the_linears(self):
        keep = ["--keep", "*embed_tokens*", "--keep", "lm_head*", "-q"]
        for words, bits in [([], 4.25), (["--group-size", "32"], 4.5)]:
            target = self.scratch / f"checkpoint-{bits}"
            self.succeeds("quantize", TINY_LLAMA, target, *keep, *words)
            self.assertAlmostEqual(accuracy_bits.bits_of_safetensors(target, TINY_LLAMA), bits, delta=0.005)  # a shape is stored too
        self.succeeds("export", target, self.scratch / "q4_0.gguf", "--to", "gguf", "-q")
        self.assertAlmostEqual(accuracy_bits.bits_of_gguf(self.scratch / "q4_0.gguf"), 4.5, delta=0.005)

    def test_a_plot_is_xml_with_a_point_a_row(self):
        rows = {f"halfbyte s{number}": {"tool": "halfbyte", "is_calibrated": False, "bits": 4 + number / 8, "kl_mean": {"value": 0.001 * number}}
                for number in range(1, 5)}
        root = xml.etree.ElementTree.fromstring(accuracy_plot.svg(rows))
        titles = [point.find("{*}title") for point in root.iter("{http://www.w3.org/2000/svg}circle")]
        self.assertEqual(len([title for title in titles if title is not None]), 4)

    @unittest.skipUnless(MODEL_PROGRAM.exists(), "it runs models")
    def test_what_is_there_is_measured_once_and_what_is_not_is_left_out(self):
        figures, plot = self.scratch / "figures.json", self.scratch / "plot.svg"
        words = [BENCHMARK / "accuracy.sh", TINY_LLAMA, TINY_LLAMA.parent / "heldout.txt", "--windows", 2, "--halfbyte", PROGRAM, "--scratch",
                 self.scratch / "scratch", "--python", "/bin/false", "--llama-cpp", self.scratch, "--json", figures, "--plot", plot,
                 "--only", "halfbyte sym_int4 g", "--only", "bitsandbytes", "--only", "llama.cpp Q4_0"]
        for begun in (1, 0):
            done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(done.stdout.strip().splitlines()), 5, done.stdout)
            for peer in ("bitsandbytes", "llama.cpp", "sym_int4 g64, calibrated"):
                self.assertIn(f"{peer}:", done.stderr)
            self.assertEqual(done.stderr.count(" quantize "), 2 * begun)
        rows = json.loads(figures.read_text(encoding="utf-8"))["rows"]
        self.assertEqual(list(rows), ["halfbyte sym_int4 g64", "halfbyte sym_int4 g32"])
        self.assertGreater(rows["halfbyte sym_int4 g64"]["kl_mean"]["value"], rows["halfbyte sym_int4 g32"]["kl_mean"]["value"])
        xml.etree.ElementTree.fromstring(plot.read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
