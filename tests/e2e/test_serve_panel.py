"""The panel of the page at `/` of `pinion serve` in a real browser: load, cache, machine and profile."""

import json
import os
import re
import threading

import pytest

import chromium
from conftest import wait_until
from page_visit import browser, ready, server, start_echo, visit  # noqa: F401 (fixtures)

pytestmark = chromium.needed


def test_rates_are_differences_of_counters_and_start_anew_with_the_engine(ready):
    rate, ratio, kept = ready.page.evaluate("""() => {
      const sample = (at, generated, seconds) => ({at, generated, prompted: 0, seconds});
      samples = [];
      for (const [at, generated, seconds] of [[0, 0, 0], [1, 900, 1], [2, 1000, 2], [4, 1060, 5]]) keepSample(sample(at, generated, seconds));
      const recent = since(2);
      const found = [recent.rate("generated"), recent.ratio("generated", "seconds")];
      keepSample(sample(5, 3, 0));
      return [...found, samples.length];
    }""")
    assert (rate, ratio, kept) == (30, 20, 1)


SAMPLE = """
vllm:kv_cache_usage_perc{engine="0",model_name="x"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="x"} 0.025
"""


def test_the_caches_occupancy_is_the_mean_of_all_engines(ready):
    assert ready.page.evaluate("text => sampleOf(parseMetrics(text)).kv", SAMPLE) == pytest.approx(0.2625)


def occupancy(page):
    """The contents of the panel, all of one moment."""
    return page.evaluate("""() => ({
      text: byId("kv").textContent, of: byId("kv-of").textContent, told: byId("kv-meter").getAttribute("aria-valuenow"),
      width: byId("kv-meter").firstElementChild.style.width, kv: samples.at(-1).kv})""")


def test_the_caches_occupancy_rises_with_computed_tokens_and_falls_to_nothing(visit, start_server, data):
    server = start_server(data / "models/tiny-trained", "--dtype", "float32", "--kv-cache-space", "8MiB", "--served-model-name", "x")
    tokens = json.loads(server.get("/server_info"))["kv_cache"]["tokens"]
    seen = visit(server).wait_until_ready()
    seen.wait_for("#kv-of", f"^of {seen.page.evaluate('count => formatCount(count)', tokens)} tokens$")
    assert occupancy(seen.page)["text"] == "0 %"
    done, endless = threading.Event(), {"model": "x", "prompt": "Once", "max_tokens": 2000, "ignore_eos": True}

    def load():
        while not done.is_set():
            server.post("/v1/completions", endless)

    loader = threading.Thread(target=load)
    loader.start()
    shown = {}

    def is_in_use():
        shown.update(occupancy(seen.page))
        return shown["kv"] > 0

    try:
        assert wait_until(is_in_use)
    finally:
        done.set()
        loader.join()
    percent = 100 * shown["kv"]
    assert percent <= 100
    assert float(shown["text"].removesuffix(" %")) == pytest.approx(percent, abs=0.5)
    assert float(shown["width"].removesuffix("%")) == pytest.approx(percent, abs=0.01)
    assert int(shown["told"]) == pytest.approx(percent, abs=0.5)
    seen.wait_for("#kv", "^0 %$")
    assert occupancy(seen.page)["width"] == "0%"
    assert seen.wrong == []


def profile_of(model):
    return {
        "format": 2, "objective": "throughput", "model": str(model),
        "configuration": {"kv_cache_space": "64MiB", "max_num_seqs": 7},
        "machine": {"cpu_model": "A CPU <b>from</b> elsewhere"}, "cpus": [0],
        "expected": [{"metric": metric, "unit": unit, "concurrency": concurrency, "n": 6, "median": median}
                     for metric, unit, concurrency, median in [
                         ("output_tokens_per_s", "tokens/s", 0, 123.4), ("ttft_s", "s", 8, 0.0321),
                         ("new_metric", "things", 1, 12345.6)]],
        "evidence": {"outcome": "winner", "sentence": "It was 12 % faster.", "floor": 0.01, "confirmed": True,
                     "rounds": 12, "sweep": "out/tiny",
                     "ratio_to_default": {"n": 12, "median": 1.123,
                                          "interval": {"low": 1.1, "high": 1.15, "coverage": 0.99}}},
    }


def test_it_shows_the_machine_and_the_evidence_of_the_profile(visit, start_server, data, pinion_json, tmp_path):
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(profile_of(data / "models/tiny-trained")))
    server = start_server(file, command="launch", env={"VLLM_CPU_KVCACHE_SPACE": "0.0625"})
    info = json.loads(server.get("/server_info"))
    seen = visit(server).wait_until_ready()
    seen.page.wait_for_selector("#machine-card")
    drawn = seen.page.eval_on_selector_all("#machine .cpu", "all => all.map(one => [one.title, one.textContent])")
    cpus = sorted(cpu for node in pinion_json("topo", "--json")["nodes"] for cpu in node["cpus"])
    assert sorted(int(title.split()[1].strip(":")) for title, _ in drawn) == cpus
    computing = sorted(cpu for rank in info["plan"]["ranks"] for cpu in rank["cpus"])
    assert sorted(int(title.split()[1].strip(":")) for title, mark in drawn if mark == "0") == computing
    text = seen.page.locator("#profile").inner_text()
    for part in ("throughput", "12.3 % better", "1.123 times, 1.100 to 1.150 with 99 % confidence", "It was 12 % faster.",
                 "out/tiny", "Measured on another machine: A CPU <b>from</b> elsewhere."):
        assert part in text
    assert "Changed since" not in text
    seen.page.get_by_text("What the sweep measured").click()
    assert seen.page.locator("#profile td").all_inner_texts() == [
        "Throughput", "–", "123.4 tokens/s", "First token after", "8", "32 ms", "new metric", "1", "12,350 things"]
    assert seen.page.locator("#facts").inner_text().count(info["isa"]) == 1
    assert seen.wrong == []


def test_several_engines_are_drawn_by_their_number(visit, start_server, data):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two engines want two CPUs")
    server = start_server(data / "models/tiny-trained", "--data-parallel-size", 2, "--kv-cache-space", "32MiB")
    info = json.loads(server.get("/server_info"))
    seen = visit(server).wait_until_ready()
    seen.page.wait_for_selector("#machine-card")
    for index, engine in enumerate(info["replicas"]):
        cpus = [cpu for rank in engine["plan"]["ranks"] for cpu in rank["cpus"]]
        titles = seen.page.locator("#machine .cpu", has_text=re.compile(f"^{index}$")).evaluate_all(
            "all => all.map(one => one.title)")
        assert sorted(titles) == sorted(f"CPU {cpu}: replica {index}" for cpu in cpus) != []
    seen.wait_for("#most", "^256$")
    assert seen.wrong == []


def test_settings_that_are_not_the_profiles_are_named(visit, start_server, data, tmp_path):
    file = tmp_path / "profile.json"
    model = data / "models/tiny-trained"
    file.write_text(json.dumps(profile_of(model)))
    server = start_server(model, "--kv-cache-space", "64MiB", "--max-num-seqs", 5, "--from-profile", file)
    seen = visit(server).wait_until_ready()
    seen.page.wait_for_selector("#profile-card")
    assert "Changed since: max_num_seqs is 5 in place of 7." in seen.page.locator("#profile").inner_text()
