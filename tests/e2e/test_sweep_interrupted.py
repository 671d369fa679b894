"""A sweep that is killed, interrupted and resumed, and whose trials are killed or stopped under it, loses nothing that
was finished and leaves no process behind."""

import os
import random
import signal
import time

import pytest

from sweep_runs import (LONG, SLOTS, TRIALS, check_outputs, definition, is_running, raced,  # noqa: F401: fixtures
                        rows, start, trial_children, trials, wait_for)


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
