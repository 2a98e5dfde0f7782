"""halfbyte evaluate --report: one page that is well formed, refers to nothing outside itself and shows hostile text as text."""
import html.parser
import json
import unittest

from command_line import MODEL_PROGRAM, TINY_LLAMA, CommandLineTest, run

VOID = {"meta", "line", "rect", "circle"}
TAGS = VOID | set("html head title style body main h1 h2 h3 p section div span table thead tbody tr th td ol li mark details summary svg text".split())
ATTRIBUTES = {"class", "style", "lang", "charset", "name", "content", "http-equiv", "scope", "viewbox", "role", "aria-label",
              "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "width", "height", "text-anchor"}
HOSTILE = "</td></table><script>alert(1)</script><img src=x onerror=alert(2)> \"'&amp; \u202e "


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], set(), set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        if tag in VOID:  # a drawing's part with a title in it
            return
        assert self.open and self.open[-1] == tag, (tag, self.open, self.getpos())
        self.open.pop()

    def handle_data(self, data):
        self.words.append(data)


@unittest.skipUnless(MODEL_PROGRAM.exists(), "built without LibTorch")
class Report(CommandLineTest):
    def page_of(self, folder):
        page = (folder / "report.html").read_text(encoding="utf-8")
        reader = Reader()
        reader.feed(page)
        reader.close()
        self.assertEqual(reader.open, [])
        self.assertLessEqual(reader.tags, TAGS)
        self.assertLessEqual(reader.attributes, ATTRIBUTES)
        return page, "".join(reader.words)

    def reported(self, checkpoint, text, *words):
        folder = self.scratch / "report"
        shown = self.succeeds("evaluate", checkpoint, "--against", TINY_LLAMA, "--text", text, "--ctx-size", 64, "--windows", 4,
                              "--report", folder, "-q", "--json", *words)
        self.assertEqual({path.name for path in folder.iterdir()}, {"report.html", "report.json"})
        page, text_of_page = self.page_of(folder)
        for outside in ("http:", "https:", "url(", "@import", "src=", "href=", "<script"):
            self.assertNotIn(outside, page.replace(HOSTILE, ""), outside)
        return json.loads(shown), json.loads((folder / "report.json").read_text(encoding="utf-8")), text_of_page

    def test_the_page_and_its_data(self):
        packed, fine = self.scratch / "packed", self.scratch / "fine"
        for folder, size in ((packed, 64), (fine, 32)):
            self.succeeds("quantize", TINY_LLAMA, folder, "--group-size", size, "-q", "--json")
        shown, data, words = self.reported(packed, TINY_LLAMA.parent / "heldout.txt", "--compare", fine)
        self.assertEqual(data["evaluation"], shown)
        self.assertEqual([data["checkpoint"]["name"], data["original"]["name"], data["compared"][0]["checkpoint"]["name"]], ["packed", "tiny-llama", "fine"])
        self.assertEqual(sum(bin["tokens"] for bin in shown["kl_histogram"]), shown["tokens"])
        self.assertAlmostEqual(data["checkpoint"]["linear_bits"], 4.25, delta=0.01)
        self.assertAlmostEqual(data["compared"][0]["checkpoint"]["linear_bits"], 4.5, delta=0.01)
        for part in ("What packed lost", "In figures", "Size against loss", "How tokens differ", "Where it comes from", "The worst tokens",
                     "What is stored how", "Tensor by tensor", "Provenance", "model.layers.0.mlp.up_proj.weight", "sym_int4 g64"):
            self.assertIn(part, words)
        again = self.reported(packed, TINY_LLAMA.parent / "heldout.txt", "--compare", fine)[1]
        self.assertEqual(again["checkpoint"], data["checkpoint"])  # takes the place of the first

    def test_a_conversion_has_its_page(self):
        packed, folder = self.scratch / "packed", self.scratch / "report"
        words = ("quantize", TINY_LLAMA, packed, "--scheme-for", "*down_proj*=sym_int8", "--report", folder)
        self.assertIn(f"report: {folder}/report.html\n", self.succeeds(*words))
        page, text = self.page_of(folder)
        data = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        self.assertEqual((data["checkpoint"]["name"], data["original"]["name"], data["evaluation"]), ("packed", "tiny-llama", None))
        self.assertEqual(data["provenance"]["codes chosen by"], "the weights alone")
        for part in ("What packed is", "Errors of the weights", "mlp.up_proj", "Tensor by tensor", "sym_int8", "Provenance"):
            self.assertIn(part, text)
        self.assertNotIn("In figures", text)
        self.assertIn('class="heat"', page)

    def test_a_report_that_cannot_be_is_refused_before_the_conversion(self):
        place = self.scratch / "file"
        place.write_text("text", encoding="utf-8")
        self.fails(2, ["--report", "is there and no folder"], "quantize", TINY_LLAMA, self.scratch / "none", "--report", place)
        self.assertFalse((self.scratch / "none").exists())

    def test_hostile_text_stays_text(self):
        packed = self.scratch / "<b>packed & 'co'"
        self.succeeds("quantize", TINY_LLAMA, packed, "-q", "--json")
        text = self.scratch / "hostile <i>.txt"
        text.write_text(HOSTILE * 40, encoding="utf-8")
        folder = self.scratch / "report"
        result = run("evaluate", packed, "--against", TINY_LLAMA, "--text", text, "--ctx-size", 64, "--windows", 2, "--report", folder, "-q")
        self.assertEqual(result.returncode, 0, result.stderr)
        page, text_of_page = self.page_of(folder)
        self.assertNotIn("\u202e", page)
        self.assertIn("<b>packed & 'co'", text_of_page)
        self.assertIn("alert", text_of_page)

    def test_a_folder_that_cannot_be_made_is_one_line(self):
        (self.scratch / "file").write_text("x")
        self.fails(2, "--compare requires", "evaluate", TINY_LLAMA, "--text", TINY_LLAMA.parent / "heldout.txt", "--compare", TINY_LLAMA)
        result = run("evaluate", TINY_LLAMA, "--text", TINY_LLAMA.parent / "heldout.txt", "--windows", 1, "--report", self.scratch / "file" / "x", "-q")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result.stderr)


if __name__ == "__main__":
    unittest.main()
