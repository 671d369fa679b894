"""A real browser for tests of pages: Debian's Chromium, driven by Playwright."""

import contextlib
import shutil

import pytest

CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]
BRIGHTNESS = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"

needed = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")


@contextlib.contextmanager
def launched():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class Visit:
    """A page in a context of its own, with all that went wrong or over the network."""

    def __init__(self, browser, address, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.wrong, self.requests = [], []
        self.page.on("console", lambda message: message.type in ("error", "warning")
                     and self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address, timeout=120_000)  # on a machine that runs much else, too
