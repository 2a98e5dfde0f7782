"""Bits a weight against KL divergence as SVG, for accuracy.py: one file that needs no script and is read on light and on dark ground."""
import html
import math

WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 20, 90
LETTER, LINE = 6.3, 12  # of a label, in pixels
COLOURS = {"halfbyte": ("#1f6feb", "#6cb0ff"), "llama.cpp": ("#c2410c", "#ff9d5c"), "ik_llama.cpp": ("#7c3aed", "#c4a1ff"),
           "bitsandbytes": ("#0f766e", "#4fd1c5"), "AutoRound": ("#a3123f", "#ff7d9c")}
TICKS = [value * 10.0 ** power for power in range(-6, 1) for value in (1, 2, 3, 5)]


class Scale:
    def __init__(self, rows):
        bits, losses = [row["bits"] for row in rows.values()], [row["kl_mean"]["value"] for row in rows.values()]
        self.bits = math.floor(min(bits) * 10 - 1) / 10, math.ceil(max(bits) * 10 + 1) / 10
        self.losses = min(losses) / 1.15, max(losses) * 1.15

    def x(self, bits):
        return LEFT + (bits - self.bits[0]) / (self.bits[1] - self.bits[0]) * (WIDTH - LEFT - RIGHT)

    def y(self, loss):
        low, high = (math.log(value) for value in self.losses)
        return TOP + (high - math.log(loss)) / (high - low) * (HEIGHT - TOP - BOTTOM)


def text(x, y, words, anchor="middle", kind="words"):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def style():
    both = [(".ground{fill:#ffffff}.words{fill:#444c56}.grid{stroke:#d8dee4}", ".ground{fill:#0d1117}.words{fill:#b6bfc9}.grid{stroke:#30363d}")]
    for number, pair in enumerate(COLOURS.values()):
        both.append(tuple(f".t{number}{{stroke:{colour};fill:{colour}}}.t{number}.open{{fill:none}}.n{number}{{fill:{colour}}}" for colour in pair))
    light, dark = ("".join(pair[which] for pair in both) for which in (0, 1))
    return f"<style>text{{font:11px sans-serif}}circle{{stroke-width:1.8}}{light}@media (prefers-color-scheme: dark){{{dark}}}</style>"


def axes(scale):
    bottom = HEIGHT - BOTTOM
    for tick in (tick for tick in TICKS if scale.losses[0] <= tick <= scale.losses[1]):
        y = scale.y(tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield text(LEFT - 6, y + 4, f"{tick:.5f}".strip("0") or "0", "end")
    for tick in range(math.ceil(scale.bits[0] * 5), math.floor(scale.bits[1] * 5) + 1):
        x = scale.x(tick / 5)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
        yield text(x, bottom + 16, f"{tick / 5:.1f}")
    yield text((LEFT + WIDTH - RIGHT) / 2, bottom + 34, "bits a weight of the Linears")
    yield f'<g transform="translate(16 {(TOP + bottom) / 2:.0f}) rotate(-90)">{text(0, 0, "KL divergence from the original, nats a token")}</g>'


def legend(tools):
    x, y = LEFT, HEIGHT - 24
    for tool in tools:
        number = list(COLOURS).index(tool)
        yield f'<circle class="t{number}" cx="{x}" cy="{y - 4}" r="4.5"/>' + text(x + 10, y, tool, "start")
        x += 30 + LETTER * len(tool) * 1.1
    yield text(WIDTH - RIGHT, y, "hollow: by the weights alone; full: given a text", "end")


def overlap(one, other):
    return max(0, min(one[2], other[2]) - max(one[0], other[0])) * max(0, min(one[3], other[3]) - max(one[1], other[1]))


def places(x, y, width):
    """Boxes for a label around a point, the best first."""
    for away in (8, 16, 26):
        for left, above in ((x + 8, 4 - LINE / 2), (x - 8 - width, 4 - LINE / 2), (x - width / 2, -away), (x - width / 2, away + LINE - 4),
                            (x + 6, -away), (x + 6, away), (x - 6 - width, -away), (x - 6 - width, away)):
            top = y + above - LINE / 2
            yield left, top, left + width, top + LINE


def label_of(name, tool):
    return name.removeprefix(tool).split(",")[0].strip().replace("--target-bpw", "target")


def labelled(rows, scale):
    """Each point's label where it covers least of the others'."""
    points = {name: (scale.x(row["bits"]), scale.y(row["kl_mean"]["value"])) for name, row in rows.items()}
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in points.values()]
    for name, row in rows.items():
        words = label_of(name, row["tool"])
        boxes = [box for box in places(*points[name], LETTER * len(words)) if LEFT < box[0] and box[2] < WIDTH - 4 and TOP - 10 < box[1]]
        box = min(boxes, key=lambda box: sum(overlap(box, other) for other in taken))
        taken.append(box)
        is_left = box[2] < points[name][0]
        yield text(box[2 if is_left else 0], box[3] - 2, words, "end" if is_left else "start", f"n{list(COLOURS).index(row['tool'])}")


def svg(rows):
    scale = Scale(rows)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
             "<title>Bits a weight against KL divergence from the original</title>", style(), f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>',
             *axes(scale)]
    for name, row in rows.items():
        number, hollow = list(COLOURS).index(row["tool"]), "" if row["is_calibrated"] else " open"
        parts.append(f'<circle class="t{number}{hollow}" cx="{scale.x(row["bits"]):.1f}" cy="{scale.y(row["kl_mean"]["value"]):.1f}" r="4.5">'
                     f"<title>{html.escape(name)}: {row['bits']:.2f} bits, {row['kl_mean']['value']:.5f}</title></circle>")
    parts += [*labelled(rows, scale), *legend(dict.fromkeys(row["tool"] for row in rows.values())), "</svg>"]
    return "\n".join(parts) + "\n"
