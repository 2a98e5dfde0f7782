#!/usr/bin/env python3
"""The server's page in headless Chromium: a conversation, stop, retry, editing a turn, settings, the model's card, both themes, a phone's width, and a
model that answers with HTML, of which nothing may run.

    page_check.py HALFBYTE TINY_LLAMA [FOLDER FOR SCREENSHOTS]     77: selenium or chromium is not there
"""
import http.server
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HOSTILE = ('<img src=x onerror="document.title=\'owned\'"> <script>document.title="owned"</script> **bold** `<b>code</b>` [a](javascript:document.title="owned") '
           '[b](https://example.com/)\n\n```html\n<script>document.title="owned"</script>\n```\n\n| a | b |\n|---|---|\n| <i>1</i> | 2 |\n')


class Hostile(http.server.BaseHTTPRequestHandler):
    """The page of the real server, and a model that says HOSTILE."""
    address = ""

    def do_GET(self):
        with urllib.request.urlopen(self.address + self.path, timeout=10) as response:
            self.answer(response.read(), {key: value for key, value in response.headers.items() if key in ("Content-Type", "Content-Security-Policy")})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        pieces = [HOSTILE[at:at + 7] for at in range(0, len(HOSTILE), 7)]
        events = [{"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]} for piece in pieces]
        self.answer("".join(f"data: {json.dumps(event)}\n\n" for event in events).encode() + b"data: [DONE]\n\n", {"Content-Type": "text/event-stream"})

    def answer(self, body, headers):
        self.send_response(200)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Page:
    def __init__(self, address, width=1280, dark=False):
        from selenium import webdriver
        from selenium.webdriver.common.by import By
        options = webdriver.ChromeOptions()
        for word in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},800"]:
            options.add_argument(word)
        options.binary_location = shutil.which("chromium")
        self.by = By
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
        self.driver.get(address)

    def all(self, selector):
        return self.driver.find_elements(self.by.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(self.by.CSS_SELECTOR, selector)

    def say(self, text):
        self.one("#box").send_keys(text + "\n")

    def until(self, condition):
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, "waits for ever"
            time.sleep(0.02)

    def until_answered(self, turns):
        self.until(lambda: len(self.all("article")) == turns and self.one("#send").is_displayed())

    def texts(self):
        return [one.text for one in self.all("article .body")]

    def is_within(self):
        """Nothing is wider than the window."""
        return self.driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def set_seed(page, seed, tokens):
    page.one("#settings").click()
    for name, value in [("seed", seed), ("max_tokens", tokens), ("system", "Be brief.")]:
        page.one("#" + name).clear()
        page.one("#" + name).send_keys(str(value))
    page.one("#settings-dialog button").click()


def check_conversation(page):
    set_seed(page, 3, 12)
    page.say("Hello")
    page.until_answered(2)
    first = page.texts()
    assert first[0] == "Hello" and first[1]
    assert "tokens/s" in page.one("article.assistant .tools").text
    page.all("article.assistant .tools button")[1].click()  # retry: the same seed says the same
    page.until_answered(2)
    assert page.texts() == first
    page.say("More")
    page.until_answered(4)
    page.all("article.user .tools button")[1].click()  # edit the first turn: what came after it goes
    box = page.one("article textarea")
    box.clear()
    box.send_keys("Good day")
    page.one("article .tools .main").click()
    page.until_answered(2)
    assert page.texts()[0] == "Good day"
    page.driver.refresh()
    assert page.texts()[0] == "Good day"  # kept by the browser
    page.one("#card").click()
    page.until(lambda: "Policy" in page.one("#card-body").text)
    page.one("#card-dialog > form > button").click()
    page.one("#new").click()
    assert page.all("article") == []


def check_stop(page):
    set_seed(page, 4, 100000)
    page.say("Go on")
    page.until(lambda: len(page.all("article")) == 2 and (page.one("#stop").is_displayed() or page.texts()[1]))
    if page.one("#stop").is_displayed():
        page.one("#stop").click()
    page.until_answered(2)
    page.one("#new").click()


def check_hostile(page):
    page.say("Say it")
    page.until_answered(2)
    time.sleep(0.3)
    answer = page.one("article.assistant .body")
    assert "owned" not in page.driver.title
    assert answer.find_elements(page.by.CSS_SELECTOR, "img, script, b, i") == []
    assert [link.get_attribute("href") for link in answer.find_elements(page.by.CSS_SELECTOR, "a")] == ["https://example.com/"]
    assert "<img src=x onerror=" in answer.text and answer.find_element(page.by.CSS_SELECTOR, "pre code").text == '<script>document.title="owned"</script>'
    assert len(answer.find_elements(page.by.CSS_SELECTOR, "table td")) == 2


def check_models(page):
    page.until(lambda: len(page.all("#about option")) == 2)
    choices = page.all("#about option")
    names = [choice.text for choice in choices]
    choices[1].click()
    assert names[1] in page.driver.title
    page.one("#card").click()
    page.until(lambda: names[1] in page.one("#card-body").text)
    page.one("#card-dialog > form > button").click()
    set_seed(page, 3, 12)
    page.say("Hello")
    page.until_answered(2)
    assert page.texts()[1]


def served(program, *words):
    return subprocess.Popen([program, "serve", *words, "--port", "0", "--json", "-q", "--chat-template", "chatml"], stdout=subprocess.PIPE, text=True)


def with_page(address, check, screenshots=None, **window):
    page = Page(address, **window)
    try:
        check(page)
        assert page.is_within()
        if screenshots:
            page.say("What is this?")
            page.until_answered(2)
            page.driver.save_screenshot(str(screenshots / f"page-{window['width']}-{'dark' if window['dark'] else 'light'}.png"))
        log = [entry for entry in page.driver.get_log("browser") if "favicon" not in entry["message"]]
        assert log == [], log
    finally:
        page.driver.quit()


def main(program, tiny_llama, screenshots=None):
    try:
        import selenium  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        print("skipped: no chromium with its chromedriver")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        model = pathlib.Path(scratch, "tiny")
        subprocess.run([program, "quantize", tiny_llama, model, "-q"], check=True, stdout=subprocess.DEVNULL)
        process, both = served(program, model), served(program, model, tiny_llama)
        address = json.loads(process.stdout.readline())["address"]
        Hostile.address = address
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        folder = pathlib.Path(screenshots) if screenshots else None
        try:
            for width in [1280, 390]:
                for dark in [False, True]:
                    with_page(address, check_conversation, folder, width=width, dark=dark)
            with_page(address, check_stop, width=1280, dark=False)
            with_page(json.loads(both.stdout.readline())["address"], check_models, width=390, dark=False)
            with_page(f"http://127.0.0.1:{proxy.server_address[1]}", check_hostile, width=390, dark=True)
        finally:
            for one in [process, both]:
                one.terminate()
                one.wait(30)
            proxy.shutdown()
    print("a conversation, stop, retry, editing, settings, the model's card, both themes and widths, a choice of models: pass; hostile answers: nothing runs")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
