"""scripts/bench-serving: its arithmetic on made-up times, and its turns, tables and refusals with engines that report
scripted figures."""

import json
import shutil
import sys

import pytest

from conftest import TOP
from test_bench_peers import STAND_IN, Bench

sys.path.insert(0, str(TOP / "scripts"))
from peers.engines import Failed  # noqa: E402
from serving import gaps, long_prompt  # noqa: E402


def run_of(*requests, start_s=0.0):
    """A JSON of `pinion load`; a request is the time at which it was sent, and those of its tokens."""
    return {"completed": len(requests), "pinion": {"start_monotonic_s": start_s, "requests": [
        {"sent_s": sent_s, "token_s": list(tokens), "error": ""} for sent_s, tokens in requests]}}


def served_run(rate, p99=None):
    return {**run_of((0, [0.5]), (0, [0.9])), "output_throughput": rate, "median_ttft_ms": 500, "median_itl_ms": 40,
            "p99_itl_ms": p99}


def long_runs(gap_s, short_s, long_s):
    """The report of a start whose streams have a token every 0.05 s, and during the long prompt every gap_s."""
    tokens = [0.05 * i for i in range(201)]  # until 10 s, when the long prompt is sent
    while tokens[-1] < 10 + long_s:
        tokens.append(tokens[-1] + gap_s)
    shorts = [(10 + 2 * i, [10 + 2 * i + short_s]) for i in (1, 2, 3)]
    return {"by": {"--trace": run_of((0, [long_s]), *((sent - 10, [at - 10 for at in tokens_])
                                                      for sent, tokens_ in shorts), start_s=110),
                   "--num-prompts 1 ": run_of((0, [40]), start_s=50),
                   "--prompt-len 32": run_of(*[(-1, tokens)] * 16, start_s=100)}}


# ---- The arithmetic ------------------------------------------------------------------------------


def test_a_percentile_is_a_value_that_was_seen():
    assert gaps.percentile(range(1, 101), 0.99) == 99
    assert gaps.percentile(range(1, 102), 0.99) == 100
    assert gaps.percentile([7], 0.99) == 7
    assert gaps.percentile([3, 1, 2], 0.5) == 2


def test_a_gap_counts_during_a_prompt_if_it_touches_it_and_before_if_it_had_ended():
    streams = [(0, [1, 2, 4, 7, 11]), (0, [1, 30])]
    assert gaps.gaps(streams, 3, 6) == [2, 3, 29]  # 2 to 4, 4 to 7, and the one around it
    assert gaps.gaps(streams, 0, 6, ended=True) == [1, 2]


def test_times_of_several_loads_are_compared_by_the_machines_clock():
    streams = run_of(*[(0, [1, 2, 3, 4, 5, 5.5, 7, 7.5, 8])] * 2, start_s=100)
    arrivals = run_of((0, [3, 3.1]), (0.5, [0.75]), (1, [2.5]), start_s=104.5)
    alone = run_of((1, [3]), start_s=50)
    assert gaps.beside(streams, arrivals, alone, 3).figures() == pytest.approx({
        "before_p50": 1, "before_p99": 1, "during_p99": 1.5, "during_worst": 1.5, "short_ttft": 0.25,
        "short_ttft_worst": 1.5, "long": 3, "long_alone": 2, "long_ratio": 1.5})


@pytest.mark.parametrize("stream, arrivals, sentence", [
    ([2, 9], [(4, [8])], "not all streams ran 3 s before the long prompt; raise --settle"),
    ([1], [(4, [8])], "not all streams ran 3 s before the long prompt; raise --settle"),
    ([1, 2, 7], [(4, [8])], "a stream ended before the long prompt had its first token"),
    ([1, 2, 9], [(4, [8]), (8.5, [9])], "had its first token after 4.0 s, before the last short one was sent"),
])
def test_measurements_without_streams_beside_the_prompt_are_refused(stream, arrivals, sentence):
    with pytest.raises(Failed, match=sentence):
        gaps.beside(run_of((0, stream)), run_of(*arrivals), run_of((0, [1])), 3)


def test_the_bound_is_eight_times_the_decodes_within_its_limits():
    assert [gaps.auto_bound_s(gap_s) for gap_s in (0.001, 0.05, 0.2)] == [0.1, 0.4, 0.5]


def test_promises_are_the_issues():
    good = {"during_p99": 0.33, "short_ttft": 2.0, "long_ratio": 1.25}
    bad = {"during_p99": 0.331, "short_ttft": 2.01, "long_ratio": 1.26}
    assert [kept for *_, kept in gaps.promises(good, 0.3)] == [True] * 3
    assert [kept for *_, kept in gaps.promises(bad, 0.3)] == [False] * 3


def test_one_load_sends_the_long_prompt_and_the_short_ones_after_it():
    rows = [json.loads(line) for line in long_prompt.trace(5000).splitlines()]
    assert [(row["timestamp"], row["input_length"]) for row in rows] == [
        (0, 5000), (2000, 16), (4000, 16), (6000, 16)]


# ---- Turns and tables ----------------------------------------------------------------------------


class Serving(Bench):
    def __call__(self, *words, path=None):
        return self.run("bench-serving", *words, path=path)

    def result(self):
        return json.loads((self.folder / "out.json").read_text())

    def install_llama_server(self):
        programs = self.folder / "scratch/llama.cpp/build/bin"
        programs.mkdir(parents=True)
        (programs.parent / "complete").touch()
        shutil.copy(STAND_IN, programs / "llama-server")
        (programs / "llama-server").chmod(0o755)
        (self.folder / "scratch/models").mkdir()
        (self.folder / "scratch/models/tiny-BF16.gguf").touch()


@pytest.fixture
def bench(tmp_path):
    return Serving(tmp_path)


def test_every_other_round_goes_backwards_and_the_bounds_cost_is_taken_within_rounds(bench):
    # With the bound, without, without, with: ratios 0.98 and 0.5, so 0.74; that of the medians is 0.66.
    bench.report("pinion", [served_run(98), served_run(100), served_run(20), served_run(10)])
    done = bench("--rows", "served", "--rounds", "2", "--engines", "pinion")
    assert done.returncode == 0, done.stderr
    assert "With the bound over without: 0.740; at least 0.97: MISSED." in done.stdout
    assert "| Pinion | 54 | 500 | 900 | 40 | none |" in done.stdout
    ours, unbounded = bench.result()["engines"]
    assert [one["tokens_per_s"] for one in ours["rows"]["served"]] == [98, 10]
    assert [one["tokens_per_s"] for one in unbounded["rows"]["served"]] == [100, 20]
    assert "--max-step-ms" not in ours["command"] and unbounded["command"].endswith("--max-step-ms 0")


def test_a_loss_of_three_in_a_hundred_is_allowed(bench):
    bench.report("pinion", [served_run(97), served_run(100)])
    done = bench("--rows", "served", "--rounds", "1", "--engines", "pinion")
    assert "With the bound over without: 0.970; at least 0.97: kept." in done.stdout


def test_installed_engines_take_part_and_missing_ones_are_named(bench):
    bench.install_llama_server()
    bench.report("pinion", [served_run(50, 90), served_run(50, 800)])
    bench.report("llama-server", [served_run(25)])
    done = bench("--rows", "served", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    assert (bench.folder / "starts").read_text().split() == ["pinion", "pinion", "llama-server"]
    assert "vllm is left out: it is not installed in" in done.stderr
    assert "`scripts/bench-peers --peers vllm` installs and measures it" in done.stderr
    assert "| Pinion | 50 | 500 | 900 | 40 | 90 |" in done.stdout
    assert "| llama.cpp | 25 | 500 | 900 | 40 | none |" in done.stdout


def test_a_peer_that_fails_costs_no_figure_of_the_others(bench):
    bench.install_llama_server()
    bench.report("pinion", [served_run(50)] * 4)
    done = bench("--rows", "served", "--rounds", "2", "--engines", "pinion,llama-server")
    assert done.returncode == 0, done.stderr
    assert "bench-serving: llama.cpp is left out: llama.cpp ended with status 1: " in done.stderr
    assert [engine["name"] for engine in bench.result()["engines"]] == ["Pinion", "Pinion, no bound"]


def test_streams_beside_a_long_prompt_are_held_to_the_bound_in_force(bench):
    # Tokens every 50 ms: the bound is 400 ms, with its tenth 440.
    bench.report("pinion", [long_runs(0.43, 1.5, 44), long_runs(5, 30, 42)])
    done = bench("--rows", "long", "--rounds", "1", "--settle", "0.2", "--engines", "pinion")
    assert done.returncode == 0, done.stderr
    assert "| Pinion | 50 | 430 | 430 | 1.5 | 1.5 | 44 | 40 | 1.1 |" in done.stdout
    assert "| Pinion, no bound | 50 | 5000 | 5000 | 30 | 30 | 42 | 40 | 1.05 |" in done.stdout
    assert "Bound of steps with prompts: 400 ms." in done.stdout
    assert "| p99 gap, s | 0.44 | 0.43 | kept |" in done.stdout
    assert "| long prompt over its time alone | 1.25 | 1.1 | kept |" in done.stdout


def test_the_bound_that_the_server_states_replaces_the_guess(bench):
    stated = {"step_times": {"bound_seconds": 0.3, "margin": 1.1}}
    bench.report("pinion", [long_runs(0.43, 2.5, 52) | stated, long_runs(5, 30, 42)])
    done = bench("--rows", "long", "--rounds", "1", "--settle", "0.2", "--engines", "pinion")
    assert done.returncode == 0, done.stderr
    assert "Bound of steps with prompts: 300 ms." in done.stdout
    assert "| p99 gap, s | 0.33 | 0.43 | MISSED |" in done.stdout
    assert "| first token of a short prompt, s | 2 | 2.5 | MISSED |" in done.stdout
    assert "| long prompt over its time alone | 1.25 | 1.3 | MISSED |" in done.stdout
    ours, unbounded = (engine["rows"]["long"][0] for engine in bench.result()["engines"])
    assert ours["step_times"][0]["margin"] == 1.1
    assert unbounded["bound_s"] is None


def test_the_highest_rate_is_searched_with_and_without_the_bound_and_not_on_peers(bench):
    bench.install_llama_server()
    bench.report("pinion", [{"pass": {"load": 0.8}, "runs": 7, "is_settled": True, "levels": [{}]},
                            {"pass": None, "runs": 9, "is_settled": False, "levels": [{}]}])
    done = bench("--rows", "find", "--rounds", "1", "--engines", "pinion,llama-server")
    assert done.returncode == 0, done.stderr
    assert "| Pinion | 0.8 | 1 of 1 |" in done.stdout
    assert "| Pinion, no bound | 0 | 0 of 1 |" in done.stdout
    assert "llama.cpp is left out" not in done.stderr  # it has no figures, so it would fail


@pytest.mark.parametrize("words, sentence", [
    (["--engines", "tgi"], "no engine is named 'tgi'; there are pinion, vllm, llama-server"),
    (["--engines", "vllm"], "no engine is left to measure"),
    (["--rows", "decode1"], "no row is named 'decode1'; there are served, long, find"),
    (["--rows", "none"], "--rows none leaves nothing to measure without --streams"),
    (["--rows", "find", "--engines", "vllm"], "the row find measures Pinion only; add pinion to --engines"),
    (["--rounds", "0"], "--rounds 0 is too small; give 1 or more"),
    (["--long-prompt", "1"], "--long-prompt 1 is too small; give 64 or more"),
    (["--cpus", "0-x"], "--cpus 0-x is not a list of CPUs that may be used here"),
    (["--json", "/nowhere/out.json"], "cannot write /nowhere/out.json: its folder does not exist"),
    (["--rows", "served"], "Pinion ended with status 1: `taskset -c 0 "),
    (["--rows", "none", "--streams", "5"], "scripts/serving/streams.py failed: "),
])
def test_refusals_are_one_sentence(bench, words, sentence):
    done = bench(*words)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("bench-serving: ")
    assert sentence in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
