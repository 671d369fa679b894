"""pinion launch: what a profile starts, and what it refuses."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import urllib.error

import jsonschema
import pytest
from conftest import wait_until
from process_tree import children_of
from test_mpi import ENVIRONMENT, MPIRUN


@pytest.fixture
def schema(top):
    return json.loads((top / "profiles" / "profile.schema.json").read_text())


@pytest.fixture
def profile():
    return {
        "format": 2,
        "objective": "throughput",
        "model": "preset:tiny",
        "configuration": {"threads_bind": "nobind", "max_num_seqs": 8, "kv_cache_space": 0.5,
                          "allocator": "system"},
        "machine": {"cpu_model": "A CPU from elsewhere"},
        "cpus": [0],
    }


@pytest.fixture
def launch(pinion, tmp_path):
    """launch(profile, flags...) -> CompletedProcess of `pinion launch FILE flags...`."""

    def run(profile, *flags, **options):
        file = tmp_path / "profile.json"
        file.write_text(profile if isinstance(profile, str) else json.dumps(profile))
        return pinion("launch", file, *flags, **options)

    return run


def test_dry_run_prints_the_command_and_says_that_the_machine_is_another(launch, profile, schema):
    jsonschema.validate(profile, schema)
    done = launch(profile, "--dry-run", "--port", 1234, "--served-model-name", "a name")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert " serve preset:tiny --threads-bind nobind " in done.stdout
    assert "--port 1234 --served-model-name 'a name' --from-profile " in done.stdout
    assert "A CPU from elsewhere" in done.stderr


def test_a_profile_from_a_pipe_is_read_once(binary, profile):
    done = subprocess.run([binary, "launch", "/dev/stdin", "--dry-run"], input=json.dumps(profile), text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 0 and "--from-profile" not in done.stdout


def test_dry_run_as_json(launch, profile):
    done = launch(profile, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["command"][1:3] == ["serve", "preset:tiny"]
    assert plan["environment"] == {}
    assert any("A CPU from elsewhere" in warning for warning in plan["warnings"])


def test_a_profile_is_planned_again_within_the_cpus_that_it_gets(launch, profile):
    first, second, *_ = [*sorted(os.sched_getaffinity(0)), None]
    if second is None:
        pytest.skip("there is one CPU")
    profile["configuration"]["threads_bind"] = str(first)
    profile["evidence"] = {"plan": {"ranks": [{"cpus": [first]}], "frontend_cpus": []}}
    done = launch(profile, "--dry-run", "--json", preexec_fn=lambda: os.sched_setaffinity(0, {second}))
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["command"][plan["command"].index("--threads-bind") + 1] == str(second)
    warnings = "\n".join(plan["warnings"])
    assert f"threads_bind is {second} in place of the profile's {first}" in warnings
    assert f"1 thread on CPU {second}; measured: 1 thread on CPU {first}" in warnings


def test_launch_becomes_the_server_that_the_profile_describes(start_server, profile, tmp_path):
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(profile))
    server = start_server(file, "--served-model-name", "launched", command="launch")
    assert json.loads(server.get("/v1/models"))["data"][0]["id"] == "launched"
    reply = server.post("/v1/completions", {"model": "launched", "prompt": "a", "max_tokens": 3,
                                            "ignore_eos": True})
    assert reply["usage"]["completion_tokens"] == 3
    assert "A CPU from elsewhere" in server.log.read_text()
    assert server.stop() == 0


@pytest.mark.parametrize("change, said", [
    ({"model": "/no/such/model"}, "/no/such/model"),
    ({"model": "--version"}, "flag"),
    ({"configuration": {"allocator": "/tmp/evil.so"}}, "/tmp/evil.so"),
    ({"configuration": {"threads_bind": "0;reboot"}}, "0;reboot"),
    ({"configuration": {"max_num_seqs": 10**30}}, "max_num_seqs"),
    ({"configuration": {"made_up": 1}}, "made_up"),
    ({"cpus": [-1]}, "cpus"),
    ({"format": 1}, "format 1"),
    ({"surprise": 1}, "surprise"),
])
def test_an_impossible_launch_is_one_sentence_and_exit_code_1(launch, profile, change, said):
    done = launch({**profile, **change})
    assert done.returncode == 1
    assert done.stdout == ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("pinion: ")]
    assert len(errors) == 1
    assert said in errors[0]


@pytest.mark.parametrize("text", ["", "{", "[" * 100000, "null", "\x00\xff", '"profile"'])
def test_a_file_that_is_not_a_profile_is_named(launch, text):
    done = launch(text)
    assert done.returncode == 1
    assert "profile.json" in done.stderr


def test_missing_file_and_bad_flags(pinion, tmp_path):
    assert pinion("launch", tmp_path / "none.json").returncode == 1
    assert pinion("launch").returncode == 2
    assert pinion("launch", tmp_path / "none.json", "--port", "70000").returncode == 2


def only_child(pid):
    """The process that this one has started; None while there is none."""
    return next(iter(children_of(pid)), None)


def is_alive(pid):
    try:
        return ") Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.fixture
def kept(start_server, profile, tmp_path):
    """A server that is started again, with what keeps it."""
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(profile))
    return start_server(file, "--restart", command="launch")


def answers(server):
    try:
        reply = server.post("/v1/completions", {"model": "preset:tiny", "prompt": "a", "max_tokens": 3,
                                                "ignore_eos": True})
        return reply["usage"]["completion_tokens"] == 3
    except (urllib.error.URLError, ConnectionError):
        return False


def test_a_server_that_was_killed_is_ready_again_and_answers(kept):
    assert answers(kept)
    first = only_child(kept.process.pid)
    engine = only_child(first)
    os.kill(first, signal.SIGKILL)
    assert wait_until(lambda: only_child(kept.process.pid) not in (None, first) and answers(kept))
    assert wait_until(lambda: not is_alive(engine)), "an engine without a server"
    assert "the server was ended by signal 9 (Killed); starting it again in 1 s" in kept.log.read_text()
    last = only_child(kept.process.pid)
    assert kept.stop() == 0
    assert not is_alive(last)


def test_a_server_does_not_outlive_its_supervisor(kept):
    server = only_child(kept.process.pid)
    engine = only_child(server)
    kept.process.kill()
    assert wait_until(lambda: not is_alive(server) and not is_alive(engine))


def test_a_server_that_refuses_its_flags_is_not_started_again(launch, profile):
    done = launch(profile, "--restart", "--allowed-hosts", "no/host")
    assert done.returncode == 2
    assert "starting it again" not in done.stderr and "no/host" in done.stderr


@pytest.mark.parametrize("flags, said", [
    (["--port", 0], "wants a --port"),
    (["--dry-run"], "--dry-run"),
])
def test_restart_wants_a_server_that_can_be_found_again(launch, profile, flags, said):
    done = launch(profile, "--restart", *flags)
    assert done.returncode == 2 and said in done.stderr


def test_restart_is_not_for_processes_that_mpirun_has_started(launch, profile):
    done = launch(profile, "--restart", env={"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"})
    assert done.returncode == 2 and "launch PROFILE --restart -- mpirun" in done.stderr


@pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no mpirun")
def test_a_model_of_several_processes_that_loses_one_is_started_again(start_server, profile, tmp_path):
    profile["configuration"] = {"threads_bind": "nobind", "kv_cache_space": 0.0625, "tensor_parallel": 2}
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(profile))
    kept = start_server(file, "--restart", "--", *MPIRUN, 2, command="launch",
                        env={**ENVIRONMENT, "OMP_NUM_THREADS": "1"})
    assert answers(kept)
    first = only_child(kept.process.pid)
    follower = max(children_of(first))  # mpirun starts the leader first
    os.kill(follower, signal.SIGKILL)
    assert wait_until(lambda: only_child(kept.process.pid) not in (None, first) and answers(kept))
    processes = [only_child(kept.process.pid), *children_of(only_child(kept.process.pid))]
    assert len(processes) == 3
    kept.process.kill()
    assert wait_until(lambda: not any(map(is_alive, processes)))
