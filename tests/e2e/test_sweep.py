"""The main job on the real engine: what a sweep keeps, under which circumstances it goes on, what it refuses, and how
it replays."""

import json
import os
import subprocess

import pytest

from sweep_runs import check_outputs, check_results, definition, finished, go_on, rows, start  # noqa: F401: fixtures


def test_samples_are_keyed_by_machine_model_configuration_and_seed(finished):
    out = finished.out
    keys = rows(out, "select distinct machine, model, configuration, seed, round from samples "
                     "where phase = 'race'")
    assert len({machine for machine, *_ in keys}) == 1
    assert {model for _, model, *_ in keys} == {"preset:tiny"}
    found = [json.loads(text) for text in sorted({configuration for _, _, configuration, *_ in keys})]
    assert [(one["engine"], one["threads_bind"]) for one in found] == [("pinion", "auto"), ("pinion", "nobind")]
    assert all(one["replicas"] == 1 and one["allocator"] == "system" for one in found)
    # One seed a round, shared by all its trials.
    assert len({(seed, number) for *_, seed, number in keys}) == 3
    metrics = {metric for metric, in rows(out, "select distinct metric from samples")}
    assert {"output_tokens_per_s", "ttft_s", "tpot_s", "itl_s", "e2el_s"} <= metrics
    # Every request is kept, with a time for each token.
    kept = rows(out, "select load, count(*), sum(output_tokens = output_len), sum(length(token_us) > 0) "
                     "from requests group by load")
    assert {load for load, *_ in kept} == {"batch", "clients"}
    cut = rows(out, "select count(*) from trial where json_array_length(info, '$.cut') > 0")[0][0]
    assert all(timed >= whole and (count == whole or cut) for _, count, whole, timed in kept)
    # Three rounds do not make a verdict, unless enough followed to confirm one.
    results = check_outputs(out)
    assert all(verdict["outcome"] == "too_few_rounds" or results["confirmation_rounds"] >= 6
               for verdict in results["verdicts"])
    infeasible = [c for c in results["candidates"] if c["status"] == "infeasible"]
    assert len(infeasible) == 1 and "does not exist" in infeasible[0]["reason"]


def test_a_latency_at_a_request_rate_is_an_objective(binary, top, tmp_path):
    """Requests come at random times, at the stated rate, whether or not earlier ones are answered."""
    out, rate, name = tmp_path / "out", 40, "e2el@40rps"
    definition = tmp_path / "rate.json"
    definition.write_text(json.dumps({
        "candidates": [{"threads_bind": "nobind"}], "objectives": ["throughput"], "rounds": 1, "budget": "5m", "trial_limit": 10,
        "workload": {"prompt_len": 16, "output_len": 4, "concurrency": [2], "request_rate": [20], "num_prompts": 4}}))
    done = subprocess.run([binary, "sweep", "preset:tiny", "--def", definition, "--request-rate", str(rate),
                           "--objectives", name, "--out", out],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    at_rate = rows(out, "select metric, value from samples where rate = 40 and concurrency = 0")
    assert {"e2el_s", "ttft_s", "tpot_s", "output_tokens_per_s"} <= {metric for metric, _ in at_rate}
    assert rows(out, "select count(*) from samples where metric = 'e2el_s' and rate = 0 and concurrency = 2") != [(0,)]
    # As many requests as a steady window needs; the last was due when so many of them are at that rate.
    loops = rows(out, "select count(*), max(scheduled_ns) - min(scheduled_ns) from requests where load = 'rate' "
                      "group by trial")
    assert {count for count, _ in loops} == {20}
    expected = 19 / rate * 1e9
    assert expected / 4 < sum(took for _, took in loops) / len(loops) < 4 * expected
    results = check_results(out, top)
    assert [verdict["objective"] for verdict in results["verdicts"]] == [name]
    series = [one for one in results["candidates"][0]["series"] if one.get("rate") == rate]
    assert {one["concurrency"] for one in series} == {0} and {"e2el_s"} <= {one["metric"] for one in series}
    assert (out / "profiles" / f"{name}.json").exists()
    assert f"at {rate} requests/s, at random times" in (out / "report.html").read_text()


def test_another_definition_cannot_go_on_with_a_sweep(go_on):
    for flags, named in (("--trial-limit", "7s", "--prompt-len", "32"), "workload"), (("--trial-limit", "32"), "trial_limit"):
        status, stderr = go_on(*flags)
        assert status == 2
        assert named in stderr


def test_other_circumstances_cannot_go_on_with_a_sweep(go_on):
    one_cpu = {min(os.sched_getaffinity(0))}
    for process, named in (({"preexec_fn": lambda: os.sched_setaffinity(0, one_cpu)}, "set of CPUs"),
                           ({"env": {**os.environ, "OMP_WAIT_POLICY": "active"}}, "environment")):
        status, stderr = go_on("--trial-limit", "7s", **process)
        assert status == 2
        assert f"was measured with another {named}" in stderr and "sweep into a new folder" in stderr
    assert go_on("--trial-limit", "7s")[0] == 0


def test_json_is_alone_on_standard_output(finished):
    results = json.loads(finished.stdout)
    assert results["model"] == "preset:tiny"
    assert results["definition"]["trial_limit"] == 7


@pytest.mark.parametrize("flags", [("--budget", "soon"), ("--concurrency", "4"), ("--rounds", "0"),
                                   ("--trial-limit", "soon"), ("--trial-limit", "0"),
                                   ("--slo", "ttft=1s,ttft=2s"),
                                   ("--threads-bind", "0-9999")])
def test_bad_usage_leaves_no_folder(start, tmp_path, flags):
    sweep = start(*flags)
    _, stderr = sweep.communicate(timeout=60)
    assert sweep.returncode == 2, stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [["preset:tiny", "--out", "out", "--def"], ["preset:tiny", "--plan", "--def"],
                                   ["preset:tiny", "--plan", "--probe"],
                                   ["--replay", "results.db", "--planted"]])
@pytest.mark.parametrize("text", ["", "{", '{"rounds": 2,}', "\0"])
def test_a_file_that_is_not_json_is_bad_usage(pinion, real_sweep, tmp_path, words, text):
    given = tmp_path / "given.json"
    given.write_text(text)
    done = pinion("sweep", *(real_sweep / word if word == "results.db" else word for word in words), given, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"pinion: {given}: not valid JSON") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [given]


def test_a_recorded_sweep_replays_without_its_engine(finished, binary):
    done = subprocess.run([str(binary), "sweep", "--replay", str(finished.out / "results.db"),
                           "--seeds", "20", "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["default"] == "default" and sum(report["winners"].values()) == 20
