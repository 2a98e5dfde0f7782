"""How long files and functions are. For check_layout.py; functions in C++ are found by the layout that clang-format gives."""
import ast
import re

MOST_LINES = {"file": 400, "function": 40}
SUFFIXES = {".cpp", ".h", ".inc", ".py", ".sh", ".cmake"}

NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
NO_FUNCTION = re.compile(r"\s*(?:namespace|struct|class|enum|union|extern|typedef|if|for|while|switch|do|else|try|case|default)\b")
# The head of a function's body: parameters, then at most qualifiers, a return type or initialisers of members.
FUNCTION = re.compile(r"\)(?:\s*(?:const|noexcept|override|final|mutable|->\s*[\w:<>,&*\s]+))*(?:\s*:\s.*)?\s*\{$", re.DOTALL)
MACRO_CASE = re.compile(r"(?:TEST_CASE|SECTION|TEMPLATE_TEST_CASE)\(.*\)\s*\{$", re.DOTALL)
# A call that declares an option.
OPTION = re.compile(r"(?:->|\.)add_(?:option|flag)\b|\badd_\w*(?:option|flag)\w*\(")
# Where a table begins that stands in a function: const Row rows[] = {, static const std::vector<Case> cases{
TABLE = re.compile(r"\s*(?:static |constexpr |const )+[^=;(]*(?:\[\]|>|Rows|rows)[^=;(]*(?:= ?)?\{$")


def without_comments_and_strings(text):
    def blank(found):
        kept = "0" if found.group()[0] in "'\"R" else ""
        return kept + "\n" * found.group().count("\n")
    return NO_CODE.sub(blank, text)


def cpp_functions(text):
    """(first line, number of lines, text) of each outermost function and method."""
    lines = [line.rstrip() for line in without_comments_and_strings(text).splitlines()]
    start, at = None, 0
    while at < len(lines):
        line = lines[at]
        if not line.strip() or line.startswith("#"):
            start = None
        elif start is None:
            start = at
        if start is not None and line.endswith((";", "{", "}", ":")):
            head = " ".join(part.strip() for part in lines[start:at + 1])
            if not NO_FUNCTION.match(head) and (FUNCTION.search(head) or MACRO_CASE.search(head)):
                closing = lines[start][:len(lines[start]) - len(lines[start].lstrip())] + "}"
                end = next((i for i in range(at + 1, len(lines)) if lines[i] in (closing, closing + ";")), at)
                body = "\n".join(lines[start:end + 1])
                yield start + 1, length_without_tables(body), body
                at = end
            start = None
        at += 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1, ""


def is_option_table(body):
    return len(OPTION.findall(body)) >= 5


def length_without_tables(body):
    """Lines of a function; each table in it counts as one."""
    count, open_braces = 0, 0
    for line in body.splitlines():
        is_row = open_braces > 0
        if is_row or TABLE.match(line):
            open_braces += line.count("{") - line.count("}")
        count += not is_row
    return count


def functions(name, text):
    if name.endswith(".py"):
        return python_functions(text)
    return cpp_functions(text) if name.endswith((".cpp", ".h", ".inc")) else []


def check_sizes(name, text):
    lines = text.count("\n")
    if lines > MOST_LINES["file"]:
        yield f"{name}:1: {lines} lines; a file holds one idea in at most {MOST_LINES['file']}"
    for first, length, body in functions(name, text):
        if length > MOST_LINES["function"] and not is_option_table(body):
            yield f"{name}:{first}: a function of {length} lines; at most {MOST_LINES['function']}, tables of options aside"
