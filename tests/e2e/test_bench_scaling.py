"""`pinion bench --scaling`: a bench of every number of threads and ranks, in processes of their own."""

import json
import os

import pytest

from conftest import WITH_CEILINGS

SMALL = ("--prompt-len", "8", "--output-len", "4", "--rounds", "1")
CPUS = sorted(os.sched_getaffinity(0))

needs_two = pytest.mark.skipif(len(CPUS) < 2, reason="more than one thread needs two CPUs")


@needs_two
def test_threads_double_and_then_ranks_do(pinion):
    lists = f"{CPUS[0]},{CPUS[1]}"
    done = pinion("bench", "preset:tiny", "--scaling", "--json", "--threads-bind", lists, *SMALL, env=WITH_CEILINGS)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["threads"], row["ranks"], row["threads_bind"]) for row in rows] == [
        (1, 1, f"{CPUS[0]}"), (2, 1, lists), (2, 2, f"{CPUS[0]}|{CPUS[1]}")]
    for row in rows:
        assert row["prefill_tokens_per_s"] > 0 and row["decode_steps_per_s"] > 0
        assert 0 < row["decode_of_limit"] and 0 < row["prefill_of_limit"]
        assert len(row["wait_shares"]) == row["ranks"]
        assert all(0 <= share < 1 for share in row["wait_shares"])
    assert rows[0]["wait_shares"] == [0], "a lone thread waits for nobody"


@needs_two
def test_the_table_names_the_cpus_of_every_row(pinion):
    done = pinion("bench", "preset:tiny", "--scaling", *SMALL, env=WITH_CEILINGS)
    assert done.returncode == 0, done.stderr
    header, *rows = done.stdout.split("\n\n")[0].splitlines()
    assert header.split()[0] == "threads" and header.split()[-1] == "CPUs"
    assert len(rows) >= 3 and all("%" in row for row in rows)


@needs_two
def test_texts_that_are_embedded_have_rates_of_prefill_alone(pinion, data):
    done = pinion("bench", data / "embedders/bert-mean", "--scaling", "--json", "--prompt-len", "8", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) >= 3
    for row in rows:
        assert row["prefill_tokens_per_s"] > 0 and row["decode_steps_per_s"] is None


@needs_two
def test_a_run_that_fails_is_a_row_with_its_reason(pinion):
    # A prompt that fits no sequence of the model is refused by every bench.
    done = pinion("bench", "preset:tiny", "--scaling", "--json", "--prompt-len", "100000",
                  "--output-len", "4", "--rounds", "1")
    assert done.returncode == 1 and "no run has succeeded" in done.stderr
    rows = json.loads(done.stdout)
    assert rows and all("100000" in row["error"] or "100004" in row["error"] for row in rows)


@pytest.mark.parametrize("flags, says", [
    (("-tp", "2"), "leave them out"),
    (("-pp", "2"), "-pp 2"),
    (("--threads-bind", "nobind"), "nobind"),
    (("--trace", "x.json"), "--trace"),
])
def test_settings_that_it_cannot_vary_are_refused(pinion, flags, says):
    done = pinion("bench", "preset:tiny", "--scaling", *flags, *SMALL)
    assert done.returncode == 2 and says in done.stderr
    assert done.stdout == ""
