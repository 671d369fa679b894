"""Sweeps in trouble that is not their own: a full disk, a second Ctrl-C, an engine that dies at every load, a store of
another version, definitions that make no sense."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess

from fixed_engine import LIGHT, define, engine
from process_tree import descendants_of
from sweep_runs import (LONG, check_outputs, definition, is_running, raced, rows, start,  # noqa: F401: fixtures
                        trial_children, trials, wait_for)


def test_a_full_disk_is_a_sentence_and_with_room_the_sweep_goes_on(small_disk, binary, definition):  # noqa: F811
    disk, prefix = small_disk(4 << 20)
    sweep = f'"$0" sweep preset:tiny --def {definition} --out {disk}/out --rounds 1 --budget 20m'
    # Room for the store and nothing else, then for all.
    script = f"""
        head -c 3700000 /dev/zero > {disk}/filler; {sweep} --num-prompts 40; echo $? > {definition}.first
        rm {disk}/filler; {sweep} --num-prompts 40 --resume; echo $? > {definition}.second"""
    done = subprocess.run([*prefix, "sh", "-c", script, binary], capture_output=True, text=True, timeout=240)
    codes = [pathlib.Path(f"{definition}.{run}").read_text().strip() for run in ("first", "second")]
    assert codes == ["1", "0"], done.stderr
    assert f"no space left to write {disk}/out/results.db; make room" in done.stderr
    assert "report.html" in done.stdout


def catches_interrupts(process):
    """Whether Ctrl-C would call a handler of the process."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), 16)
    return bool(caught >> (signal.SIGINT - 1) & 1)


def stopped_trial(sweep):
    """A trial with a server, stopped: it does not answer when it is asked to end."""
    def one():
        for trial in trial_children(sweep.pid):
            if len(descendants_of(trial)) > 2:  # the generator, the server and its parent
                with contextlib.suppress(OSError):  # it has just ended
                    os.kill(trial, signal.SIGSTOP)
                    return ") T " in pathlib.Path(f"/proc/{trial}/stat").read_text()
        return False
    wait_for(one, "trial that could be stopped")


def test_a_second_ctrl_c_ends_at_once_and_leaves_no_process(start, tmp_path):  # noqa: F811
    out = tmp_path / "out"
    sweep = start("--rounds", "50", *LONG)
    wait_for(lambda: len(raced(out)) >= 1, "finished trial")
    stopped_trial(sweep)  # so that an end in order takes its time
    family = descendants_of(sweep.pid)
    kept = trials(out)
    sweep.send_signal(signal.SIGINT)
    wait_for(lambda: not catches_interrupts(sweep), "answer to the first Ctrl-C")
    sweep.send_signal(signal.SIGINT)
    assert sweep.wait(60) == -signal.SIGINT
    wait_for(lambda: not any(is_running(pid) for pid in family), "end of everything that it had started")
    assert set(kept) <= set(trials(out))
    again = start("--resume", "--rounds", "1", *LONG)
    _, stderr = again.communicate(timeout=120)
    assert again.returncode == 0, stderr
    check_outputs(out)


def test_an_engine_that_dies_at_every_load_is_a_row_not_the_end(pinion, tmp_path):
    out = tmp_path / "out"
    definition = define(tmp_path, engine(), candidates=[], axes={"--exit-at": [6]}, rounds=3,  # noqa: F811
                        objectives=["throughput"], workload=LIGHT)
    done = pinion("sweep", "some/model", "--def", definition, "--out", out, timeout=300)
    assert done.returncode == 0, done.stderr
    failed = rows(out, "select candidate, reason from trial where not ok")
    assert failed == [(1, "the server ended with exit code 3 under load")] * 2, "and it is not tried a third time"
    results = json.loads((out / "results.json").read_text())
    assert [one["status"] for one in results["candidates"]] == ["ok", "failed"]
    assert "exit code 3 under load" in (out / "report.md").read_text()


def test_a_store_of_another_version_is_refused_and_left_as_it_is(pinion, real_sweep, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(real_sweep, out)
    def contents():
        with contextlib.closing(sqlite3.connect(out / "results.db")) as database:
            return list(database.iterdump()), database.execute("pragma user_version").fetchone()[0]

    own = contents()[1]
    with contextlib.closing(sqlite3.connect(out / "results.db")) as database:
        database.execute(f"pragma user_version = {own + 1}")
    before = contents()
    for command in (("report", out), ("sweep", "preset:tiny", "--out", out, "--resume"), ("compare", out, out)):
        done = pinion(*command)
        assert done.returncode in (1, 2)
        assert f"has layout {own + 1}, this version reads layout {own}" in done.stderr
    assert contents() == before
