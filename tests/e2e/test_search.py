"""Spaces too large to measure: Optuna's model proposes what to measure."""

import json
import os
import subprocess
import sys

import pytest

# 3 x 4 x 4 x 4 x 2 combinations, of which the default's values are some.
SPACE = {
    "axes": {"max_num_batched_tokens": [128, 512, 2048], "block_size": [16, 32, 64, 128],
             "max_num_seqs": [4, 16, 64, 128], "kv_cache_space": ["8MiB", "16MiB", "32MiB", "64MiB"],
             "prefix_caching": [True, False]},
    "workload": {"prompt_len": 32, "output_len": 8, "concurrency": [], "num_prompts": 4},
    "objectives": ["throughput"], "strategy": "tpe", "budget": 40, "trial_limit": 2, "seed": 5,
}
WITH_OPTUNA = {**os.environ, "PINION_PYTHON": sys.executable}


@pytest.fixture
def search(binary, tmp_path):
    """search(FLAGS..., environment) -> the finished process of a sweep of SPACE into tmp_path/out."""
    definition = tmp_path / "space.json"
    definition.write_text(json.dumps(SPACE))

    def run(*flags, environment=WITH_OPTUNA, command="sweep"):
        return subprocess.run([str(binary), command, "preset:tiny", "--def", str(definition), "--out",
                               str(tmp_path / "out"), *map(str, flags)],
                              capture_output=True, text=True, env=environment, timeout=300)

    return run


def results(out):
    return json.loads((out / "results.json").read_text())


def measured(found):
    return {one["label"] for one in found["candidates"] if one["trials"]}


def test_a_large_space_is_searched_not_measured(binary, search, tmp_path):
    done = search()
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    found = results(out)
    tried = measured(found)
    assert len(found["candidates"]) > 300
    assert 5 <= len(tried) < 100, "the defaults and at least one proposal"
    why = {one["label"]: one["reason"] for one in found["candidates"]}
    assert any("did not propose" in text for text in why.values()), set(why.values())
    # The report repeats the protocol from what is stored, without Optuna.
    without = {key: value for key, value in os.environ.items() if key != "PINION_PYTHON"}
    again = subprocess.run([str(binary), "report", str(out)], capture_output=True, text=True, env=without)
    assert again.returncode == 0, again.stderr
    assert results(out)["verdicts"] == found["verdicts"]
    assert search("--resume").returncode == 0
    assert measured(results(out)) == tried, "nothing was left to do"


def test_without_optuna_nothing_is_begun(search, tmp_path):
    empty = tmp_path / "python"
    empty.write_text("#!/bin/sh\nexec /usr/bin/python3 -I -S \"$@\"\n")
    empty.chmod(0o755)
    for python, says in ((empty, "No module named 'optuna'"), (tmp_path / "none", "none")):
        done = search(environment={**os.environ, "PINION_PYTHON": str(python)})
        assert done.returncode == 1 and says in done.stderr, done.stderr
        assert "pip install optuna" in done.stderr and len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "out").exists()


def test_a_search_of_planted_effects_finds_the_best(binary, top, tmp_path):
    """Among 64 combinations of which one is far the best, by what its settings have in common."""
    speeds = {}
    for a in range(4):
        for b in range(4):
            for c in range(4):
                name = "default" if (a, b, c) == (0, 0, 0) else f"a={a} b={b} c={c}"
                speeds[name] = 1 + 0.15 * a + 0.10 * b + 0.05 * c
    planted = tmp_path / "planted.json"
    planted.write_text(json.dumps({"configurations": speeds}))
    done = subprocess.run([str(binary), "sweep", "--replay", str(top / "tests/data/noise/quiet.csv"),
                           "--metric", "memory_bytes_per_s", "--planted", str(planted), "--seeds", "20",
                           "--strategy", "tpe", "--json"],
                          capture_output=True, text=True, env=WITH_OPTUNA, timeout=300)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["regret_p95"] < 0.15, "random points alone are 25 % away"
    assert report["cost_fraction_p50"] < 0.2
