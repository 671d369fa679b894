"""report.html in a real browser."""

import json
import pathlib
import re
import sqlite3
import statistics
import subprocess

import jsonschema
import pytest

import chromium
from conftest import PATIENCE_S

KINDS_OF_CHARTS = len(list((pathlib.Path(__file__).parents[2] / "reports/charts").glob("*.vl.json")))
KINDS = ("usual", "many", "two dozen", "even", "best", "mixed", "midway", "failed", "single", "long")

pytestmark = chromium.needed


@pytest.fixture(scope="module")
def browser():
    with chromium.launched() as opened:
        yield opened


@pytest.fixture(scope="module")
def folders(top, tmp_path_factory):
    """Outputs of made-up sweeps: with a winner, 500 and 24 configurations, without a difference, with
    the defaults ahead, with a finding of its own in each objective, half done, failures only, the defaults alone,
    and long names."""
    place = tmp_path_factory.mktemp("planted")
    for kind in KINDS:
        subprocess.run([top / "build/planted_pages", kind, place / kind], check=True, timeout=120)
    return place


class Visit(chromium.Visit):
    """A page that was opened from a file."""

    def __init__(self, browser, path, **options):
        super().__init__(browser, f"file://{path}", **options)

    def wait_for_charts(self, count):
        self.page.wait_for_function("n => document.querySelectorAll('#charts svg.marks').length >= n",
                                    arg=count, timeout=2000 * PATIENCE_S)

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


@pytest.fixture(scope="module", params=KINDS)
def desk(browser, folders, request):
    """A sweep's page on a desk, drawn; opened once, as no test changes it."""
    seen = Visit(browser, folders / request.param / "report.html", viewport={"width": 1280, "height": 900})
    seen.kind, seen.folder = request.param, folders / request.param
    seen.wait_for_charts(len(data_of(seen)))
    yield seen
    seen.context.close()


def of_kind(*kinds):
    """Only these pages."""
    return pytest.mark.parametrize("desk", kinds, indirect=True)


def data_of(seen):
    """The data of the page's charts: {name: rows}."""
    charts = json.loads(seen.page.locator("#data").text_content()).get("charts", [])
    return {chart["name"]: chart["values"] for chart in charts}


def unescaped(markdown):
    return re.sub(r"\\(.)", r"\1", markdown)


def series_of(candidate, metric, concurrency=0):
    return next(one["estimate"]["median"] for one in candidate["series"]
                if (one["metric"], one["concurrency"]) == (metric, concurrency))


def text_of(candidate):
    return ", ".join(f"{key}={value}" for key, value in candidate["settings"].items()) or "the defaults"


# By kind.
CHARTS = {"usual": 13, "many": 13, "even": 13, "midway": 13, "failed": 0, "single": 6}


@of_kind(*CHARTS)
def test_it_opens_without_a_complaint_or_a_request(desk):
    path, charts = desk.folder / "report.html", CHARTS[desk.kind]
    assert path.stat().st_size < 2_000_000
    desk.wait_for_charts(charts)
    assert desk.wrong == []
    assert desk.requests == [f"file://{path}"]
    assert desk.page.locator("#charts").is_visible() == (charts > 0)
    assert desk.page.locator("#charts figure").count() == charts
    assert desk.page.locator(".absent li").count() == KINDS_OF_CHARTS - charts  # each says why
    for caption in desk.page.locator("#charts figure figcaption span").all_text_contents():
        assert caption.endswith(".")


def check_that_it_fits(seen, width):
    assert seen.page.evaluate("() => document.documentElement.scrollWidth") <= width
    outside = seen.page.evaluate("""width => [...document.querySelectorAll("#charts svg.marks :is(path, text, line)")]
        .map(one => [one.closest("figure").id, one.textContent, one.getBoundingClientRect()])
        .filter(([id, text, box]) => box.width > 0 && (box.left < 0 || box.right > width))
        .map(([id, text]) => `${id} ${text}`)""", width)
    assert outside == []
    levels = [int(tag[1]) for tag in seen.page.eval_on_selector_all(
        "h1, h2, h3, h4", "all => all.map(one => one.tagName)")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:])), "headings skip a level"


def test_it_fits_a_desk(desk):
    check_that_it_fits(desk, 1280)


@pytest.mark.parametrize("kind", KINDS)
def test_it_fits_a_phone(visit, folders, kind):
    seen = visit(folders / kind / "report.html", viewport={"width": 390, "height": 900})
    seen.wait_for_charts(len(data_of(seen)))
    check_that_it_fits(seen, 390)


def test_the_title_the_cards_and_the_data_say_the_same(desk):
    results = json.loads((desk.folder / "results.json").read_text())
    text = lambda place: place.inner_text().replace("\u00a0", " ")
    answer = text(desk.page.locator("h1"))
    assert answer == results["answer"]
    assert f"\n\n{answer}\n\n" in unescaped((desk.folder / "report.md").read_text())
    headlines = [text(one) for one in desk.page.locator(".card .headline").all()]
    for headline, verdict in zip(headlines, results["verdicts"], strict=True):
        assert verdict["sentence"].removeprefix("Use ").startswith(headline)
    if len(set(headlines)) == 1 and not any(one["outcome"] == "winner" for one in results["verdicts"]):
        assert answer == headlines[0] + "."


def test_the_keyboard_and_a_screen_reader_reach_all_of_it(visit, folders):
    seen = visit(folders / "usual/report.html")
    seen.wait_for_charts(13)
    head = seen.page.get_by_role("columnheader", name="per token").first
    for order in ("descending", "ascending"):
        head.get_by_role("button").press("Enter")
        assert head.get_attribute("aria-sort") == order
    seen.page.get_by_role("button", name="Light or dark").press("Enter")
    assert seen.page.evaluate(chromium.BRIGHTNESS) < 128
    for chart in seen.page.locator("#charts figure").all():
        title = chart.locator("h3").text_content()
        assert chart.locator(".chart").get_attribute("aria-label").startswith(f"{title}. ")


def test_a_real_sweep_is_read_sorted_filtered_copied_and_darkened(visit, real_sweep):
    path = real_sweep / "report.html"
    seen = visit(path, color_scheme="light", permissions=["clipboard-read", "clipboard-write"])
    charts = list(data_of(seen))
    assert {"frontier", "binding", "drift", "distributions"} <= set(charts)
    # On a noisy machine "nobind" may win; then there is no placement to draw, and the page says so.
    won = json.loads((real_sweep / "profiles/balanced.json").read_text())  # the last objective ranks
    unbound = won["configuration"]["threads_bind"] == "nobind"
    assert ("placement" in charts) != unbound
    assert any("no thread is bound to a CPU by" in one
               for one in seen.page.locator(".absent li").all_text_contents()) == unbound
    seen.wait_for_charts(len(charts))
    assert seen.page.locator(".absent li").count() == KINDS_OF_CHARTS - len(charts)
    heads = seen.page.locator("table.candidates th")
    column = heads.all_text_contents().index("batch output")
    shown = []
    for _ in range(2):  # most first, then least
        heads.nth(column).click()
        shown.append([float(cell.get_attribute("data-sort")) for cell in seen.page.locator(
            f"table.candidates tbody td:nth-child({column + 1})").all()])
    assert shown[0] == sorted(shown[1], reverse=True) and shown[1] == sorted(shown[0])
    seen.page.fill("#filter", "nobind")
    assert seen.names() == ["threads_bind=nobind"]
    seen.page.locator("button.copy").first.click()
    seen.page.wait_for_function("() => document.querySelector('button.copy').textContent != 'Copy'")
    command = seen.page.evaluate("() => navigator.clipboard.readText()")
    assert command.endswith(f"launch {real_sweep}/profiles/throughput.json")
    seen.page.click("#theme")
    assert seen.page.evaluate(chromium.BRIGHTNESS) < 128
    assert seen.wrong == []
    assert seen.requests == [f"file://{path}"]


def test_a_real_page_shows_the_medians_of_the_database(visit, real_sweep):
    seen = visit(real_sweep / "report.html")
    columns = {"batch output": ("output_tokens_per_s", 0), "first token": ("ttft_s", 1), "per token": ("tpot_s", 1)}
    heads = seen.page.locator("table.candidates th").all_text_contents()
    rows = {row.locator(".name").text_content(): row.locator("td")
            for row in seen.page.locator("table.candidates tbody tr").all()}
    with sqlite3.connect(real_sweep / "results.db") as database:
        for name, candidate in (("the defaults", 0), ("threads_bind=nobind", 1)):
            for title, (metric, concurrency) in columns.items():
                values = [value for value, in database.execute(
                    "select value from samples where candidate=? and metric=? and concurrency=? and "
                    "copy=0 and phase!='calibration'", (candidate, metric, concurrency))]
                cell = rows[name].nth(heads.index(title))
                assert float(cell.get_attribute("data-sort")) == pytest.approx(
                    statistics.median(values), rel=1e-5), (name, title)


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_is_as_the_schemas_say(top, folders, kind):
    for path, schema in [(folders / kind / "results.json", "results"),
                         *((path, "profile") for path in (folders / kind / "profiles").glob("*.json"))]:
        schema = json.loads((top / f"profiles/{schema}.schema.json").read_text())
        jsonschema.validate(json.loads(path.read_text()), schema)


def test_the_policy_is_enforced(visit, folders):
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
    seen.wait_for_charts(13)  # what is drawn meanwhile could hide the button's answer
    button = seen.page.locator("button.copy").first
    button.click()
    seen.page.wait_for_function("() => document.querySelector('button.copy').textContent != 'Copy'")
    copied = seen.page.evaluate("() => navigator.clipboard.readText()")
    assert re.fullmatch(r"build/pinion launch .*/profiles/throughput\.json", copied)


@pytest.mark.parametrize("wish", ["light", "dark"])
def test_the_theme_follows_the_system_and_the_button_and_paper_is_white(visit, folders, wish):
    seen = visit(folders / "usual/report.html", color_scheme=wish)
    seen.wait_for_charts(7)
    before = seen.page.evaluate(chromium.BRIGHTNESS)
    assert (before > 128) == (wish == "light")
    seen.page.emulate_media(media="print", color_scheme=wish)
    color = "([selector, what]) => getComputedStyle(document.querySelector(selector))[what]"
    assert seen.page.evaluate(color, ["body", "backgroundColor"]) == "rgb(255, 255, 255)"
    label = seen.page.evaluate(color, ["#chart-frontier .role-axis-label text", "fill"])
    assert max(int(part) for part in re.findall(r"\d+", label)[:3]) < 140
    assert not seen.page.locator("button.copy").first.is_visible()
    seen.page.emulate_media(media="screen", color_scheme=wish)
    seen.page.click("#theme")
    assert (seen.page.evaluate(chromium.BRIGHTNESS) > 128) != (wish == "light")
    assert seen.wrong == []


@of_kind("usual")
def test_charts_draw_the_stores_numbers(desk):
    results = json.loads((desk.folder / "results.json").read_text())
    charts = data_of(desk)
    by_name = {text_of(one): one for one in results["candidates"]}
    points = [row for row in charts["roofline"] if row["kind"] == "point"]
    assert len(points) == 6
    for row in points:
        flops, read = (series_of(by_name[row["configuration"]], f"{row['phase']}_{what}_per_s")
                       for what in ("flops", "bytes"))
        assert row["flops_per_s"] == pytest.approx(flops)
        assert row["intensity"] == pytest.approx(flops / read)
    roofs = [row["flops_per_s"] for row in charts["roofline"] if row["kind"] == "roof"]
    assert max(roofs) == pytest.approx(max(series_of(one, "ceiling_flops_per_s")
                                           for one in results["candidates"] if one["series"]))
    places = {(text_of(results["candidates"][one["candidate"]]), one["concurrency"], one.get("rate")): one["front"]
              for one in results["front"]}
    for row in charts["frontier"]:
        closed = row["loop"] == "closed"
        assert row["front"] == places[row["configuration"], row["size"] if closed else 0, None if closed else row["size"]]
        assert row["tokens_low"] <= row["tokens_per_s"] <= row["tokens_high"]
        assert row["latency_low"] <= row["latency_s"] <= row["latency_high"]
    for row in charts["slo"]:
        levels = by_name[row["configuration"]]["slo"]["levels"]
        level = next(one for one in levels if one["load"] == pytest.approx(row["load"]))
        assert row["percent"] == pytest.approx(100 * level["share"])
        assert [row["low"], row["high"]] == pytest.approx([100 * level["low"], 100 * level["high"]])
    for row in charts["distributions"]:
        one = next(one for one in by_name[row["configuration"]]["distributions"]
                   if one["quantiles"][10] * 1e3 == pytest.approx(row["ms"]))
        assert (row["q1"], row["q3"]) == pytest.approx((one["quantiles"][5] * 1e3, one["quantiles"][15] * 1e3))
    assert [row["tokens_per_s"] for row in charts["drift"]] == pytest.approx(
        [sample["value"] for one in results["candidates"][0]["series"]
         if (one["metric"], one["concurrency"]) == ("output_tokens_per_s", 0) for sample in one["samples"]])


@of_kind("many")
def test_kv_cells_hold_the_stores_numbers(desk):
    results = json.loads((desk.folder / "results.json").read_text())
    by_name = {text_of(one): one for one in results["candidates"]}
    rows = data_of(desk)["kv"]
    assert {row["space"] for row in rows} == {"auto", "1", "2", "3"}
    for row in rows:
        candidate = by_name[row["configuration"]]
        for key, metric, scale in (("tokens_per_s", "output_tokens_per_s", 1),
                                   ("prefix_hits", "prefix_hit_share", 100), ("used", "kv_used_share", 100)):
            assert row[key] == pytest.approx(scale * series_of(candidate, metric, row["clients"])), key
        counts = [sample["value"] for one in candidate["series"]
                  if (one["metric"], one["concurrency"]) == ("preemptions", row["clients"]) for sample in one["samples"]]
        assert row["preemptions"] == pytest.approx(sum(counts) / len(counts)), "the mean: a median hides a few"


@of_kind("usual")
def test_tables_hold_the_records_of_the_store(desk):
    results = json.loads((desk.folder / "results.json").read_text())
    machine = desk.page.locator("[data-place=machine]")
    shown = machine.locator("table:has(th:text-is('state')) tbody tr")
    checks = {one["name"]: one for one in results["provenance"]["hygiene"]["checks"]}
    for counter in [name for name in checks if name.startswith("counter_")]:
        check = checks.pop(counter)
        named = f"{counter.removeprefix('counter_')}: not available, because {check['reason']}"
        assert machine.text_content().count(named) == (check["state"] != "ok"), counter
    assert shown.count() == len(checks) > 0
    for cells in (row.locator("td").all_text_contents() for row in shown.all()):
        assert cells[1] == checks[cells[0]]["state"]
        assert checks[cells[0]]["found"] in cells[2]
    failed = next(one for one in results["candidates"] if one["status"] == "failed")
    row = desk.page.locator("table.failures tr", has_text=text_of(failed))
    assert failed["reason"] in row.text_content()
    assert row.locator("pre").text_content() == failed["log_tail"]
    times = {cells[0]: cells[2] for cells in (row.locator("td").all_text_contents() for row in
                                              desk.page.locator("[data-place=time] tbody tr").all())}
    assert times == {text_of(one): str(one["trials"]) for one in results["candidates"] if one["seconds"]}


@of_kind("usual")
def test_numbers_on_the_page_are_the_stores(desk):
    results = json.loads((desk.folder / "results.json").read_text())
    for candidate in results["candidates"]:
        if not candidate["series"]:
            continue
        median = next(one["estimate"]["median"] for one in candidate["series"]
                      if (one["metric"], one["concurrency"]) == ("output_tokens_per_s", 0))
        name = ", ".join(f"{key}={value}" for key, value in candidate["settings"].items())
        row = desk.page.locator("table.candidates tbody tr", has_text=name or "the defaults")
        assert float(row.locator("td").nth(2).get_attribute("data-sort")) == pytest.approx(median, rel=1e-5)
        assert row.locator("td").nth(2).text_content().startswith(f"{median:.0f} tokens/s")
    winner = next(one for one in results["verdicts"] if one["objective"] == "throughput")
    change = f"{100 * (winner['ratio_to_default']['median'] - 1):+.1f} %"
    assert desk.page.locator(".card .change").first.text_content() == change
