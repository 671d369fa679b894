"""The main job on the real engine: a sweep that is killed, resumed, interrupted, and whose trials are
killed or stopped under it, loses nothing that was finished and leaves no process behind."""

import dataclasses
import json
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import time

import jsonschema
import pytest

DEFINITION = {
    "candidates": [{"threads_bind": "nobind"}, {"threads_bind": "0-9999"}],
    "workload": {"prompt_len": 64, "output_len": 16, "concurrency": [1, 2], "num_prompts": 4},
    "objectives": ["throughput", "latency", "balanced"],
    "rounds": 2,
    "seed": 3,
    "trial_limit": 2,
}
# Half a second for every trial, so that it can be met alive.
LONG = ("--num-prompts", "40")
SLOTS = 3  # of a round: two feasible candidates, the baseline twice
TRIALS = 2 * SLOTS


@pytest.fixture
def definition(tmp_path):
    path = tmp_path / "definition.json"
    path.write_text(json.dumps(DEFINITION))
    return path


@pytest.fixture
def start(spawn, definition, tmp_path):
    """start(FLAGS...) -> Popen of a sweep into tmp_path/out; ended after the test."""

    def run(*flags, **process):
        return spawn("sweep", "preset:tiny", "--def", definition, "--out", tmp_path / "out", *flags,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, **process)

    return run


@dataclasses.dataclass
class Finished:
    """A sweep that ended well: where, how it was asked for (but for the trial limit), and what it printed."""

    out: pathlib.Path
    definition: pathlib.Path
    flags: tuple
    stdout: str

    def command(self, binary, *flags):
        return [str(binary), "sweep", "preset:tiny", "--def", str(self.definition), "--out", str(self.out), *self.flags,
                *flags]


@pytest.fixture(scope="module")
def finished(binary, tmp_path_factory):
    """One for all tests that only read it, or try to go on with it."""
    folder = tmp_path_factory.mktemp("finished")
    sweep = Finished(folder / "out", folder / "definition.json", ("--rounds", "3", "--strategy", "grid"), "")
    sweep.definition.write_text(json.dumps(DEFINITION))
    done = subprocess.run(sweep.command(binary, "--trial-limit", "7s", "--json"), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=240)
    assert done.returncode == 0, done.stderr
    sweep.stdout = done.stdout
    return sweep


@pytest.fixture
def go_on(finished, binary):
    """go_on(FLAGS...) -> the exit status and what was said, of another command for the finished sweep's folder."""

    def run(*flags, **process):
        done = subprocess.run(finished.command(binary, "--resume", *flags), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60, **process)
        return done.returncode, done.stderr

    return run


def rows(out, query):
    """What a query of the sweep's database gives; nothing while it is not there yet."""
    try:
        with sqlite3.connect(f"file:{out / 'results.db'}?mode=ro", uri=True, timeout=10) as database:
            return database.execute(query).fetchall()
    except sqlite3.OperationalError:
        return []


def trials(out):
    """All that is stored; a disturbed machine adds repetitions (attempt 1)."""
    return rows(out, "select candidate, copy, round, ok, started_at, id, phase, attempt from trial")


def raced(out):
    """The first attempts of the race's rounds: these are the same whatever disturbs the machine."""
    return [row for row in trials(out) if row[6] == "race" and row[7] == 0]


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError(f"no {what} within {seconds} s")


def trial_children(parent):
    """Live trial processes whose parent is `parent`, or that outlived it."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended while we looked
        is_trial = len(words) > 1 and words[1] == b"trial"
        if is_trial and fields[0] != "Z" and int(fields[1]) == parent:
            found.append(int(entry.name))
    return found


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def check_results(out, top):
    """results.json and the profiles, as their schemas say."""
    def read(path):
        return json.loads(path.read_text())

    for path in (out / "profiles").glob("*.json"):
        jsonschema.validate(read(path), read(top / "profiles" / "profile.schema.json"))
    results = read(out / "results.json")
    jsonschema.validate(results, read(top / "profiles" / "results.schema.json"))
    return results


def check_outputs(out):
    for name in ("results.json", "results.csv", "report.md", "report.html", "profiles/throughput.json",
                 "profiles/latency.json", "profiles/balanced.json"):
        assert (out / name).stat().st_size > 0, name
    return json.loads((out / "results.json").read_text())


def test_killed_sweep_goes_on_and_loses_no_finished_trial(start, tmp_path):
    out = tmp_path / "out"
    sweep = start(*LONG)
    wait_for(lambda: len(raced(out)) >= 2, "two finished trials of the race")
    child = wait_for(lambda: trial_children(sweep.pid), "running trial")
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    wait_for(lambda: not any(is_running(pid) for pid in child), "end of the orphaned trial")
    kept = trials(out)
    assert 2 <= len(raced(out)) < TRIALS

    refused = start()
    assert refused.wait(60) == 2
    assert "--resume" in refused.stderr.read()

    resumed = start("--resume", *LONG)
    stdout, stderr = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, stderr
    assert set(kept) <= set(trials(out)), "a finished trial was changed or lost"
    after = raced(out)
    assert len(after) == TRIALS
    assert len({(candidate, copy, number) for candidate, copy, number, *_ in after}) == TRIALS
    results = check_outputs(out)
    assert len(results["candidates"]) == 3
    assert "report.html" in stdout and "launch" in stdout


def test_ten_kills_at_random_moments_lose_no_finished_trial(start, tmp_path):
    out = tmp_path / "out"
    moments = random.Random(20261121)
    kept, samples = set(), set()
    reach_s = 1.2  # until a trial has ended within it, however slow the machine
    for kill in range(10):
        sweep = start(*(["--resume"] if (out / "results.db").exists() else []), *LONG)
        # Anywhere between "nothing is open yet" and "in the second trial".
        time.sleep(moments.uniform(0.05, reach_s))
        sweep.send_signal(signal.SIGKILL)
        sweep.wait()
        now = set(trials(out))
        assert kept <= now, f"kill {kill} lost {kept - now}"
        kept = now
        # Whole, as they were when their trial ended.
        now = set(rows(out, "select trial, metric, concurrency, value from samples"))
        assert samples <= now, f"kill {kill} lost {samples - now}"
        samples = now
        assert {trial for trial, *_ in samples} == {row[5] for row in kept if row[3]}
        if not kept:
            reach_s *= 1.5
    assert kept, "ten moments, and not one trial had ended"
    resumed = start("--resume", "--rounds", "1", *LONG)
    _, stderr = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, stderr
    assert kept <= set(trials(out))
    samples = rows(out, "select count(*) from samples where trial not in (select id from trial)")
    assert samples == [(0,)], "samples without their trial"


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


def test_ctrl_c_ends_in_order_with_everything_written(start, tmp_path):
    out = tmp_path / "out"
    sweep = start("--rounds", "50", *LONG)
    wait_for(lambda: len(raced(out)) >= SLOTS, "first round")
    child = wait_for(lambda: trial_children(sweep.pid), "running trial")
    sweep.send_signal(signal.SIGINT)
    stdout, stderr = sweep.communicate(timeout=60)
    assert sweep.returncode == 1
    assert "--resume continues" in stderr
    assert not any(is_running(pid) for pid in child)
    check_outputs(out)


def break_a_trial(sweep, out, number):
    """Sends a signal to running trials, after the first round (whose trials may last longer, for what
    they measure once), until one of them has failed: a trial may be over by the time that the signal
    reaches it."""
    wait_for(lambda: len(raced(out)) >= SLOTS, "first round")
    while sweep.poll() is None:
        before = len(trials(out))
        child = wait_for(lambda: trial_children(sweep.pid) or sweep.poll() is not None, "trial")
        assert child is not True, "the sweep was over before one of its trials could be broken"
        try:
            os.kill(child[0], number)
        except ProcessLookupError:
            continue
        wait_for(lambda: len(trials(out)) > before or sweep.poll() is not None, "next row")
        if any(not ok for _, _, _, ok, *_ in trials(out)):
            return


@pytest.mark.parametrize("number, reason", [(signal.SIGSEGV, "signal 11"), (signal.SIGSTOP, "hung")])
def test_a_trial_that_crashes_or_hangs_is_a_row_not_the_end(start, tmp_path, number, reason):
    out = tmp_path / "out"
    sweep = start("--rounds", "3", *LONG)
    break_a_trial(sweep, out, number)
    stdout, stderr = sweep.communicate(timeout=180)
    assert sweep.returncode == 0, stderr
    failed = rows(out, "select reason, log_path, candidate, round from trial where not ok")
    # A machine that is busy enough may let another one hang: never fewer, and never the end.
    broken = [row for row in failed if reason in row[0]]
    assert broken, failed
    assert all((out / log).exists() for _, log, *_ in failed)
    _, _, candidate, number = broken[0]
    measured = {(each, of_round) for each, _, of_round, ok, *_ in trials(out) if ok}
    assert {each for each, _ in measured} == {0, 1}
    # The other one may have been dropped by then, on a machine that disturbed it.
    later = {each for each, _, of_round, *_ in trials(out) if of_round > number}
    assert number == 3 or candidate in later, "the broken one is tried in its next round"
    check_outputs(out)


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


def test_bench_json_holds_its_contract(pinion_json):
    report = pinion_json("bench", "preset:tiny", "--prompt-len", "32", "--output-len", "8", "--json")
    for rate in ("prefill_tokens_per_s", "decode_tokens_per_s"):
        assert 0 < report[rate]["low"] <= report[rate]["median"] <= report[rate]["high"]
    assert report["load_s"] > 0 and report["peak_rss_bytes"] > 0 and report["threads"] >= 1
    assert isinstance(report["isa"], str) and report["config"]["model"] == "preset:tiny"


def test_bench_needs_no_lengths(pinion_json):
    """preset:tiny takes 512 tokens, and 64 of them are the answer."""
    report = pinion_json("bench", "preset:tiny", "--rounds", "1", "--json")
    assert (report["prompt_len"], report["output_len"]) == (448, 64)


def test_a_replay_of_planted_effects_holds_its_contract(binary, tmp_path):
    noise = tmp_path / "noise.csv"
    random_speeds = random.Random(5)
    noise.write_text("t_s,speed\n" + "".join(f"{i},{random_speeds.gauss(100, 1)}\n" for i in range(500)))
    planted = tmp_path / "effects.json"
    planted.write_text(json.dumps({"configurations": {"default": 1, "fast": 1.1, "slow": 0.8}}))
    command = [str(binary), "sweep", "--replay", str(noise), "--planted", str(planted)]
    done = subprocess.run([*command, "--metric", "speed", "--seeds", "50", "--json"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {"seeds", "winners", "interval_coverage", "regret_p95", "cost_fraction_p50",
            "budget_overrun_p95", "floor_p50"} <= set(report)
    assert report["seeds"] == 50 and report["winners"] == {"fast": 50, "slow": 0, "none": 0}
    assert report["regret_p95"] == 0 and report["interval_coverage"] >= 0.9
    refused = subprocess.run([*command, "--metric", "pace"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "no column 'pace'; it has t_s, speed" in refused.stderr


def test_a_recorded_sweep_replays_without_its_engine(finished, binary):
    done = subprocess.run([str(binary), "sweep", "--replay", str(finished.out / "results.db"),
                           "--seeds", "20", "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["default"] == "default" and sum(report["winners"].values()) == 20
