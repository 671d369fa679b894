"""A sweep of a server that is not Pinion's engine: started, checked, loaded and stopped by the
harness. The server answers after known times (fixed_server.py)."""

import json
import os
import pathlib
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest

from conftest import ours, wait_until
from fixed_engine import FIXED, ITL_MS, LIGHT, OUTPUT, PROMPTS, TTFT_MS, define, engine
from fixed_server import WARM_UP
from sweep_runs import rows


def servers():
    """Processes of this worker that run the fixed server."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(FIXED).encode() in (entry / "cmdline").read_bytes() \
                    and ours(entry):
                found.append(int(entry.name))
        except OSError:
            pass  # it ended while we looked
    return found


def values(out, metric, concurrency, candidate):
    """One for each trial, in their order."""
    return [row[0] for row in rows(out, "select value from samples where metric=? and concurrency=? and candidate=? "
                                        "order by trial", metric, concurrency, candidate)]


def gaps_us(packed):
    """The numbers of a `token_us`: seven bits a byte, the lowest first; the eighth says that more follow."""
    numbers, number, bits = [], 0, 0
    for byte in packed:
        number |= (byte & 127) << bits
        bits += 7
        if byte < 128:
            numbers.append(number)
            number = bits = 0
    return numbers


def whole_load(out, trial):
    """(tokens, seconds) of all requests of four clients: until the last token, or until the load was cut off."""
    requests = [(sent_ns, ended_ns, cut, gaps_us(packed)) for sent_ns, ended_ns, cut, packed in rows(
        out, "select sent_ns, ended_ns, cut, token_us from requests where trial = ? and load = 'clients' and concurrency = 4 "
             "and (cut or error = '')", trial)]
    is_cut = any(cut for _, _, cut, _ in requests)
    end_ns = max(ended_ns if is_cut else sent_ns + 1000 * sum(gaps) for sent_ns, ended_ns, _, gaps in requests)
    return sum(len(gaps) for *_, gaps in requests), (end_ns - min(request[0] for request in requests)) / 1e9


@pytest.fixture
def no_server_left():
    before = set(servers())
    yield
    assert wait_until(lambda: set(servers()) <= before)


def test_sweeps_any_server(pinion, tmp_path, no_server_left):
    out, logs = tmp_path / "out", tmp_path / "answers"
    logs.mkdir()
    # The server has as many places as a candidate's max_num_seqs says.
    definition = define(tmp_path, engine("--slots", "{max_num_seqs}", "--count", "--log",
                                         str(logs / "{max_num_seqs}-PID")))
    done = pinion("sweep", "some/model", "--def", definition, "--out", out, "--max-num-seqs", 8,
                  timeout=300)
    assert done.returncode == 0, done.stderr
    results = json.loads((out / "results.json").read_text())
    assert [one["status"] for one in results["candidates"]] == ["ok", "ok"]
    assert (out / "report.html").stat().st_size > 0
    # Nothing is faster than it can be: the times are the server's.
    whole_s = (TTFT_MS + (OUTPUT - 1) * ITL_MS) / 1e3
    for candidate in (0, 1):
        times = [values(out, metric, 1, candidate) for metric in ("ttft_s", "tpot_s", "e2el_s")]
        for ttft_s, tpot_s, e2el_s in zip(*times, strict=True):
            assert ttft_s >= TTFT_MS / 1e3 and e2el_s >= whole_s
            # Each answer takes its first token's time and its gaps', the least of the former and of
            # the sum are known, and of an odd number at least one request is at or below any two
            # medians: so the gaps' median has bounds that hold however slow the machine is.
            gaps_s = (OUTPUT - 1) * tpot_s
            assert whole_s - ttft_s <= gaps_s + 1e-9 and gaps_s <= e2el_s - TTFT_MS / 1e3 + 1e-9
    # With one place four clients wait for each other: whatever disturbs them, it makes nothing faster. That holds for
    # all requests together. The window that counts begins and ends with a request whose end may be read late: its rate
    # is that of the tokens that came in it, which are those of the requests that ended in it, and of one for each client
    # at most. On a busy machine a load may end by its time with too few requests for a steady part: then all of it counts.
    taken = rows(out, "select sum(not cut), max(ended_ns) - min(sent_ns) from requests join trial on trial.id = trial "
                      "where candidate = 1 and requests.load = 'clients' and concurrency = 4 group by trial")
    assert taken and all(count * whole_s <= ns / 1e9 for count, ns in taken)
    windows = [(trial, window) for trial, info in rows(out, "select id, info from trial where candidate = 1 order by id")
               for window in json.loads(info)["windows"] if window["concurrency"] == 4]
    for rate, (trial, window) in zip(values(out, "output_tokens_per_s", 4, 1), windows, strict=True):
        if window["start_s"] is None and window["end_s"] is None:
            assert window["by_time"] is True
            tokens, seconds = whole_load(out, trial)
            assert rate == pytest.approx(tokens / seconds, rel=1e-4), "times of tokens are kept in microseconds"
        else:
            tokens = rate * (window["end_s"] - window["start_s"])
            assert tokens == pytest.approx(round(tokens), abs=1e-3)
            assert abs(tokens - window["requests"] * OUTPUT) < 4 * OUTPUT + 0.5
    # Every trial had a server of its own, with the candidate's places, to which one client and the
    # whole batch were connected at once.
    for candidate, places in (0, 8), (1, 1):
        answers = list(logs.glob(f"{places}-*"))
        assert len(answers) == len(values(out, "e2el_s", 1, candidate)) > 0
        for log in answers:
            at_once = [json.loads(line)["connections"] for line in log.read_text().splitlines()]
            # The warm-up's connections may still be closing when the batch's are open. Whether all four
            # clients are ever seen at once is the machine's to say.
            assert 1 in at_once and PROMPTS <= max(at_once) <= PROMPTS + WARM_UP


@pytest.mark.parametrize("command, limit_s, says", [
    ([sys.executable, "-c", "import sys; sys.exit('out of luck')"], 60, "ended with exit code 1"),
    (["/no/such/program"], 60, "ended with exit code 127"),
    (["sleep", "100"], 1, "not ready within 1 s"),
])
def test_a_server_that_does_not_start_is_told_with_its_log(pinion, tmp_path, command, limit_s, says):
    out = tmp_path / "out"
    definition = define(tmp_path, {"command": command, "start_timeout": limit_s})
    done = pinion("sweep", "some/model", "--def", definition, "--out", out, timeout=120)
    assert done.returncode == 1
    assert says in done.stderr
    logs = "".join(path.read_text() for path in (out / "logs").iterdir())
    assert says in logs
    if "luck" in str(command):
        assert "out of luck" in logs


def test_a_build_of_ours_that_is_never_ready_is_told_before_its_trial_is_killed(pinion, tmp_path):
    """Its time is the trial's: five times the limit, most of it for the start."""
    out, build = tmp_path / "out", tmp_path / "build"
    build.write_text("#!/bin/sh\nexec sleep 600\n")
    build.chmod(0o755)
    # A budget for one trial: a busy machine's would be tried six times.
    definition = define(tmp_path, {"engine": "pinion", "binary": str(build)}, trial_limit=1, budget=4)
    done = pinion("sweep", "preset:tiny", "--def", definition, "--out", out, timeout=120)
    assert done.returncode == 1
    (reason, info), = rows(out, "select reason, info from trial")
    assert reason.startswith("the server was not ready within ") and "raise --trial-limit" in reason
    assert json.loads(info)["out_of_time_s"] == 1
    assert reason in done.stderr


def test_killed_sweep_leaves_no_server(spawn, tmp_path, no_server_left):
    definition = define(tmp_path, engine(), rounds=50)
    for number in (signal.SIGKILL, signal.SIGTERM):
        sweep = spawn("sweep", "some/model", "--def", definition, "--out", tmp_path / f"out{number}")
        assert wait_until(servers)
        os.kill(sweep.pid, number)
        sweep.wait(30)
        assert wait_until(lambda: not servers())


def test_bystanders_live_on(spawn, pinion, tmp_path, no_server_left):
    """The same program, started independently, beside a sweep that ends and one that is killed."""
    port = tmp_path / "bystander.log"
    command = [sys.executable, str(FIXED), "--port", "0"]
    with open(port, "wb") as log:
        ours = subprocess.Popen(command, stderr=log)  # in the test's own process group
        theirs = subprocess.Popen(command, stderr=log, start_new_session=True)
    bystanders = {ours.pid, theirs.pid}
    try:
        assert wait_until(lambda: port.read_text().count("fixed server on port") == 2)
        definition = define(tmp_path, engine(), workload=LIGHT)
        done = pinion("sweep", "some/model", "--def", definition, "--out", tmp_path / "ends",
                      timeout=300)
        assert done.returncode == 0, done.stderr
        assert set(servers()) == bystanders
        sweep = spawn("sweep", "some/model", "--def", definition, "--out", tmp_path / "killed")
        assert wait_until(lambda: set(servers()) > bystanders)
        sweep.kill()
        sweep.wait(30)
        assert wait_until(lambda: set(servers()) == bystanders)
        assert ours.poll() is None and theirs.poll() is None
    finally:
        for bystander in (ours, theirs):
            bystander.kill()
            bystander.wait()


def test_the_generator_and_the_counters_are_kept_with_every_trial(pinion, tmp_path):
    out = tmp_path / "out"
    definition = define(tmp_path, engine(), workload=LIGHT)
    done = pinion("sweep", "some/model", "--def", definition, "--out", out, timeout=300)
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(out / "results.db") as database:
        infos = [json.loads(row[0]) for row in database.execute("select info from trial")]
        shares = [row[0] for row in database.execute(
            "select value from samples where metric = 'generator_cpu_share'")]
    assert len(shares) == len(infos) and all(0 < share < 2 for share in shares)
    for info in infos:
        assert info["generator"]["cpus"]
        assert 0 <= info["generator"]["late_share"] <= 1
        assert info["counters"]  # each source, or why it is not there
        for found in info["counters"].values():
            assert isinstance(found, dict) or found.startswith("not available, because ")


def test_finds_the_load_that_meets_the_slo(pinion, tmp_path):
    """With more than 3 clients the tokens of an answer come apart, and until then in one piece, for
    which there is no time between them."""
    out = tmp_path / "out"
    definition = define(tmp_path, engine("--knee", "3"), budget="10m", trial_limit=120,
                        workload={"prompt_len": 20, "output_len": 2, "concurrency": [1],
                                  "num_prompts": 8,
                                  "slo": {"tpot": "0.0001ms", "load": "concurrency"}})
    done = pinion("sweep", "some/model", "--def", definition, "--out", out, timeout=300)
    assert done.returncode == 0, done.stderr
    results = json.loads((out / "results.json").read_text())
    for candidate in results["candidates"]:
        slo = candidate["slo"]
        assert slo["unit"] == "clients"
        assert slo["pass"]["load"] == 3 and slo["fail"]["load"] == 4
        assert slo["pass"]["low"] <= slo["pass"]["share"] <= slo["pass"]["high"]
        assert slo["pass"]["share"] == 1 and slo["fail"]["share"] < 0.9
    assert all(3 <= value < 4 for value in values(out, "slo_load", 0, 1))


@pytest.mark.skipif(not shutil.which("llama-server") or not os.environ.get("PINION_TEST_GGUF"),
                    reason="needs llama-server on the PATH and a model for it in PINION_TEST_GGUF")
def test_sweeps_llama_server(pinion, tmp_path):
    out = tmp_path / "out"
    definition = define(tmp_path, "llama.cpp", candidates=[{"max_num_batched_tokens": 64}],
                        trial_limit=60)
    done = pinion("sweep", os.environ["PINION_TEST_GGUF"], "--def", definition, "--out", out,
                  timeout=600)
    assert done.returncode == 0, done.stderr
    assert "llama-server -m" in done.stdout
    assert values(out, "tpot_s", 4, 1) and not servers()


def test_settings_of_ours_alone_are_left_out_with_the_reason(pinion, tmp_path):
    out = tmp_path / "out"
    definition = define(tmp_path, engine(), candidates=[{"isa": "scalar"}], workload=LIGHT)
    done = pinion("sweep", "some/model", "--def", definition, "--out", out, timeout=120)
    assert done.returncode == 0, done.stderr
    status = json.loads((out / "results.json").read_text())["candidates"][1]
    assert status["status"] == "infeasible"
    assert "isa" in status["reason"]


def test_engines_and_builds_stand_in_one_race(pinion, binary, tmp_path, no_server_left):
    """This program, a copy of it as another build, and a server of its own kind: each with its own
    settings, all in the same rounds."""
    out, seen, build = tmp_path / "out", tmp_path / "seen", tmp_path / "other-build"
    seen.mkdir()
    shutil.copy(binary, build)
    fixed = engine("--log", str(seen / "PID"))
    path = define(tmp_path, fixed, engines=["pinion", {"name": "build", "binary": str(build)}, fixed],
                  axes={"max_num_seqs": [4, 8], "--slots": [2], "env.LOUD": [1, None]},
                  when={"max_num_seqs": {"engine": "build"}, "env.LOUD": {"engine": "pinion"}},
                  candidates=[{"engine": "pinion", "isa": "scalar"}], rounds=2, budget="90s",
                  objectives=["throughput"], workload=LIGHT)
    done = pinion("sweep", "preset:tiny", "--def", path, "--out", out, timeout=300)
    assert done.returncode == 0, done.stderr
    results = json.loads((out / "results.json").read_text())
    found = {one["label"]: one for one in results["candidates"]}
    assert list(found) == ["pinion: default", "pinion: env.LOUD=1", "pinion: isa=scalar",
                           "build: default", "build: max_num_seqs=4", "build: max_num_seqs=8",
                           "fixed: default", "fixed: --slots=2"]
    for label, one in found.items():
        assert one["engine"] == label.split(":")[0]
        assert one["status"] in ("ok", "dropped"), one
    # Interleaved: the first round has all of them.
    with sqlite3.connect(out / "results.db") as database:
        first = database.execute("select distinct candidate from trial where phase = 'race' and round = 1")
        assert len(first.fetchall()) == len(found)
    report = (out / "report.md").read_text()
    for text in "pinion with its defaults", "build with its defaults", "fixed: --slots=2", "pinion: env.LOUD=1":
        assert f"| {text} |" in report.replace("\\_", "_")
    # A build is told from the program that sweeps, and a resume with another file is refused.
    build.write_bytes(build.read_bytes() + b"\0")
    again = pinion("sweep", "preset:tiny", "--def", path, "--out", out, "--resume", timeout=60)
    assert again.returncode == 2 and "another file of an engine" in again.stderr, again.stderr


def test_an_engines_own_settings_reach_its_command(pinion, tmp_path, no_server_left):
    out, seen = tmp_path / "out", tmp_path / "seen"
    seen.mkdir()
    choice = engine("--log", str(seen / "PID"))
    path = define(tmp_path, choice, axes={"--slots": ["{max_num_seqs}", None]}, candidates=[], workload=LIGHT)
    done = pinion("sweep", "some/model", "--def", path, "--out", out, "--max-num-seqs", 3, timeout=120)
    assert done.returncode == 0, done.stderr
    results = json.loads((out / "results.json").read_text())
    commands = {one["label"]: one["command"] for one in results["candidates"]}
    assert "--slots 3" in commands["--slots={max_num_seqs}"]
    assert "--slots" not in commands["default"]


@pytest.mark.parametrize("changes, says", [
    ({"engines": ["pinion", "pinion"]}, "two of 'engines' are named 'pinion'"),
    ({"engines": [{"name": "x", "binary": "/no/such/pinion"}]}, "/no/such/pinion, which is not an executable program"),
    ({"engines": []}, "'engines' must be a list of at least one engine"),
    ({"engine": "vllm"}, "unknown key 'engine' in the sweep definition"),
    ({"axes": {"-q": [1]}, "when": {"-q": {"engine": "vllm"}}}, "no engine is named 'vllm'"),
    ({"axes": {"-q": [1]}, "when": {"-r": {"engine": "fixed"}}}, "'-r', which is not in 'axes'"),
    ({"axes": {"env.X": [[1]]}}, "a value of 'env.X' must be text, a number"),
    ({"candidates": [{"engine": "vllm", "isa": "avx2"}]}, "no engine is named 'vllm'"),
])
def test_bad_engines_are_told_in_a_sentence(pinion, tmp_path, changes, says):
    path = define(tmp_path, engine(), **changes)
    done = pinion("sweep", "preset:tiny", "--def", path, "--out", tmp_path / "out", timeout=60)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


def test_engine_flag_names_the_known_engines(pinion, tmp_path):
    done = pinion("sweep", "some/model", "--engine", "gpu", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "pinion, vllm, llama.cpp, command" in done.stderr
    done = pinion("sweep", "preset:tiny", "--engine", "llama.cpp", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "GGUF" in done.stderr


def test_a_command_line_that_a_report_tells_can_be_typed_again(pinion, binary, tmp_path, no_server_left):
    """In a budget of one trial, of which the report says so too: the defaults could be measured."""
    out = tmp_path / "my out"
    words = ["sweep", "some/model", "--engine", json.dumps(engine()), "--out", str(out), "--objectives", "throughput",
             "--concurrency", "1", "--num-prompts", "2", "--prompt-len", "8", "--output-len", "2", "--budget", "100ms"]
    done = pinion(*words, timeout=120)
    assert done.returncode == 0, done.stderr
    results = json.loads((out / "results.json").read_text())
    assert shlex.split(results["command_line"]) == [str(binary), *words]
    assert results["answer"] == "No verdict: the budget was spent before the first round was whole."
    assert any("raise the budget" in one for one in results["warnings"])
