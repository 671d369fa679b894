"""scripts/bench-engine: the table of docs/speed.md, from real runs."""

import json
import os
import subprocess

import pytest

from conftest import WITH_CEILINGS


@pytest.fixture(scope="module")
def bench_engine(top):
    def run(*arguments):
        return subprocess.run([top / "scripts/bench-engine", *map(str, arguments)], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=120, check=False,
                              env={**os.environ, **WITH_CEILINGS})

    return run


def test_the_table_shows_the_measurements_of_the_runs(bench_engine, data, tmp_path):
    out = tmp_path / "runs.json"
    model = data / "models/tiny-trained"
    done = bench_engine("--rows", "decode8,memory,load", "--rounds", "1", "--json", out, model)
    assert done.returncode == 0, done.stderr
    first, second = json.loads(out.read_text())  # memory and load share a run
    cells = {line.split(" | ")[0].strip("| "): line for line in done.stdout.splitlines() if line[:1] == "|"}
    assert f"{first['result']['decode_tokens_per_s']['median']:.0f} (" in cells["decode, 8 sequences"]
    assert f"{second['result']['peak_rss_bytes'] / 2**20:.0f} MiB" in cells["peak memory"]
    assert "GB/s" in done.stdout.splitlines()[0]


@pytest.mark.parametrize("arguments, sentence", [
    (["--rows", "decode7"], "no row is named 'decode7'; there are prefill512"),
    (["--rounds", "0"], "--rounds 0 is not a valid number of rounds"),
    (["--rows", "load", "--rounds", "1", "nowhere/at-all"], "bench nowhere/at-all"),
])
def test_bad_use_is_one_sentence(bench_engine, arguments, sentence):
    done = bench_engine(*arguments)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
