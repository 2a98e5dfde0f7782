#!/usr/bin/env python3
"""Checks the rules of the house that a compiler does not: which folder may include which, and what must not meet.

    check_layout.py REPOSITORY      prints one line a violation; exit status 1 when there is one
"""
import pathlib
import re
import shutil
import subprocess
import sys

import sizes

# Includes go one way only: a folder may include itself and those before it.
FOLDERS = ["quant", "models", "loader", "convert", "tools"]
TOP_LEVEL = {*FOLDERS, "tests", "cmake", "docs", ".ci", "CMakeLists.txt", "CMakePresets.json", "pyproject.toml", ".clang-format", ".clang-tidy",
             ".gitignore", "LICENSE", "README.md", "CONTRIBUTING.md", "SECURITY.md"}
# Where LibTorch may be included; everything else must build and run without it.
TORCH_FOLDERS = ["quant/operators/", "models/", "loader/", "convert/adapters/", "convert/calibrate/", "convert/quantize_tensor.cpp", "convert/training/", "convert/include/halfbyte/quantize_tensor.h",
                 "tools/model/", "tools/python/", "tools/server/server.cpp"]
TORCH_FREE_INSIDE = ["models/architectures/", "models/json/", "models/profile/", "loader/files/"]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
PUBLIC = re.compile(r"^\w+(?:/\w+)*/include/(halfbyte/.+)$")
KINDS = {  # libraries that must not meet in one translation unit, by the first part of an include
    "torch": re.compile(r"^(torch|ATen|c10|caffe2)/"),
    "oneDNN": re.compile(r"^(dnnl|oneapi/dnnl)"),
    "spdlog": re.compile(r"^(spdlog|fmt)/"),
}
NEVER_TOGETHER = [("torch", "oneDNN"), ("torch", "spdlog")]
# Only tools/ knows the command line: elsewhere messages name an option by what it is (halfbyte/option.h).
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|\'(?:\\.|[^\'\\\n])\'|"(?:\\.|[^"\\\n])*"', re.DOTALL)
FLAG = re.compile(r"--[a-z]")
# Only tools/ prints, and only main() ends the process.
PRINTS = re.compile(r"\bstd::(cout|cerr|clog)\b|(?<![\w.>])(printf|fprintf|puts|fputs|perror|abort|exit|_exit)\s*\(")


class Source:
    def __init__(self, root, path):
        self.name = path.relative_to(root).as_posix()
        self.folder = self.name.split("/")[0]
        self.text = path.read_text(encoding="utf-8", errors="replace")
        public = PUBLIC.match(self.name)
        self.public_name = public.group(1) if public else None
        self.includes = []  # (line number, "<" or '"', path)
        for number, line in enumerate(self.text.splitlines(), 1):
            found = INCLUDE.match(line)
            if found:
                self.includes.append((number, *found.groups()))


def read_sources(root):
    paths = [path for folder in FOLDERS for pattern in ("*.h", "*.cpp", "*.inc") for path in (root / folder).rglob(pattern)]
    return {source.name: source for source in (Source(root, path) for path in sorted(paths))}


class Layout:
    def __init__(self, sources):
        self.sources = sources
        self.public = {s.public_name: s for s in sources.values() if s.public_name}

    def target(self, source, quote, path):
        """The source of ours that an include names, or None."""
        if path in self.public:
            return self.public[path]
        beside = (pathlib.PurePosixPath(source.name).parent / path).as_posix()
        return self.sources.get(path) or (self.sources.get(beside) if quote == '"' else None)

    def reached(self, source):
        """{kind of foreign library: the chain of names that brings it in} over everything `source` includes."""
        found, seen, queue = {}, {source.name}, [(source, [source.name])]
        while queue:
            current, chain = queue.pop()
            for _, quote, path in current.includes:
                for kind, pattern in KINDS.items():
                    if pattern.match(path):
                        found.setdefault(kind, chain + [path])
                next_source = self.target(current, quote, path)
                if next_source and next_source.name not in seen:
                    seen.add(next_source.name)
                    queue.append((next_source, chain + [next_source.name]))
        return found


def may_use_torch(name):
    inside = any(name.startswith(folder) for folder in TORCH_FREE_INSIDE)
    return not inside and any(name.startswith(folder) for folder in TORCH_FOLDERS)


def check_direction(layout, source):
    for number, quote, path in source.includes:
        target = layout.target(source, quote, path)
        where = f"{source.name}:{number}: "
        if path.startswith("halfbyte/") and target is None:
            yield f"{where}<{path}> is in no folder's include/halfbyte"
        elif target and FOLDERS.index(target.folder) > FOLDERS.index(source.folder):
            yield f"{where}{source.folder}/ must not include {target.folder}/ ({path}): includes go {' <- '.join(FOLDERS)}"
        elif target and source.public_name and not target.public_name:
            yield f"{where}a public header includes {path}, which is not installed"


def check_libraries(layout, source):
    reached = layout.reached(source)
    if "torch" in reached and not may_use_torch(source.name):
        yield f"{source.name}:1: must do without LibTorch, but includes {' -> '.join(reached['torch'][1:])}"
    for one, other in NEVER_TOGETHER:
        if one in reached and other in reached:
            yield f"{source.name}:1: {one} ({' -> '.join(reached[one][1:])}) and {other} ({' -> '.join(reached[other][1:])}) meet"


def without_comments_and_strings(text):
    return COMMENT_OR_STRING.sub(lambda found: "\n" * found.group().count("\n"), text)


def check_printing(source):
    if source.folder == "tools":
        return
    for number, line in enumerate(without_comments_and_strings(source.text).splitlines(), 1):
        found = PRINTS.search(line)
        if found:
            yield f"{source.name}:{number}: only tools/ prints or ends the process ({found.group().strip()})"


def check_all_sizes(root):
    """Of every file that people write, tests and build scripts too."""
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        is_ours = name.startswith((*(folder + "/" for folder in FOLDERS), "tests/", "cmake/")) and "/." not in name
        if is_ours and path.is_file() and (path.suffix in sizes.SUFFIXES or path.name == "CMakeLists.txt"):
            yield from sizes.check_sizes(name, path.read_text(encoding="utf-8", errors="replace"))


def check_flags(source):
    if source.folder == "tools":
        return
    for found in COMMENT_OR_STRING.finditer(source.text):
        if found.group().startswith('"') and FLAG.search(found.group()):
            line = source.text.count("\n", 0, found.start()) + 1
            yield f"{source.name}:{line}: only tools/ speaks command line ({found.group()}); name the option (halfbyte/option.h)"


def check_top_level(root):
    """Beside the folders of the sources stands what convention asks for: of what git keeps, where it is there."""
    names = {path.name for path in root.iterdir()} - {"build", ".venv", ".cache", ".git"}
    if (root / ".git").exists() and shutil.which("git"):
        kept = subprocess.run(["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z"], capture_output=True, check=False)
        if kept.returncode == 0:
            names = {name.split("/")[0] for name in kept.stdout.decode().split("\0") if name}
    for name in sorted(names - TOP_LEVEL):
        yield f"{name}: does not belong in the top level"


def violations(root):
    root = pathlib.Path(root)
    yield from check_top_level(root)
    yield from check_all_sizes(root)
    layout = Layout(read_sources(root))
    for source in layout.sources.values():
        yield from check_direction(layout, source)
        yield from check_libraries(layout, source)
        yield from check_printing(source)
        yield from check_flags(source)


def main():
    found = list(violations(sys.argv[1]))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
