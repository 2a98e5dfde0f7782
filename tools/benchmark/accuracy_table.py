"""The table of accuracy.py, for a terminal or as Markdown."""


def time(seconds):
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"


COLUMNS = {
    "bits a weight": lambda row: f"{row['bits']:.2f}",
    "KL divergence": lambda row: f"{row['kl_mean']['value']:.5f}".lstrip("0"),
    "perplexity": lambda row: f"{row['perplexity']['value']:.2f}",
    "same first choice": lambda row: f"{row['top1_agreement']['value']:.1%}",
    "size, MB": lambda row: f"{row['bytes'] / 1e6:.1f}",
    "processor time": lambda row: time(row["processor_seconds"]),
}


def lines(rows):
    return [["", *COLUMNS], *([name, *(column(row) for column in COLUMNS.values())] for name, row in rows.items())]


def as_text(rows, machine, is_markdown):
    first = next(iter(rows.values()))
    widest = max((row["kl_mean"]["high"] - row["kl_mean"]["low"]) / 2 / row["kl_mean"]["value"] for row in rows.values())
    head = (f"{first['tokens']} tokens scored, original's perplexity {first['original_perplexity']['value']:.2f}; 95 % intervals of KL divergences are "
            f"at most {widest:.0%} to either side; processor time is that of the conversion. {machine}\n")
    cells = lines(rows)
    if is_markdown:
        cells.insert(1, ["---"] * (len(COLUMNS) + 1))
        return "\n".join([head, *("| " + " | ".join(line) + " |" for line in cells)]).replace("|  |", "| |")
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS) + 1)]
    return "\n".join([head, *("  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]) for line in cells)])
