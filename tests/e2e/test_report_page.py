"""report.html in a real browser: Debian's Chromium, driven by Playwright."""

import json
import re
import shutil
import subprocess

import jsonschema
import pytest

CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]
KINDS = ("usual", "many", "failed", "single")

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def folders(top, tmp_path_factory):
    """Outputs of made-up sweeps: the usual, 500 configurations, failures only, the defaults alone."""
    place = tmp_path_factory.mktemp("planted")
    for kind in KINDS:
        subprocess.run([top / "build/planted_pages", kind, place / kind], check=True, timeout=120)
    return place


class Visit:
    """A page that was opened from a file, with all that went wrong or over the network."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.wrong, self.requests = [], []
        self.page.on("console", lambda message: message.type in ("error", "warning")
                     and self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"file://{path}")

    def wait_for_charts(self, count):
        self.page.wait_for_function("n => document.querySelectorAll('#charts svg.marks').length >= n",
                                    arg=count)

    def names(self):
        """Of the rows that are shown, in their order."""
        return self.page.eval_on_selector_all(
            "table.candidates tbody tr:not([hidden]) .name", "all => all.map(one => one.textContent)")


@pytest.fixture
def visit(browser, request):
    opened = []

    def go(path, **options):
        opened.append(Visit(browser, path, **options))
        return opened[-1]

    yield go
    for one in opened:
        one.context.close()


@pytest.mark.parametrize("kind, charts", [("usual", 7), ("many", 8), ("failed", 0), ("single", 2)])
def test_it_opens_without_a_complaint_or_a_request(visit, folders, kind, charts):
    path = folders / kind / "report.html"
    assert path.stat().st_size < 2_000_000
    seen = visit(path)
    seen.wait_for_charts(charts)
    assert seen.wrong == []
    assert seen.requests == [f"file://{path}"]
    assert seen.page.locator("#charts").is_visible() == (charts > 0)
    for caption in seen.page.locator("#charts figure figcaption span").all_text_contents():
        assert caption.endswith(".")


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_is_as_the_schemas_say(top, folders, kind):
    for path, schema in [(folders / kind / "results.json", "results"),
                         *((path, "profile") for path in (folders / kind / "profiles").iterdir())]:
        schema = json.loads((top / f"profiles/{schema}.schema.json").read_text())
        jsonschema.validate(json.loads(path.read_text()), schema)


def test_what_the_policy_forbids_is_forbidden(visit, folders):
    seen = visit(folders / "usual/report.html")
    seen.page.evaluate("() => fetch('http://127.0.0.1:9/').catch(() => 0)")
    assert any("Content Security Policy" in text for text in seen.wrong)
    assert "unsafe-eval" not in (folders / "usual/report.html").read_text().split("<style>")[0]


def test_sorting_filtering_and_columns(visit, folders):
    seen = visit(folders / "many/report.html")
    results = json.loads((folders / "many/results.json").read_text())
    assert len(seen.names()) == len(results["candidates"]) == 500
    head = seen.page.locator("table.candidates th")
    head.nth(1).click()  # threads, most first
    threads = [int(text) for text in seen.page.locator("table.candidates tbody td:nth-child(2)").all_text_contents()]
    assert threads == sorted(threads, reverse=True)
    head.nth(1).click()
    threads = [int(text) for text in seen.page.locator("table.candidates tbody td:nth-child(2)").all_text_contents()]
    assert threads == sorted(threads)
    seen.page.fill("#filter", "nobind kv_cache_space=2")
    shown = seen.names()
    assert 0 < len(shown) < 500
    assert all("threads_bind=nobind" in name and "kv_cache_space=2" in name for name in shown)
    assert seen.page.locator("#shown").text_content() == f"{len(shown)} of 500"
    seen.page.locator(".tools label", has_text="peak memory").locator("input").uncheck()
    assert not head.nth(5).is_visible()
    assert head.nth(4).is_visible()
    assert seen.wrong == []


def test_copying_a_command(visit, folders):
    seen = visit(folders / "usual/report.html", permissions=["clipboard-read", "clipboard-write"])
    button = seen.page.locator("button.copy").first
    button.click()
    seen.page.wait_for_function("() => document.querySelector('button.copy').textContent != 'Copy'")
    copied = seen.page.evaluate("() => navigator.clipboard.readText()")
    assert re.fullmatch(r"build/pinion launch .*/profiles/throughput\.json", copied)


@pytest.mark.parametrize("wish", ["light", "dark"])
def test_the_theme_follows_the_system_and_the_button(visit, folders, wish):
    seen = visit(folders / "usual/report.html", color_scheme=wish)
    seen.wait_for_charts(7)
    brightness = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    before = seen.page.evaluate(brightness)
    assert (before > 128) == (wish == "light")
    seen.page.click("#theme")
    assert (seen.page.evaluate(brightness) > 128) != (wish == "light")
    assert seen.wrong == []


def test_it_can_be_read_on_a_phone(visit, folders):
    seen = visit(folders / "usual/report.html", viewport={"width": 390, "height": 800})
    seen.wait_for_charts(7)
    assert seen.page.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_numbers_on_the_page_are_the_stores(visit, folders):
    seen = visit(folders / "usual/report.html")
    results = json.loads((folders / "usual/results.json").read_text())
    for candidate in results["candidates"]:
        if not candidate["series"]:
            continue
        median = next(one["estimate"]["median"] for one in candidate["series"]
                      if (one["metric"], one["concurrency"]) == ("output_tokens_per_s", 0))
        name = ", ".join(f"{key}={value}" for key, value in candidate["settings"].items())
        row = seen.page.locator("table.candidates tbody tr", has_text=name or "the defaults")
        assert float(row.locator("td").nth(2).get_attribute("data-sort")) == pytest.approx(median, rel=1e-5)
        assert row.locator("td").nth(2).text_content().startswith(f"{median:.0f} tokens/s")
    winner = next(one for one in results["verdicts"] if one["objective"] == "throughput")
    change = f"{100 * (winner['ratio_to_default']['median'] - 1):+.1f} %"
    assert seen.page.locator(".card .change").first.text_content() == change
