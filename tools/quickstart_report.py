"""What quickstart.sh prints at the end: dtypes, perplexity and a continuation, original beside 4-bit.

    quickstart_report.py HALFBYTE ORIGINAL CHECKPOINT TEXT
"""
import collections
import json
import re
import subprocess
import sys
import textwrap

POLICIES = ["amp:bfloat16", "half"]
PROMPT = "The American people have"
# halfbyte: info: NAME: RECORDED -> LOADED, PLACEMENT (NOTE)
LOADED = re.compile(r"^halfbyte: info: (\S+): (.+?) -> (.+?), (\w+)(?: \(.*\))?$")


def run(program, *words):
    result = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(result.stderr.rstrip() or f"{words[0]} ended with status {result.returncode}")
    return result


def json_of(program, *words):
    return json.loads(run(program, *words, "--json").stdout)


def print_table(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def loaded_tensors(program, checkpoint, policy):
    """{name: (recorded dtype, loaded dtype and placement)} as `-v` reports it."""
    words = ["--dtype", policy, "--prompt-tokens", "1", "--max-gen-len", "1", "-v"]
    lines = run(program, "generate", checkpoint, *words).stderr.splitlines()
    found = [match.groups() for match in map(LOADED.match, lines) if match]
    return {name: (recorded, f"{loaded}, {placement}") for name, recorded, loaded, placement in found}


def print_dtypes(program, checkpoint):
    by_policy = [loaded_tensors(program, checkpoint, policy) for policy in POLICIES]
    rows = collections.defaultdict(list)
    for name, (recorded, loaded) in by_policy[0].items():
        rows[(recorded, loaded, by_policy[1][name][1])].append(name)
    print("Loaded again, tensor by tensor:")
    table = [("tensors", "original", *POLICIES, "for example")]
    table += [(str(len(names)), *dtypes, names[0]) for dtypes, names in sorted(rows.items(), key=lambda row: -len(row[1]))]
    print_table(table)


def print_perplexity(program, original, checkpoint, text):
    words = ["--text", text, "--ctx", "256", "--chunks", "8"]
    rows = []
    for policy in POLICIES:
        found = json_of(program, "perplexity", checkpoint, *words, "--dtype", policy, "--against", original)
        rows.append(("4-bit", policy, f"{found['perplexity']:.3f}", f"{found['kl_mean']:.4f}", f"{100 * found['top1_agreement']:.1f} %"))
    print("Perplexity on tests/data/heldout.txt:")
    title = ("model", "dtype", "perplexity", "KL from the original", "same first choice")
    print_table([title, ("original", "float32", f"{found['reference_perplexity']:.3f}", "", ""), *rows])


def print_continuations(program, models):
    words = ["--prompt", PROMPT, "--max-gen-len", "40", "--temperature", "0"]
    texts = [json_of(program, "generate", path, *words)["generations"][0]["text"] for _, path in models]
    columns = [[title, *textwrap.wrap(f"{PROMPT} ... {text.strip()}", 54)] for (title, _), text in zip(models, texts)]
    height = max(map(len, columns))
    print(f"A greedy continuation of '{PROMPT}':")
    print_table(list(zip(*[column + [""] * (height - len(column)) for column in columns])))


def main():
    program, original, checkpoint, text = sys.argv[1:]
    print_dtypes(program, checkpoint)
    print()
    print_perplexity(program, original, checkpoint, text)
    print()
    print_continuations(program, [("original", original), ("4-bit", checkpoint)])


if __name__ == "__main__":
    main()
