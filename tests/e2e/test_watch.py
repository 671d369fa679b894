"""pinion sweep --watch: the report while it fills up."""

import http.client
import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request

import pytest

DEFINITION = {
    "axes": {"threads_bind": ["auto", "nobind"]},
    "workload": {"prompt_len": 8, "output_len": 4, "concurrency": [1], "num_prompts": 2},
    "objectives": ["throughput"], "rounds": 10, "budget": "60s", "seed": 1,
}


@pytest.fixture
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    if not shutil.which("chromium"):
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"),
                                         args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def watch(spawn, tmp_path, rounds=DEFINITION["rounds"]):
    """A sweep that runs, and its page's address."""
    definition = tmp_path / "definition.json"
    definition.write_text(json.dumps({**DEFINITION, "rounds": rounds}))
    sweep = spawn("sweep", "preset:tiny", "--def", definition, "--out", tmp_path / "out", "--watch",
                  stderr=subprocess.PIPE)
    return sweep, line_with(sweep, r"http://127\.0\.0\.1:(\d+)/").group(0)


@pytest.fixture
def watched(spawn, tmp_path):
    return watch(spawn, tmp_path)


def line_with(sweep, pattern):
    """The match in the first line to come that has one; others are warnings, of a busy machine for one."""
    for line in sweep.stderr:
        if match := re.search(pattern, line):
            return match
    raise AssertionError(f"the sweep ended without a line that has {pattern}")


def await_trial(sweep):
    """Until a trial has ended, and is in the store therefore."""
    line_with(sweep, r" trial \d+/\d+ .*tokens/s")


def news_of(url):
    """Every piece of news until the server ends the stream."""
    with urllib.request.urlopen(url + "events", timeout=60) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        for line in stream:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def test_news_come_until_the_sweep_is_done(spawn, tmp_path):
    sweep, url = watch(spawn, tmp_path, rounds=5)  # of three trials each, every one of which is news
    await_trial(sweep)
    seen = list(news_of(url))
    assert len(seen) > 3
    assert [one["finished"] for one in seen] == [False] * (len(seen) - 1) + [True]
    assert "round" in seen[1]["state"]
    assert "the defaults" in seen[-1]["sections"]["candidates"]
    assert sweep.wait(timeout=60) == 0


def test_it_serves_the_page_and_the_figures_and_nothing_else(watched):
    sweep, url = watched
    await_trial(sweep)
    with urllib.request.urlopen(url, timeout=20) as answer:
        page = answer.read().decode()
    assert "connect-src 'self'" in page and 'data-live="true"' in page
    with urllib.request.urlopen(url + "results.json", timeout=20) as answer:
        assert json.load(answer)["model"] == "preset:tiny"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url + "results.db", timeout=20)
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(url, data=b"x", timeout=20)


def test_head_of_the_news_is_a_header_alone(watched):
    sweep, url = watched
    await_trial(sweep)
    connection = http.client.HTTPConnection(url.split("/")[2], timeout=20)
    connection.request("HEAD", "/events")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
    assert answer.read() == b""
    connection.request("GET", "/results.json")  # what a body left behind would be read as its answer
    assert json.load(connection.getresponse())["model"] == "preset:tiny"


def test_a_port_that_is_taken_is_named(pinion, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = pinion("sweep", "preset:tiny", "--out", tmp_path / "out", "--watch", port)
    assert done.returncode == 1
    assert str(port) in done.stderr
    assert not (tmp_path / "out").exists()


# The browser and its page before the sweep, which would be over before they have started.
def test_the_page_fills_up_in_a_browser(browser, spawn, tmp_path):
    page = browser.new_page(viewport={"width": 390, "height": 800})
    sweep, url = watch(spawn, tmp_path, rounds=15)
    await_trial(sweep)
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(url)
    page.wait_for_function("() => document.getElementById('live').textContent == 'finished'", timeout=120000)
    page.evaluate("() => { document.getElementById('live').textContent = 'round 1/6 trial 5/7 isa=avx2 at most 49 s left'; }")
    assert page.locator("header .over").first.bounding_box()["height"] < 40  # the model's name keeps its line
    assert page.locator("table.candidates tbody tr").count() == 2
    assert page.locator("#filter").count() == 1
    assert wrong == []
