"""Sweeps of preset:tiny on the real engine, which tests kill, resume and look into."""

import dataclasses
import json
import pathlib
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


def rows(out, query, *values):
    """What a query of the sweep's database gives; nothing while it is not there yet."""
    try:
        with sqlite3.connect(f"file:{out / 'results.db'}?mode=ro", uri=True, timeout=10) as database:
            return database.execute(query, values).fetchall()
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
        time.sleep(0.02)  # a fraction of a trial; to look at all processes takes milliseconds of CPU time
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
