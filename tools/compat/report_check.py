#!/usr/bin/env python3
"""The report's page in headless Chromium (Debian: chromium): as wide as a phone and a desk, light and dark, on paper, without the network.

    report_check.py HALFBYTE MODEL TEXT FOLDER      exit status 0: fits everywhere, 1: does not, 77: no Chromium

Leaves the page, screenshots and a PDF in FOLDER, to be looked at.
"""
import pathlib
import re
import shutil
import subprocess
import sys

import packages

WIDTHS = (390, 1280)
SCHEMES = {"light": [], "dark": ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]}
# Of a copy of the page: how wide it became, and what it loaded.
PROBE = """<script>addEventListener("load", () => parent.postMessage(["found", document.documentElement.scrollWidth, innerWidth,
performance.getEntriesByType("resource").length, getComputedStyle(document.body).backgroundColor].join(" "), "*"));</script>"""
# Chromium's own windows are not narrower than 500 px.
FRAME = """<body style="margin: 0"><script>addEventListener("message", event => document.title = event.data)</script>
<iframe src="{page}" style="border: 0; width: {width}px; height: 3600px"></iframe>"""


def chromium(browser, *words):
    rules = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND"]
    return subprocess.run([browser, *rules, *map(str, words)], capture_output=True, text=True, check=True, timeout=120).stdout


def main(program, model, text, folder):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        packages.skip("no chromium here (Debian: apt-get install chromium)")
    folder = pathlib.Path(folder).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for size in (64, 32):
        subprocess.run([program, "quantize", model, folder / f"g{size}", "--group-size", str(size), "-q"], check=True, stdout=subprocess.DEVNULL)
    words = ["--against", model, "--text", text, "--windows", "8", "--report", folder, "--compare", folder / "g32", "-q"]
    subprocess.run([program, "evaluate", folder / "g64", *words], check=True, stdout=subprocess.DEVNULL)
    page = folder / "report.html"
    probed = folder / "probed.html"
    probed.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', PROBE, page.read_text(encoding="utf-8")), encoding="utf-8")
    failures = 0
    for width in WIDTHS:
        for scheme, options in SCHEMES.items():
            frame = folder / "frame.html"
            frame.write_text(FRAME.format(page=probed.name, width=width), encoding="utf-8")
            window = [f"--window-size={max(width, 500)},3600", *options]
            chromium(browser, *window, f"--screenshot={folder / f'{scheme}-{width}.png'}", frame.as_uri())
            found = re.search(r"<title>found (\d+) (\d+) (\d+) ([^<]*)</title>", chromium(browser, *window, "--dump-dom", frame.as_uri()))
            wide, window_width, loaded = map(int, found.groups()[:3])
            is_good = wide <= window_width == width and loaded == 0
            failures += not is_good
            print(f"{width} px, {scheme}: page {wide} px in {window_width}, {loaded} resources, background {found[4]}{'' if is_good else '   WRONG'}")
    probed.unlink()
    frame.unlink()
    chromium(browser, f"--print-to-pdf={folder / 'report.pdf'}", "--no-pdf-header-footer", page.as_uri())
    print(f"{folder}: look at the screenshots and report.pdf")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
