"""Clicks through the page of a running server in headless Chromium, at a desktop's and a phone's width.

    foretoken serve -m smollm2 &
    python benches/page.py http://127.0.0.1:8080 [--key KEY] [--shots FOLDER] [--chromium /usr/bin/chromium]

Needs `pip install playwright` and a Chromium. Fails on the first thing that is not as it should be: an error in the
console, a request to anywhere else, a view that does not work by mouse, keys or touch, a page that is wider than the
phone. `--shots` leaves a picture of every view."""

import argparse
import json
import re
import sys
from pathlib import Path
from urllib.request import Request, urlopen

from playwright.sync_api import expect, sync_playwright

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("--key", help="an API key, if the server has keys")
parser.add_argument("--shots", type=Path, help="where to leave pictures")
parser.add_argument("--chromium", default="/usr/bin/chromium")
args = parser.parse_args()
args.url = args.url.rstrip("/")

TEXTS = {"chat": "Count from one to twenty in words.", "completion": "Once upon a time"}
SCREENS = [
    ("desktop", dict(viewport={"width": 1100, "height": 900})),
    ("dark", dict(viewport={"width": 800, "height": 900}, color_scheme="dark")),
    ("phone", dict(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)),
]


def ask(path, body=None):
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {args.key}"} if args.key else {})
    data = None if body is None else json.dumps(body).encode()
    return json.load(urlopen(Request(args.url + path, data, headers)))


def press(page, selector):
    """A finger where there is a touch screen, else the mouse."""
    (page.tap if page.evaluate("navigator.maxTouchPoints > 0") else page.click)(selector)


def write(page, mode):
    press(page, "#tab-write")
    page.check(f"input[name=mode][value={mode}]")
    page.fill("#prompt", TEXTS[mode])
    page.fill("#max-tokens", "90")
    page.evaluate("document.getElementById('summary').textContent = ''")
    page.focus("#prompt")
    page.keyboard.press("Control+Enter")
    # A small model may be done before anybody looks.
    expect(page.locator("#summary")).to_contain_text("guesses accepted", timeout=60_000)
    expect(page.locator("#run")).to_be_enabled()
    summary = page.inner_text("#summary")
    assert page.locator("#text .token").count() > 10, summary
    assert "tokens" in summary and "guesses accepted" in summary, summary
    if mode == "completion":
        assert page.inner_text("#text .given") == TEXTS[mode]
    drafters = page.locator("#legend li")
    assert drafters.count() >= 2, "somebody guesses something in a text that repeats itself"
    back = lambda place: place.evaluate("e => getComputedStyle(e).backgroundColor")
    colours = [back(drafters.nth(index).locator("span")) for index in range(drafters.count())]
    assert len(set(colours)) == len(colours), f"each drafter has its colour: {colours}"
    seen = {back(token) for token in page.locator("#text .token").all()}
    assert seen <= set(colours), "tokens have the colours of the legend"


def passes(page, mode):
    # A token leads to its pass; white space may be too small for a finger.
    token = page.locator("#text .token", has_text=re.compile(r"\S")).last
    own = int(token.get_attribute("data-pass")) + 1
    (token.tap if page.evaluate("navigator.maxTouchPoints > 0") else token.click)()
    assert page.is_visible("#view-passes"), "tokens lead to their pass"
    at, of = map(int, re.match(r"(\d+) of (\d+)", page.inner_text("#pass-of")).groups())
    assert at == own > 1 and page.is_disabled("#pass-after") == (at == of)
    press(page, "#pass-before")
    assert page.inner_text("#pass-of") == f"{at - 1} of {of}"
    page.focus("#tab-passes")
    page.keyboard.press("Home")
    assert page.is_visible("#view-write"), "keys move between the views"
    page.keyboard.press("ArrowRight")
    page.focus("#pass")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#pass-of") == f"2 of {of}", page.inner_text("#pass-of")
    assert page.locator("#pass-text .later").count() >= 1
    # Through all: what is new is what the tree accepted, and one token more.
    most = 0
    for at in range(2, of + 1):
        new = page.locator("#pass-text .new").count()
        assert new == page.locator("#tree .accepted").count() + 1, f"pass {at}"
        most = max(most, new)
        no_overflow(page)
        if at < of:
            page.keyboard.press("ArrowRight")
    assert most > 1, "a guess was right"


def load(page, mode):
    press(page, "#tab-load")
    expect(page.locator("#charts svg")).to_have_count(6)
    expect(page.locator("#charts figure").last.locator("polyline")).to_have_count(1, timeout=10_000)
    values = page.locator("#charts svg text").all_text_contents()
    assert all(re.fullmatch(r"[\d.]+( %)?|\d+ s ago|now", value) for value in values), values
    speedup = page.locator("#charts figure", has_text="Speed-up").locator("svg text").first.text_content()
    assert 1 <= float(speedup) < 20, f"the speed-up's axis ends at {speedup}"


def play(page, mode):
    press(page, "#tab-play")
    text = page.inner_text("#play-text")
    body = {"prompt": page.evaluate("document.getElementById('play-text').textContent"), "max_tokens": 4, "temperature": 0}
    right = ask("/v1/completions", body)["choices"][0]["text"]
    page.fill("#guess", right.replace("\n", "\\n"))
    page.keyboard.press("Enter")
    expect(page.locator("#score")).to_contain_text("in 1 pass", timeout=60_000)
    verdict = page.inner_text("#verdict")
    assert re.search(r"\b(\d+) of \1 tokens accepted", verdict), f"what the model writes is accepted: {verdict}"
    assert page.inner_text("#play-text").startswith(text.rstrip())
    page.fill("#guess", "zebra crossing 77")
    press(page, "#guess-form .first")
    expect(page.locator("#score")).to_contain_text("in 2 passes", timeout=60_000)
    assert "0 of" in page.inner_text("#verdict"), page.inner_text("#verdict")
    before = page.inner_text("#pays-text")
    page.focus("#acceptance")
    page.keyboard.press("Home")
    assert "No guess pays" in page.inner_text("#pays-text")
    page.keyboard.press("End")
    assert page.inner_text("#pays-text") != before, "the sliders change the sum"


def no_overflow(page):
    width, seen = page.evaluate("document.documentElement.scrollWidth"), page.viewport_size["width"]
    assert width <= seen, f"the page is {width} wide, and the window {seen}"


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=args.chromium, args=["--no-sandbox"])
    modes = ["chat", "completion"] if "chat_template" in ask("/tokenizer_info") else ["completion"]
    for name, screen in SCREENS:
        context = browser.new_context(**screen)
        page = context.new_page()
        wrong = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith((args.url, "data:")) else wrong.append(request.url))
        page.goto(args.url)
        if args.key:
            expect(page.locator("#model")).to_contain_text("API key")
            page.fill("#key", args.key)
            page.keyboard.press("Tab")
        # Without its key the page is refused, and the console says so.
        expect(page.locator("#draft option")).not_to_have_count(0)
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        for mode in modes:
            for view in (write, passes, load, play):
                view(page, mode)
                no_overflow(page)
                if args.shots:
                    args.shots.mkdir(parents=True, exist_ok=True)
                    page.screenshot(path=args.shots / f"{name}-{mode}-{view.__name__}.png", full_page=True)
                print(f"{name}, {mode}: {view.__name__} works")
            press(page, "#play-again")
        assert not wrong, wrong
        context.close()
    browser.close()
print("the page works", file=sys.stderr)
