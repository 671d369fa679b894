"""pinion launch: what a profile starts, and what it refuses."""

import json
import os
import subprocess

import jsonschema
import pytest


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
def test_a_file_that_is_no_profile_is_named(launch, text):
    done = launch(text)
    assert done.returncode == 1
    assert "profile.json" in done.stderr


def test_missing_file_and_bad_flags(pinion, tmp_path):
    assert pinion("launch", tmp_path / "none.json").returncode == 1
    assert pinion("launch").returncode == 2
    assert pinion("launch", tmp_path / "none.json", "--port", "70000").returncode == 2
