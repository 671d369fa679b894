"""`pinion compare`: a sweep against altered copies of itself. The engine is the fixed server, so
that one sweep takes seconds."""

import json
import pathlib
import shutil
import sqlite3
import sys

import pytest

FIXED = pathlib.Path(__file__).with_name("fixed_server.py")
METRICS = {"output_tokens_per_s", "ttft_s", "tpot_s", "e2el_s", "itl_s"}


@pytest.fixture(scope="module")
def base(pinion, tmp_path_factory):
    """A finished sweep of two configurations, 12 rounds each."""
    folder = tmp_path_factory.mktemp("compare")
    definition = folder / "definition.json"
    definition.write_text(json.dumps({
        "engines": [{"command": [sys.executable, str(FIXED), "--port", "{port}", "--ttft-ms", "8",
                               "--itl-ms", "4"]}],
        "candidates": [{"max_num_seqs": 1}],
        "workload": {"prompt_len": 8, "output_len": 4, "concurrency": [1], "num_prompts": 2},
        "objectives": ["throughput"], "strategy": "grid", "rounds": 12, "budget": "10m", "seed": 3,
        "trial_limit": 10}))
    done = pinion("sweep", "some/model", "--def", definition, "--out", folder / "a", timeout=600)
    assert done.returncode == 0, done.stderr
    return folder / "a"


@pytest.fixture
def altered(base, tmp_path):
    """altered("update ...") -> a copy of the sweep after these SQL statements."""

    def make(*statements):
        folder = tmp_path / f"b{len(list(tmp_path.iterdir()))}"
        shutil.copytree(base, folder)
        with sqlite3.connect(folder / "results.db") as database:
            for statement in statements:
                assert database.execute(statement).rowcount > 0, statement
        return folder

    return make


def test_a_sweep_is_not_worse_than_itself(pinion, base, altered):
    done = pinion("compare", base, altered(), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["worse"] == found["better"] == 0
    assert METRICS <= {one["metric"] for one in found["differences"]}
    for one in found["differences"]:
        assert one["ratio"]["median"] == 1
        assert one["ratio"]["n"] >= 8


def test_slower_metrics_are_found_and_fail(pinion, base, altered):
    slower = altered("update samples set value = value * 0.5 "
                     "where metric = 'output_tokens_per_s' and candidate = 1")
    done = pinion("compare", base, slower, "--json")
    assert done.returncode == 3
    worse = [one for one in json.loads(done.stdout)["differences"] if one["kind"] == "worse"]
    assert {(one["candidate"], one["metric"]) for one in worse} == {
        ("max_num_seqs=1", "output_tokens_per_s")}
    assert all(one["ratio"]["median"] == pytest.approx(0.5) for one in worse)
    said = pinion("compare", base, slower)
    assert said.returncode == 3 and "2 worse, 0 better" in said.stdout
    assert pinion("compare", slower, base).returncode == 0  # the other way round it is faster
    assert pinion("compare", base, slower, "--threshold", 60).returncode == 0


def test_latency_counts_the_other_way(pinion, base, altered):
    # First tokens take 8 ms here: only much more stands out of the noise of every machine.
    later = altered("update samples set value = value * 100 where metric = 'ttft_s'")
    assert pinion("compare", base, later).returncode == 3


@pytest.mark.parametrize("statement, says", [
    ("update meta set value = json_set(value, '$.cpu_model', 'Other CPU') where key = 'machine'",
     "cpu_model is"),
    ("update meta set value = json_set(value, '$.model', 'other') where key = 'origin'",
     "the model is"),
    ("update meta set value = json_set(value, '$.workload.prompt_len', 9) where key = 'definition'",
     "the workload is"),
    ("update meta set value = json_set(value, '$.seed', 4) where key = 'definition'",
     "the seed is 3 in one and 4 in the other"),
    # Whether there is a confirmation, whose rounds are counted anew, depends on the machine's noise.
    ("delete from samples where round > 2 or phase <> 'race'", "2 rounds in common"),
])
def test_refuses_sweeps_that_cannot_be_compared_and_says_why(pinion, base, altered, statement, says):
    done = pinion("compare", base, altered(statement))
    assert done.returncode == 2
    assert "cannot be compared" in done.stderr and says in done.stderr


def test_bad_usage(pinion, base, tmp_path):
    done = pinion("compare", base, tmp_path / "nowhere")
    assert done.returncode == 2 and "there is no sweep" in done.stderr
    assert pinion("compare", base).returncode == 2
    assert pinion("compare", base, base, "--treshold", 3).returncode == 2


def test_two_builds_race(pinion, binary, tmp_path):
    """One build is a script that starts the same program with a third of its speed."""
    slow, out = tmp_path / "slow", tmp_path / "out"
    slow.write_text(f'#!/bin/sh\nexec {binary} "$@" --isa scalar\n')
    slow.chmod(0o755)
    done = pinion("compare", "--build", binary, "--build", slow, "preset:tiny", "--budget", "10m",
                  "--rounds", 10, "--out", out, "--json", timeout=600)
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "worse" and found["builds"] == [str(binary), str(slow)]
    assert found["ratio"]["low"] <= found["ratio"]["estimate"] <= found["ratio"]["high"] < 1
    assert found["rounds"] >= 8 and (out / "report.html").exists()
    results = json.loads((out / "results.json").read_text())
    assert results["answer"].startswith("B is ") and results["answer"].endswith(" than A.")
    assert results["verdicts"][0]["outcome"] == "default_best"
    # Written again from the store alone, the report judges a pair, not a sweep.
    again = json.loads(pinion("report", out, "--json").stdout)
    assert again["answer"] == results["answer"] and again["verdicts"] == results["verdicts"]
    assert results["command_line"] == (
        f"pinion compare --build {binary} --build {slow} preset:tiny --objective throughput --budget 10m "
        "--threshold 2 --rounds 10")
    assert results["command_line"] in (out / "report.md").read_text()


def profile(folder, name, model="preset:tiny", **settings):
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"format": 2, "objective": "throughput", "model": model, "machine": {},
                                "cpus": [], "configuration": settings}))
    return path


def test_two_profiles_race(pinion, tmp_path):
    fast, slow, out = profile(tmp_path, "fast"), profile(tmp_path, "slow", isa="scalar"), tmp_path / "out"
    # An eighth of the speed; of 8 rounds all must show it, and other tests disturb some of the 16.
    done = pinion("compare", fast, slow, "--budget", "10m", "--rounds", 16, "--out", out, "--json",
                  timeout=600)
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "worse" and found["profiles"] == [str(fast), str(slow)]
    assert found["objective"] == "throughput" and found["ratio"]["high"] < 1
    results = json.loads((out / "results.json").read_text())
    assert [one["settings"] for one in results["candidates"]] == [{}, {"isa": "scalar"}]
    assert "B: isa=scalar" in [one["label"] for one in results["candidates"]]


def test_profiles_that_cannot_race_are_told(pinion, tmp_path):
    tiny, other = profile(tmp_path, "tiny"), profile(tmp_path, "other", model="preset:llama-3.2-1b")
    done = pinion("compare", tiny, other)
    assert done.returncode == 2 and "preset:tiny and preset:llama-3.2-1b" in done.stderr
    done = pinion("compare", tiny, tmp_path / "none.json")
    assert done.returncode == 1 and "none.json" in done.stderr
    done = pinion("compare", tiny, tiny, "--objective", "goodput")
    assert done.returncode == 2 and "itl_p95@8" in done.stderr
    # Known before anything is measured.
    wide = profile(tmp_path, "wide", tensor_parallel=4096)
    done = pinion("compare", tiny, wide, "--out", tmp_path / "out", timeout=60)
    assert done.returncode == 1 and "nothing to compare: B: tensor_parallel=4096: " in done.stderr
    assert not (tmp_path / "out").exists()


def test_builds_that_cannot_race_are_told(pinion, binary, tmp_path):
    def said(*arguments):
        done = pinion("compare", *arguments, "--out", tmp_path / "out", timeout=240)
        return done.returncode, done.stderr

    code, stderr = said("--build", binary, "preset:tiny")
    assert code == 2 and "two of them and a model" in stderr
    code, stderr = said("--build", binary, "--build", "/no/such/pinion", "preset:tiny")
    assert code == 2 and "/no/such/pinion, which is not an executable program" in stderr
    code, stderr = said("--build", binary, "--build", binary, "preset:tiny", "--threshold", "60")
    assert code == 2 and "--threshold is 60.0 %" in stderr
    code, stderr = said("--build", binary, "--build", "/bin/false", "preset:tiny", "--budget", "2m")
    assert code == 1 and "build B failed: " in stderr
    done = pinion("compare", "a", "b", "--budget", "5s")
    assert done.returncode == 2 and "old sweeps are only read" in done.stderr
