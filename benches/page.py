"""Clicks through the page of a running server in headless Chromium, at a desktop's and a phone's width.

    foretoken serve -m smollm2 &
    python benches/page.py http://127.0.0.1:8080 [--shot page.png] [--chromium /usr/bin/chromium]

Needs `pip install playwright` and a Chromium. Fails on the first thing that is not as it should be: an error in the
console, a request to anywhere else, a view that does not work, a page that is wider than the phone."""

import argparse
import sys

from playwright.sync_api import expect, sync_playwright

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("--shot", help="where to leave a picture of the first view")
parser.add_argument("--chromium", default="/usr/bin/chromium")
parser.add_argument("--mode", default="chat", choices=["chat", "completion"])
args = parser.parse_args()


def no_overflow(page):
    width = page.evaluate("document.documentElement.scrollWidth")
    seen = page.evaluate("window.innerWidth")
    assert width <= seen, f"the page is {width} wide, and the window {seen}"


def write(page):
    page.check(f"input[name=mode][value={args.mode}]")
    page.fill("#prompt", "Once upon a time" if args.mode == "completion" else "Count from one to twenty in words.")
    page.fill("#max-tokens", "60")
    page.focus("#prompt")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#run[disabled]")
    page.wait_for_selector("#run:not([disabled])", timeout=60_000)
    summary = page.inner_text("#summary")
    assert page.locator("#text .token").count() > 10, summary
    assert "tokens" in summary and "guesses accepted" in summary, summary
    assert page.locator("#legend li").count() >= 1


def passes(page):
    page.focus("#tab-write")
    page.keyboard.press("ArrowRight")
    assert page.is_visible("#view-passes"), "arrows move between the views"
    page.focus("#pass")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#pass-of").startswith("2 of"), page.inner_text("#pass-of")
    assert page.locator("#pass-text .new").count() >= 1
    assert page.locator("#pass-text .later").count() >= 1


def load(page):
    page.click("#tab-load")
    expect(page.locator("#charts svg")).to_have_count(6)
    page.wait_for_timeout(2500)
    assert page.locator("#charts polyline").count() == 6


def play(page):
    page.click("#tab-play")
    page.fill("#guess", "    return")
    page.keyboard.press("Enter")
    expect(page.locator("#score")).to_contain_text("passes", timeout=60_000)
    assert "accepted" in page.inner_text("#verdict"), page.inner_text("#verdict")
    before = page.inner_text("#pays-text")
    page.focus("#acceptance")
    page.keyboard.press("End")
    assert page.inner_text("#pays-text") != before, "the sliders change the sum"
    page.click("#play-again")


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=args.chromium, args=["--no-sandbox"])
    for name, width, height in [("desktop", 1100, 900), ("phone", 360, 740)]:
        context = browser.new_context(viewport={"width": width, "height": height}, has_touch=name == "phone")
        page = context.new_page()
        wrong = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: None if request.url.startswith((args.url, "data:")) else wrong.append(request.url))
        page.goto(args.url)
        expect(page.locator("#draft option")).not_to_have_count(0)
        for view in (write, passes, load, play):
            view(page)
            no_overflow(page)
            print(f"{name}: {view.__name__} works")
        if args.shot and name == "desktop":
            page.click("#tab-write")
            page.screenshot(path=args.shot)
        assert not wrong, wrong
        context.close()
    browser.close()
print("the page works", file=sys.stderr)
