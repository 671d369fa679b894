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
    """A finished sweep of two configurations, 8 rounds each."""
    folder = tmp_path_factory.mktemp("compare")
    definition = folder / "definition.json"
    definition.write_text(json.dumps({
        "engine": {"command": [sys.executable, str(FIXED), "--port", "{port}", "--ttft-ms", "8",
                               "--itl-ms", "4"]},
        "candidates": [{"max_num_seqs": 1}],
        "workload": {"prompt_len": 8, "output_len": 4, "concurrency": [1], "num_prompts": 2},
        "objectives": ["throughput"], "strategy": "grid", "rounds": 8, "budget": "10m", "seed": 3,
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
    assert done.returncode == 1
    worse = [one for one in json.loads(done.stdout)["differences"] if one["kind"] == "worse"]
    assert {(one["candidate"], one["metric"]) for one in worse} == {
        ("max_num_seqs=1", "output_tokens_per_s")}
    assert all(one["ratio"]["median"] == pytest.approx(0.5) for one in worse)
    said = pinion("compare", base, slower)
    assert said.returncode == 1 and "2 worse, 0 better" in said.stdout
    assert pinion("compare", slower, base).returncode == 0  # the other way round it is faster
    assert pinion("compare", base, slower, "--threshold", 60).returncode == 0


def test_latency_counts_the_other_way(pinion, base, altered):
    # First tokens take 8 ms here: only much more stands out of the noise of every machine.
    later = altered("update samples set value = value * 100 where metric = 'ttft_s'")
    assert pinion("compare", base, later).returncode == 1


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
