"""Runs check_layout.py on the repository, and on planted violations, each of which it must find."""
import pathlib
import tempfile
import unittest

import check_layout

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

LINE = "  f();\n"
ROW = "      {\"a row\", [](int& n) { n = 2; }},\n"


def function(head, lines, line=LINE):
    return head + " {\n" + line * lines + "}\n"


# What is planted: {file: text}, and a part of the line that must be reported (None: nothing may be).
PLANTED = [
    ("clean", {"quant/include/halfbyte/a.h": "", "loader/b.cpp": "#include <halfbyte/a.h>\n#include <torch/torch.h>\n"}, None),
    ("backwards", {"loader/files/x.h": "", "quant/b.cpp": '#include "loader/files/x.h"\n'}, "quant/b.cpp:1: quant/ must not"),
    ("backwards public", {"convert/include/halfbyte/c.h": "", "models/b.h": "\n#include <halfbyte/c.h>\n"}, "models/b.h:2: models/"),
    ("backwards relative", {"models/m.h": "", "quant/b.cpp": '#include "../models/m.h"\n#include "models/m.h"\n'}, "quant/b.cpp:2"),
    ("unknown public", {"quant/b.cpp": "#include <halfbyte/none.h>\n"}, "in no folder's include"),
    ("private in public", {"quant/p.h": "", "quant/include/halfbyte/a.h": '#include "quant/p.h"\n'}, "is not installed"),
    ("torch in the core", {"loader/files/b.cpp": "#include <ATen/ATen.h>\n"}, "must do without LibTorch"),
    ("torch by a header", {"models/include/halfbyte/m.h": "#include <torch/nn.h>\n",
                           "tools/verbs/b.cpp": "#include <halfbyte/m.h>\n"}, "tools/verbs/b.cpp:1: must do without"),
    ("torch with oneDNN", {"quant/operators/d.h": "#include <oneapi/dnnl/dnnl.hpp>\n",
                           "quant/operators/b.cpp": '#include <torch/types.h>\n#include "quant/operators/d.h"\n'}, "oneDNN"),
    ("torch with spdlog", {"tools/model/b.cpp": "#include <torch/types.h>\n#include <spdlog/spdlog.h>\n"}, "spdlog"),
    ("printing", {"quant/b.cpp": 'void f() { printf("x"); }\n'}, "quant/b.cpp:1: only tools/"),
    ("command line", {"convert/b.cpp": 'int a;\nauto s = "exists; --overwrite replaces it";\n'}, "convert/b.cpp:2: only tools/ speaks"),
    ("command line in a table", {"models/b.inc": '{"a", "b"}, {"say \\"--x\\""},\n'}, "models/b.inc:1: only tools/ speaks"),
    ("no command line", {"quant/b.cpp": '// "--x"\nconst char* s = "a--, -- b, c - -d";\nint n = 1; --n; /* "--y" */\n',
                         "tools/cli/b.cpp": 'auto s = "--x";\n'}, None),
    ("printing in words", {"quant/b.cpp": '// printf("x")\nconst char* s = "exit(1)";\nint n = std::snprintf(0, 0, "");\n'}, None),
    ("a long file", {"tests/quant/long_test.cpp": "\n" * 401}, "tests/quant/long_test.cpp:1: 401 lines"),
    ("a long script", {"tools/x.sh": "true\n" * 401}, "tools/x.sh:1: 401 lines"),
    ("files as long as they may be", {"quant/a.cpp": "\n" * 400, "tools/a.py": "\n" * 400}, None),
    ("a long function", {"quant/a.cpp": "\n" + function("int f(int a) noexcept", 39)}, "quant/a.cpp:2: a function of 41 lines"),
    ("a function as long as it may be", {"quant/a.cpp": function("void f()", 38) * 3}, None),
    ("a long method", {"models/a.h": "class A {\n" + function("  A(int a)\n      : a_(a), b_{a}", 40).replace("\n}", "\n  }") + "};\n"},
     "models/a.h:2: a function of 43 lines"),
    ("a long template", {"quant/a.inc": function("template <class T>\nauto f(T t) -> std::vector<T>", 40)}, "quant/a.inc:1: a function of 43"),
    ("a long test", {"tests/a_test.cpp": function('TEST_CASE("a (b)", "[c]")', 40)}, "tests/a_test.cpp:1: a function of 42"),
    ("a long function in Python", {"tools/a.py": "def f():\n" + "    pass\n" * 40}, "tools/a.py:1: a function of 41 lines"),
    ("a long class", {"quant/a.h": "class A {\n" + LINE * 60 + "};\n"}, None),
    ("a long table", {"quant/a.cpp": "constexpr auto kRows = std::to_array<Row>({\n" + ROW * 60 + "});\n"}, None),
    ("a table in a function", {"tests/a.cpp": function("void f()", 60, ROW).replace("{\n", "{\n  const std::vector<Row> rows = {\n", 1)
                               .replace("\n}", "\n  };\n}")}, None),
    ("a table in a long function", {"tests/a.cpp": "void f() {\n  const Row rows[] = {\n" + ROW * 9 + "  };\n" + LINE * 39 + "}\n"},
     "tests/a.cpp:1: a function of 42 lines"),
    ("a stray log", {"llama.log": ""}, "llama.log: does not belong"),
    ("what convention asks for", {"docs/a.md": "", "README.md": "", ".gitignore": ""}, None),
    ("a table of options", {"tools/a.cpp": function("void f(OptionParser& parser)", 50, '  parser.add_option("--a", a, "b");\n')}, None),
]


class Layout(unittest.TestCase):
    def test_repository(self):
        self.assertEqual(list(check_layout.violations(REPOSITORY)), [])

    def test_planted_violations_are_found(self):
        for name, files, expected in PLANTED:
            with self.subTest(name), tempfile.TemporaryDirectory() as directory:
                for path, text in files.items():
                    file = pathlib.Path(directory, path)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(text)
                found = list(check_layout.violations(directory))
                if expected is None:
                    self.assertEqual(found, [])
                else:
                    self.assertTrue(any(expected in line for line in found), found)


if __name__ == "__main__":
    unittest.main()
